"""Large mechanisms: the law of motion by elimination of blocks of bodies and joints.

`formulation` is the policy. `groups` collects parts of one kind, `structure` makes the graph of a
mechanism, and `order` the order of elimination. At a state, `bodies` evaluates masses and forces,
`rows` the constraints, `factor` eliminates blocks, and `metric` puts them together. `law` has
accelerations and projections, `consistency` residuals, `step` one step, `run` a trajectory, and
`default_steps` chooses their number. `simulation` is what `simulate` calls.
"""

from jaxmech.sparse.formulation import SparseElimination as SparseElimination
from jaxmech.sparse.simulation import sparse_trajectory as sparse_trajectory
from jaxmech.sparse.simulation import sparse_violations as sparse_violations
