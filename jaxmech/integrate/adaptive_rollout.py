"""A whole trajectory with adaptive steps, for each trajectory of a batch independently."""

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.attempt import (
    LEAST_ERROR,
    Attempt,
    attempt,
    first_step,
    grown,
    shrunk,
)
from jaxmech.integrate.checks import finite_states, first_that_holds, residuals
from jaxmech.integrate.error_estimate import StepErrors, rest_motion
from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.extremum_search import rates, step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.turns import step_turns
from jaxmech.integrate.methods.explicit_stages import EvaluatedState, evaluated_state
from jaxmech.integrate.rollout import begin_run
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import (
    COMPARED,
    NO_TIMES,
    AnyInterval,
    interval_at,
    sorted_ends,
    within,
)
from jaxmech.integrate.step import StepInfo, StepState
from jaxmech.integrate.steps import Tolerance
from jaxmech.integrate.trajectory import SavedStates, StepCounts, StepRecord, Trajectory
from jaxmech.state import Projection
from jaxmech.status import Status, succeeded
from jaxmech.system import Drive, Params
from jaxmech.utils.arrays import AnyArray

_SUSPICIOUS = 15  # steps at the limit of stability in a row, nearly, that make a system stiff
_CLEARED = 6  # other steps in a row that end the suspicion
_STRETCH = 1.01  # of the last step, so that no short one remains
_RESOLVED = 16.0  # shortest steps; more than the inverse of all factors after a rejection
_STUCK = 1e-9  # fraction of the run: a shorter step from one event to the next makes no progress


class _RunState(eqx.Module):
    elapsed: Float[Array, ""]  # time since the start, not negative
    start: EvaluatedState
    memory: Array  # of controllers
    size: Float[Array, ""]  # of the next attempt
    error: Float[Array, ""]  # of the last step, for the controller
    is_repeat: Bool[Array, ""]  # whether the last attempt was rejected
    status: Int[Array, ""]  # a `Status`
    t_failed: Float[Array, ""]  # as in `Trajectory`
    saved: Int[Array, ""]  # index of the next save time
    counts: StepCounts
    limited: Int[Array, ""]  # steps at the limit of stability, about in a row
    free: Int[Array, ""]  # other steps in a row
    position: Float[Array, ""]  # residuals since the last save, as in `SavedStates`
    velocity: Float[Array, ""]
    rank: Int[Array, ""]  # the smallest so far
    errors: StepErrors
    events: EventState


class _RunRows(eqx.Module):
    saves: Array  # `SavedStates` at each save time, packed
    moves: StepRecord
    log: Array  # occurrences of events


class _StepSpan(eqx.Module):
    """An attempted step: times since the start, its size, and whether it was accepted."""

    begin: Float[Array, ""]
    end: Float[Array, ""]
    size: Float[Array, ""]
    accepted: Bool[Array, ""]
    interrupted: Bool[Array, ""]  # by an event; a save at that time has the state after it


class _StepEvents(eqx.Module):
    events: EventState  # after the step; `replay` has those of this step
    interrupted: Bool[Array, ""]  # whether the step ends at one
    which: Int[Array, ""]  # index of that event
    row: Int[Array, ""]  # row in which it is kept, -1 if it is not
    outcome: Float[Array, " D"]  # decisions about gaps at it
    share: Float[Array, ""]  # the fraction of the step up to it
    end: EvaluatedState  # where that part ends
    after: EvaluatedState  # from which the motion continues
    status: Int[Array, ""]  # `STOPPED` after a terminal event, or a failure


@dataclass(frozen=True, eq=False)
class _Run:
    """The inputs that stay fixed during a run."""

    scheme: Scheme
    tolerance: Tolerance
    t0: Array
    sign: Array
    elapsed: Array  # the save times from the start
    # Computed before the loop, which only reads single rows of the save times: they stay in memory.
    span: Array  # the time from the start to the end, not negative
    at_start: Array  # the number of save times at the start: one, or more if it is repeated
    params: Params
    event_set: EventSet
    times: Array  # at which a step ends (K,), from the start; in order if many
    ends: Array  # the times by `sorted_ends`
    extents: Float[Array, " n"]  # of the coordinates

    @property
    def shortest(self) -> Array:
        """The size of a step below which adding it to the time no longer changes the time."""
        largest = jnp.maximum(jnp.abs(self.t0), jnp.abs(self.time(self.span)))
        return 4 * jnp.finfo(largest.dtype).eps * jax.lax.stop_gradient(largest)

    def time(self, elapsed: Array) -> Array:
        return self.t0 + self.sign * elapsed

    def stop(self, elapsed: Array) -> Array:
        """The next time at which a step ends."""
        if not self.times.size:
            return self.span
        if not self.ends.size:
            return jnp.min(jnp.where(self.times > elapsed, self.times, self.span))
        following = jnp.searchsorted(self.times, elapsed, side="right")
        last = self.times.size - 1
        stop = self.times[jnp.minimum(following, last)]
        return jnp.where(following > last, self.span, jnp.minimum(stop, self.span))

    def observed_before(self, state: _RunState) -> Array:
        """The number of recorded events so far that changed nothing."""
        if not self.event_set:
            return jnp.zeros((), jnp.int32)
        capacities = jnp.asarray(
            [0 if e.interrupts else e.keep for e in self.event_set.events], jnp.int32
        )
        return jnp.minimum(state.events.counts, capacities).sum()

    def packed(self, state: _RunState) -> Array:
        """q, v, memory; with events or times also a shift of time, zero, and the switches."""
        q, v, events = state.start.q, state.start.v, state.events
        shift = jnp.zeros(int(bool(self.event_set) or self.times.size > 0), q.dtype)
        return jnp.concatenate([q, v, state.memory, shift, events.active.astype(q.dtype)])


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
        memory, q0, v0, t0, within(first, params), first if event_set else None
    )
    start_params, events, status, extents = begin_run(
        scheme, event_set, q0, v0, t0, sign, first_params, ordered
    )
    run = _Run(
        scheme, tolerance, t0, sign, elapsed, elapsed[-1], at_start, params, event_set, times,
        ends, extents,
    )  # fmt: skip
    initial = _start(run, q0, v0, memory, start_params, events, status)
    zero, active = jnp.zeros((), q0.dtype), event_set.active()
    save_rows = empty_rows(len(ts), SavedStates(q0, v0, memory, zero, zero, active).packed)
    # Events that change nothing are moves of their own, as far as they are kept.
    max_moves = scheme.adaptive.max_steps + len(ts) - 1 + event_set.rows[-1]
    columns = 3 + event_set.gaps.words if event_set else 1
    moves = StepRecord.empty(max_moves, segment, jnp.zeros_like(run.packed(initial)), columns)
    state, rows = jax.lax.while_loop(
        lambda carry: _goes_on(run, carry[0]) & (carry[0].status == Status.OK),
        partial(_advanced, run),
        (initial, _RunRows(save_rows, moves, event_set.log(q0, v0))),
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
    resolution = replace(errors, rounding=rounding).resolution(rest, states)
    error = jnp.maximum(error, resolution)
    trajectory = Trajectory(
        saves=saves.known(is_known),
        rank=state.rank,
        status=state.status,
        t_failed=state.t_failed,
        error=jnp.where(accepted > 0, error, jnp.nan),
        resolution=resolution,
        counts=state.counts,
        events=state.events,
        occurrences=rows.log,
    )
    move_count = accepted + state.saved - at_start + run.observed_before(state)
    return trajectory, rows.moves.finished(move_count, state.saved)


def _start(
    run: _Run, q: Array, v: Array, memory: Array, params: Params, events: EventState,
    status: Array,
) -> _RunState:  # fmt: skip
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
    return _RunState(
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


def _advanced(run: _Run, carry: tuple[_RunState, _RunRows]) -> tuple[_RunState, _RunRows]:
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
    turns, hidden = jnp.zeros((), jnp.int32), jnp.zeros(0, jnp.int32)
    if run.event_set:
        ends, share = ((begin.q, begin.v), (tried.end.q, tried.end.v)), proposed / run.span
        of_each, hidden = step_turns(
            run.event_set, run.scheme, *ends, t, h, run.params, share, state.events.values
        )
        # The events that samples show where a function turns. Few enough turns, but no step below
        # that with which the number of steps would suffice for the run.
        turns, hidden = of_each.max(), jnp.where(of_each < 2, 0, hidden)
        is_good &= (turns < 2) | (share < 1 / run.scheme.adaptive.max_steps)
    event, log = _events_in_step(
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
    step = _StepSpan(state.elapsed, elapsed, size, accepted, changes_at_end)

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
    next_state, rows = _save_reached(
        run, replace(state, start=begin, memory=memory), next_state, step, rows, first
    )
    next_state, moves = _after_events(run, state, next_state, step, event, rows.moves, first)

    is_repeated = next_state.is_repeat & (next_state.size < run.shortest)
    is_over = counts.accepted + counts.rejected >= run.scheme.adaptive.max_steps
    is_over &= _goes_on(run, next_state)
    is_stuck = event.interrupted & (size < _STUCK * run.span)
    is_stiff = next_state.limited >= _SUSPICIOUS
    code = jnp.where(is_stiff, int(Status.STIFF), int(Status.MAX_STEPS))
    code = jnp.where(is_stuck, int(Status.TOO_MANY_EVENTS), code)
    underflow = jnp.where(tried.status == Status.OK, int(Status.STEP_UNDERFLOW), tried.status)
    status = jnp.where(is_over, code, int(Status.OK))
    next_state = _with_status(run, next_state, jnp.where(is_repeated, underflow, status))
    observed = run.observed_before(next_state)
    number = state.counts.accepted + next_state.saved - run.at_start + observed
    ended: Any = None
    if run.event_set:
        indices = (jnp.where(event.interrupted, x, -1) for x in (event.which, event.row))
        ended = *indices, event.outcome
    moves = moves.with_move(number, size, step.begin, first, accepted, ended)
    return next_state, replace(rows, moves=moves)


def _goes_on(run: _Run, state: _RunState) -> Array:
    is_short = state.elapsed < run.span
    return is_short | state.events.due if run.event_set else is_short


def _after_kink(
    run: _Run, state: _RunState, t: Array, interval: AnyInterval
) -> tuple[EvaluatedState, _RunState]:
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
    run: _Run, state: _RunState, tried: Attempt, elapsed: Array, size: Array
) -> _RunState:
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


def _events_in_step(
    run: _Run, state: EventState, start: EvaluatedState, tried: Attempt, t: Array,
    size: Array, accepted: Array, hidden: Array, log: Array,
) -> tuple[_StepEvents, Array]:  # fmt: skip
    """Find the events in a step, given the whole attempt; also the log with them.

    `hidden` are those that samples show.
    """
    event_set, scheme, params, end = run.event_set, run.scheme, run.params, tried.end

    def none(events: EventState) -> _StepEvents:
        no, zero = jnp.asarray(False), jnp.zeros((), jnp.int32)
        ok, unit = jnp.asarray(Status.OK, jnp.int32), jnp.ones((), end.q.dtype)
        outcome = event_set.gaps.undecided(end.q.dtype)
        return _StepEvents(events, no, zero, zero - 1, outcome, unit, end, end, ok)

    if not event_set:
        return none(state), log
    h = run.sign * size
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

    def part(base: StepState, h: Array, params: Params) -> tuple[StepState, StepInfo]:
        # A step ends at the first event that changes the motion, so all parts begin where it does.
        shorter = attempt(scheme, run.tolerance, start, base.t, h, params, run.extents)
        good = shorter.status == Status.OK
        info = StepInfo(good, shorter.status, shorter.rank, good)
        return StepState(shorter.end.q, shorter.end.v, base.t + h), info

    happens = (accepted & happens) | state.due
    search, log = through_events(
        scheme, event_set, StepState(start.q, start.v, t), h, params, state,
        jnp.zeros((), jnp.int32), dips, happens, log, run.extents, part,
    )  # fmt: skip

    def rarely() -> _StepEvents:
        events, end_t = search.events, t + search.base_u * h
        before = scheme.in_step(start.q, start.v, t, search.base_u * h, params)
        end_state = evaluated_state(scheme, search.event_q, search.event_v, end_t, before)
        after = event_set.params(params, events.active)
        after = scheme.in_step(search.q, search.v, end_t, h, after)
        next_state = evaluated_state(scheme, search.q, search.v, end_t, after)
        _, _, index, row, outcome = events.replay.at(events.replay.count - 1)
        code = first_that_holds(
            (~search.info.good, search.info.status),
            (jnp.isnan(events.values).any(), Status.EVENT_IS_NAN),
            (events.stopped_by >= 0, Status.STOPPED),
        )
        ends = jax.tree.map(partial(jnp.where, search.interrupted), end_state, end)
        return _StepEvents(
            events, search.interrupted, index, row, outcome,
            search.base_u, ends, next_state, code,
        )  # fmt: skip

    def usually() -> _StepEvents:
        return none(jax.tree.map(partial(jnp.where, accepted), passed, previous))

    event = jax.lax.cond(happens, rarely, usually)
    missed = jnp.maximum(hidden - (event.events.counts - counts_before), 0)
    missed = missed_before + jnp.where(accepted & ~event.interrupted, missed, 0)
    return replace(event, events=replace(event.events, missed=missed)), log


def _after_events(
    run: _Run, before: _RunState, state: _RunState, step: _StepSpan, event: _StepEvents,
    moves: StepRecord, packed: Array,
) -> tuple[_RunState, StepRecord]:  # fmt: skip
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

    state = _with_status(run, replace(state, start=start, events=event.events), event.status)
    first_entry = jnp.zeros((), jnp.int32)
    *_, moves = jax.lax.while_loop(
        lambda carry: carry[0] < replay.count, add, (first_entry, first, moves)
    )
    return state, moves


def _with_status(run: _Run, state: _RunState, status: Array) -> _RunState:
    """The state with the status of a step, unless the run has ended before."""
    is_ok = state.status == Status.OK
    failed = is_ok & (status != Status.OK) & (status != Status.STOPPED)
    t = jax.lax.stop_gradient(run.time(state.elapsed))
    return replace(
        state,
        status=jnp.where(is_ok, status, state.status).astype(jnp.int32),
        t_failed=jnp.where(failed, t, state.t_failed),
    )


def _save_reached(
    run: _Run, previous: _RunState, reached_state: _RunState, step: _StepSpan, rows: _RunRows,
    first: Array,
) -> tuple[_RunState, _RunRows]:  # fmt: skip
    """Write the saves within an accepted step; `first` is the packed state before it."""
    scheme, system, start = run.scheme, run.scheme.system, previous.start
    begin_t, last = run.time(step.begin), len(run.elapsed) - 1

    def target(saved: Array) -> Array:
        """The time, from the start, of the next save, or of the last one."""
        index = jnp.minimum(saved, last)
        return jax.lax.dynamic_index_in_dim(run.elapsed, index, keepdims=False)

    def shorter(h: Array) -> Attempt:
        return attempt(scheme, run.tolerance, start, begin_t, h, run.params, run.extents)

    def rates(state: EvaluatedState, t: Array) -> tuple[Array, Array, Array]:
        """q, its rate and its acceleration at a state."""
        accelerations = system.dynamics.speed_rates(state.q, state.v, state.qdd, t, run.params)
        return state.q, system.dynamics.speeds(state.q, state.v, t, run.params), accelerations

    def middle() -> tuple[Array, Array, Array]:
        h = run.sign * step.size / 2
        return rates(shorter(h).end, begin_t + h)

    nodes: tuple[float, ...] = (0.0, 1.0)
    states = [rates(start, begin_t), rates(reached_state.start, run.time(step.end))]
    if scheme.method.order > 5:
        nodes, is_used = (0.0, 0.5, 1.0), step.accepted & (target(reached_state.saved) < step.end)
        states.insert(1, jax.lax.cond(is_used, middle, lambda: states[0]))

    def inside(elapsed: Array, t: Array) -> tuple[Array, Array, Array]:
        """q and v within the step, and whether they could be projected."""
        fraction = jnp.where(elapsed < step.end, (elapsed - step.begin) / step.size, 1.0)
        if not scheme.pair.interpolates:
            # Accelerations of stiff systems are too sensitive to interpolate with.
            made = shorter(run.sign * fraction * step.size)
            return made.end.q, made.end.v, made.status == Status.OK
        q, speeds = _interpolated(nodes, states, run.sign * step.size, fraction)
        v = system.dynamics.from_speeds(q, speeds, t, run.params)
        (q, v), is_finite = finite_states((q, v), (start.q, start.v))
        stabilization = scheme.stabilization
        if scheme.formulation.chart(system, q, v, t, run.params) is not None:
            stabilization = stabilization if isinstance(stabilization, Projection) else Projection()
        q, v, reached = stabilization.after_step(system, q, v, t, run.params)
        return q, v, reached & is_finite

    def goes_on(carry: tuple[_RunState, _RunRows]) -> Array:
        saved, elapsed = carry[0].saved, target(carry[0].saved)
        is_before_end = (elapsed < step.end) | ((elapsed == step.end) & ~step.interrupted)
        return (step.accepted & (saved <= last) & is_before_end) & (carry[0].status == Status.OK)

    def save(carry: tuple[_RunState, _RunRows]) -> tuple[_RunState, _RunRows]:
        state, rows = carry
        index, elapsed = state.saved, target(state.saved)
        t, at_begin = run.time(elapsed), (start.q, start.v, jnp.asarray(True))
        is_later = partial(jnp.where, elapsed > step.begin)
        q, v, reached = jax.tree.map(is_later, inside(elapsed, t), at_begin)
        position, velocity = residuals(scheme, q, v, t, run.params)
        position = jnp.maximum(state.position, position)
        velocity = jnp.maximum(state.velocity, velocity)
        row = SavedStates(q, v, previous.memory, position, velocity, previous.events.active)
        number = previous.counts.accepted + index - run.at_start + run.observed_before(previous)
        moves = rows.moves.with_move(number, -index, step.begin, first, reached)
        saves = with_row(rows.saves, index, row.packed, reached)
        zero = jnp.zeros_like(step.size)
        state = replace(
            state,
            saved=index + reached,
            position=zero,
            velocity=zero,
            status=jnp.where(reached, state.status, int(Status.PROJECTION_FAILED)),
            t_failed=jnp.where(reached, state.t_failed, begin_t),
        )
        return state, replace(rows, saves=saves, moves=moves)

    return jax.lax.while_loop(goes_on, save, (reached_state, rows))


@cache
def _hermite(nodes: tuple[float, ...]) -> Any:
    """Coefficients (nodes, 3, 3 nodes) of polynomials, rising powers last.

    Each has value, slope or curvature one at a node, and zero otherwise.
    """
    degree = 3 * len(nodes)
    rows = []
    for derivative in range(3):
        for x in nodes:
            powers = np.polynomial.polynomial.polyder(np.eye(degree), derivative)
            rows.append(np.polynomial.polynomial.polyval(x, powers))
    coefficients = np.linalg.inv(np.array(rows)).T
    exact = np.round(coefficients * 2) / 2  # they are whole or half numbers for halves of a step
    return exact.reshape(3, len(nodes), degree).transpose(1, 0, 2)


def _interpolated(
    nodes: tuple[float, ...], states: Any, h: Array, fraction: Array
) -> tuple[Array, Array]:
    """q and its rate at a `fraction` of a step, from both and its acceleration at some fractions.

    Two nodes have an error of order h^6 in q and h^5 in v; three have h^9 and h^8.
    """
    basis = _hermite(nodes)
    slopes = np.polynomial.polynomial.polyder(basis, axis=-1)
    values, rates = _powers(basis, fraction), _powers(slopes, fraction)
    first = states[0][0]
    # The polynomials of the values add up to one: differences keep the digits of a short step.
    q, v = first, jnp.zeros_like(first)
    for k, (position, speed, acceleration) in enumerate(states):
        columns = position - first, h * speed, h * h * acceleration
        for derivative, column in enumerate(columns):
            if k or derivative:
                q = q + values[k, derivative] * column
                v = v + rates[k, derivative] * column
    return q, v / h


def _powers(coefficients: np.ndarray, x: Array) -> Array:
    values = jnp.zeros(coefficients.shape[:-1], x.dtype)
    for power in range(coefficients.shape[-1])[::-1]:
        values = values * x + jnp.asarray(coefficients[..., power], x.dtype)
    return values
