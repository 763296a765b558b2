"""Mechanisms and systems from other programs.

`mujoco/` reads MJCF and URDF files, `sympy` the models of `sympy.physics.mechanics`. Each needs an
extra, and is imported by its name: `from jaxmech.interop.mujoco import from_mjcf`.
"""
