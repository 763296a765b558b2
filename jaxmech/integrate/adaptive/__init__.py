"""Steps of the size that a tolerance asks for, for each trajectory by itself.

`method` has `Adaptive`, `attempt` one attempted step, `norm` its error, `control` the size of the
next step, `dense` states within a step, and `rollout` a whole trajectory.
"""

from jaxmech.integrate.adaptive.method import Adaptive as Adaptive
from jaxmech.integrate.adaptive.method import Tolerance as Tolerance
from jaxmech.integrate.adaptive.rollout import adaptive_rollout as adaptive_rollout
