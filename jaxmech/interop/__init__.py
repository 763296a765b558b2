"""Mechanisms and systems from and for other programs.

`mujoco/` reads MJCF and URDF files, `sympy` the models of `sympy.physics.mechanics`. Each needs an
extra, and is imported by its name: `from jaxmech.interop.mujoco import from_mjcf`.
`as_model` makes the `Model` of a mechanism, `model_of` that of a system.
"""

from jaxmech.interop.as_model import as_model as as_model
from jaxmech.interop.as_model import model_of as model_of
