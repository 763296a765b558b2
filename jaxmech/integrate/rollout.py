"""A whole trajectory: steps between the save times, and an audit of every step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.integrate.step import Scheme, step
from jaxmech.manifold import constraint_jacobians, near
from jaxmech.status import Status
from jaxmech.system import Params


class Trajectory(eqx.Module):
    """What a rollout saves.

    Attributes:
        q: coordinates at the save times, shape (T, n), NaN after a failure.
        v: velocities at the save times, shape (T, n), NaN after a failure.
        position_residual: largest |phi| over the steps since the previous save, shape (T,).
        velocity_residual: largest |dphi/dt| and |psi| likewise, shape (T,).
        rank: smallest number of independent constraint equations seen.
        status: how it ended, a `Status`.
        t_failed: time of the last good state before a failure, NaN if there was none.
    """

    q: Float[Array, " T n"]
    v: Float[Array, " T n"]
    position_residual: Float[Array, " T"]
    velocity_residual: Float[Array, " T"]
    rank: Int[Array, ""]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]


class _State(eqx.Module):
    q: Array
    v: Array
    position_residual: Array
    velocity_residual: Array
    rank: Array
    status: Array
    t_failed: Array


def rollout(
    scheme: Scheme,
    q0: Array,
    v0: Array,
    ts: Array,
    params: Params,
    *,
    remember: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda fn: fn,
) -> Trajectory:
    """The trajectory from (q0, v0) at ts[0], saved at ts.

    Args:
        scheme: what to integrate and how.
        q0: initial coordinates (n,).
        v0: initial velocities (n,).
        ts: save times (T,).
        params: parameters.
        remember: wraps each step and each save interval; `jax.checkpoint` for a reverse pass.
    """
    start = _start(scheme, q0, v0, ts[0], params)

    @remember
    def one_step(state: _State, t: Array, h: Array) -> _State:
        return _advance(scheme, state, t, h, params)

    @remember
    def interval(state: _State, t: Array, t_next: Array) -> _State:
        h = (t_next - t) / scheme.method.substeps
        zero = jnp.zeros_like(t)
        state = eqx.tree_at(
            lambda s: (s.position_residual, s.velocity_residual), state, (zero, zero)
        )
        return jax.lax.fori_loop(
            0, scheme.method.substeps, lambda k, state: one_step(state, t + k * h, h), state
        )

    def save(state: _State, times: tuple[Array, Array]) -> tuple[_State, _State]:
        state = interval(state, *times)
        return state, state

    end, saved = jax.lax.scan(save, start, (ts[:-1], ts[1:]))
    saved = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, saved)
    alive = jnp.isnan(saved.t_failed)
    alive = alive.at[0].set(True)

    def hide(x: Array) -> Array:
        return jnp.where(alive.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.nan)

    return Trajectory(
        q=hide(saved.q),
        v=hide(saved.v),
        position_residual=hide(saved.position_residual),
        velocity_residual=hide(saved.velocity_residual),
        rank=end.rank,
        status=end.status,
        t_failed=end.t_failed,
    )


def _start(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> _State:
    system = scheme.system
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    position = system.position_level(q, t, params)
    velocity = system.velocity_level(q, v, t, params)
    consistent = near(position, A_position, q) & near(velocity, A_velocity, v)
    finite = jnp.isfinite(jnp.concatenate([q, v, position, velocity])).all()
    status = jnp.where(consistent, Status.OK, Status.INCONSISTENT)
    status = jnp.where(finite, status, Status.NONFINITE).astype(jnp.int32)
    rows = sum(system.sizes(q, v, t, params))
    return _State(
        q, v, *_residuals(scheme, q, v, t, params), jnp.asarray(rows, jnp.int32), status,
        jnp.where(status == Status.OK, jnp.nan, t),
    )  # fmt: skip


def _advance(scheme: Scheme, state: _State, t: Array, h: Array, params: Params) -> _State:
    """The next state, or the same one for good once something has gone wrong."""
    q, v, health = step(scheme, state.q, state.v, t, h, params)
    position, velocity = _residuals(scheme, q, v, t + h, params)
    running = state.status == Status.OK
    good = running & (health.status == Status.OK)
    return _State(
        q=jnp.where(good, q, state.q),
        v=jnp.where(good, v, state.v),
        position_residual=jnp.where(
            good, jnp.maximum(state.position_residual, position), state.position_residual
        ),
        velocity_residual=jnp.where(
            good, jnp.maximum(state.velocity_residual, velocity), state.velocity_residual
        ),
        rank=jnp.where(running & health.computed, jnp.minimum(state.rank, health.rank), state.rank),
        status=jnp.where(running, health.status, state.status),
        t_failed=jnp.where(running & ~good, t, state.t_failed),
    )


def _residuals(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, Array]:
    """Largest |phi|, and largest |dphi/dt| and |psi|."""
    position = scheme.system.position_level(q, t, params)
    velocity = scheme.system.velocity_level(q, v, t, params)
    return jnp.max(jnp.abs(position), initial=0.0), jnp.max(jnp.abs(velocity), initial=0.0)
