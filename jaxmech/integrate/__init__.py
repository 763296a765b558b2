"""Integration of one trajectory: one `step`, a `rollout` of steps, and its derivatives.

In reading order: `scheme` bundles a system and the policies of its integration; `spans` has the
functions of a system between the times at which a step ends, and `switches` turns constraints on
and off. `step` makes a step, with the checks of `checks`; `trajectory` has what a run saves and
returns; `rollout` makes a run of fixed steps, whose integration error `error_estimate` estimates.
`motion` is a whole run, from which a `Solution` is made; `dense_output` computes states between
its saves. In folders: `methods/` compute a step, `steps/` determine its size, `adaptive/` has steps
with error control, `events/` the events, and `derivatives/` the rules of a run.
"""

from jaxmech.integrate.dense_output import states_at as states_at
from jaxmech.integrate.derivatives.policy import AbstractDerivative as AbstractDerivative
from jaxmech.integrate.derivatives.policy import ForwardMode as ForwardMode
from jaxmech.integrate.derivatives.policy import ReverseMode as ReverseMode
from jaxmech.integrate.events import Event as Event
from jaxmech.integrate.events import EventRecord as EventRecord
from jaxmech.integrate.events import Events as Events
from jaxmech.integrate.events import EventSet as EventSet
from jaxmech.integrate.events import Transition as Transition
from jaxmech.integrate.events import event_set_of as event_set_of
from jaxmech.integrate.events import with_gaps as with_gaps
from jaxmech.integrate.events.gaps import Gaps as Gaps
from jaxmech.integrate.methods.implicit import Rodas5P as Rodas5P
from jaxmech.integrate.methods.rattle import RATTLE as RATTLE
from jaxmech.integrate.methods.runge_kutta import RK4 as RK4
from jaxmech.integrate.methods.runge_kutta import AbstractMethod as AbstractMethod
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta as AbstractRungeKutta
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKuttaPair as AbstractRungeKuttaPair
from jaxmech.integrate.methods.runge_kutta import DormandPrince5 as DormandPrince5
from jaxmech.integrate.methods.runge_kutta import DormandPrince8 as DormandPrince8
from jaxmech.integrate.methods.tableaus import StepControl as StepControl
from jaxmech.integrate.methods.tableaus import Tableau as Tableau
from jaxmech.integrate.motion import MOST_NUMBERS as MOST_NUMBERS
from jaxmech.integrate.motion import Run as Run
from jaxmech.integrate.motion import solve_motion as solve_motion
from jaxmech.integrate.scheme import Scheme as Scheme
from jaxmech.integrate.steps import AbstractSteps as AbstractSteps
from jaxmech.integrate.steps import Adaptive as Adaptive
from jaxmech.integrate.steps import FixedSteps as FixedSteps
from jaxmech.integrate.steps import method_and_steps as method_and_steps
from jaxmech.integrate.steps.default_steps import StepWarning as StepWarning
from jaxmech.integrate.steps.default_steps import as_times as as_times
from jaxmech.integrate.steps.default_steps import choose_steps as choose_steps
from jaxmech.integrate.steps.default_steps import members_error as members_error
from jaxmech.integrate.steps.default_steps import members_need as members_need
from jaxmech.integrate.steps.default_steps import resolved as resolved
from jaxmech.integrate.steps.step_size import MEMBERS as MEMBERS
from jaxmech.integrate.steps.step_size import target_error as target_error
from jaxmech.integrate.steps.step_times import TimesWarning as TimesWarning
from jaxmech.integrate.switches import Switched as Switched
from jaxmech.integrate.switches import with_switches as with_switches
