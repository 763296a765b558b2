"""The nearest state on the constraints: `point` is the search, `known` the same on the host.

`assemble` uses `point` under `jit` and `vmap`, and `known` where all numbers are known.
"""

from jaxmech.nearest.known import Surface as Surface
from jaxmech.nearest.known import nearest_known as nearest_known
from jaxmech.nearest.point import Level as Level
from jaxmech.nearest.point import nearest as nearest
from jaxmech.nearest.point import nearest_affine as nearest_affine
from jaxmech.nearest.point import some_direction as some_direction
