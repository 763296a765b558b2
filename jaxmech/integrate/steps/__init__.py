"""The step size policies of a run; the method, which computes a step, is independent of them.

`policy` contains the common base, `fixed` the policy with a number of steps per save interval, and
`adaptive` the one with a tolerance. `fixed` also fills in missing arguments, and checks that method
and steps go together. `step_size` finds the number of steps that a motion needs, and
`default_steps` applies it. `abrupt_changes` finds jumps of the functions in time.
"""

from jaxmech.integrate.steps.adaptive import Adaptive as Adaptive
from jaxmech.integrate.steps.adaptive import Tolerance as Tolerance
from jaxmech.integrate.steps.fixed import FixedSteps as FixedSteps
from jaxmech.integrate.steps.fixed import method_and_steps as method_and_steps
from jaxmech.integrate.steps.policy import AbstractSteps as AbstractSteps
