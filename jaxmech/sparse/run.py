"""A trajectory by block elimination: steps between the save times, and their audit."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.consistency import SHARE
from jaxmech.integrate import Trajectory
from jaxmech.integrate.error_estimate import STATES, ErrorAccumulator, Recent
from jaxmech.sparse.bodies import energy
from jaxmech.sparse.consistency import audit, extents_at
from jaxmech.sparse.rows import jacobians
from jaxmech.sparse.step import SparsePlan, step
from jaxmech.status import Status
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of

_SEGMENT = 16  # steps from one estimate of the error to the next, at most


class _State(eqx.Module):
    q: Array
    v: Array
    position: Float[Array, ""]
    velocity: Float[Array, ""]
    rank: Int[Array, ""]
    first_rank: Int[Array, ""]  # at the start of the last step, and in its projection
    last_rank: Int[Array, ""]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]
    recent: Recent
    defect: ErrorAccumulator
    count: Int[Array, ""]  # steps so far


@jit_of("plan", "per_save")
def run(
    plan: SparsePlan, per_save: int, q: Array, v: Array, ts: Array, params: Params
) -> tuple[Trajectory, Float[Array, " T"]]:
    """The trajectory from (q, v), saved at ts, and its energy there."""
    steps = max(k for k in range(1, min(per_save, _SEGMENT) + 1) if per_save % k == 0)
    extents = extents_at(plan.structure, q, v, ts[0], params)
    start = _start(plan, q, v, ts, params, extents)

    def one_save(state: _State, ends: tuple[Array, Array]) -> tuple[_State, Any]:
        t, h = ends[0], (ends[1] - ends[0]) / per_save
        zero = jnp.zeros_like(h)
        state = replace(state, position=zero, velocity=zero)

        def one_step(number: Array, state: _State) -> _State:
            advance = jax.checkpoint(partial(_advance, plan), prevent_cse=False)
            return advance(state, t + number * h, h, params, extents)

        def one_segment(number: Array, state: _State) -> _State:
            first = number * steps
            state = jax.lax.fori_loop(0, steps, lambda k, s: one_step(first + k, s), state)
            good = (state.status == Status.OK) & (state.count >= STATES - 1)
            defect = state.defect.after(
                state.recent, state.q, state.v, h, plan.method, float(steps), 1
            )
            return replace(
                state, defect=jax.tree.map(partial(jnp.where, good), defect, state.defect)
            )

        state = jax.lax.fori_loop(0, per_save // steps, one_segment, state)
        alive = jnp.isnan(state.t_failed)
        saved = (state.q, state.v, state.position, state.velocity)
        return state, tuple(jnp.where(alive, x, jnp.nan) for x in saved)

    end, saved = jax.lax.scan(one_save, start, (ts[:-1], ts[1:]))
    first = (start.q, start.v, start.position, start.velocity)
    q, v, position, velocity = (
        jnp.concatenate([x[None], y]) for x, y in zip(first, saved, strict=True)
    )
    error = end.defect.relative(jax.lax.stop_gradient(ts[-1] - ts[0]))
    trajectory = Trajectory(q, v, position, velocity, end.rank, end.status, end.t_failed, error)

    def energy_at(state: tuple[Array, Array, Array]) -> Array:
        q, v, t = state
        return energy(plan.structure, q, v, t, params)

    energies = jax.lax.map(energy_at, (q, v, ts))
    return trajectory, energies


def _start(
    plan: SparsePlan, q: Array, v: Array, ts: Array, params: Params, extents: Float[Array, " n"]
) -> _State:
    t = ts[0]
    A = jacobians(plan.structure, q, v, t, params)
    residuals = audit(plan.structure, q, v, t, params, A, extents, SHARE)
    status = jnp.where(residuals.met, int(Status.OK), int(Status.INCONSISTENT))
    ahead = jnp.sign(ts[-1] - t)
    finite = jnp.isfinite(q.sum() + v.sum() + ts.sum()) & (ahead * (ts[1:] - ts[:-1]) >= 0).all()
    status = jnp.where(finite, status, int(Status.NONFINITE)).astype(jnp.int32)
    t_failed = jnp.where(status == Status.OK, jnp.nan, jax.lax.stop_gradient(t))
    rank = jnp.asarray(jnp.iinfo(jnp.int32).max, jnp.int32)
    return _State(
        q, v, residuals.position, residuals.velocity, rank, rank, rank, status, t_failed,
        Recent.none(q, v, same_steps=False), ErrorAccumulator.none(q, v), jnp.zeros((), jnp.int32),
    )  # fmt: skip


def _advance(
    plan: SparsePlan, state: _State, t: Array, h: Array, params: Params, extents: Float[Array, " n"]
) -> _State:
    """The next state, or the same one forever after a failure."""
    q, v, health = step(plan, state.q, state.v, t, h, params, extents)
    running = state.status == Status.OK
    # Whether the projection of the step before kept a row that is dependent at the start of that
    # step and at its end, which is here.
    choice_holds = jnp.maximum(state.first_rank, health.first_rank) >= state.last_rank
    status = jnp.where(choice_holds, health.status, int(Status.PROJECTION_FAILED)).astype(jnp.int32)
    moved = replace(
        state,
        q=q,
        v=v,
        position=jnp.maximum(state.position, health.position),
        velocity=jnp.maximum(state.velocity, health.velocity),
        rank=jnp.minimum(state.rank, health.rank),
        first_rank=health.first_rank,
        last_rank=health.last_rank,
        recent=state.recent.after(state.q, state.v, h),
        count=state.count + 1,
    )
    failed = replace(
        state,
        status=jnp.where(running, status, state.status),
        t_failed=jnp.where(running, jax.lax.stop_gradient(t), state.t_failed),
    )
    good = running & (health.status == Status.OK) & choice_holds
    return jax.tree.map(partial(jnp.where, good), moved, failed)
