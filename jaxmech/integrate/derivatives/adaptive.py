"""The moves of a run with adaptive steps: its steps, whose sizes are held, events and saves.

A move is an accepted step, or the part of a step that leads to a save; the latter comes before the
step in which the save lies, and both begin at the same state. Where an event moves in time, all
later moves are delayed as much: the delay is a part of the state, whose value is always zero. Save
times enter by the speeds and accelerations at the saves, because a save is a state of the motion.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.derivatives.event_moves import Move, ReplayState, along_motion, at_event
from jaxmech.integrate.derivatives.record import StepRecord
from jaxmech.integrate.derivatives.replay import (
    MoveFunction,
    MovePlace,
    PushedRows,
    RunRecord,
    StepReplay,
)
from jaxmech.integrate.derivatives.run_rule import (
    Part,
    RolloutInputs,
    SmoothResults,
    run_operation,
    with_traced,
)
from jaxmech.integrate.events.watch import EventSet
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.integrate.times.spans import Span, span_at, within
from jaxmech.system import Params

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


def adaptive_trajectory(
    scheme: Scheme, watch: EventSet | None, segment: int | None, x: RolloutInputs
) -> Trajectory:
    """The run in segments of some moves, as one operation with its derivatives."""
    length = segment or SEGMENT
    by_pair = scheme.with_one_step()

    def forward(x: RolloutInputs) -> tuple[Trajectory, RunRecord]:
        given = x.q0, x.v0, x.ts, x.params, x.tolerance
        run, (record, starts) = adaptive_rollout(
            scheme, *given, segment=length, watch=watch, times=x.times
        )
        states = jnp.concatenate([run.q, run.v], axis=1)
        known = ~jnp.isnan(states[:, 0])
        return run, RunRecord(
            starts=starts,
            states=jnp.where(known[:, None], states, 0.0),
            steps=record,
            known=known,
            t_failed=None,
            active=run.active,
            counts=None if run.events is None else run.events.counts,
        )

    def rates(
        state: Array, t: Array, active: Array | None, span: Span | None, params: Params
    ) -> Array:
        (q, v), now = jnp.split(state, 2), within(span, params)
        now = now if watch is None or active is None else watch.params(now, active)
        _, law = scheme.law(q, v, t, now)
        return jnp.concatenate([v, law.qdd])

    zero, whole = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    active, span, turns, late = None if watch is None else watch.active(), None, None, None
    if x.times is not None:
        span, turns, late = Span(zero, zero), jnp.asarray(False), zero
    offset = None if watch is None and x.times is None else zero
    move = Move(
        zero, zero, whole == 0, whole == 0, whole, zero, whole, whole, active, span, turns, late
    )
    at_start, at_save = (ReplayState(x.q0, x.v0, offset), move), jnp.concatenate([x.q0, x.v0])
    parts: list[Part] = [partial(make_step, by_pair, watch), rates]
    examples: list[Any] = [at_start, (at_save, zero, active, span)]
    if watch is not None:
        parts, examples = [partial(_event, by_pair, watch), *parts], [at_start, *examples]
    x, run, (*event, plain, rates) = with_traced(forward, x, parts, examples)
    program = AdaptiveReplay(watch, length, plain, event[0] if event else None, rates)
    return run_operation(run, program, x)


def make_step(
    by_pair: Scheme, watch: EventSet | None, state: ReplayState, move: Move, params: Params
) -> ReplayState:
    """The state after a step."""
    q, v, t, now = move.begun(by_pair, watch, state, params)
    q, v, _ = step(by_pair, q, v, t, move.h, now)
    return ReplayState(q, v, state.offset if move.late is None else move.late)


def _event(
    by_pair: Scheme, watch: EventSet, state: ReplayState, move: Move, params: Params
) -> tuple[ReplayState, Array]:
    """Process an event at the end of a step; also the row of the event."""
    params = within(move.span, params)
    t, now = move.t + state.offset + move.h, watch.params(params, move.active)
    # As at a save, the derivative by the time of an event is that of the motion: that of the step
    # by its size is the same to within the tolerance, but would be a second step to differentiate.
    motion = along_motion(by_pair, state.q, state.v, t, now)
    late, after, row = at_event(by_pair, watch, motion, jnp.zeros_like(move.h), move, params)
    return ReplayState(*after, state.offset + late), row


class AdaptiveSegment(eqx.Module):
    """The moves of a segment, or of S of them."""

    start: Float[Array, " *S w"]
    record: StepRecord


class ElapsedPosition(NamedTuple):
    """The position of the replay in a segment."""

    active: Bool[Array, " C"] | None  # constraints that are on; None without events
    elapsed: Float[Array, ""]  # time since the start of the run


@dataclass(frozen=True)
class AdaptiveReplay(StepReplay):
    """The replay of a run with adaptive steps.

    Attributes:
        rates: from a state (2 n,), t, active, span and shared inputs to its time derivative.
    """

    rates: MoveFunction | None = None
    has_saves: ClassVar[bool] = True

    def segments(self, x: RolloutInputs, record: RunRecord) -> AdaptiveSegment:
        """The moves by segment."""
        segments = record.steps.by_segment()
        # A segment without moves has no state: the initial one stands in for it, at which all
        # functions can be evaluated. Of a single trajectory native code computes what depends on
        # `x.q0`; with events that would take minutes to compile for second derivatives.
        first = record.starts[0]
        if self.watch is None:
            shift = [] if x.times is None else [jnp.zeros_like(first[:1])]
            first = jnp.concatenate([x.q0, x.v0, *shift])
        starts = jnp.where((segments.count > 0)[:, None], record.starts, first[None])
        return AdaptiveSegment(starts, segments)

    def times(self, count: int, ts: Array | None, times: Array | None) -> Any:
        """The first time of the run, and the times at which a step ends."""
        both = None if ts is None else ts[0], times
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), both)

    def begin(
        self, x: RolloutInputs, segment: AdaptiveSegment, shared: Any
    ) -> tuple[ReplayState, ElapsedPosition]:
        """The state before a segment."""
        n, active = x.q0.size, None
        if self.watch is not None:
            active = segment.start[2 * n + 1 :] > 0.5
        state = ReplayState.unpacked(segment.start, n)
        return state, ElapsedPosition(active, segment.record.begins)

    def move(self, place: MovePlace, state: ReplayState, times: Any) -> Move:
        """A step or a save."""
        x, segment, number, position = place
        t0, step_times = (None, None) if times is None else times
        t0, step_times = (
            x.ts[0] if t0 is None else t0,
            x.times if step_times is None else step_times,
        )
        # Any length at which the step can be computed: its result is not used, but must not be NaN.
        usual = jnp.abs(x.ts[1] - x.ts[0])
        is_made, size, save, which, row = segment.record.move(number, usual)
        sign = jnp.sign(x.ts[-1] - x.ts[0])
        now = x.ts[0] + sign * position.elapsed
        left = jax.lax.dynamic_index_in_dim(x.ts, save, keepdims=False) - now
        if state.offset is not None:
            left = left - state.offset
        goes_on = is_made & (save == 0)
        if self.watch is not None:
            goes_on &= (which < 0) | self.watch.cuts(which)
        t, h, signed = t0 + sign * position.elapsed, sign * size, sign * size
        move = Move(t, h, is_made, goes_on, save, signed, which, row, position.active)
        if step_times is None:
            return replace(move, h=jnp.where(save > 0, left, h))
        held = jax.lax.stop_gradient(x.times)
        ends = x.ts[0] + sign * self._fixed(x)
        span, begin = span_at(ends, now, x.ts[0], x.ts[-1])
        is_end, here = self._ends(x, position.elapsed + size, save, which)
        # Zero, but its derivative is that of the time at which the step ends.
        moved = (step_times - t0) - jax.lax.stop_gradient(held - x.ts[0])
        late = jnp.where(is_end, jnp.where(here, moved, 0.0).sum(), state.offset)
        h = h + (late - state.offset)
        return replace(
            move, h=jnp.where(save > 0, left, h), span=span, turns=begin == now, late=late
        )

    def after(self, place: MovePlace, move: Move) -> ElapsedPosition:
        """The next move."""
        x, position = place.x, place.position
        elapsed = jnp.where(move.goes_on, position.elapsed + jnp.abs(move.size), position.elapsed)
        if x.times is not None:
            is_end, here = self._ends(
                x, position.elapsed + jnp.abs(move.size), move.save, move.which
            )
            exact = jnp.where(here, self._fixed(x), 0.0).sum()
            elapsed = jnp.where(is_end & move.goes_on, exact, elapsed)
        active: Any = position.active
        if self.watch is not None and active is not None:
            switched = self.watch.switched(move.which, active)
            active = jnp.where(move.is_made & (move.which >= 0), switched, active)
        return ElapsedPosition(active, elapsed)

    def _fixed(self, x: RolloutInputs) -> Array:
        """The times at which a step ends, from the start, as the forward run has them."""
        held, first, last = jax.lax.stop_gradient((x.times, x.ts[0], x.ts[-1]))
        return jnp.sign(last - first) * (held - first)

    def _ends(
        self, x: RolloutInputs, end: Array, save: Array, which: Array
    ) -> tuple[Array, Bool[Array, " K"]]:
        """Whether a step has to end where a move ends, and the flags (K,) of that time."""
        first, last = jax.lax.stop_gradient((x.ts[0], x.ts[-1]))
        apart = jnp.abs(self._fixed(x) - end)
        near = 4 * jnp.finfo(first.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
        here = jnp.arange(apart.size) == jnp.argmin(apart)
        is_step = (save == 0) & (which < 0)
        return is_step & (apart.min() <= near) & (end < jnp.abs(last - first) - near), here

    def made(self, move: Move, state: ReplayState, shared: Any) -> tuple[ReplayState, Any]:
        """The state after a step, and after an event at its end."""
        end = self.plain(state, move, shared)
        if self.event is None or self.watch is None:
            return end, None
        event = partial(self.event, end, move, shared)
        none = jnp.zeros(self.watch.width(state.q), state.q.dtype)
        return jax.lax.cond(move.which >= 0, event, lambda: (end, none))

    def pull_through(
        self, through: Any, move: Move, inputs: Any, wrt_end: ReplayState, wrt_row: Any
    ) -> Any:
        """Pull back through an event, and then through the step before it."""
        _, times, traced = inputs
        end, pull = jax.vjp(through(self.plain), *inputs)
        if self.event is None:
            return pull(wrt_end)
        # The step and the event are differentiated apart: the event is the rare case.
        event, none = through(self.event), jax.tree.map(jnp.zeros_like, (times, traced))
        wrt_end, *wrt = jax.lax.cond(
            move.which >= 0,
            lambda: jax.vjp(event, end, times, traced)[1]((wrt_end, wrt_row())),
            lambda: (wrt_end, *none),
        )
        wrt_before, *more = pull(wrt_end)
        return wrt_before, *jax.tree.map(jnp.add, wrt, more)

    def made_segments(self, record: RunRecord) -> Array:
        """The number of segments with moves."""
        return (record.steps.count + self.length - 1) // self.length

    def is_made(self, segment: AdaptiveSegment) -> Array:
        """Whether a segment has any moves."""
        return segment.record.count > 0

    def pulled_saves(
        self, x: RolloutInputs, record: RunRecord, saves: Array, wrt_starts: Array
    ) -> tuple[Array, Array, Array]:
        """Saves at the start are the initial state; those after a terminal event are the end."""
        width = wrt_starts.shape[1] - saves.shape[1]
        saves = jnp.pad(saves, ((0, 0), (0, width)))
        at_start = jnp.where((x.ts == x.ts[0])[:, None], saves, 0.0).sum(0)
        end, reached = jnp.zeros_like(saves[0]), self._reached(record)
        if reached is not None:
            end = jnp.where(reached[:, None], 0.0, saves).sum(0)
        return end, wrt_starts, at_start

    def pulled_times(
        self, x: RolloutInputs, record: RunRecord, saves: Array, wrt_ts: Array
    ) -> Array:
        """A later save time moves its save by (v, qdd)."""
        each = (saves * self._rates_at_saves(x, record)).sum(1)
        each = jnp.where(x.ts != x.ts[0], each, 0.0)
        is_first = jnp.arange(len(x.ts)) == 0
        return wrt_ts + jnp.where(is_first, -each.sum(), each)

    def results(
        self, x: RolloutInputs, record: RunRecord, changes: RolloutInputs, start: Array,
        end: Array, rows: PushedRows,
    ) -> SmoothResults:  # fmt: skip
        """The tangents of the saves and events."""
        n, log, saves = x.q0.size, rows.log, rows.saves
        if self.watch is not None and log is not None and record.counts is not None:
            log = jnp.where(self.watch.is_kept(record.counts)[:, None], log, 0.0)
        reached = self._reached(record)
        if reached is not None:
            saves = jnp.where(reached[:, None], saves, end[None, : 2 * n])
        first = x.ts == x.ts[0]
        saves = jnp.where(first[:, None], start[None, : 2 * n], saves)
        if changes.ts is not None:
            shift = jnp.where(first, 0.0, changes.ts - changes.ts[0])
            saves = saves + shift[:, None] * self._rates_at_saves(x, record)
        # Switches, which follow in the record, have no tangents.
        starts = rows.starts
        starts = jnp.pad(starts, ((0, 0), (0, record.starts.shape[1] - starts.shape[1])))
        begun = self.length * jnp.arange(len(starts)) < record.steps.count
        starts = jnp.where(begun[:, None], starts, 0.0)
        at_saves = jnp.where(record.known[:, None], saves, 0.0)
        return SmoothResults(saves[:, :n], saves[:, n:], log, (starts, at_saves))

    def _rates_at_saves(self, x: RolloutInputs, record: RunRecord) -> Array:
        """Speeds and accelerations at the saves, shape (T, 2 n); zero after a terminal event."""
        assert self.rates is not None
        rates_of = self.rates

        def rates(_: None, save: Any) -> tuple[None, Array]:
            return None, rates_of(*save, x.shared)

        first = jnp.concatenate([x.q0, x.v0])
        states = jnp.where(record.known[:, None], record.states, first[None])
        spans = None if x.times is None else span_at(x.times, x.ts, x.ts[0], x.ts[-1])[0]
        _, found = jax.lax.scan(rates, None, (states, x.ts, record.active, spans))
        reached = self._reached(record)
        return found if reached is None else jnp.where(reached[:, None], found, 0.0)

    def _reached(self, record: RunRecord) -> Array | None:
        """Flags of the saves that moves reached; the others may follow a terminal event."""
        return None if self.watch is None else jnp.arange(len(record.known)) < record.steps.saved
