"""A whole trajectory with adaptive steps."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import empty_rows
from jaxmech.integrate.adaptive.attempt import (
    LEAST_ERROR,
    Attempt,
    attempt,
    first_step,
    grown,
    shrunk,
)
from jaxmech.integrate.adaptive.events import (
    after_events,
    events_in_step,
    turns_in_step,
    with_status,
)
from jaxmech.integrate.adaptive.run import RunRows, RunSetting, RunState, StepSpan
from jaxmech.integrate.adaptive.saves import save_reached
from jaxmech.integrate.checks import begin_run, first_that_holds, residuals
from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.error_estimate import StepErrors, rest_motion
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.methods.explicit_stages import EvaluatedState, evaluated_state
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import (
    ALL_TIME,
    COMPARED,
    NO_TIMES,
    AnyInterval,
    interval_at,
    sorted_ends,
    within,
)
from jaxmech.integrate.steps import Tolerance
from jaxmech.integrate.trajectory import SavedStates, StepCounts, Trajectory
from jaxmech.status import Status, succeeded
from jaxmech.system import Drive, Params
from jaxmech.utils.arrays import AnyArray

_SUSPICIOUS = 15  # steps at the limit of stability in a row, nearly, that make a system stiff
_CLEARED = 6  # other steps in a row that end the suspicion
_STRETCH = 1.01  # of the last step, so that no short one remains
_RESOLVED = 16.0  # shortest steps; more than the inverse of all factors after a rejection
_STUCK = 1e-9  # fraction of the run: a shorter step from one event to the next makes no progress


def adaptive_rollout(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, memory: Array,
    tolerance: Tolerance, *, segment: int, event_set: EventSet = NO_EVENTS,
    times: AnyArray = NO_TIMES,
) -> tuple[Trajectory, StepRecord]:  # fmt: skip
    """The trajectory from (q0, v0) saved at ts, and its moves in segments.

    With events, the system of the scheme is that of `event_set`. A step ends at each of the
    `times`; the system then has spans.
    """
    t0, sign = ts[0], jnp.sign(ts[-1] - ts[0])
    elapsed = jax.lax.stop_gradient(sign * (ts - t0))
    times = jax.lax.stop_gradient(sign * (times - t0)).astype(ts.dtype)
    if times.size > COMPARED:
        times = jnp.sort(times)
    ends = sorted_ends(t0 + sign * times, t0, ts[-1])
    at_start = (elapsed <= 0).sum().astype(jnp.int32)
    first = interval_at(t0 + sign * times, t0, t0, t0 + sign * elapsed[-1], ends)
    ordered = (elapsed[1:] >= elapsed[:-1]).all()  # not with a NaN
    _, first_params = scheme.sampled(
        memory, q0, v0, t0, within(first, params), first if event_set else ALL_TIME
    )
    start_params, events, status, extents = begin_run(
        scheme, event_set, q0, v0, t0, sign, first_params, ordered
    )
    run = RunSetting(
        scheme, tolerance, t0, sign, elapsed, elapsed[-1], at_start, params, event_set, times,
        ends, extents,
    )  # fmt: skip
    initial = _start(run, q0, v0, memory, start_params, events, status)
    zero, active = jnp.zeros((), q0.dtype), event_set.active()
    save_rows = empty_rows(len(ts), SavedStates(q0, v0, memory, zero, zero, active).packed)
    # Events that change nothing are moves of their own, as far as they are kept.
    max_moves = scheme.adaptive.max_steps + len(ts) - 1 + event_set.rows[-1]
    columns = 3 + event_set.words if event_set else 1
    moves = StepRecord.empty(max_moves, segment, jnp.zeros_like(run.packed(initial)), columns)
    state, rows = jax.lax.while_loop(
        lambda carry: _goes_on(run, carry[0]) & (carry[0].status == Status.OK),
        partial(_advanced, run),
        (initial, RunRows(save_rows, moves, event_set.log(q0, v0))),
    )
    start, accepted = initial.start, state.counts.accepted
    # A save counts once its step is accepted, so after a failure all later ones are NaN.
    numbers = jnp.arange(len(elapsed))
    is_known = numbers < jnp.where(jnp.isnan(initial.t_failed), state.saved, 1)
    at_begin = initial.position, initial.velocity
    first_save = SavedStates(start.q, start.v, memory, *at_begin, initial.events.active)
    saves = first_save.where(numbers < at_start, first_save.unpacked(rows.saves))
    if event_set:
        # After a terminal event the trajectory stands still; another may occur at the last time.
        is_later = (numbers >= state.saved) & succeeded(state.status)
        end = state.start.q, state.start.v, state.memory
        saves = SavedStates(*end, zero, zero, state.events.active).where(is_later, saves)
        is_known |= is_later
    states, rest = scheme.system.dynamics.n_states, rest_motion(scheme.system, extents)
    errors, eps = state.errors, jnp.finfo(q0.dtype).eps
    rounding = eps * jnp.abs(errors.high[: q0.size - states]).max() * accepted
    error = errors.relative(state.elapsed, rest, states)
    error = jnp.maximum(error, replace(errors, rounding=rounding).resolution(rest, states))
    trajectory = Trajectory(
        saves=saves.known(is_known),
        rank=state.rank,
        status=state.status,
        t_failed=state.t_failed,
        error=jnp.where(accepted > 0, error, jnp.nan),
        counts=state.counts,
        events=state.events,
        occurrences=rows.log,
    )
    move_count = accepted + state.saved - at_start + run.observed_before(state)
    return trajectory, rows.moves.finished(move_count, state.saved)


def _start(
    run: RunSetting, q: Array, v: Array, memory: Array, params: Params, events: EventState,
    status: Array,
) -> RunState:  # fmt: skip
    """The state before the first attempt; the status is that of the beginning of the run."""
    scheme, t = run.scheme, run.t0
    first = evaluated_state(scheme, q, v, t, params)
    # A function of reactions is NaN where the law of motion fails.
    may_fail = (status == Status.OK) | (status == Status.EVENT_IS_NAN)
    status = jnp.where(may_fail & (first.status != Status.OK), first.status, status)
    zero, nan, zero_count = jnp.zeros_like(t), jnp.full_like(t, jnp.nan), jnp.zeros((), jnp.int32)
    speeds = scheme.system.dynamics.speeds(q, v, t, params)
    start_t, fixed_q, fixed_speeds = jax.lax.stop_gradient((t, q, speeds))
    position, velocity = residuals(scheme, q, v, t, params)
    return RunState(
        elapsed=zero,
        start=first,
        memory=memory,
        size=first_step(scheme, run.tolerance, first, t, run.sign * run.span, params),
        error=jnp.full_like(t, LEAST_ERROR),
        is_repeat=jnp.asarray(False),
        status=status,
        t_failed=jnp.where(status == Status.OK, nan, start_t),
        saved=run.at_start,
        counts=StepCounts(zero_count, zero_count, zero_count + 2, zero, nan),
        limited=zero_count,
        free=zero_count,
        position=position,
        velocity=velocity,
        rank=first.rank,
        errors=StepErrors.none(fixed_q, fixed_speeds),
        events=events,
    )


def _advanced(run: RunSetting, carry: tuple[RunState, RunRows]) -> tuple[RunState, RunRows]:
    """The run after one attempted step."""
    state, rows = carry
    first, t, before = run.packed(state), run.time(state.elapsed), state.start
    interval = interval_at(run.time(run.times), t, run.t0, run.time(run.span), run.ends)
    params = within(interval, run.params)
    memory, params = run.scheme.sampled(state.memory, before.q, before.v, t, params, interval)
    run = replace(run, params=params)
    begin, state = _after_kink(run, state, t, interval)
    run = replace(run, params=run.event_set.params(run.params, state.events.active))
    stop = run.stop(state.elapsed)
    remaining = stop - state.elapsed
    if run.event_set:
        # Events that are due at the end of the run need a step of any length.
        remaining = jnp.where(remaining > 0, remaining, state.size)
    # A step that would leave less than 1 % of itself goes to the end, so that no tiny one follows.
    is_last = run.tolerance.limited(_STRETCH * state.size) >= remaining
    proposed = jnp.where(is_last, remaining, run.tolerance.limited(state.size))
    proposed = jax.lax.stop_gradient(proposed)
    h = run.sign * proposed
    tried = attempt(run.scheme, run.tolerance, begin, t, h, run.params, run.extents)
    if run.scheme.drive != Drive.NONE:
        # A jump of a given velocity is in every step over it, however short: the time at which it
        # happens cannot be told better than in steps that are about to be too short.
        resolves = proposed > _RESOLVED * run.shortest
        total_error = jnp.sqrt(tried.error**2 + tried.correction**2)
        tried = replace(tried, error=jnp.where(resolves, total_error, tried.error))
    is_good = (tried.status == Status.OK) & (tried.error <= 1.0)
    turns, hidden, are_few = turns_in_step(run, state.events, begin, tried, t, proposed)
    is_good &= are_few
    event, log = events_in_step(
        run, state.events, begin, tried, t, proposed, is_good, hidden, rows.log
    )
    tried = replace(tried, end=event.end)
    # Set, not added: the run ends at the last save time to the bit.
    elapsed = jnp.where(is_last, stop, state.elapsed + proposed)
    size = jnp.where(event.interrupted, event.share * proposed, proposed)
    elapsed = jnp.where(event.interrupted, state.elapsed + size, elapsed)
    # A save at a time at which the motion turns has the state after it.
    changes_at_end = event.interrupted
    if run.times.size:
        changes_at_end |= is_last & (stop < run.span)
    # A step of no length up to an event at its start is accepted, whatever the attempt has led to.
    accepted = is_good | state.events.due
    step = StepSpan(state.elapsed, elapsed, size, accepted, changes_at_end)

    counts = replace(
        state.counts,
        accepted=state.counts.accepted + accepted,
        rejected=state.counts.rejected + ~accepted,
        evaluations=state.counts.evaluations + run.scheme.pair.evaluations,
        longest=jnp.maximum(state.counts.longest, jnp.where(accepted, size, 0.0)),
    )
    moved = replace(_accepted(run, state, tried, elapsed, proposed), memory=memory)
    error = jnp.where(tried.status == Status.OK, tried.error, jnp.inf)
    shorter = size * shrunk(run.scheme.pair, error)
    stays = replace(state, size=shorter, is_repeat=jnp.asarray(True))
    if run.event_set:
        unmoved = replace(state, counts=counts, memory=memory)
        moved = jax.tree.map(partial(jnp.where, state.events.due), unmoved, moved)
        # About one turn in a step, and no longer step where there is one already.
        no_longer = jnp.minimum(moved.size, proposed)
        moved = replace(moved, size=jnp.where(turns > 0, no_longer, moved.size))
        stays = replace(stays, size=jnp.minimum(shorter, proposed / jnp.maximum(turns, 1)))
    next_state = jax.tree.map(partial(jnp.where, accepted), moved, stays)
    counts = replace(counts, t_stiff=next_state.counts.t_stiff)
    next_state = replace(next_state, counts=counts, events=state.events)

    rows = replace(rows, log=log)
    next_state, rows = save_reached(
        run, replace(state, start=begin, memory=memory), next_state, step, rows, first
    )
    next_state, moves = after_events(run, state, next_state, step, event, rows.moves, first)

    is_repeated = next_state.is_repeat & (next_state.size < run.shortest)
    is_over = counts.accepted + counts.rejected >= run.scheme.adaptive.max_steps
    is_over &= _goes_on(run, next_state)
    is_stuck = event.interrupted & (size < _STUCK * run.span)
    is_stiff = next_state.limited >= _SUSPICIOUS
    code = jnp.where(is_stiff, int(Status.STIFF), int(Status.MAX_STEPS))
    code = jnp.where(is_stuck, int(Status.TOO_MANY_EVENTS), code)
    underflow = jnp.where(tried.status == Status.OK, int(Status.STEP_UNDERFLOW), tried.status)
    status = jnp.where(is_over, code, int(Status.OK))
    next_state = with_status(run, next_state, jnp.where(is_repeated, underflow, status))
    observed = run.observed_before(next_state)
    number = state.counts.accepted + next_state.saved - run.at_start + observed
    ended: Any = None
    if run.event_set:
        indices = (jnp.where(event.interrupted, x, -1) for x in (event.which, event.row))
        ended = *indices, event.outcome
    moves = moves.with_move(number, size, step.begin, first, accepted, ended)
    return next_state, replace(rows, moves=moves)


def _goes_on(run: RunSetting, state: RunState) -> Array:
    is_short = state.elapsed < run.span
    return is_short | state.events.due if run.event_set else is_short


def _after_kink(
    run: RunSetting, state: RunState, t: Array, interval: AnyInterval
) -> tuple[EvaluatedState, RunState]:
    """The start of a step, and the state before it, where gaps may be about to open by a jump."""
    if not interval:
        return state.start, state
    scheme, event_set, events, before = run.scheme, run.event_set, state.events, state.start
    opens, closes = event_set.contact.jumps(
        scheme.system, before.q, t, run.params, events.active, run.extents, interval.turns
    )

    def after_kink() -> EvaluatedState:
        params = event_set.params(run.params, event_set.contact.without(events.active, opens))
        turning = replace(interval, turns=jnp.asarray(True))
        q, v, reached = scheme.after_kink(before.q, before.v, t, params, turning)
        new = evaluated_state(scheme, q, v, t, params)
        status = first_that_holds(
            (closes, Status.GAP_JUMPED), (~reached, Status.PROJECTION_FAILED),
            (jnp.asarray(True), new.status),
        )  # fmt: skip
        return replace(new, status=status)

    state = replace(state, events=replace(events, due=events.due | opens.any()))
    return jax.lax.cond(interval.turns, after_kink, lambda: before), state


def _accepted(
    run: RunSetting, state: RunState, tried: Attempt, elapsed: Array, size: Array
) -> RunState:
    factor = grown(run.scheme.pair, tried.error, state.error)
    # After a rejection a step does not grow: the error has just been shown to rise there.
    factor = jnp.where(state.is_repeat, jnp.minimum(factor, 1.0), factor)
    following = size * factor
    if run.times.size:
        # A step that only had to end somewhere says nothing against the size that was proposed.
        following = jnp.where(size < state.size, jnp.maximum(following, state.size), following)
    end, t = tried.end, run.time(elapsed)
    q, v = jax.lax.stop_gradient((end.q, end.v))
    speeds = run.scheme.system.dynamics.speeds(q, v, t, run.params)
    position, velocity = residuals(run.scheme, q, v, t, run.params)
    # Hairer and Wanner, Solving Ordinary Differential Equations II, IV.2. Some steps in a row below
    # the limit of stability clear the suspicion, single ones do not.
    is_limited = tried.stiffness > run.scheme.pair.control.stable
    free = jnp.where(is_limited, 0, state.free + 1)
    limited = jnp.where(is_limited, state.limited + 1, state.limited)
    limited = jnp.where(free >= _CLEARED, 0, limited)
    t_stiff = state.counts.t_stiff
    is_first = (limited >= _SUSPICIOUS) & jnp.isnan(t_stiff)
    t_stiff = jnp.where(is_first, jax.lax.stop_gradient(t), t_stiff)
    return replace(
        state,
        elapsed=elapsed,
        start=end,
        size=following,
        error=jnp.maximum(tried.error, LEAST_ERROR),
        is_repeat=jnp.asarray(False),
        limited=limited,
        free=free,
        counts=replace(state.counts, t_stiff=t_stiff),
        position=jnp.maximum(state.position, position),
        velocity=jnp.maximum(state.velocity, velocity),
        rank=jnp.minimum(state.rank, tried.rank),
        errors=state.errors.after(q, speeds, *jnp.abs(tried.errors)),
    )
