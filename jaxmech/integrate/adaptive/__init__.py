"""Steps of the size that a tolerance asks for, for each trajectory by itself.

`method` has `Adaptive`, `attempt` one attempted step, `norm` its error, `control` the size of the
next step, `dense` states within a step, and `rollout` a whole trajectory; `record` keeps its
steps, `derivative` differentiates through them, and `step_events` finds events in them.
"""

from jaxmech.integrate.adaptive.derivative import adaptive_trajectory as adaptive_trajectory
from jaxmech.integrate.adaptive.method import Adaptive as Adaptive
from jaxmech.integrate.adaptive.method import Tolerance as Tolerance
