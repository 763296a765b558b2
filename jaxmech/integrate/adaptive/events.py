"""The events of an adaptive step: how often they turn in it, where it ends, and what it records."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxmech.integrate.adaptive.attempt import Attempt, attempt
from jaxmech.integrate.adaptive.run import RunSetting, RunState, StepEvents, StepSpan
from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.extremum_search import rates, step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.turns import step_turns
from jaxmech.integrate.methods.explicit_stages import EvaluatedState, evaluated_state
from jaxmech.integrate.step import StepInfo, StepState
from jaxmech.integrate.switches import Switched
from jaxmech.status import Status
from jaxmech.system import Params


def turns_in_step(
    run: RunSetting, state: EventState, begin: EvaluatedState, tried: Attempt, t: Array, size: Array
) -> tuple[Int[Array, ""], Int[Array, " E"], Bool[Array, ""]]:
    """How often a function of events turns in an attempted step from t, at most.

    Also the events that samples show where a function turns, and whether there are few enough turns
    for the step to be accepted.
    """
    if not run.event_set:
        return jnp.zeros((), jnp.int32), jnp.zeros(0, jnp.int32), jnp.asarray(True)
    start, end = ((x.q, x.v) for x in (begin, tried.end))
    share, h = size / run.span, run.sign * size
    of_each, hidden = step_turns(
        run.event_set, run.scheme, start, end, t, h, run.params, share, state.values
    )
    # Not below the step with which the number of steps would suffice for the run.
    are_few = (of_each.max() < 2) | (share < 1 / run.scheme.adaptive.max_steps)
    return of_each.max(), jnp.where(of_each < 2, 0, hidden), are_few


def events_in_step(
    run: RunSetting, state: EventState, start: EvaluatedState, tried: Attempt, t: Array,
    size: Array, accepted: Array, hidden: Array, log: Array,
) -> tuple[StepEvents, Array]:  # fmt: skip
    """Find the events in a step, given the whole attempt; also the log with them.

    `hidden` are those of `turns_in_step`.
    """
    event_set, scheme, params = run.event_set, run.scheme, run.params
    if not event_set:
        return StepEvents.none(state, tried.end, event_set.words), log
    h, end = run.sign * size, tried.end
    missed_before, counts_before = state.missed, state.counts
    previous = replace(state, replay=event_set.replay(t.dtype))
    ends = (start.q, start.v), (end.q, end.v)
    values = event_set.values(scheme, *ends[1], t + h, params)
    slopes = tuple(
        rates(event_set, scheme, x.q, x.v, time, h, params, x.qdd)
        for x, time in ((start, t), (end, t + h))
    )
    state, passed, dips, happens = step_dips(
        scheme, event_set, previous, ends, t, h, params, values, slopes
    )
    plain = params.params if isinstance(params, Switched) else params

    def part(base: StepState, h: Array, params: Params) -> tuple[StepState, StepInfo]:
        # A step ends at the first event that changes the motion, so all parts begin where it does.
        shorter = attempt(scheme, run.tolerance, start, base.t, h, params, run.extents)
        good = shorter.status == Status.OK
        info = StepInfo(good, shorter.status, shorter.rank, good)
        return StepState(shorter.end.q, shorter.end.v, base.t + h), info

    happens = (accepted & happens) | state.due
    search, log = through_events(
        scheme, event_set, StepState(start.q, start.v, t), h, plain, state,
        jnp.zeros((), jnp.int32), dips, happens, log, run.extents, part,
    )  # fmt: skip

    def rarely() -> StepEvents:
        events, end_t = search.events, t + search.base_u * h
        before = scheme.in_step(start.q, start.v, t, search.base_u * h, params)
        end_state = evaluated_state(scheme, search.event_q, search.event_v, end_t, before)
        after = event_set.params(plain, events.active)
        after = scheme.in_step(search.q, search.v, end_t, h, after)
        next_state = evaluated_state(scheme, search.q, search.v, end_t, after)
        _, _, index, row, outcome = events.replay.at(events.replay.count - 1)
        is_nan = search.info.good & jnp.isnan(events.values).any()
        code = jnp.where(search.info.good, int(Status.OK), search.info.status)
        code = jnp.where(is_nan, int(Status.EVENT_IS_NAN), code)
        stopped = (code == Status.OK) & (events.stopped_by >= 0)
        code = jnp.where(stopped, int(Status.STOPPED), code).astype(jnp.int32)
        ends = jax.tree.map(partial(jnp.where, search.interrupted), end_state, end)
        return StepEvents(
            events, events.replay.count > 0, search.interrupted, index, row, outcome,
            search.base_u, ends, next_state, code,
        )  # fmt: skip

    def usually() -> StepEvents:
        events = jax.tree.map(partial(jnp.where, accepted), passed, previous)
        return StepEvents.none(events, end, event_set.words)

    event = jax.lax.cond(happens, rarely, usually)
    missed = jnp.maximum(hidden - (event.events.counts - counts_before), 0)
    missed = missed_before + jnp.where(accepted & ~event.interrupted, missed, 0)
    return replace(event, events=replace(event.events, missed=missed)), log


def after_events(
    run: RunSetting, before: RunState, state: RunState, step: StepSpan, event: StepEvents,
    moves: StepRecord, packed: Array,
) -> tuple[RunState, StepRecord]:  # fmt: skip
    """The state after the event that ends a step, and the moves with the other events in it."""
    if not run.event_set:
        return state, moves
    start = jax.tree.map(partial(jnp.where, event.interrupted), event.after, state.start)
    replay = event.events.replay
    first = before.counts.accepted + state.saved - run.at_start + run.observed_before(before)

    def add(carry: tuple[Array, Array, StepRecord]) -> tuple[Array, Array, StepRecord]:
        entry, number, moves = carry
        _, size, index, row, outcome = replay.at(entry)
        is_side_branch = ~run.event_set.interrupts(index) & (row >= 0)
        moves = moves.with_move(
            number, jnp.abs(size), step.begin, packed, is_side_branch, (index, row, outcome)
        )
        return entry + 1, number + is_side_branch, moves

    state = with_status(run, replace(state, start=start, events=event.events), event.status)
    first_entry = jnp.zeros((), jnp.int32)
    *_, moves = jax.lax.while_loop(
        lambda carry: event.happened & (carry[0] < replay.count), add, (first_entry, first, moves)
    )
    return state, moves


def with_status(run: RunSetting, state: RunState, status: Array) -> RunState:
    """The state with the status of a step, unless the run has ended before."""
    is_ok = state.status == Status.OK
    failed = is_ok & (status != Status.OK) & (status != Status.STOPPED)
    t = jax.lax.stop_gradient(run.time(state.elapsed))
    return replace(
        state,
        status=jnp.where(is_ok, status, state.status).astype(jnp.int32),
        t_failed=jnp.where(failed, t, state.t_failed),
    )
