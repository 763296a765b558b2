"""The moves of a run in their order, from which its derivatives are computed.

A move is an accepted step, or the part of a step that leads to a save; the latter comes before the
step in which the save lies, and both begin at the same state. One number is kept of a possible
move, for this is what the memory of derivatives grows with; all else follows from the numbers of a
segment and from the state before it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row


class Move(eqx.Module):
    """A step, a step up to an event, or a save."""

    begin: Float[Array, ""]  # time since the start, not negative
    size: Float[Array, ""]  # of the step, or its part up to an event; undefined for a save
    save: Int[Array, ""]  # number of the save, 0 if it is none
    is_made: Bool[Array, ""]
    which: Int[Array, ""]  # index of the event that ends it, -1 for none
    row: Int[Array, ""]  # row in which that event is kept

    def elapsed(self, goes_on: Array) -> Array:
        """The time since the start after the move; `goes_on` flags moves that advance."""
        return jnp.where(goes_on, self.begin + self.size, self.begin)


class StepRecord(eqx.Module):
    """The moves of a run, and the states before every segment of them; beyond `count` zeros."""

    moves: Float[Array, " *E"]  # the size of a step, or the number of a save with a minus sign
    # q and v before each segment; with events also the shift of time (zero) and the switches
    starts: Float[Array, " *S n2"]
    begins: Float[Array, " *S"]  # time since the start before each segment, not negative
    count: Int[Array, " *C"]  # number of moves
    saved: Int[Array, " *C"]  # first save that was not reached: an event may end a run
    which: Int[Array, " *E"] | None = None  # the event that ends each move, -1 for none
    row: Int[Array, " *E"] | None = None  # row in which that event is kept

    @property
    def segment(self) -> int:
        """The number of moves in a segment."""
        return len(self.moves) // len(self.starts)

    @property
    def saves(self) -> Int[Array, " *E"]:
        """The number of the save that each move leads to, 0 for none."""
        return jnp.maximum(-self.moves, 0.0).astype(jnp.int32)

    def by_segment(self) -> "StepRecord":
        """Reshape the record with an axis of segments first, for a loop over them."""
        first = self.segment * jnp.arange(len(self.starts), dtype=jnp.int32)
        counts = jnp.clip(self.count - first, 0, self.segment)
        events = [None if x is None else self._rows(x) for x in (self.which, self.row)]
        return StepRecord(
            self._rows(self.moves),
            self.starts,
            self.begins,
            counts,
            jnp.broadcast_to(self.saved, counts.shape),
            *events,
        )

    def _rows(self, x: Array) -> Array:
        return x.reshape(len(self.starts), self.segment)

    def move(self, number: Array, begin: Array, usual: Array) -> Move:
        """A move of this segment, or of the whole run, that begins so long after the start.

        One that was not made has the usual length, or its derivative could be 0 / 0.
        """

        def entry(row: Array | None) -> Array:
            if row is None:
                return jnp.asarray(-1, jnp.int32)
            return jax.lax.dynamic_index_in_dim(row, number, keepdims=False)

        is_made, coded = number < self.count, entry(self.moves)
        save = jnp.where(is_made, jnp.maximum(-coded, 0.0), 0.0).astype(jnp.int32)
        size = jnp.where(is_made & (coded >= 0), coded, usual)
        event = jnp.where(is_made, entry(self.which), -1)
        return Move(begin, size, save, is_made, event, entry(self.row))


class MoveRows(eqx.Module):
    """The rows of a `StepRecord` while they are written."""

    moves: Array  # as in a `StepRecord`; with events also `which` and `row`, counted from 1
    starts: Array  # as in a `StepRecord`, the time since the start last
    segment: int = eqx.field(static=True)  # moves in a segment

    @staticmethod
    def empty(max_moves: int, segment: int, state: Array, columns: int) -> "MoveRows":
        """Make rows for `max_moves` moves of `columns` numbers, and states of this shape."""
        count = segments_of(max_moves, segment)
        moves = empty_rows(count * segment, jnp.zeros(columns, state.dtype))
        return MoveRows(moves, empty_rows(count, jnp.append(state, 0.0)), segment)

    def with_move(
        self, number: Array, move: tuple[Array, ...], begin: Array, state: Array, condition: Array
    ) -> "MoveRows":
        """Write the numbers of a move from a state and a time, if it is made."""
        is_first = condition & (number % self.segment == 0)
        row = jnp.stack([x.astype(state.dtype) for x in move])
        start = jnp.append(state, begin)
        return MoveRows(
            with_row(self.moves, number, row, condition),
            with_row(self.starts, number // self.segment, start, is_first),
            self.segment,
        )

    def record(self, count: Array, saved: Array) -> StepRecord:
        """Finish the record of `count` moves, up to a save."""
        is_move = (jnp.arange(len(self.moves)) < count)[:, None]
        is_segment = (self.segment * jnp.arange(len(self.starts)) < count)[:, None]
        moves = jnp.where(is_move, self.moves, 0.0)
        starts = jnp.where(is_segment, self.starts, 0.0)
        event = row = None
        if moves.shape[1] > 1:
            event, row = moves[:, 1:].astype(jnp.int32).T - 1
        return StepRecord(moves[:, 0], starts[:, :-1], starts[:, -1], count, saved, event, row)


def segments_of(moves: int, segment: int) -> int:
    """The number of segments for a number of moves."""
    return -(-moves // segment)
