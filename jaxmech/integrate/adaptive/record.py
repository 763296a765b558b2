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
    """

    begins: Float[Array, " E"]
    sizes: Float[Array, " E"]
    saves: Int[Array, " E"]
    starts: Float[Array, " S n2"]
    count: Int[Array, ""]


class MoveRows(eqx.Module):
    """The same while it is written.

    Attributes:
        moves: begin, size and number of the save.
        starts: as above.
        segment: moves in a segment.
    """

    moves: Array
    starts: Array
    segment: int = eqx.field(static=True)

    @staticmethod
    def empty(most: int, segment: int, state: Array) -> "MoveRows":
        """For so many moves, and states (q, v) of this shape."""
        count = segments_of(most, segment)
        moves = empty_rows(count * segment, jnp.zeros(3, state.dtype))
        return MoveRows(moves, empty_rows(count, state), segment)

    def with_move(
        self, number: Array, move: tuple[Array, Array, Array], state: Array, when: Array
    ) -> "MoveRows":
        """With begin, size and number of the save of a move from a state, if it is made."""
        is_first = when & (number % self.segment == 0)
        row = jnp.stack([move[0], move[1], move[2].astype(state.dtype)])
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
        return StepRecord(moves[:, 0], moves[:, 1], saves, starts, count)


def segments_of(moves: int, segment: int) -> int:
    """The number of segments for so many moves."""
    return -(-moves // segment)
