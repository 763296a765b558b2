"""Analysis of a system without simulating it: `structure` and its findings.

Read `states`, `nearby_states` and `row_dependence` first; the other files build on them. Then each
file examines one thing: `redundancy` the rank of the constraints, `mass` the mass matrix,
`mass_and_force` whether M and Q of the user are those of the Lagrangian, `unused` coordinates and
parameters, `nan_functions` NaN and missing derivatives, `initial_state` violated constraints,
`integrability` constraints on velocities, and `short_run` gradients. `structure` runs all of them
into `findings`, which `report` prints. In folders of their own: `equilibrium/`, `stability/`
(linear equations about a motion) and `symmetry/` (with conserved quantities).
"""

from jaxmech.analysis.findings import Finding as Finding
from jaxmech.analysis.findings import Severity as Severity
from jaxmech.analysis.report import Structure as Structure
from jaxmech.analysis.row_dependence import Dependence as Dependence
from jaxmech.analysis.short_run import ShortRun as ShortRun
from jaxmech.analysis.structure import structure as structure
