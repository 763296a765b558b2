"""Analysis of a system without simulating it: `structure` and its findings.

Read `states` first; the other files build on it. Then each file examines one thing: `initial_state`
violated constraints, closed gaps and consistent states nearby, `redundancy` dependent rows, the
rank of the constraints and whether a singular pose is rigid, `mass` the mass matrix, and whether M
and Q of the user are those of the Lagrangian, `functions` NaN, missing derivatives, and what has no
effect. `structure` runs all of them into `findings`, which `report` prints. In folders of their
own: `equilibrium/` and `stability/` (linear equations about a motion). The derivatives of a motion
belong to this namespace too.
"""

from jaxmech.analysis.equilibrium import Equilibrium as Equilibrium
from jaxmech.analysis.equilibrium import EquilibriumStatus as EquilibriumStatus
from jaxmech.analysis.equilibrium import Stability as Stability
from jaxmech.analysis.equilibrium import equilibrium as equilibrium
from jaxmech.analysis.findings import Finding as Finding
from jaxmech.analysis.findings import Severity as Severity
from jaxmech.analysis.functions import unused_parameters as unused_parameters
from jaxmech.analysis.redundancy import Dependence as Dependence
from jaxmech.analysis.report import Structure as Structure
from jaxmech.analysis.stability import Linearization as Linearization
from jaxmech.analysis.stability import Modes as Modes
from jaxmech.analysis.stability import StateSpace as StateSpace
from jaxmech.analysis.stability import linearize as linearize
from jaxmech.analysis.stability import modes as modes
from jaxmech.analysis.states import State as State
from jaxmech.analysis.structure import structure as structure
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
