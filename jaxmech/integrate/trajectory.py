"""What a run returns: the states that it saves, its outcome, counts of its work, and its moves.

The times of the saves are decided before a run, by its `StepGrid`. All runs save in one form,
`SavedStates`: with fixed steps at the end of a save interval, with adaptive ones row by row.

Derivatives of adaptive steps are computed from the moves in their order. A move is an accepted
step, or the part of a step that leads to a save; the latter comes before the step in which the save
lies, and both begin at the same state. One number is kept of a possible move, for this is what the
memory of derivatives grows with; all else follows from the numbers of a segment and from the state
before it.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.methods.runge_kutta import AbstractMethod, AbstractRungeKutta

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


class SavedStates(eqx.Module):
    """What is saved at a time, or at each of T times."""

    q: Float[Array, "*T n"]
    v: Float[Array, "*T k"]  # k is n unless there are quasi-velocities
    memory: Float[Array, "*T c"]  # what controllers keep
    # Largest |phi|, and largest |dphi/dt| and |psi|, there, or since the previous save where
    # nothing else checks the steps.
    position_residual: Float[Array, " *T"]
    velocity_residual: Float[Array, " *T"]
    active: Bool[Array, "*T C"]  # flags of the constraints with a switch that are on

    @property
    def packed(self) -> Float[Array, " w"]:
        return ravel_pytree(self)[0]

    def unpacked(self, rows: Float[Array, "T w"]) -> "SavedStates":
        """The saves of packed rows, whose sizes are those of this one."""
        saves: SavedStates = jax.vmap(ravel_pytree(self)[1])(rows)
        return saves

    def where(self, flags: Bool[Array, " *T"], other: "SavedStates") -> "SavedStates":
        """The flagged ones, elsewhere the other one."""

        def chosen(x: Array, y: Array) -> Array:
            axes = range(flags.ndim, max(x.ndim, y.ndim))
            return jnp.where(jnp.expand_dims(flags, tuple(axes)), x, y)

        return jax.tree.map(chosen, self, other)

    def known(self, flags: Bool[Array, " *T"]) -> "SavedStates":
        """The flagged ones, NaN elsewhere except for the switches."""
        unknown = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), self)
        return self.where(flags, replace(unknown, active=self.active))

    def selected(self, rows: Int[Array, " S"]) -> "SavedStates":
        """Some of them, the first one among them, with the largest residuals in between."""
        number = jnp.searchsorted(rows, jnp.arange(len(self.q)))  # of the row after each save
        residuals = self.position_residual, self.velocity_residual
        position, velocity = (jax.ops.segment_max(x, number, len(rows)) for x in residuals)
        q, v, memory, active = (x[rows] for x in (self.q, self.v, self.memory, self.active))
        return SavedStates(q, v, memory, position, velocity, active)


def at_saves(first: Any, ends: Any, count: int) -> Any:
    """The start, and what the ends of segments have at every save, `count` segments apart."""
    return jax.tree.map(
        lambda x, rows: jnp.concatenate([x[None], rows[count - 1 :: count]]), first, ends
    )


class Trajectory(eqx.Module):
    """The result of a run."""

    saves: SavedStates  # NaN after a failure
    rank: Int[Array, ""]  # smallest number of independent constraint equations during the motion
    status: Int[Array, ""]  # the outcome, a `Status`
    t_failed: Float[Array, ""]  # time of the last good state before a failure, NaN without one
    error: Float[Array, ""]  # estimated integration error relative to the motion, as in `Solution`
    resolution: Float[Array, ""]  # that which round-off hides, likewise
    events: EventState
    occurrences: Float[Array, "R w"]  # of the events; rows that are not written are undefined
    counts: Any = ()  # a `StepCounts`; empty for fixed steps, whose number is known


class StepCounts(eqx.Module):
    """The numbers of steps and evaluations of a trajectory."""

    accepted: Int[Array, ""]  # number of steps
    rejected: Int[Array, ""]  # attempted steps that were repeated with a smaller size
    evaluations: Int[Array, ""]  # of the law of motion
    longest: Float[Array, ""]  # longest step [s]
    t_stiff: Float[Array, ""]  # from which stability seemed to limit the steps, NaN if never

    @staticmethod
    def of_fixed(method: AbstractMethod, per_save: int, ts: Array, t_failed: Array) -> "StepCounts":
        """Count the work of a run with a fixed number of steps between the save times."""
        ts, t_failed = jax.lax.stop_gradient((ts, t_failed))
        h = (ts[1:] - ts[:-1]) / per_save
        has_length = h != 0  # repeated save times have not
        # Steps before a failure; NaN means that there was none.
        step_counts = jnp.round((t_failed - ts[:-1]) / jnp.where(has_length, h, 1.0))
        step_counts = jnp.where(jnp.isnan(t_failed), per_save, jnp.clip(step_counts, 0, per_save))
        counts = jnp.where(has_length, step_counts, 0).astype(jnp.int32).sum().astype(jnp.int32)
        stages = len(method.tableau.nodes) if isinstance(method, AbstractRungeKutta) else 1
        zero, longest = jnp.zeros((), jnp.int32), jnp.max(jnp.abs(h))
        nan = jnp.full_like(longest, jnp.nan)
        return StepCounts(counts, zero, stages * counts, longest, nan)


class Move(eqx.Module):
    """A step, a step up to an event, or a save."""

    begin: Float[Array, ""]  # time since the start, not negative
    size: Float[Array, ""]  # of the step, or its part up to an event; undefined for a save
    save: Int[Array, ""]  # number of the save, 0 if it is none
    is_made: Bool[Array, ""]
    which: Int[Array, ""]  # index of the event that ends it, -1 for none
    row: Int[Array, ""]  # row in which that event is kept
    outcome: Float[Array, " D"]  # decisions about gaps at it


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
