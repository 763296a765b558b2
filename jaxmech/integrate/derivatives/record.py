"""The moves of a run in their order, from which its derivatives are computed.

A move is an accepted step, or the part of a step that leads to a save; the latter comes before the
step in which the save lies, and both begin at the same state. One number is kept of a possible
move, for this is what the memory of derivatives grows with; all else follows from the numbers of a
segment and from the state before it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.compiler import empty_rows, with_row


class StepRecord(eqx.Module):
    """The moves of an adaptive run in S segments; beyond `count` zeros."""

    moves: Float[Array, " *E"]  # the size of a step, or the number of a save with a minus sign
    begins: Float[Array, " *S"]  # time since the start before each segment, not negative
    count: Int[Array, " *C"]  # number of moves
    saved: Int[Array, " *C"]  # first save that was not reached: an event may end a run
    which: Int[Array, " *E"] | None = None  # the event that ends each move, -1 for none
    row: Int[Array, " *E"] | None = None  # row in which that event is kept

    @property
    def segment(self) -> int:
        """The number of moves in a segment."""
        return len(self.moves) // len(self.begins)

    def by_segment(self) -> "StepRecord":
        """Reshape the record with an axis of segments first, for a loop over them."""
        first = self.segment * jnp.arange(len(self.begins), dtype=jnp.int32)
        left = jnp.clip(self.count - first, 0, self.segment)
        moves, which, row = (
            None if x is None else x.reshape(len(self.begins), self.segment)
            for x in (self.moves, self.which, self.row)
        )
        assert moves is not None
        return StepRecord(
            moves, self.begins, left, jnp.broadcast_to(self.saved, left.shape), which, row
        )

    def move(self, number: Array, usual: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Whether a move of a segment was made, its size, its save, its event and the row of it.

        One that was not made has the usual length, or its derivative could be 0 / 0.
        """

        def entry(values: Array | None) -> Array:
            if values is None:
                return jnp.asarray(-1, jnp.int32)
            return jax.lax.dynamic_index_in_dim(values, number, keepdims=False)

        is_made, coded = number < self.count, entry(self.moves)
        save = jnp.where(is_made, jnp.maximum(-coded, 0.0), 0.0).astype(jnp.int32)
        size = jnp.where(is_made & (coded >= 0), coded, usual)
        which = jnp.where(is_made, entry(self.which), -1)
        return is_made, size, save, which, entry(self.row)


class MoveRows(eqx.Module):
    """The rows of a `StepRecord` while they are written."""

    moves: Array  # as in a `StepRecord`; with events also `which` and `row`, counted from 1
    # q and v before each segment; with events also the shift of time (zero) and the switches; the
    # time since the start last
    starts: Array
    segment: int = eqx.field(static=True)  # moves in a segment

    @staticmethod
    def empty(most: int, segment: int, state: Array, columns: int) -> "MoveRows":
        """Make rows for `most` moves of `columns` numbers, and states of this shape."""
        count = segments_of(most, segment)
        moves = empty_rows(count * segment, jnp.zeros(columns, state.dtype))
        return MoveRows(moves, empty_rows(count, jnp.append(state, 0.0)), segment)

    def with_move(
        self, number: Array, move: tuple[Array, ...], begin: Array, state: Array, when: Array
    ) -> "MoveRows":
        """Write the numbers of a move from a state and a time, if it is made."""
        is_first = when & (number % self.segment == 0)
        row = jnp.stack([x.astype(state.dtype) for x in move])
        start = jnp.append(state, begin)
        return MoveRows(
            with_row(self.moves, number, row, when),
            with_row(self.starts, number // self.segment, start, is_first),
            self.segment,
        )

    def record(self, count: Array, saved: Array) -> tuple[StepRecord, Array]:
        """The record of `count` moves, up to a save, and the states before the segments."""
        made = (jnp.arange(len(self.moves)) < count)[:, None]
        begun = (self.segment * jnp.arange(len(self.starts)) < count)[:, None]
        moves = jnp.where(made, self.moves, 0.0)
        starts = jnp.where(begun, self.starts, 0.0)
        which = row = None
        if moves.shape[1] > 1:
            which, row = moves[:, 1:].astype(jnp.int32).T - 1
        record = StepRecord(moves[:, 0], starts[:, -1], count, saved, which, row)
        return record, starts[:, :-1]


def segments_of(moves: int, segment: int) -> int:
    """The number of segments for a number of moves."""
    return -(-moves // segment)
