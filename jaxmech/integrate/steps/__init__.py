"""The step size policies of a run; the method, which computes a step, is independent of them.

`policies` has the policies with a number of steps per save interval and with a tolerance, fills in
missing arguments, and checks that method and steps go together. `step_times` finds the times at
which a step ends. `step_size` finds the number of steps that a motion needs, and `default_steps`
applies it.
"""

from jaxmech.integrate.steps.policies import AbstractSteps as AbstractSteps
from jaxmech.integrate.steps.policies import Adaptive as Adaptive
from jaxmech.integrate.steps.policies import FixedSteps as FixedSteps
from jaxmech.integrate.steps.policies import Tolerance as Tolerance
from jaxmech.integrate.steps.policies import method_and_steps as method_and_steps
