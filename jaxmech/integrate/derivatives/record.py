"""The moves of a run in their order, from which its derivatives are computed.

A move is an accepted step, or the part of a step that leads to a save; the latter comes before the
step in which the save lies, and both begin at the same state. One number is kept of a possible
move, for this is what the memory of derivatives grows with; all else follows from the numbers of a
segment and from the state before it.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


class Move(eqx.Module):
    """A step, a step up to an event, or a save."""

    begin: Float[Array, ""]  # time since the start, not negative
    size: Float[Array, ""]  # of the step, or its part up to an event; undefined for a save
    save: Int[Array, ""]  # number of the save, 0 if it is none
    is_made: Bool[Array, ""]
    which: Int[Array, ""]  # index of the event that ends it, -1 for none
    row: Int[Array, ""]  # row in which that event is kept
    outcome: Float[Array, " D"]  # decisions about gaps at it

    def elapsed(self, goes_on: Array) -> Array:
        """The time since the start after the move; `goes_on` flags moves that advance."""
        return jnp.where(goes_on, self.begin + self.size, self.begin)


class StepRecord(eqx.Module):
    """The moves of a run, and the states before every segment of them.

    The rows beyond `count` are undefined: most of the memory is never touched, which would cost
    more than a short run.
    """

    # The size of a step, or the number of a save with a minus sign; with events also the event that
    # ends the move and the row in which it is kept, both counted from 1, and what it decides about
    # gaps.
    moves: Float[Array, "E c"]
    # q, v, memory; with events or times also the shift of time, which is zero, and the switches;
    # last the time since the start, not negative
    starts: Float[Array, "S w"]
    count: Int[Array, ""]  # number of moves
    saved: Int[Array, ""]  # first save that was not reached: an event may end a run

    @property
    def segment(self) -> int:
        """The number of moves in a segment."""
        return len(self.moves) // len(self.starts)

    def start(self, segment: Array) -> tuple[Float[Array, " n2"], Float[Array, ""]]:
        """The packed state before a segment, and the time since the start."""
        row = jax.lax.dynamic_index_in_dim(self.starts, segment, keepdims=False)
        return row[:-1], row[-1]

    def move(self, number: Array, begin: Array, usual: Array) -> Move:
        """A move that begins so long after the start.

        One that was not made has the usual length, or its derivative could be 0 / 0.
        """
        is_made = number < self.count
        coded, *event = jax.lax.dynamic_index_in_dim(self.moves, number, keepdims=False)
        save = jnp.where(is_made, jnp.maximum(-coded, 0.0), 0.0).astype(jnp.int32)
        size = jnp.where(is_made & (coded >= 0), coded, usual)
        counted = [jnp.where(is_made, x, 0.0).astype(jnp.int32) - 1 for x in event[:2]]
        which, row = counted or [jnp.asarray(-1, jnp.int32)] * 2
        words = [jnp.where(is_made, x, 0.0) for x in event[2:]]
        outcome = jnp.stack(words) if words else jnp.zeros(0, coded.dtype)
        return Move(begin, size, save, is_made, which, row, outcome)

    @staticmethod
    def empty(max_moves: int, segment: int, state: Array, columns: int) -> "StepRecord":
        """Rows for `max_moves` moves of `columns` numbers, not yet written, and such states."""
        count = -(-max_moves // segment)  # of segments
        moves = empty_rows(count * segment, jnp.zeros(columns, state.dtype), sparse=True)
        starts = empty_rows(count, jnp.append(state, 0.0), sparse=True)
        zero = jnp.zeros((), jnp.int32)
        return StepRecord(moves, starts, zero, zero)

    def with_move(
        self, number: Array, size: Array, begin: Array, state: Array, condition: Array,
        event: tuple[Array, Array, Array] | None = None,
    ) -> "StepRecord":  # fmt: skip
        """Write the numbers of a move from a state and a time, if it is made.

        The size of a move to a save is its number with a minus sign. An `event` that ends the move
        is its index, the row in which it is kept, both -1 for none, and its decisions about gaps.
        """
        is_first = condition & (number % self.segment == 0)
        of_event = jnp.zeros(self.moves.shape[1] - 1, state.dtype)
        if event is not None:
            which, log_row, outcome = event
            counted = jnp.stack([which + 1, log_row + 1]).astype(state.dtype)
            of_event = jnp.concatenate([counted, outcome])
        row = jnp.concatenate([size.astype(state.dtype)[None], of_event])
        start = jnp.append(state, begin)
        return replace(
            self,
            moves=with_row(self.moves, number, row, condition),
            starts=with_row(self.starts, number // self.segment, start, is_first),
        )

    def finished(self, count: Array, saved: Array) -> "StepRecord":
        """The record of `count` moves, up to a save."""
        moves, starts = self.moves, self.starts
        if jax.debug_nans.value:  # which takes what was not written for a result
            moves = jnp.where((jnp.arange(len(moves)) < count)[:, None], moves, 0.0)
            is_begun = self.segment * jnp.arange(len(starts)) < count
            starts = jnp.where(is_begun[:, None], starts, 0.0)
        return StepRecord(moves, starts, count, saved)
