"""Small deviations from a motion: linear equations, modes and Floquet multipliers.

`balance` holds the equations of motion as a residual, `reduction` their derivatives in independent
coordinates, and `linearize` what a user calls; `spectrum` and `modes` solve the eigenvalue problem.
"""

from jaxmech.analysis.stability.floquet import Floquet as Floquet
from jaxmech.analysis.stability.floquet import floquet as floquet
from jaxmech.analysis.stability.linearization import Linearization as Linearization
from jaxmech.analysis.stability.linearization import StateSpace as StateSpace
from jaxmech.analysis.stability.linearize import linearize as linearize
from jaxmech.analysis.stability.modes import Modes as Modes
from jaxmech.analysis.stability.modes import modes as modes
