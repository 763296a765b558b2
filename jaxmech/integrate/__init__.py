"""Integration of one trajectory: one `step`, a `rollout` of steps, and its derivatives.

In reading order: `scheme` bundles a system and the policies of its integration; `run_params` are
the parameters within a run, by which constraints are switched on and off, and `spans` those between
the times at which a step ends. `step` makes a step by one of the `methods`, with the checks of
`checks`; `trajectory` has what a run saves and returns. `rollout` makes a run of fixed steps, whose
integration error `error_estimate` estimates, and `adaptive_rollout` one with error control, of
which `attempt` tries a step. `steps` are the policies of their sizes, and the times at which they
end; `step_size` chooses a number of fixed ones. `motion` is a whole run, from which a `Solution` is
made, with the states between its saves. `events` are found and take place within a step, and
`derivatives` has the rules of a run.
"""

from jaxmech.integrate.events.event import Event as Event
from jaxmech.integrate.events.event import Transition as Transition
from jaxmech.integrate.events.event_set import EventSet as EventSet
from jaxmech.integrate.events.gaps import Gaps as Gaps
from jaxmech.integrate.events.log import EventRecord as EventRecord
from jaxmech.integrate.events.log import Events as Events
from jaxmech.integrate.methods.implicit import Rodas5P as Rodas5P
from jaxmech.integrate.methods.rattle import RATTLE as RATTLE
from jaxmech.integrate.methods.runge_kutta import RK4 as RK4
from jaxmech.integrate.methods.runge_kutta import AbstractMethod as AbstractMethod
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta as AbstractRungeKutta
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKuttaPair as AbstractRungeKuttaPair
from jaxmech.integrate.methods.runge_kutta import DormandPrince5 as DormandPrince5
from jaxmech.integrate.methods.runge_kutta import DormandPrince8 as DormandPrince8
from jaxmech.integrate.methods.runge_kutta import StepControl as StepControl
from jaxmech.integrate.methods.runge_kutta import Tableau as Tableau
from jaxmech.integrate.motion import AbstractDerivative as AbstractDerivative
from jaxmech.integrate.motion import ForwardMode as ForwardMode
from jaxmech.integrate.motion import ReverseMode as ReverseMode
from jaxmech.integrate.motion import Run as Run
from jaxmech.integrate.motion import solve_motion as solve_motion
from jaxmech.integrate.motion import states_at as states_at
from jaxmech.integrate.scheme import Scheme as Scheme
from jaxmech.integrate.step_size import MEMBERS as MEMBERS
from jaxmech.integrate.step_size import StepWarning as StepWarning
from jaxmech.integrate.step_size import choose_steps as choose_steps
from jaxmech.integrate.step_size import members_error as members_error
from jaxmech.integrate.step_size import members_need as members_need
from jaxmech.integrate.step_size import resolved as resolved
from jaxmech.integrate.steps import AbstractSteps as AbstractSteps
from jaxmech.integrate.steps import Adaptive as Adaptive
from jaxmech.integrate.steps import FixedSteps as FixedSteps
from jaxmech.integrate.steps import TimesWarning as TimesWarning
from jaxmech.integrate.steps import method_and_steps as method_and_steps
