"""Small deviations from a motion: linear equations and modes.

`balance` defines the equations of motion as a residual and counts degrees of freedom, and
`reduction` has the derivatives in independent coordinates. Users call `linearize`, which makes a
`linearization` with inputs and outputs (`channels`). `spectrum` and `modes` solve the eigenvalue
problem.
"""

from jaxmech.analysis.stability.linearization import Linearization as Linearization
from jaxmech.analysis.stability.linearization import StateSpace as StateSpace
from jaxmech.analysis.stability.linearize import linearize as linearize
from jaxmech.analysis.stability.modes import Modes as Modes
from jaxmech.analysis.stability.modes import modes as modes
