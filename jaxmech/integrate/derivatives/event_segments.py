"""A run with events and fixed steps, whose derivatives go through its segments again.

The forward run keeps the events of each segment with their positions, so that they are not searched
for again. Every step ends with a piece of the motion from its last event, or from its start; only
steps with events have pieces before it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxmech.integrate.derivatives.event_pieces import (
    EventPiece,
    Kind,
    PieceState,
    to_event,
    to_step_end,
)
from jaxmech.integrate.derivatives.run_rule import Part, RolloutInputs, pulled_through, with_traced
from jaxmech.integrate.derivatives.segment_rule import (
    AbstractSegments,
    SegmentData,
    Times,
)
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.rollout import KeptSegments, rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import AnyInterval, segments
from jaxmech.integrate.switches import gap_count
from jaxmech.integrate.trajectory import Trajectory

_Result = TypeVar("_Result")


def event_trajectory(
    scheme: Scheme, event_set: EventSet, steps: int, x: RolloutInputs
) -> Trajectory:
    """The rollout in segments of some steps, with events, as an operation with its derivatives."""

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptSegments]:
        inputs = x.q0, x.v0, x.ts, x.params, x.memory
        return rollout(scheme, *inputs, segment=steps, event_set=event_set, times=x.times)

    zero, zero_count = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    first_segment = jax.tree.map(lambda rows: rows[0], segments(x.ts, steps, steps, x.times))
    outcome = jnp.zeros(event_set.words, zero.dtype)
    piece = EventPiece(
        zero, zero, zero_count, zero_count, event_set.active(), outcome, zero[None],
        first_segment.interval,
    )  # fmt: skip
    example = PieceState(x.q0, x.v0, x.memory, zero[None]), piece, zero
    schemes = [replace(scheme, contact=contact) for contact in (True, False)]
    schemes = schemes if gap_count(scheme.system) else [scheme]
    kinds: list[Part] = [
        partial(kind, each, event_set) for kind in (to_event, to_step_end) for each in schemes
    ]
    count = len(schemes)
    examples = [example] * count + [(*example, jnp.asarray(False))] * count
    x, run, parts = with_traced(forward, x, kinds, examples)
    event, plain = tuple(parts[:count]), tuple(parts[count:])
    return EventSegments(run, scheme.per_save, steps, event_set, event, plain).trajectory(x)


class _Along(eqx.Module):
    """The position of the replay in a segment."""

    entry: Int[Array, ""]  # number of replayed events
    active: Bool[Array, " C"]  # constraints that are on
    is_moving: Bool[Array, ""]  # whether the trajectory still moves


_Position = tuple[PieceState, _Along]
_Kinds = tuple[Kind, ...]  # that with a closed gap, and that without; or one for both


@dataclass(frozen=True)
class EventSegments(AbstractSegments):
    """A run with fixed steps and events."""

    event: _Kinds  # the piece to an event: the state after it, and its row in the log
    plain: _Kinds  # the piece to the end of a step: the state there

    def advance(
        self, segment: SegmentData, state: list[Array], timed: Times, shared: Any
    ) -> tuple[list[Array], Array]:
        """Make the steps; also the rows of the events, in their order, shape (K, w)."""
        empty_rows = jnp.zeros(
            (_capacity(segment), self.event_set.width(*state[:2])), state[0].dtype
        )

        def make_step(carry: Any, number: Array) -> tuple[Any, None]:
            position, rows = self._after_events(segment, number, timed, shared, *carry)
            return (self._end_step(segment, number, timed, shared, position), rows), None

        start = _begin(segment, state), empty_rows
        ((end, _), rows), _ = jax.lax.scan(make_step, start, self._numbers())
        return [end.q, end.v, end.memory], rows

    def pull_back(
        self, segment: SegmentData, state: list[Array], timed: Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Array,
    ) -> tuple[list[Array], Times, Any]:  # fmt: skip
        """Forward through the steps, which keeps the states between them, and back."""
        all_shared = eqx.combine(shared, fixed)

        def make_step(start: _Position, number: Array) -> tuple[_Position, Any]:
            last, _ = self._after_events(
                segment, number, timed, all_shared, start, jnp.zeros_like(rows)
            )
            end = self._end_step(segment, number, timed, all_shared, last)
            return end, (start, last)

        def pull_step(cotangents: Any, positions: Any, number: Array) -> Any:
            (wrt_end, *wrt), (start, (state, along)) = cotangents, positions

            def pulled(plain: Kind) -> Any:
                def run(state: PieceState, timed: Times, shared: Any) -> PieceState:
                    position, all_shared = (state, along), eqx.combine(shared, fixed)
                    return self._ended(plain, segment, number, timed, all_shared, position)

                return jax.vjp(run, state, timed, shared)[1](wrt_end)

            wrt_state, *more = self._by_contact(self.plain, along, pulled)
            wrt_all = wrt_state, *jax.tree.map(jnp.add, wrt, more)
            through = partial(
                self._pull_events, segment, number, timed, (shared, fixed), rows, start, wrt_all
            )
            return jax.lax.cond(_has_event(segment, number), through, lambda: wrt_all)

        wrt_q, wrt_v, wrt_memory = cotangents
        last = PieceState(wrt_q, wrt_v, wrt_memory, jnp.zeros_like(timed[0])[None])
        end = last, *jax.tree.map(jnp.zeros_like, (timed, shared))
        wrt, wrt_timed, wrt_shared = pulled_through(
            make_step, pull_step, _begin(segment, state), self._numbers(), end
        )
        return [wrt.q, wrt.v, wrt.memory], wrt_timed, wrt_shared

    def _pull_events(
        self, segment: SegmentData, number: Array, timed: Times, parts: tuple[Any, Any],
        rows: Array, start: _Position, cotangents: Any,
    ) -> Any:  # fmt: skip
        """Pull back through the events of a step; `parts` are the shared inputs, and the fixed."""
        shared, fixed = parts
        all_shared = eqx.combine(shared, fixed)

        def advance(position: _Position, _: None) -> tuple[_Position, _Position]:
            carry = position, jnp.zeros_like(rows)
            next_carry, _empty = self._event_piece(segment, number, timed, all_shared, carry, None)
            return next_carry[0], position

        def pull(cotangents: Any, position: _Position, _: None) -> Any:
            (wrt_state, *wrt), (state, along) = cotangents, position
            is_event = self._next_event(segment, along, number, timed)[1]
            # A comparison and a sum instead of a computed index.
            row = jnp.where(_is_entry(segment, along)[:, None], rows, 0.0).sum(0)

            def pulled(event: Kind) -> Any:
                def run(state: PieceState, timed: Times, shared: Any) -> Any:
                    piece, *_ = self._next_event(segment, along, number, timed)
                    return event(state, piece, timed[1], eqx.combine(shared, fixed))

                return jax.vjp(run, state, timed, shared)[1]((wrt_state, row))

            def through() -> Any:
                return self._by_contact(self.event, along, pulled)

            def stays() -> Any:
                return wrt_state, *jax.tree.map(jnp.zeros_like, (timed, shared))

            wrt_state, *more = jax.lax.cond(is_event, through, stays)
            return wrt_state, *jax.tree.map(jnp.add, wrt, more)

        return pulled_through(advance, pull, start, None, cotangents, _capacity(segment))

    def _numbers(self) -> Int[Array, " steps"]:
        return jnp.arange(self.steps, dtype=jnp.int32)

    def _after_events(
        self, segment: SegmentData, number: Array, timed: Times, shared: Any, position: _Position,
        rows: Array,
    ) -> tuple[_Position, Array]:  # fmt: skip
        """The position after the events of a step, and the rows with theirs."""
        piece = partial(self._event_piece, segment, number, timed, shared)

        def through() -> tuple[_Position, Array]:
            carry: tuple[_Position, Array] = position, rows
            return jax.lax.scan(piece, carry, None, length=_capacity(segment))[0]

        return jax.lax.cond(_has_event(segment, number), through, lambda: (position, rows))

    def _event_piece(
        self, segment: SegmentData, number: Array, timed: Times, shared: Any,
        carry: tuple[_Position, Array], _: None,
    ) -> tuple[tuple[_Position, Array], None]:  # fmt: skip
        """The position after the next event of a step, if there is one, and its row."""
        (state, along), rows = carry
        piece, is_event, next_along = self._next_event(segment, along, number, timed)

        def through() -> tuple[PieceState, Array]:
            return self._by_contact(
                self.event, along, lambda event: event(state, piece, timed[1], shared)
            )

        state, row = jax.lax.cond(is_event, through, lambda: (state, jnp.zeros_like(rows[0])))
        is_row = is_event & _is_entry(segment, along)
        rows = jnp.where(is_row[:, None], row[None], rows)
        return ((state, next_along), rows), None

    def _end_step(
        self, segment: SegmentData, number: Array, timed: Times, shared: Any, position: _Position
    ) -> _Position:
        """The position at the end of a step, from that after its events."""
        along = position[1]

        def ended(plain: Kind) -> PieceState:
            return self._ended(plain, segment, number, timed, shared, position)

        return self._by_contact(self.plain, along, ended), along

    def _ended(
        self, plain: Kind, segment: SegmentData, number: Array, timed: Times, shared: Any,
        position: _Position,
    ) -> PieceState:  # fmt: skip
        """The state at the end of a step by one kind of piece."""
        state, along = position
        t, goes_on = _start(segment, along, number, timed)
        zero, none = jnp.zeros_like(t), jnp.full((), -1, jnp.int32)
        outcome = jnp.zeros(self.event_set.words, t.dtype)
        interval = _interval(segment, along, number)
        piece = EventPiece(t, zero, none, none, along.active, outcome, zero[None], interval)
        ended = plain(state, piece, timed[1], ~goes_on, shared)
        return jax.tree.map(partial(jnp.where, goes_on), ended, state)

    def _by_contact(self, kinds: _Kinds, along: _Along, run: Callable[[Kind], _Result]) -> _Result:
        """What `run` returns for the kind of piece where a gap is closed or none is.

        Derivatives are taken within it: those of such a choice would pass on all the intermediate
        values of both.
        """
        if len(kinds) == 1:
            return run(kinds[0])
        closed, apart = kinds
        is_closed = along.active[-self.event_set.gaps.count :].any()
        result: _Result = jax.lax.cond(is_closed, lambda: run(closed), lambda: run(apart))
        return result

    def _next_event(
        self, segment: SegmentData, along: _Along, number: Array, timed: Times
    ) -> tuple[EventPiece, Array, _Along]:
        """The piece to the next event of a step, whether there is one, and the position after."""
        t, goes_on = _start(segment, along, number, timed)
        replay = segment.events.replay
        event_step, size, index, row, outcome = replay.at(along.entry)
        is_event = goes_on & (along.entry < replay.count) & (event_step == number)
        late, interval = jnp.zeros_like(t)[None], _interval(segment, along, number)
        piece = EventPiece(t, size, index, row, along.active, outcome, late, interval)
        next_along = _Along(
            along.entry + is_event,
            jnp.where(
                is_event, self.event_set.switched(index, along.active, outcome), along.active
            ),
            along.is_moving & ~(is_event & self.event_set.stops(index)),
        )
        return piece, is_event, next_along


def _begin(segment: SegmentData, state: list[Array]) -> _Position:
    events = segment.events
    q, v, memory = state
    first = PieceState(q, v, memory, jnp.zeros_like(q[:1]))
    return first, _Along(jnp.zeros((), jnp.int32), events.active, events.is_moving)


def _start(segment: SegmentData, along: _Along, number: Array, timed: Times) -> tuple[Array, Array]:
    """The time at which a step starts, and whether the trajectory moves in it."""
    t, h = timed
    t = t + (segment.own.done + number) * h
    # As in `_bare_step`.
    failed = (segment.t_failed - t) / h < 0.5  # false for NaN
    return t, along.is_moving & ~failed


def _interval(segment: SegmentData, along: _Along, number: Array) -> AnyInterval:
    return segment.own.interval.turning((number == 0) & (along.entry == 0))


def _capacity(segment: SegmentData) -> int:
    return int(segment.events.replay.step.shape[-1])


def _is_entry(segment: SegmentData, along: _Along) -> Bool[Array, " K"]:
    return jnp.arange(_capacity(segment)) == along.entry


def _has_event(segment: SegmentData, number: Array) -> Bool[Array, ""]:
    """Whether a step has events."""
    replay = segment.events.replay
    entries = jnp.arange(_capacity(segment))
    return ((entries < replay.count) & (replay.step == number)).any()
