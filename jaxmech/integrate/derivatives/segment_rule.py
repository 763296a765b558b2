"""The derivatives of runs with fixed steps, segment by segment.

The forward run keeps the state at the end of every segment of steps, and no other; a derivative
runs each segment again from there and differentiates it. With segments of about the square root of
the number of steps, memory grows with that root, and a gradient costs one rollout more than with
every state kept.

With events the forward run also keeps those of each segment with their positions, so that they are
not searched for again. Every step ends with a piece of the motion from its last event, or from its
start; only steps with events have pieces before it.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.derivatives.run_rule import (
    AbstractRun,
    EventPiece,
    PieceState,
    RolloutInputs,
    SmoothResults,
    of_parts,
    pulled_through,
    split_shared,
    to_event,
    to_step_end,
    with_traced,
)
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.rollout import KeptSegments, SegmentEvents, rollout
from jaxmech.integrate.run_params import gap_count
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import StepSegments, segments, turning, within
from jaxmech.integrate.step import StepState, step
from jaxmech.integrate.trajectory import Trajectory, at_saves
from jaxmech.state import Projection
from jaxmech.system import Params

_Times = tuple[Array, Array]  # the save time before a segment, and its step size


class _SegmentData(eqx.Module):
    own: StepSegments  # its time and step may have tangents elsewhere
    t_failed: Float[Array, ""]  # as in `Trajectory`
    events: SegmentEvents

    def complete(self, derivatives: Any) -> Any:
        """Set derivatives to NaN where there were more events than are kept for them."""
        replay = self.events.replay
        if not replay.step.size:
            return derivatives
        is_complete = replay.count <= replay.step.shape[-1]
        return jax.tree.map(lambda d: jnp.where(is_complete, d, jnp.nan), derivatives)


@dataclass(frozen=True)
class _AbstractSegments(AbstractRun):
    per_save: int  # steps per save interval
    steps: int  # steps of a segment
    event_set: EventSet

    @abc.abstractmethod
    def advance(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any
    ) -> tuple[list[Array], Any]:
        """q, v and memory after a segment, and the rows of its events in their order, (K, w)."""

    @abc.abstractmethod
    def pull_back(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Any,
    ) -> tuple[list[Array], _Times, Any]:  # fmt: skip
        """Cotangents of the state, the times and `shared`, from those of the end and the rows."""

    def tangents(
        self, x: RolloutInputs, residuals: KeptSegments, changes: RolloutInputs, is_smooth: bool
    ) -> SmoothResults:
        """Push tangents from the first segment to the last, by a loop of fixed length."""
        traced, fixed = split_shared(x, changes)
        all_segments = self._segments(x)
        timed, d_timed = (all_segments.t, all_segments.h), (None, None)
        if changes.ts is not None:
            timed, d_timed = jax.jvp(self._times, (x.ts,), (changes.ts,))
        zeros = jax.tree.map(jnp.zeros_like, [x.q0, x.v0, x.memory])
        d_start = eqx.combine([changes.q0, changes.v0, changes.memory], zeros)

        # Only tangents are carried: the states at the starts of segments are known from the
        # forward run.
        def push_segment(d_state: list[Array], inputs: Any) -> tuple[list[Array], Any]:
            state, timed, segment, events, d_timed = inputs
            data = _SegmentData(segment, residuals.t_failed, events)

            def run(state: list[Array], traced_times: Any, traced: Any) -> Any:
                times = eqx.combine(traced_times, timed)
                return self.advance(data, state, times, eqx.combine(traced, fixed))

            primal_times = of_parts(d_timed, timed)
            _, (d_state, d_rows) = jax.jvp(
                run, (state, primal_times, traced), (d_state, d_timed, changes.shared)
            )
            d_state = data.complete(d_state)
            return d_state, (d_state, d_rows)

        by_segment = _starts(x, residuals), timed, all_segments, residuals.events, d_timed
        _, (d_ends, d_rows) = jax.lax.scan(push_segment, d_start, by_segment)
        q, v, memory = self._saves(d_start, d_ends)
        return SmoothResults(q, v, memory, self._log(residuals, d_rows), d_ends)

    def cotangents(
        self, x: RolloutInputs, residuals: KeptSegments, needed: RolloutInputs,
        cotangents: SmoothResults,
    ) -> RolloutInputs:  # fmt: skip
        shared, fixed = split_shared(x, needed)
        timed, pull_times = jax.vjp(self._times, x.ts)
        all_segments, rows = self._segments(x), self._rows(residuals, x, cotangents.occurrences)
        first, ends = [x.q0, x.v0, x.memory], list(residuals.smooth)
        saves, pull_saves = jax.vjp(self._saves, first, ends)
        zeros = jax.tree.map(jnp.zeros_like, (saves, ends))
        at_start, at_ends = pull_saves(
            eqx.combine([cotangents.q, cotangents.v, cotangents.memory], zeros[0])
        )
        added = jax.tree.map(jnp.add, at_ends, eqx.combine(list(cotangents.states), zeros[1]))

        def pull_segment(carry: Any, inputs: Any) -> tuple[Any, _Times]:
            (wrt_state, wrt_shared), (replayed, added, rows) = carry, inputs
            # A save at the end of this segment depends on the same state as the segment after it.
            wrt_state = jax.tree.map(jnp.add, wrt_state, added)
            # Segments after a failure pull zeros back. Another one, which is finite, does the same;
            # results that are selected instead would hide NaN, and no product could be folded.
            is_needed = jnp.stack([(x != 0).any() for x in (*wrt_state, rows)]).any()
            replayed = jax.tree.map(lambda x, y: jnp.where(is_needed, x, y), replayed, at_first)
            state, timed, segment, events = replayed
            data = _SegmentData(segment, residuals.t_failed, events)
            wrt_state, wrt_timed, wrt_more = self.pull_back(
                data, state, timed, shared, fixed, wrt_state, rows
            )
            wrt_state, wrt_more = data.complete((wrt_state, wrt_more))
            return (wrt_state, jax.tree.map(jnp.add, wrt_shared, wrt_more)), wrt_timed

        start = jax.tree.map(jnp.zeros_like, (first, shared))
        replays = _starts(x, residuals), timed, all_segments, residuals.events
        at_first = jax.tree.map(lambda rows: rows[0], replays)
        by_segment = replays, added, rows
        (wrt_start, wrt_shared), wrt_timed = jax.lax.scan(
            pull_segment, start, by_segment, reverse=True
        )
        wrt_q, wrt_v, wrt_memory = jax.tree.map(jnp.add, wrt_start, at_start)
        wrt_params, wrt_traced = wrt_shared
        return RolloutInputs(
            wrt_q if needed.q0 else None,
            wrt_v if needed.v0 else None,
            pull_times(wrt_timed)[0] if needed.ts else None,
            wrt_params,
            memory=wrt_memory if needed.memory else None,
            traced=wrt_traced,
        )

    @property
    def _numbers(self) -> Int[Array, " steps"]:
        return jnp.arange(self.steps, dtype=jnp.int32)

    def _segments(self, x: RolloutInputs) -> StepSegments:
        return segments(x.ts, self.per_save, self.steps, x.times)

    def _log(self, residuals: KeptSegments, rows: Array) -> Array:
        if not self.event_set:
            return rows[0]
        log_rows = _log_rows(residuals.events).ravel()
        # The events beyond those that a segment keeps for derivatives are unknown.
        unknown = jnp.where(self.event_set.is_kept(residuals.counts), jnp.nan, 0.0)[:, None]
        log = jnp.broadcast_to(unknown, (len(unknown), rows.shape[-1])).astype(rows.dtype)
        return log.at[jnp.where(log_rows < 0, len(log), log_rows)].set(
            rows.reshape(-1, rows.shape[-1]), mode="drop"
        )

    def _rows(self, residuals: KeptSegments, x: RolloutInputs, log: Array | None) -> Array:
        log_rows, width = _log_rows(residuals.events), self.event_set.width(x.q0, x.v0)
        if log is None or not self.event_set:
            return jnp.zeros((*log_rows.shape, width), x.q0.dtype)
        return jnp.where((log_rows >= 0)[..., None], log[log_rows], 0.0)

    def _saves(self, start: list[Array], ends: list[Array]) -> list[Array]:
        saves: list[Array] = at_saves(start, ends, self.per_save // self.steps)
        return saves

    def _times(self, ts: Array) -> _Times:
        all_segments = segments(ts, self.per_save, self.steps)
        return all_segments.t, all_segments.h


def _starts(x: RolloutInputs, residuals: KeptSegments) -> list[Array]:
    pairs = zip((x.q0, x.v0, x.memory), residuals.smooth, strict=True)
    return [jnp.concatenate([first[None], rows[:-1]]) for first, rows in pairs]


def _log_rows(events: SegmentEvents) -> Int[Array, " S K"]:
    # The rows of the log in which the events of each segment are kept, -1 for none.
    replay = events.replay
    is_known = jnp.arange(replay.row.shape[1])[None] < replay.count[:, None]
    return jnp.where(is_known, replay.row, -1)


@dataclass(frozen=True)
class _PlainSegments(_AbstractSegments):
    """A run without events; `step` has closed-over values as arguments."""

    step: Callable[..., tuple[Array, Array, Array]]

    def advance(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any
    ) -> tuple[list[Array], Array]:
        # Reverse mode over this then keeps states, not the intermediate values of steps. The loop
        # separates forward and backward pass already, so CSE cannot merge them.
        @partial(jax.checkpoint, prevent_cse=False)
        def make_step(state: list[Array], number: Array) -> tuple[list[Array], None]:
            return self._step(data, state, number, timed, shared), None

        end, _ = jax.lax.scan(make_step, state, self._numbers)
        return end, self.event_set.log(*state[:2])

    def pull_back(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Array,
    ) -> tuple[list[Array], _Times, Any]:  # fmt: skip
        all_shared = eqx.combine(shared, fixed)

        def make_step(state: list[Array], number: Array) -> tuple[list[Array], list[Array]]:
            return self._step(data, state, number, timed, all_shared), state

        def pull_step(wrt: Any, state: list[Array], number: Array) -> Any:
            wrt_end, *wrt_inputs = wrt

            def run(state: list[Array], timed: _Times, shared: Any) -> list[Array]:
                return self._step(data, state, number, timed, eqx.combine(shared, fixed))

            wrt_state, *wrt_more = jax.vjp(run, state, timed, shared)[1](wrt_end)
            return wrt_state, *jax.tree.map(jnp.add, wrt_inputs, wrt_more)

        end = cotangents, *jax.tree.map(jnp.zeros_like, (timed, shared))
        wrt: tuple[list[Array], _Times, Any] = pulled_through(
            make_step, pull_step, state, self._numbers, end
        )
        return wrt

    def _step(
        self, data: _SegmentData, state: list[Array], number: Array, timed: _Times, shared: Any
    ) -> list[Array]:
        segment = replace(data.own, t=timed[0], h=timed[1])
        return list(self.step(*state, number, segment, data.t_failed, shared))


def _bare_step(
    scheme: Scheme, q: Array, v: Array, memory: Array, number: Array, segment: StepSegments,
    t_failed: Array, params: Params,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """q, v and memory after a step of a segment, without the audit; nothing moves after `t_failed`.

    `number` is the number of the step in the segment.
    """
    params = within(segment.interval, params)
    t = segment.t + (segment.done + number) * segment.h
    interval = turning(segment.interval, (number == 0) & ~(t_failed <= t))
    memory, params = scheme.sampled(memory, q, v, t, params, interval)
    q, v, _ = scheme.after_kink(q, v, t, params, interval)
    # Half a step is beyond round-off of t, and dividing by h serves runs backwards in time too.
    failed = (t_failed - t) / segment.h < 0.5  # false for NaN
    end, _ = step(scheme, StepState(q, v, t), segment.h, params)
    moved = checked_states(end.q, end.v, failed)
    return jnp.where(failed, q, moved[0]), jnp.where(failed, v, moved[1]), memory


class _Along(eqx.Module):
    """The position of the replay in a segment."""

    entry: Int[Array, ""]  # number of replayed events
    active: Bool[Array, " C"]  # constraints that are on
    is_moving: Bool[Array, ""]  # whether the trajectory still moves


_Position = tuple[PieceState, _Along]
# A function of a piece, from a `PieceState`, an `EventPiece`, the size of the step and the shared
# inputs, with a closed gap, and without; or one for both.
_Pieces = tuple[Callable[..., Any], ...]


@dataclass(frozen=True)
class _EventSegments(_AbstractSegments):
    event: _Pieces  # to an event: the state after it, and its row in the log
    plain: _Pieces  # to the end of a step: the state there

    def advance(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any
    ) -> tuple[list[Array], Array]:
        """Make the steps; also the rows of the events, in their order, shape (K, w)."""
        _, through_events, end_step = self._moves(data, timed, shared)
        width = self.event_set.width(*state[:2])

        def make_step(carry: Any, number: Array) -> tuple[Any, None]:
            position, rows = through_events(number, *carry)
            return (end_step(number, position), rows), None

        start = _begin(data, state), jnp.zeros((_capacity(data), width), state[0].dtype)
        ((end, _), rows), _ = jax.lax.scan(make_step, start, self._numbers)
        return [end.q, end.v, end.memory], rows

    def pull_back(
        self, data: _SegmentData, state: list[Array], timed: _Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Array,
    ) -> tuple[list[Array], _Times, Any]:  # fmt: skip
        """Forward through the steps, which keeps the states between them, and back."""
        event_piece, through_events, end_step = self._moves(data, timed, eqx.combine(shared, fixed))
        no_rows = jnp.zeros_like(rows)

        def make_step(start: _Position, number: Array) -> tuple[_Position, Any]:
            last, _ = through_events(number, start, no_rows)
            return end_step(number, last), (start, last)

        def pull_step(cotangents: Any, positions: Any, number: Array) -> Any:
            (wrt_end, *wrt), (start, (state, along)) = cotangents, positions

            def pull_end(plain: Callable[..., Any]) -> Any:
                def run(state: PieceState, timed: _Times, shared: Any) -> PieceState:
                    all_shared = eqx.combine(shared, fixed)
                    return self._ended(plain, data, number, timed, all_shared, (state, along))

                return jax.vjp(run, state, timed, shared)[1](wrt_end)

            wrt_state, *more = self._by_contact(self.plain, along, pull_end)
            wrt_all = wrt_state, *jax.tree.map(jnp.add, wrt, more)

            def make_piece(position: _Position, _: None) -> tuple[_Position, _Position]:
                (following, _rows), _ = event_piece(number, (position, no_rows), None)
                return following, position

            def through() -> Any:
                pull = partial(pull_piece, number)
                return pulled_through(make_piece, pull, start, None, wrt_all, _capacity(data))

            return jax.lax.cond(_has_event(data, number), through, lambda: wrt_all)

        def pull_piece(number: Array, cotangents: Any, position: _Position, _: None) -> Any:
            (wrt_state, *wrt), (state, along) = cotangents, position
            is_event = self._next_event(data, along, number, timed)[1]
            # A comparison and a sum instead of a computed index.
            row = jnp.where(_is_entry(data, along)[:, None], rows, 0.0).sum(0)

            def pull_event(event: Callable[..., Any]) -> Any:
                def run(state: PieceState, timed: _Times, shared: Any) -> Any:
                    piece, *_ = self._next_event(data, along, number, timed)
                    return event(state, piece, timed[1], eqx.combine(shared, fixed))

                return jax.vjp(run, state, timed, shared)[1]((wrt_state, row))

            wrt_state, *more = jax.lax.cond(
                is_event,
                lambda: self._by_contact(self.event, along, pull_event),
                lambda: (wrt_state, *jax.tree.map(jnp.zeros_like, (timed, shared))),
            )
            return wrt_state, *jax.tree.map(jnp.add, wrt, more)

        q, v, memory = cotangents
        last = PieceState(q, v, memory, jnp.zeros_like(timed[0])[None])
        end = last, *jax.tree.map(jnp.zeros_like, (timed, shared))
        wrt, wrt_timed, wrt_shared = pulled_through(
            make_step, pull_step, _begin(data, state), self._numbers, end
        )
        return [wrt.q, wrt.v, wrt.memory], wrt_timed, wrt_shared

    def _moves(self, data: _SegmentData, timed: _Times, shared: Any) -> tuple[Any, Any, Any]:
        """Functions of the number of a step: to its next event, through all, and from there on."""

        def event_piece(number: Array, carry: Any, _: None) -> tuple[Any, None]:
            """The position after the next event of a step, if there is one, and rows with its."""
            (state, along), rows = carry
            piece, is_event, next_along = self._next_event(data, along, number, timed)

            def through() -> tuple[PieceState, Array]:
                return self._by_contact(
                    self.event, along, lambda event: event(state, piece, timed[1], shared)
                )

            state, row = jax.lax.cond(is_event, through, lambda: (state, jnp.zeros_like(rows[0])))
            is_row = is_event & _is_entry(data, along)
            rows = jnp.where(is_row[:, None], row[None], rows)
            return ((state, next_along), rows), None

        def through_events(number: Array, position: _Position, rows: Array) -> Any:
            carry, piece = (position, rows), partial(event_piece, number)
            return jax.lax.cond(
                _has_event(data, number),
                lambda: jax.lax.scan(piece, carry, None, length=_capacity(data))[0],
                lambda: carry,
            )

        def end_step(number: Array, position: _Position) -> _Position:
            def ended(plain: Callable[..., Any]) -> PieceState:
                return self._ended(plain, data, number, timed, shared, position)

            return self._by_contact(self.plain, position[1], ended), position[1]

        return event_piece, through_events, end_step

    def _ended(
        self, plain: Callable[..., Any], data: _SegmentData, number: Array, timed: _Times,
        shared: Any, position: _Position,
    ) -> PieceState:  # fmt: skip
        """The state at the end of a step by one of the pieces."""
        (state, along), none = position, jnp.full((), -1, jnp.int32)
        zero, outcome = jnp.zeros_like(timed[0]), self.event_set.gaps.undecided(timed[0].dtype)
        piece, goes_on = _piece(data, along, number, timed, zero, none, none, outcome)
        ended = plain(state, piece, timed[1], ~goes_on, shared)
        return jax.tree.map(partial(jnp.where, goes_on), ended, state)

    def _by_contact(self, pieces: _Pieces, along: _Along, run: Callable[..., Any]) -> Any:
        """What `run` returns for the piece where a gap is closed or none is.

        Derivatives are taken within it: those of such a choice would pass on all the intermediate
        values of both.
        """
        if len(pieces) == 1:
            return run(pieces[0])
        closed, apart = pieces
        is_closed = along.active[-self.event_set.gaps.count :].any()
        return jax.lax.cond(is_closed, lambda: run(closed), lambda: run(apart))

    def _next_event(
        self, data: _SegmentData, along: _Along, number: Array, timed: _Times
    ) -> tuple[EventPiece, Array, _Along]:
        """The piece to the next event of a step, whether there is one, and the position after."""
        replay = data.events.replay
        event_step, *event = replay.at(along.entry)
        piece, goes_on = _piece(data, along, number, timed, *event)
        is_event = goes_on & (along.entry < replay.count) & (event_step == number)
        switched = self.event_set.switched(piece.which, along.active, piece.outcome)
        next_along = _Along(
            along.entry + is_event,
            jnp.where(is_event, switched, along.active),
            along.is_moving & ~(is_event & self.event_set.stops(piece.which)),
        )
        return piece, is_event, next_along


def _begin(data: _SegmentData, state: list[Array]) -> _Position:
    q, v, memory = state
    first = PieceState(q, v, memory, jnp.zeros_like(q[:1]))
    return first, _Along(jnp.zeros((), jnp.int32), data.events.active, data.events.is_moving)


def _piece(
    data: _SegmentData, along: _Along, number: Array, timed: _Times, size: Array, which: Array,
    row: Array, outcome: Array,
) -> tuple[EventPiece, Array]:  # fmt: skip
    """The next piece of a step, and whether the trajectory moves in it."""
    t, h = timed
    t = t + (data.own.done + number) * h
    # As in `_bare_step`.
    failed = (data.t_failed - t) / h < 0.5  # false for NaN
    interval = turning(data.own.interval, (number == 0) & (along.entry == 0))
    late = jnp.zeros_like(t)[None]
    piece = EventPiece(t, size, which, row, along.active, outcome, late, interval)
    return piece, along.is_moving & ~failed


def _capacity(data: _SegmentData) -> int:
    return int(data.events.replay.step.shape[-1])


def _is_entry(data: _SegmentData, along: _Along) -> Bool[Array, " K"]:
    return jnp.arange(_capacity(data)) == along.entry


def _has_event(data: _SegmentData, number: Array) -> Bool[Array, ""]:
    replay = data.events.replay
    entries = jnp.arange(_capacity(data))
    return ((entries < replay.count) & (replay.step == number)).any()


def segment_trajectory(
    scheme: Scheme, event_set: EventSet, steps: int, x: RolloutInputs
) -> Trajectory:
    """The rollout in segments of some steps, as an operation with its derivatives."""
    undifferentiated = scheme
    if not event_set and type(scheme.stabilization) is Projection:
        undifferentiated = replace(scheme, stabilization=scheme.stabilization.lazy())

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptSegments]:
        inputs = x.q0, x.v0, x.ts, x.params, x.memory
        return rollout(undifferentiated, *inputs, segment=steps, event_set=event_set, times=x.times)

    first_segment = jax.tree.map(lambda rows: rows[0], segments(x.ts, steps, steps, x.times))
    state, zero, number = (x.q0, x.v0, x.memory), jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    if not event_set:
        example = *state, number, first_segment, x.ts[0]
        x, run, (step,) = with_traced(forward, x, [partial(_bare_step, scheme)], [example])
        return _PlainSegments(run, scheme.per_save, steps, event_set, step).trajectory(x)
    outcome = event_set.gaps.undecided(zero.dtype)
    piece = EventPiece(
        zero, zero, number, number, event_set.active(), outcome, zero[None], first_segment.interval
    )
    to_end = PieceState(*state, zero[None]), piece, zero
    schemes = [replace(scheme, contact=contact) for contact in (True, False)]
    schemes = schemes if gap_count(scheme.system) else [scheme]
    kinds = [partial(kind, each, event_set) for kind in (to_event, to_step_end) for each in schemes]
    count = len(schemes)
    examples = [to_end] * count + [(*to_end, jnp.asarray(False))] * count
    x, run, parts = with_traced(forward, x, kinds, examples)
    event, plain = tuple(parts[:count]), tuple(parts[count:])
    return _EventSegments(run, scheme.per_save, steps, event_set, event, plain).trajectory(x)
