"""The events in a step of fixed size."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo
from jaxmech.status import Status
from jaxmech.system import Params

Moved = tuple[Array, Array, StepInfo]  # q, v and checks after a step
MovedWithEvents = tuple[
    Array, Array, StepInfo, Array, EventState
]  # also its end [s] and the events


def with_events(
    scheme: Scheme, watch: EventSet, start: tuple[Array, Array], moved: Moved, running: Array,
    state: EventState, log: Array, t: Array, h: Array, params: Params, place: Array,
    extents: Float[Array, " n"] | None,
) -> tuple[MovedWithEvents, Array]:  # fmt: skip
    """The result of a step with its events, from the one without, and the log with them.

    `start` are q and v before the step, `place` is its number in the segment.
    """
    (q, v, info), active_params = moved, watch.params(params, state.active)
    ends = (*start, t, None), (q, v, t + h, None)
    state, passed, dips, happens = step_dips(scheme, watch, state, *ends, h, active_params)
    # The step that an event at its start makes void may fail.
    happens = running & (info.good | state.due) & happens
    search, log = through_events(
        scheme, watch, *start, t, h, params, state, place, dips, happens, log, extents
    )

    def rarely() -> MovedWithEvents:
        is_nan = search.info.good & jnp.isnan(search.events.values).any()
        status = jnp.where(is_nan, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), search.info.status)
        info = replace(search.info, good=search.info.good & ~is_nan, status=status)
        end = jnp.where(search.events.stopped_by >= 0, t + search.high * h, t + h)
        return (
            search.q,
            search.v,
            info,
            end,
            replace(search.events, smooth=search.events.smooth + 1),
        )

    def usually() -> MovedWithEvents:
        return q, v, info, t + h, replace(passed, smooth=state.smooth + 1)

    return jax.lax.cond(happens, rarely, usually), log
