"""How long the steps of a run are: a policy beside the method, which says how a step is made.

`policy` has what all policies share, `fixed` a number of steps per save interval, and `adaptive` a
tolerance. `defaults` fills in what a caller leaves out, and refuses what does not go together.
`step_size` finds the number of steps that a motion needs, and `default_steps` applies it.
"""

from jaxmech.integrate.steps.adaptive import Adaptive as Adaptive
from jaxmech.integrate.steps.adaptive import Tolerance as Tolerance
from jaxmech.integrate.steps.defaults import method_and_steps as method_and_steps
from jaxmech.integrate.steps.fixed import FixedSteps as FixedSteps
from jaxmech.integrate.steps.policy import AbstractSteps as AbstractSteps
