"""The nearest state on the constraints, by one `search` in two ways: `point` and `known`.

`assemble` uses `point` under `jit` and `vmap`, and `known` where all numbers are known.
"""

from jaxmech.nearest.known import Surface as Surface
from jaxmech.nearest.known import nearest_known as nearest_known
from jaxmech.nearest.point import Level as Level
from jaxmech.nearest.point import nearest as nearest
from jaxmech.nearest.point import nearest_affine as nearest_affine
from jaxmech.nearest.search import some_direction as some_direction
