"""Counts of the work of a trajectory."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.integrate.methods.runge_kutta import AbstractMethod, AbstractRungeKutta


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
