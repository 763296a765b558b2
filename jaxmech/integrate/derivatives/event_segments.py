"""A run with events and fixed steps, whose derivatives go through its segments in pieces.

The forward run keeps the events of each segment with their positions, so that they are not searched
for again. A segment is a sequence of pieces: from the end of a step or an event to the next.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxmech.integrate.derivatives.event_pieces import (
    EventPiece,
    PieceKinds,
    PieceState,
    to_event,
    to_step_end,
)
from jaxmech.integrate.derivatives.run_rule import (
    Part,
    RolloutInputs,
    pulled_through,
    with_traced,
)
from jaxmech.integrate.derivatives.segment_rule import (
    AbstractSegments,
    KeptSegments,
    SegmentData,
    Times,
    kept_segments,
)
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.rollout import Trajectory, rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step_segments import segments


def event_trajectory(
    scheme: Scheme, event_set: EventSet, steps: int, x: RolloutInputs
) -> Trajectory:
    """The rollout in segments of some steps, with events, as an operation with its derivatives."""

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptSegments]:
        inputs = x.q0, x.v0, x.ts, x.params
        return kept_segments(
            rollout(scheme, *inputs, segment=steps, event_set=event_set, times=x.times)
        )

    zero, zero_count = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    first_segment = jax.tree.map(lambda rows: rows[0], segments(x.ts, steps, steps, x.times))
    outcome = jnp.zeros(event_set.words, zero.dtype)
    piece = EventPiece(
        zero, zero, zero_count, zero_count, event_set.active(), outcome, first_segment.span,
        first_segment.turns,
    )  # fmt: skip
    example = PieceState(x.q0, x.v0, zero), piece, zero
    kinds: list[Part] = [partial(kind, scheme, event_set) for kind in (to_event, to_step_end)]
    x, run, (event, plain) = with_traced(forward, x, kinds, [example, example])
    count = scheme.per_save
    return EventSegments(run, count, steps, event_set, PieceKinds(plain, event)).trajectory(x)


class _Along(eqx.Module):
    """The position of the replay in a segment."""

    step: Int[Array, ""]  # index of the step
    entry: Int[Array, ""]  # number of replayed events
    active: Bool[Array, " C"]  # constraints that are on
    is_moving: Bool[Array, ""]  # whether the trajectory still moves


@dataclass(frozen=True)
class EventSegments(AbstractSegments):
    """A run with fixed steps and events."""

    pieces: PieceKinds  # with closed-over values as arguments

    def advance(
        self, segment: SegmentData, state: list[Array], timed: Times, shared: Any
    ) -> tuple[list[Array], Array]:
        """Move piece by piece; also the rows of the events, in their order, shape (K, w)."""
        empty_row = jnp.zeros(self.event_set.width(*state), state[0].dtype)

        def advance_piece(carry: Any, _: None) -> tuple[Any, None]:
            state, along, rows = carry
            piece, goes_on, next_along = self._next(segment, along, timed)
            state, row = self._advance_piece(state, piece, goes_on, timed[1], shared, empty_row)
            # Zeros without an event: the next one overwrites them.
            rows = jnp.where(self._is_entry(segment, along)[:, None], row[None], rows)
            return (state, next_along, rows), None

        capacity = len(self._is_entry(segment, _begin(segment, state)[1]))
        start = *_begin(segment, state), jnp.zeros((capacity, *empty_row.shape), empty_row.dtype)
        (end, _, rows), _ = jax.lax.scan(advance_piece, start, None, length=self._count(segment))
        return [end.q, end.v], rows

    def pull_back(
        self, segment: SegmentData, state: list[Array], timed: Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Array,
    ) -> tuple[list[Array], Times, Any]:  # fmt: skip
        """Forward through the pieces, which keeps the states between them, and back."""
        empty_row = jnp.zeros(rows.shape[1:], rows.dtype)
        all_shared = eqx.combine(shared, fixed)

        def advance_piece(carry: Any, _: Any) -> Any:
            state, along = carry
            piece, goes_on, next_along = self._next(segment, along, timed)
            moved = self._advance_piece(state, piece, goes_on, timed[1], all_shared, empty_row)[0]
            return moved, next_along

        def pull_piece(cotangents: Any, before: Any, _: Any) -> Any:
            (wrt_state, *wrt), (state, along) = cotangents, before

            def at(_: PieceState, timed: Times) -> tuple[EventPiece, Array]:
                return self._next(segment, along, timed)[0], timed[1]

            def row() -> Array:
                # A comparison and a sum instead of a computed index.
                return jnp.where(self._is_entry(segment, along)[:, None], rows, 0.0).sum(0)

            def through() -> Any:
                return self.pieces.pull_back(at, state, timed, shared, fixed, wrt_state, row)

            def stays() -> Any:
                return wrt_state, *jax.tree.map(jnp.zeros_like, (timed, shared))

            _, goes_on, _ = self._next(segment, along, timed)
            wrt_state, *wrt_inputs = jax.lax.cond(goes_on, through, stays)
            return wrt_state, *jax.tree.map(jnp.add, wrt, wrt_inputs)

        last = PieceState(cotangents[0], cotangents[1], jnp.zeros_like(timed[0]))
        end, start = (last, *jax.tree.map(jnp.zeros_like, (timed, shared))), _begin(segment, state)
        wrt, wrt_timed, wrt_shared = pulled_through(
            advance_piece, pull_piece, start, None, end, self._count(segment)
        )
        return [wrt.q, wrt.v], wrt_timed, wrt_shared

    def _is_entry(self, segment: SegmentData, along: _Along) -> Bool[Array, " K"]:
        return jnp.arange(segment.events.replay.step.shape[-1]) == along.entry

    def _count(self, segment: SegmentData) -> int:
        # Every step ends with a piece, and every event adds one.
        return self.steps + len(segment.events.replay.step)

    def _advance_piece(
        self, state: PieceState, piece: EventPiece, goes_on: Array, h: Array, shared: Any,
        empty_row: Array,
    ) -> tuple[PieceState, Array]:  # fmt: skip
        advance = partial(self.pieces.advance, state, piece, h, shared, empty_row)
        return jax.lax.cond(goes_on, advance, lambda: (state, empty_row))

    def _next(
        self, segment: SegmentData, along: _Along, timed: Times
    ) -> tuple[EventPiece, Array, _Along]:
        """The next piece of a segment, whether there is one, and the position after it."""
        (t, h), replay = timed, segment.events.replay
        event_step, size, index, row, outcome = replay.at(along.entry)
        is_event = (along.entry < replay.count) & (event_step == along.step)
        t = t + (segment.own.done + along.step) * h
        # As in `bare_step`.
        failed = (segment.t_failed - t) / h < 0.5  # false for NaN
        # After a terminal event, a failure or the last step the remaining pieces do nothing.
        goes_on = along.is_moving & (along.step < self.steps) & ~failed
        index = jnp.where(is_event, index, -1)
        turns = segment.own.turns
        if turns is not None:
            turns &= (along.step == 0) & (along.entry == 0)
        piece = EventPiece(
            t, size, index, jnp.where(is_event, row, -1), along.active, outcome, segment.own.span,
            turns,
        )  # fmt: skip
        switched = self.event_set.switched(index, along.active, outcome)
        next_along = _Along(
            along.step + (goes_on & ~is_event),
            along.entry + (goes_on & is_event),
            jnp.where(goes_on & is_event, switched, along.active),
            along.is_moving & ~(is_event & self.event_set.stops(index)),
        )
        return piece, goes_on, next_along


def _begin(segment: SegmentData, state: list[Array]) -> tuple[PieceState, _Along]:
    events, zero = segment.events, jnp.zeros((), jnp.int32)
    first = PieceState(state[0], state[1], jnp.zeros_like(state[0][0]))
    return first, _Along(zero, zero, events.active, events.is_moving)
