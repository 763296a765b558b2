"""What a run returns: the states that it saves, its outcome, and counts of its work.

The times of the saves are decided before a run, by its `StepGrid`. All runs save in one form,
`SavedStates`: with fixed steps at the end of a save interval, with adaptive ones row by row.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.methods.runge_kutta import AbstractMethod, AbstractRungeKutta


class SavedStates(eqx.Module):
    """What is saved at a time, or at each of T times.

    Attributes:
        q: coordinates.
        v: velocities; k is n unless there are quasi-velocities.
        memory: what controllers keep.
        position_residual: largest |phi| there, or since the previous save where nothing else checks
            the steps.
        velocity_residual: largest |dphi/dt| and |psi| likewise.
        active: flags of the constraints with a switch that are on.
    """

    q: Float[Array, "*T n"]
    v: Float[Array, "*T k"]
    memory: Float[Array, "*T c"]
    position_residual: Float[Array, " *T"]
    velocity_residual: Float[Array, " *T"]
    active: Bool[Array, "*T C"]

    @property
    def residuals(self) -> tuple[Array, Array]:
        """Both largest residuals."""
        return self.position_residual, self.velocity_residual

    @property
    def packed(self) -> Float[Array, " w"]:
        """Those of one time as one row."""
        residuals = jnp.stack(self.residuals)
        active = self.active.astype(self.q.dtype)
        return jnp.concatenate([self.q, self.v, self.memory, residuals, active])

    def unpacked(self, rows: Float[Array, "T w"]) -> "SavedStates":
        """The saves of packed rows, whose sizes are those of this one."""
        ends = np.cumsum([self.q.size, self.v.size, self.memory.size, 2])
        q, v, memory, residuals, active = jnp.split(rows, ends.tolist(), axis=1)
        return SavedStates(q, v, memory, residuals[:, 0], residuals[:, 1], active > 0)

    def where(self, flags: Bool[Array, " *T"], other: "SavedStates") -> "SavedStates":
        """The flagged ones, elsewhere the other one."""

        def chosen(x: Array, y: Array) -> Array:
            return jnp.where(_beside(flags, max(x.ndim, y.ndim)), x, y)

        return jax.tree.map(chosen, self, other)

    def known(self, flags: Bool[Array, " *T"]) -> "SavedStates":
        """The flagged ones, NaN elsewhere except for the switches."""

        def known(x: Array) -> Array:
            return jnp.where(_beside(flags, x.ndim), x, jnp.nan)

        position, velocity = map(known, self.residuals)
        q, v, memory = map(known, (self.q, self.v, self.memory))
        return SavedStates(q, v, memory, position, velocity, self.active)

    def selected(self, rows: Int[Array, " S"]) -> "SavedStates":
        """Some of them, the first one among them, with the largest residuals in between."""
        number = jnp.searchsorted(rows, jnp.arange(len(self.q)))  # of the row after each save
        position, velocity = (jax.ops.segment_max(x, number, len(rows)) for x in self.residuals)
        q, v, memory, active = (x[rows] for x in (self.q, self.v, self.memory, self.active))
        return SavedStates(q, v, memory, position, velocity, active)


def _beside(flags: Array, ndim: int) -> Array:
    return flags.reshape(flags.shape + (1,) * (ndim - flags.ndim))


def at_saves(first: Any, ends: Any, count: int) -> Any:
    """The start, and what the ends of segments have at every save, `count` segments apart."""
    return jax.tree.map(
        lambda x, rows: jnp.concatenate([x[None], rows[count - 1 :: count]]), first, ends
    )


class Trajectory(eqx.Module):
    """The result of a run.

    Attributes:
        saves: what is saved, NaN after a failure.
        rank: smallest number of independent constraint equations during the motion.
        status: the outcome, a `Status`.
        t_failed: time of the last good state before a failure, NaN without one.
        error: estimated integration error relative to the motion, as in `Solution`.
        events: state of the events.
        occurrences: rows of the events; the content of those that are not written is undefined.
        counts: counts of the work, a `StepCounts`; empty for fixed steps, whose number is known.
    """

    saves: SavedStates
    rank: Int[Array, ""]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]
    error: Float[Array, ""]
    events: EventState
    occurrences: Float[Array, "R w"]
    counts: Any = ()


class StepCounts(eqx.Module):
    """The numbers of steps and evaluations of a trajectory.

    Attributes:
        accepted: number of steps.
        rejected: number of attempted steps that were repeated with a smaller size.
        evaluations: number of evaluations of the law of motion.
        longest: longest step [s].
        t_stiff: time from which stability seemed to limit the steps, NaN if never.
    """

    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    evaluations: Int[Array, ""]
    longest: Float[Array, ""]
    t_stiff: Float[Array, ""]

    @staticmethod
    def of_fixed(method: AbstractMethod, per_save: int, ts: Array, t_failed: Array) -> "StepCounts":
        """Count the work of a run with a fixed number of steps between the save times."""
        ts, t_failed = jax.lax.stop_gradient((ts, t_failed))
        h = (ts[1:] - ts[:-1]) / per_save
        has_length = h != 0  # repeated save times have not
        # Steps before a failure; NaN means that there was none.
        step_counts = jnp.round((t_failed - ts[:-1]) / jnp.where(has_length, h, 1.0))
        step_counts = jnp.where(jnp.isnan(t_failed), per_save, jnp.clip(step_counts, 0, per_save))
        step_counts = jnp.where(has_length, step_counts, 0).astype(jnp.int32).sum()
        stages = len(method.tableau.nodes) if isinstance(method, AbstractRungeKutta) else 1
        zero, longest = jnp.zeros((), jnp.int32), jnp.max(jnp.abs(h))
        nan = jnp.full_like(longest, jnp.nan)
        return StepCounts(
            step_counts.astype(jnp.int32),
            zero,
            (stages * step_counts).astype(jnp.int32),
            longest,
            nan,
        )
