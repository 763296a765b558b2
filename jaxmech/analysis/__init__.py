"""Analysis of a system without simulating it: `structure` and its findings.

Read `states` first, the equations at a state and at consistent states nearby. `redundancy` examines
dependent rows, the rank of the constraints and whether a singular pose is rigid, and `structure`
the start, the mass matrix and the functions; it prints all `findings`.

`deviations` defines the equations of motion as a residual, counts degrees of freedom, and has the
derivatives in independent coordinates, of which `linearization` makes linear equations about a
motion. `modes` solves their eigenvalue problem, and `equilibrium` its `equilibrium_equations`. The
derivatives of a motion belong to this namespace too.
"""

from jaxmech.analysis.equilibrium import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium import Stability as Stability
from jaxmech.analysis.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.equilibrium_equations import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.findings import Finding as Finding
from jaxmech.analysis.findings import Severity as Severity
from jaxmech.analysis.linearization import Linearization as Linearization
from jaxmech.analysis.linearization import StateSpace as StateSpace
from jaxmech.analysis.linearization import linearize as linearize
from jaxmech.analysis.modes import Modes as Modes
from jaxmech.analysis.modes import modes as modes
from jaxmech.analysis.redundancy import Dependence as Dependence
from jaxmech.analysis.states import State as State
from jaxmech.analysis.structure import Structure as Structure
from jaxmech.analysis.structure import structure as structure
from jaxmech.analysis.structure import unused_parameters as unused_parameters
from jaxmech.integrate import choose_steps as choose_steps
from jaxmech.run import GradientCheck as GradientCheck
from jaxmech.run import Sensitivities as Sensitivities
from jaxmech.run import check_gradients as check_gradients
from jaxmech.run import sensitivities as sensitivities

__all__ = [
    "Dependence",
    "Equilibrium",
    "EquilibriumStatus",
    "Finding",
    "GradientCheck",
    "Linearization",
    "Modes",
    "Sensitivities",
    "Severity",
    "Stability",
    "StateSpace",
    "Structure",
    "check_gradients",
    "choose_steps",
    "equilibrium",
    "linearize",
    "modes",
    "sensitivities",
    "structure",
]
