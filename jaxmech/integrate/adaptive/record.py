"""The moves of a run in their order, from which its derivatives are computed.

A move is an accepted step, or the part of a step that leads to a save; the latter comes before the
step in which the save lies, and both begin at the same state.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.compiler import empty_rows, with_row


class StepRecord(eqx.Module):
    """The moves of a run, and the states before every segment of them; beyond `count` zeros.

    Attributes:
        begins: time since the start before each move, not negative, shape (E,).
        sizes: of the steps, not negative, shape (E,).
        saves: the number of the save, 0 for a step, shape (E,).
        starts: q and v before each segment of moves, shape (S, 2 n).
        count: number of moves.
        which: the number of the event that ends each move, -1 for none, shape (E,); None without
            events. With them, the shift of time (zero) and the switches follow q and v in a start.
        row: where that event is kept, shape (E,).
    """

    begins: Float[Array, " E"]
    sizes: Float[Array, " E"]
    saves: Int[Array, " E"]
    starts: Float[Array, " S n2"]
    count: Int[Array, ""]
    which: Int[Array, " E"] | None = None
    row: Int[Array, " E"] | None = None


class MoveRows(eqx.Module):
    """The same while it is written.

    Attributes:
        moves: begin, size and number of the save; with events also the number of the event and
            where it is kept, each counted from 1.
        starts: as above.
        segment: moves in a segment.
    """

    moves: Array
    starts: Array
    segment: int = eqx.field(static=True)

    @staticmethod
    def empty(most: int, segment: int, state: Array, columns: int = 3) -> "MoveRows":
        """For so many moves of so many numbers, and states of this shape."""
        count = segments_of(most, segment)
        moves = empty_rows(count * segment, jnp.zeros(columns, state.dtype))
        return MoveRows(moves, empty_rows(count, state), segment)

    def with_move(
        self, number: Array, move: tuple[Array, ...], state: Array, when: Array
    ) -> "MoveRows":
        """With the numbers of a move from a state, if it is made."""
        is_first = when & (number % self.segment == 0)
        row = jnp.stack([x.astype(state.dtype) for x in move])
        return MoveRows(
            with_row(self.moves, number, row, when),
            with_row(self.starts, number // self.segment, state, is_first),
            self.segment,
        )

    def record(self, count: Array) -> StepRecord:
        """What was written by so many moves."""
        made = (jnp.arange(len(self.moves)) < count)[:, None]
        begun = (self.segment * jnp.arange(len(self.starts)) < count)[:, None]
        moves = jnp.where(made, self.moves, 0.0)
        starts = jnp.where(begun, self.starts, 0.0)
        saves = moves[:, 2].astype(jnp.int32)
        which = row = None
        if moves.shape[1] > 3:
            which, row = moves[:, 3:].astype(jnp.int32).T - 1
        return StepRecord(moves[:, 0], moves[:, 1], saves, starts, count, which, row)


def segments_of(moves: int, segment: int) -> int:
    """The number of segments for so many moves."""
    return -(-moves // segment)
