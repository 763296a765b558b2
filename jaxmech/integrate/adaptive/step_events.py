"""The events in an accepted step, which ends at the first of them that changes the motion."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.adaptive.attempt import Attempt, attempt
from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.switches import Switched
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo
from jaxmech.integrate.step_state import EvaluatedState, StepState, evaluated_state
from jaxmech.integrate.steps import Tolerance
from jaxmech.status import Status
from jaxmech.system import Params


class StepEvents(eqx.Module):
    """The events in an accepted step."""

    events: EventState  # after the step; `replay` has those of this step
    happened: Bool[Array, ""]  # whether there were any events
    cut: Bool[Array, ""]  # whether the step ends at one
    which: Int[Array, ""]  # index of that event
    row: Int[Array, ""]  # row in which it is kept, -1 if it is not
    outcome: Float[Array, " D"]  # decisions about gaps at it
    share: Float[Array, ""]  # the fraction of the step up to it
    end: EvaluatedState  # where that part ends
    after: EvaluatedState  # from which the motion continues
    status: Int[Array, ""]  # `STOPPED` after a terminal event, or a failure


def events_in_step(
    scheme: Scheme, tolerance: Tolerance, watch: EventSet, extents: Array | None,
    start: EvaluatedState, state: EventState, tried: Attempt, t: Array, h: Array, params: Params,
    accepted: Array, log: Array,
) -> tuple[StepEvents, Array]:  # fmt: skip
    """Find the events in a step, given the whole attempt; also the log with them."""
    end, zero = tried.end, jnp.zeros((), jnp.int32)
    previous = replace(state, replay=watch.replay(t.dtype))
    ends = (start.q, start.v, t, start.qdd), (end.q, end.v, t + h, end.qdd)
    state, passed, dips, happens = step_dips(scheme, watch, previous, *ends, h, params)
    plain = params.params if isinstance(params, Switched) else params

    def part(base: StepState, h: Array, params: Params) -> tuple[StepState, StepInfo]:
        # A step ends at the first event that changes the motion, so all parts begin where it does.
        shorter = attempt(scheme, tolerance, start, base.t, h, params, extents)
        good = shorter.status == Status.OK
        info = StepInfo(good, shorter.status, shorter.rank, good)
        return StepState(shorter.end.q, shorter.end.v, base.t + h), info

    happens = (accepted & happens) | state.due
    search, log = through_events(
        scheme, watch, StepState(start.q, start.v, t), h, plain, state, zero, dips, happens, log,
        extents, part, True,
    )  # fmt: skip

    def rarely() -> StepEvents:
        events, end_t = search.events, t + search.base_u * h
        end_state = evaluated_state(scheme, search.end_q, search.end_v, end_t, params)
        next_state = evaluated_state(
            scheme, search.q, search.v, end_t, watch.params(plain, events.active)
        )
        _, _, index, row, outcome = events.replay.at(events.replay.count - 1)
        is_nan = search.info.good & jnp.isnan(events.values).any()
        code = jnp.where(search.info.good, int(Status.OK), search.info.status)
        code = jnp.where(is_nan, int(Status.EVENT_IS_NAN), code)
        stopped = (code == Status.OK) & (events.stopped_by >= 0)
        code = jnp.where(stopped, int(Status.STOPPED), code).astype(jnp.int32)
        ends = jax.tree.map(lambda x, y: jnp.where(search.cut, x, y), end_state, end)
        return StepEvents(
            events,
            events.replay.count > 0,
            search.cut,
            index,
            row,
            outcome,
            search.base_u,
            ends,
            next_state,
            code,
        )

    def usually() -> StepEvents:
        events = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), passed, previous)
        no, ok = jnp.asarray(False), jnp.asarray(Status.OK, jnp.int32)
        none = jnp.zeros(watch.words, t.dtype)
        return StepEvents(events, no, no, zero, zero - 1, none, jnp.ones_like(t), end, end, ok)

    return jax.lax.cond(happens, rarely, usually), log
