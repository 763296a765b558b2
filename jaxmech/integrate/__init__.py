"""Integration of one trajectory: `methods`, one `step`, a `rollout`, its `derivative`.

`tableaus` holds the coefficients of the methods, `scheme` the policies within a step, `checks` the
checks of one, and `counts` the work. `begin` decides whether a run can begin. `run_rule` makes a
run one JAX operation with its derivatives, which `segment_rule` computes for fixed steps, in
`step_segments`.
`step_size` finds the number of steps that a motion needs, `default_steps` applies it, and
`error_estimate` estimates the integration error of a run. In folders: `steps/`, the policies of
the length of steps; `adaptive/`, steps with error control; `implicit/`, methods for stiff systems;
`variational/`, symplectic ones; `events/`; `times/`, at which a step ends.
`to_diffrax` and `diffrax_solver` are for users of diffrax.
"""

from jaxmech.integrate.counts import StepCounts as StepCounts
from jaxmech.integrate.derivative import AbstractDerivative as AbstractDerivative
from jaxmech.integrate.derivative import ForwardMode as ForwardMode
from jaxmech.integrate.derivative import ReverseMode as ReverseMode
from jaxmech.integrate.events import Event as Event
from jaxmech.integrate.events import EventRecord as EventRecord
from jaxmech.integrate.events import Events as Events
from jaxmech.integrate.events import EventSet as EventSet
from jaxmech.integrate.events import Transition as Transition
from jaxmech.integrate.events import event_set_of as event_set_of
from jaxmech.integrate.events import events_of as events_of
from jaxmech.integrate.implicit import RadauIIA5 as RadauIIA5
from jaxmech.integrate.implicit import Rodas5P as Rodas5P
from jaxmech.integrate.methods import RK4 as RK4
from jaxmech.integrate.methods import AbstractMethod as AbstractMethod
from jaxmech.integrate.methods import AbstractPair as AbstractPair
from jaxmech.integrate.methods import AbstractRungeKutta as AbstractRungeKutta
from jaxmech.integrate.methods import DormandPrince5 as DormandPrince5
from jaxmech.integrate.methods import DormandPrince8 as DormandPrince8
from jaxmech.integrate.methods import Midpoint as Midpoint
from jaxmech.integrate.methods import Tsitouras5 as Tsitouras5
from jaxmech.integrate.rollout import Trajectory as Trajectory
from jaxmech.integrate.rollout import rollout as rollout
from jaxmech.integrate.scheme import Scheme as Scheme
from jaxmech.integrate.steps import AbstractSteps as AbstractSteps
from jaxmech.integrate.steps import Adaptive as Adaptive
from jaxmech.integrate.steps import FixedSteps as FixedSteps
from jaxmech.integrate.steps import Tolerance as Tolerance
from jaxmech.integrate.steps import method_and_steps as method_and_steps
from jaxmech.integrate.tableaus import Tableau as Tableau
from jaxmech.integrate.variational import RATTLE as RATTLE
from jaxmech.integrate.variational import AbstractVariational as AbstractVariational
from jaxmech.integrate.variational import Variational as Variational
