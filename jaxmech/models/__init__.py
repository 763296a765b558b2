"""Example models, one per file, with a sketch, units, parameters and known facts in its docstring.

`model` defines the class `Model`: a system with default parameters and consistent initial states.
`catalogue` finds models by name. The simplest is `pendulum`; `rolling_wheel` has nonholonomic
constraints, `free_body` a singular mass matrix, `four_bars` redundant constraints, and `andrews` is
the largest.
"""

from jaxmech.models.andrews import andrews as andrews
from jaxmech.models.bead_on_parabola import bead_on_parabola as bead_on_parabola
from jaxmech.models.bead_on_rod import bead_on_rod as bead_on_rod
from jaxmech.models.catalogue import CATALOGUE as CATALOGUE
from jaxmech.models.catalogue import make as make
from jaxmech.models.chain import chain as chain
from jaxmech.models.chaplygin_sleigh import chaplygin_sleigh as chaplygin_sleigh
from jaxmech.models.double_pendulum import double_pendulum as double_pendulum
from jaxmech.models.double_pendulum_angles import double_pendulum_angles as double_pendulum_angles
from jaxmech.models.four_bars import four_bars as four_bars
from jaxmech.models.free_body import free_body as free_body
from jaxmech.models.model import Model as Model
from jaxmech.models.model import Values as Values
from jaxmech.models.model import vector as vector
from jaxmech.models.particle_on_curve import particle_on_curve as particle_on_curve
from jaxmech.models.pendulum import pendulum as pendulum
from jaxmech.models.rolling_wheel import rolling_wheel as rolling_wheel

__all__ = [
    "CATALOGUE",
    "Model",
    "andrews",
    "bead_on_parabola",
    "bead_on_rod",
    "chain",
    "chaplygin_sleigh",
    "double_pendulum",
    "double_pendulum_angles",
    "four_bars",
    "free_body",
    "make",
    "particle_on_curve",
    "pendulum",
    "rolling_wheel",
]
