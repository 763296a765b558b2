"""The moves of a run with fixed steps: its steps, and the parts of steps between events.

The sizes of its steps are arithmetic. The events of each segment are recorded with their times, so
that they are not searched for again.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.consistency import extents_at
from jaxmech.integrate.derivatives.event_moves import Move, ReplayState, to_event, to_step_end
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
from jaxmech.integrate.events.log import most_in_segment
from jaxmech.integrate.events.watch import EventSet
from jaxmech.integrate.rollout import SegmentEvents, Trajectory, rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.integrate.step_segments import StepSegments, segments
from jaxmech.integrate.times import within
from jaxmech.system import Params


def fixed_trajectory(
    scheme: Scheme, watch: EventSet | None, steps: int, x: RolloutInputs
) -> Trajectory:
    """The rollout in segments of some steps, as one operation with its derivatives."""
    by = scheme if watch is not None else scheme.undifferentiated()

    def forward(x: RolloutInputs) -> tuple[Trajectory, RunRecord]:
        given = x.q0, x.v0, x.ts, x.params
        run, (q, v, events) = rollout(by, *given, segment=steps, watch=watch, times=x.times)
        offset = [] if watch is None else [jnp.zeros_like(q[:, :1])]
        return run, RunRecord(
            starts=jnp.concatenate([q, v, *offset], axis=1),
            states=None,
            steps=events,
            known=~jnp.isnan(run.q[:, 0]),
            t_failed=run.t_failed,
            active=None,
            counts=None if run.events is None else run.events.counts,
        )

    zero, whole = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    first = jax.tree.map(lambda rows: rows[0], segments(x.ts, steps, steps, x.times))
    state = ReplayState(x.q0, x.v0, None if watch is None else zero)
    move = Move(zero, zero, None, whole == 0, span=first.span, turns=first.turns, extents=x.q0)
    if watch is None:
        parts: list[Part] = [partial(_step, scheme), partial(_extents, scheme)]
        x, run, found = with_traced(forward, x, parts, [(state, move), (state, first)])
        plain, event, extents = found[0], None, found[1]
    else:
        active = watch.active()
        move = replace(
            move, size=zero, which=whole, row=whole, active=active, extents=None, goes_on=None,
            is_made=whole == 0,
        )  # fmt: skip
        parts = [partial(kind, scheme, watch) for kind in (to_event, to_step_end)]
        x, run, (event, plain) = with_traced(forward, x, parts, [(state, move)] * 2)
        extents = None
    length = steps + (0 if watch is None else most_in_segment(len(watch.events)))
    program = FixedReplay(watch, length, plain, event, scheme.per_save, steps, extents)
    return run_operation(run, program, x)


def _step(scheme: Scheme, state: ReplayState, move: Move, params: Params) -> ReplayState:
    q, v, t, now = move.begun(scheme, None, state, params)
    q, v, _ = step(scheme, q, v, t, move.h, now, move.extents)
    return ReplayState(q, v, None)


def _extents(scheme: Scheme, state: ReplayState, first: StepSegments, params: Params) -> Array:
    return extents_at(scheme.system, state.q, state.v, first.t, within(first.span, params))


class Segment(eqx.Module):
    """A segment of steps of a fixed size, or S of them."""

    start: Float[Array, " *S w"]
    steps: StepSegments
    t_failed: Float[Array, " *S"]  # as in `Trajectory`
    events: SegmentEvents | None


class Position(NamedTuple):
    """The position of the replay in a segment."""

    # Without events only the extents are known, and with them they are not.
    step: Any  # index of the step
    entry: Any  # number of replayed events
    active: Any  # constraints that are on (C,)
    moving: Any  # whether the trajectory still moves
    extents: Any  # of the coordinates (n,)


@dataclass(frozen=True)
class FixedReplay(StepReplay):
    """The replay of a run with fixed steps.

    Attributes:
        per_save: steps per save interval.
        steps: steps of a segment.
        extents: the extents of the coordinates in a segment; None with events.
    """

    per_save: int
    steps: int
    extents: MoveFunction | None

    def segments(self, x: RolloutInputs, record: RunRecord) -> Segment:
        """The segments of equal steps."""
        place = segments(x.ts, self.per_save, self.steps, x.times)
        assert record.t_failed is not None
        t_failed = jnp.broadcast_to(record.t_failed, place.t.shape)
        return Segment(record.starts, place, t_failed, record.steps)

    def times(self, count: int, ts: Array | None, times: Array | None) -> Any:
        """The save time before each segment, and its step size."""
        if ts is None:
            return None
        place = segments(ts, self.per_save, self.steps)
        return place.t, place.h

    def begin(
        self, x: RolloutInputs, segment: Segment, shared: Any
    ) -> tuple[ReplayState, Position]:
        """The state before a segment."""
        state = ReplayState.unpacked(segment.start, x.q0.size)
        if segment.events is None:
            assert self.extents is not None
            extents = self.extents(state, segment.steps, shared)
            return state, Position(None, None, None, None, extents)
        none, events = jnp.zeros((), jnp.int32), segment.events
        return state, Position(none, none, events.active, events.moving, None)

    def move(self, place: MovePlace, state: ReplayState, times: Any) -> Move:
        """A step, or a part of one."""
        segment, position = place.segment, place.position
        steps = segment.steps
        t, h = (steps.t, steps.h) if times is None else times
        t = t + (steps.done + (place.number if position.step is None else position.step)) * h
        # Half a step is beyond round-off of t, and dividing by h serves runs backwards in time too.
        failed = (segment.t_failed - t) / h < 0.5  # false for NaN
        turns = None if steps.turns is None else steps.turns & (place.number == 0)
        move = Move(t, h, None, ~failed, span=steps.span, turns=turns, extents=position.extents)
        if segment.events is None:
            return move
        replay = segment.events.replay
        at, size, which, row = replay.at(position.entry)
        is_event = (position.entry < replay.count) & (at == position.step)
        # After a terminal event, a failure or the last step the remaining moves do nothing.
        is_made = position.moving & (position.step < self.steps) & ~failed
        return replace(
            move,
            is_made=is_made,
            goes_on=None,
            size=size,
            which=jnp.where(is_event, which, -1),
            row=jnp.where(is_event, row, -1),
            active=position.active,
        )

    def after(self, place: MovePlace, move: Move) -> Position:
        """The next step or event."""
        position: Position = place.position
        if self.watch is None:
            return position
        is_event = move.which >= 0
        switched = self.watch.switched(move.which, position.active)
        return Position(
            position.step + (move.is_made & ~is_event),
            position.entry + (move.is_made & is_event),
            jnp.where(move.is_made & is_event, switched, position.active),
            position.moving & ~(is_event & self.watch.stops(move.which)),
            None,
        )

    def made(self, move: Move, state: ReplayState, shared: Any) -> tuple[ReplayState, Any]:
        """The state after a step or an event."""
        plain = partial(self.plain, state, move, shared)
        if self.event is None or self.watch is None:
            return plain(), None
        event = partial(self.event, state, move, shared)
        none = jnp.zeros(self.watch.width(state.q), state.q.dtype)
        return jax.lax.cond(move.which >= 0, event, lambda: (plain(), none))

    def pull_through(
        self, through: Any, move: Move, inputs: Any, wrt_end: ReplayState, wrt_row: Any
    ) -> Any:
        """Pull back through a step or an event."""

        # One of the two at a time is differentiated, and not the `cond` of both, which would pass
        # intermediate values of loops from one `cond` to another: native code cannot do that.
        def plain() -> Any:
            return jax.vjp(through(self.plain), *inputs)[1](wrt_end)

        if self.event is None:
            return plain()
        event = through(self.event)
        return jax.lax.cond(
            move.which >= 0, lambda: jax.vjp(event, *inputs)[1]((wrt_end, wrt_row())), plain
        )

    def complete(self, segment: Segment, derivatives: Any) -> Any:
        """NaN where there were more events than are recorded."""
        if segment.events is None:
            return derivatives
        replay = segment.events.replay
        is_complete = replay.count <= replay.step.shape[-1]
        return jax.tree.map(lambda d: jnp.where(is_complete, d, jnp.nan), derivatives)

    def pulled_saves(
        self, x: RolloutInputs, record: RunRecord, saves: Array, wrt_starts: Array
    ) -> tuple[Array, Array, Array]:
        """A save is the start of the segment that follows, the last one is the end."""
        stride, width = self.per_save // self.steps, wrt_starts.shape[1] - saves.shape[1]
        saves = jnp.pad(saves, ((0, 0), (0, width)))
        _, pull = jax.vjp(lambda starts: starts[::stride], wrt_starts)
        return saves[-1], wrt_starts + pull(saves[:-1])[0], jnp.zeros_like(saves[0])

    def results(
        self, x: RolloutInputs, record: RunRecord, changes: RolloutInputs, start: Array,
        end: Array, rows: PushedRows,
    ) -> SmoothResults:  # fmt: skip
        """The tangents of the saves and events."""
        n, stride = x.q0.size, self.per_save // self.steps
        saves = jnp.concatenate([rows.starts[::stride], end[None]])
        log = rows.log
        if self.watch is not None and log is not None and record.counts is not None:
            replay = record.steps.replay
            is_known = jnp.arange(replay.row.shape[1])[None] < replay.count[:, None]
            places = jnp.where(is_known & (replay.row >= 0), replay.row, len(log)).ravel()
            known = jnp.zeros(len(log), bool).at[places].set(True, mode="drop")[:, None]
            # Events beyond those that a segment records are unknown.
            unknown = jnp.where(self.watch.is_kept(record.counts), jnp.nan, 0.0)[:, None]
            log = jnp.where(known, log, unknown)
        return SmoothResults(saves[:, :n], saves[:, n : 2 * n], log, (rows.starts, None))
