"""Consistent changes of a state, tangent to the constraints, measured in a metric.

A change (dq, dv) of a consistent state is consistent if A_q dq = 0 at the level of positions and
A_v dv = -(dpsi/dq) dq at that of velocities. So it is a free dq in the null space of A_q and a free
dv in that of A_v, plus the part of dv that follows from dq on curved constraints. Only the free
parts are measured, so that a pendulum has the same lengths in x and y as in its angle.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from jaxmech.linalg import unit
from jaxmech.state import metric_mass
from jaxmech.system import Params, System, constraint_jacobians, reads_integrals, with_mass_rank
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of

LEAST_SIZES = 4


class Sweep(NamedTuple):
    """Central differences of P derivatives with S step sizes."""

    sizes: HostArray  # relative step sizes, descending, (S,)
    scales: HostArray  # what they are relative to: the size of the number, 1 where it is zero, (P,)
    differences: HostArray  # (P, S), NaN where a changed motion failed
    extrapolated: HostArray  # each two neighbours without their error of second order, (P, S - 1)
    chosen: NDArray[np.integer]  # which of these is in the middle of the plateau, (P,), or -1
    values: HostArray  # the derivatives, (P,), NaN where there is no plateau
    uncertainties: HostArray  # of the values, (P,)


def sweep(sizes: HostArray, scales: HostArray, differences: HostArray, round_off: float) -> Sweep:
    """The plateau of every row of differences (P, S) of values with a given round-off."""
    ratio = (sizes[:-1] / sizes[1:]) ** 2
    large, small = differences[:, :-1], differences[:, 1:]
    extrapolated = small + (small - large) / (ratio - 1)
    jumps = np.abs(np.diff(extrapolated))
    next_jump = np.pad(jumps[:, 2:], ((0, 0), (0, 1)), mode="edge")
    doubt = np.maximum(np.maximum(jumps[:, :-1], jumps[:, 1:]), next_jump)
    doubt = doubt + round_off / (scales[:, None] * sizes[1:-2])
    doubt[np.isnan(doubt)] = np.inf
    middle, least = np.argmin(doubt, axis=1) + 1, np.min(doubt, axis=1)
    is_finite = np.isfinite(least)
    chosen, uncertainties = np.where(is_finite, middle, -1), np.where(is_finite, least, np.nan)
    values = np.where(is_finite, extrapolated[np.arange(len(scales)), middle], np.nan)
    return Sweep(sizes, scales, differences, extrapolated, chosen, values, uncertainties)


def step_sizes(sizes: object, eps: float) -> HostArray:
    """The given relative step sizes in descending order; by default two in each decade."""
    if sizes is None:
        decades = 9 if eps < 1e-10 else 4
        return 10.0 ** -np.linspace(1, decades, 2 * decades - 1)
    step_array = np.asarray(sizes, dtype=float)
    good = step_array.ndim == 1 and np.isfinite(step_array).all() and (step_array > 0).all()
    if not good or np.unique(step_array).size != step_array.size or step_array.size < LEAST_SIZES:
        raise ValueError(
            f"Argument `sizes` must hold at least {LEAST_SIZES} different positive step sizes, "
            f"but is {sizes!r}; leave it out for two in each decade."
        )
    return np.sort(step_array)[::-1]


class Geometry(NamedTuple):
    """Mass and constraints at T states along a motion."""

    mass: Any  # M, made definite with the constraints where it is singular, (T, n, n)
    position: Any  # A_q, (T, k, n)
    velocity: Any  # A_v, (T, l, n)
    turn: Any  # derivative of the velocity level by q, (T, l, n)


class Tangents(NamedTuple):
    """A basis of the r consistent changes at one state, orthonormal in the metric."""

    q: HostArray  # dq of the directions, those that change q first, (n, r)
    v: HostArray  # dv of the directions, (n, r)
    by_q: HostArray  # maps dq to the first coordinates of a change, (r_q, n)
    by_v: HostArray  # maps dv to its other coordinates, (r_v, n)

    def coordinates(self, dq: HostArray, dv: HostArray) -> HostArray:
        """The coordinates (r, k) of consistent changes (n, k) in the basis."""
        return np.vstack([self.by_q @ dq, self.by_v @ dv])


def geometry(system: System, q: Array, v: Array, ts: Array, params: Params) -> Geometry:
    """Mass and constraints at states q (T, n), v (T, n), as numpy arrays in double precision."""
    return Geometry(*(np.asarray(x, float) for x in _geometry(system, q, v, ts, params)))


@jit_of("system")
def _geometry(system: System, q: Array, v: Array, ts: Array, params: Params) -> Geometry:
    # Where nothing depends on the integrals of states of first order, they are no changes.
    reads = reads_integrals(system, q[0], v[0], ts[0], params)
    first = system.n_velocities if reads else system.dynamics.mechanical_velocities
    system = with_mass_rank(system, q[0], v[0], ts[0], params)

    def geometry_at(q: Array, v: Array, t: Array) -> Geometry:
        M = metric_mass(system, q, v, t, params)
        turn = jax.jacfwd(lambda q: system.dynamics.velocity_level(q, v, t, params))(q)
        A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
        # Changes of q are those along the velocities.
        turn = system.dynamics.kinematics.rows(turn, q, t, params)
        fixed = jnp.eye(v.size, dtype=q.dtype)[first:]
        A_position = jnp.concatenate([A_position, fixed])
        return Geometry(M, A_position, A_velocity, turn)

    return jax.vmap(geometry_at)(q, v, ts)


def tangents(
    geometry: Geometry, k: int, tolerance: float, sizes: Sequence[HostArray] | None = None
) -> Tangents:
    """The consistent changes at the k-th state, in the metric of the mass or of given sizes."""
    if sizes is None:
        metric_q = metric_v = geometry.mass[k]
    else:
        metric_q, metric_v = (np.diag(1 / np.square(size)) for size in sizes)
    free_q, _ = _split(geometry.position[k], metric_q, tolerance)
    free_v, inverse = _split(geometry.velocity[k], metric_v, tolerance)
    follows = -inverse @ geometry.turn[k] @ free_q
    return Tangents(
        q=np.hstack([free_q, np.zeros_like(free_v)]),
        v=np.hstack([follows, free_v]),
        by_q=free_q.T @ metric_q,
        by_v=free_v.T @ metric_v,
    )


def _split(A: HostArray, metric: HostArray, tolerance: float) -> tuple[HostArray, HostArray]:
    """An orthonormal basis of the null space of A (n, r), and the pseudo-inverse of A."""
    root = np.linalg.cholesky(metric)
    rows, lengths = unit(np.linalg.solve(root, A.T).T)
    U, values, Vt = np.linalg.svd(rows)
    rank = int((values > tolerance).sum())
    inverse = (Vt[:rank].T / values[:rank]) @ U[:, :rank].T / np.where(lengths > 0, lengths, 1.0)
    return np.linalg.solve(root.T, Vt[rank:].T), np.linalg.solve(root.T, inverse)


def along(basis: Tangents, seed: int = 5) -> tuple[HostArray, HostArray]:
    """A pseudo-random consistent change (dq, dv) of unit size, (n,) each."""
    draw = np.asarray(np.random.default_rng(seed).normal(size=basis.q.shape[1]))
    mix = draw / np.linalg.norm(draw)
    return basis.q @ mix, basis.v @ mix


def consistent_change(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array] | None:
    """A consistent change of a state, of each number x by 1 + |x| at most; None without freedom."""
    point = geometry(system, q[None], v[None], t[None], params)
    basis = tangents(point, 0, float(jnp.finfo(q.dtype).eps) ** 0.5)
    if not basis.q.size:
        return None
    dq, dv = (jnp.asarray(d, q.dtype) for d in along(basis))
    dq = system.dynamics.speeds(q, dq, t, params)
    size = jnp.maximum(jnp.max(abs(dq) / (1 + abs(q))), jnp.max(abs(dv) / (1 + abs(v))))
    return dq / size, dv / size
