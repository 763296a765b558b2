"""Events during a run: users define an `event` and its transition; an `event_set` is all of them.

`arguments` makes the set from the arguments of a run, `transitions` computes the state after an
event, and `log` records the events of a run. `crossing` locates events in a step whose ends have
different signs, `extremum_search` those between ends of equal sign, and `contacts` those of
functions that are zero; `turns` puts them together for a fixed step, which it bounds by the
functions. `gaps` are those of unilateral constraints, and `friction` sticks and slides; `impacts`
decides by the law in `coulomb` what an event does to them, and `multipliers` tell when they open.
`contact_events` is what they add to an `event_set`. `rounding` is the round-off of functions, and
`result` the part of a `Solution` on events.
"""

from jaxmech.integrate.events.arguments import event_set_of as event_set_of
from jaxmech.integrate.events.arguments import with_gaps as with_gaps
from jaxmech.integrate.events.event import Event as Event
from jaxmech.integrate.events.event import Transition as Transition
from jaxmech.integrate.events.event_set import NO_EVENTS as NO_EVENTS
from jaxmech.integrate.events.event_set import EventSet as EventSet
from jaxmech.integrate.events.log import EventState as EventState
from jaxmech.integrate.events.result import EventRecord as EventRecord
from jaxmech.integrate.events.result import Events as Events
from jaxmech.integrate.events.result import events_of as events_of
