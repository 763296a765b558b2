"""Consistent changes of a state, tangent to the constraints, measured in a metric.

A change (dq, dv) of a consistent state is consistent if A_q dq = 0 at the level of positions and
A_v dv = -(dpsi/dq) dq at that of velocities. So it is a free dq in the null space of A_q and a free
dv in that of A_v, plus the part of dv that follows from dq on curved constraints. Only the free
parts are measured, by the mass, so that a pendulum has the same lengths in x and y as in its angle.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.linalg import unit
from jaxmech.state import metric_mass
from jaxmech.system import Params, System, constraint_jacobians, reads_integrals, with_mass_rank
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of


def consistent_change(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array] | None:
    """A pseudo-random consistent change (dq, dv) of a state, (n,) each; None without freedom.

    It changes each number x by 1 + |x| at most.
    """
    M, position, velocity, turn = (np.asarray(x, float) for x in _rows(system, q, v, t, params))
    free_q, _ = _split(position, M, float(jnp.finfo(q.dtype).eps) ** 0.5)
    free_v, inverse = _split(velocity, M, float(jnp.finfo(q.dtype).eps) ** 0.5)
    mix = np.random.default_rng(5).normal(size=free_q.shape[1] + free_v.shape[1])
    if not mix.size:
        return None
    change_q = free_q @ mix[: free_q.shape[1]]
    change_v = free_v @ mix[free_q.shape[1] :] - inverse @ turn @ change_q
    dq = system.dynamics.speeds(q, jnp.asarray(change_q, q.dtype), t, params)
    dv = jnp.asarray(change_v, q.dtype)
    size = jnp.maximum(jnp.max(abs(dq) / (1 + abs(q))), jnp.max(abs(dv) / (1 + abs(v))))
    return dq / size, dv / size


@jit_of("system")
def _rows(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array, Array, Array]:
    """M, made definite with the constraints, A_q, A_v, and the derivative of the latter level."""
    # Where nothing depends on the integrals of states of first order, they are no changes.
    reads = reads_integrals(system, q, v, t, params)
    first = system.n_velocities if reads else system.dynamics.mechanical_velocities
    system = with_mass_rank(system, q, v, t, params)
    turn = jax.jacfwd(lambda q: system.dynamics.velocity_level(q, v, t, params))(q)
    # Changes of q are those along the velocities.
    turn = system.dynamics.kinematics.rows(turn, q, t, params)
    position, velocity = constraint_jacobians(system, q, v, t, params)
    position = jnp.concatenate([position, jnp.eye(v.size, dtype=q.dtype)[first:]])
    return metric_mass(system, q, v, t, params), position, velocity, turn


def _split(A: HostArray, metric: HostArray, tolerance: float) -> tuple[HostArray, HostArray]:
    """An orthonormal basis of the null space of A (n, r), and the pseudo-inverse of A."""
    root = np.linalg.cholesky(metric)
    rows, lengths = unit(np.linalg.solve(root, A.T).T)
    U, values, Vt = np.linalg.svd(rows)
    rank = int((values > tolerance).sum())
    inverse = (Vt[:rank].T / values[:rank]) @ U[:, :rank].T / np.where(lengths > 0, lengths, 1.0)
    return np.linalg.solve(root.T, Vt[rank:].T), np.linalg.solve(root.T, inverse)
