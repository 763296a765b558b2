"""The events in a step of fixed size."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.turns import Looks, sampled_events
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo
from jaxmech.integrate.step_state import StepState
from jaxmech.status import Status
from jaxmech.system import Params

StepEnd = tuple[StepState, StepInfo]
StepEndWithEvents = tuple[StepState, StepInfo, EventState]


def with_events(
    scheme: Scheme, watch: EventSet, start: StepState, without_events: StepEnd, running: Array,
    state: EventState, log: Array, h: Array, params: Params, place: Array,
    extents: Float[Array, " n"] | None, looks: Looks,
) -> tuple[StepEndWithEvents, Array]:  # fmt: skip
    """The result of a step with its events, from the one without, and the log with them.

    `place` is the number of the step in the segment.
    """
    (end, info), active_params = without_events, watch.params(params, state.active)
    ends = (start.q, start.v, start.t, None), (end.q, end.v, end.t, None)
    state, passed, dips, happens = step_dips(scheme, watch, state, *ends, h, active_params)
    sampled = sampled_events(
        watch, scheme.system, (start.q, start.v), (end.q, end.v), start.t, h, active_params,
        state, passed, looks,
    )  # fmt: skip
    # Those to which the rates at the ends lead are sought, as far as the method resolves them.
    sampled = jnp.where(watch.enabled(state.active) & ~dips.pending, sampled, 0)
    # The step that an event at its start makes void may fail.
    happens = running & (info.good | state.due) & happens
    search, log = through_events(
        scheme, watch, start, h, params, state, place, dips, happens, log, extents
    )

    def rarely() -> StepEndWithEvents:
        is_nan = search.info.good & jnp.isnan(search.events.values).any()
        status = jnp.where(is_nan, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), search.info.status)
        info = replace(search.info, good=search.info.good & ~is_nan, status=status)
        end_t = jnp.where(search.events.stopped_by >= 0, start.t + search.high * h, end.t)
        # After an event that changes the motion, it is no longer the one that was sampled.
        missed = jnp.maximum(sampled - (search.events.counts - state.counts), 0)
        missed = state.missed + jnp.where(search.count > 0, 0, missed)
        events = replace(search.events, smooth=search.events.smooth + 1, missed=missed)
        return StepState(search.q, search.v, end_t), info, events

    def usually() -> StepEndWithEvents:
        return end, info, replace(passed, smooth=state.smooth + 1, missed=state.missed + sampled)

    return jax.lax.cond(happens, rarely, usually), log
