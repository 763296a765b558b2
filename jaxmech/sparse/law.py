"""Accelerations and projections by block elimination."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.consistency import motion_share
from jaxmech.sparse import rows
from jaxmech.sparse.bodies import along_norms, applied_force, quaternions
from jaxmech.sparse.consistency import Residuals, audit
from jaxmech.sparse.factor import applied
from jaxmech.sparse.metric import FactorizedState
from jaxmech.system import Params


class Accelerations(eqx.Module):
    """The solution of the law of motion at a state.

    Attributes:
        qdd: accelerations, (n,).
        rank: number of independent equations.
        definite: whether the masses were positive definite.
        independent: flags of the rows counted as independent, (b, m); None without joints.
        contradicts: whether dependent rows ask for other accelerations.
    """

    qdd: Float[Array, " n"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]
    independent: Bool[Array, "b m"] | None
    contradicts: Bool[Array, ""]


def accelerations(
    place: FactorizedState, q: Array, v: Array, t: Array, params: Params
) -> Accelerations:  # fmt: skip
    """The accelerations of the Udwadia-Kalaba equation (`formulations/udwadia_kalaba.py`)."""
    metric, Q, A = place.metric, place.Q, place.A
    structure = metric.structure

    def stretch(group: Any, e: Array) -> Array:
        return -(quaternions(group, v) ** 2).sum(1)

    c = along_norms(structure, q, stretch)
    directions = metric.directions
    F = Q + applied_force(structure, q, v, t, params)
    free = applied(metric.G, directions.narrowed(F))
    if metric.factor is None:
        qdd, false = directions.widened(free) + c, jnp.asarray(False)
        return Accelerations(qdd, metric.rank, metric.definite, None, false)
    b = rows.right_sides(structure, q, v, t, params)
    if structure.norms:
        b = b - rows.matvec(structure, A, c)
    w = free + metric.min_norm_solve(b - metric.across(free))
    miss = jax.lax.stop_gradient(jnp.abs(metric.across(w) - b))
    size = jnp.abs(w).max() + jnp.abs(free).max()
    tolerance = float(jnp.finfo(q.dtype).eps) ** 0.25
    involved = metric.reach(size) + jnp.abs(b)
    too_much = (miss > tolerance * involved).any() & ~metric.is_full
    qdd = directions.widened(w) + c
    return Accelerations(qdd, metric.rank, metric.definite, metric.factor.independent, too_much)


def projected(
    place: FactorizedState, q: Array, v: Array, t: Array, params: Params, iterations: int,
    extents: Float[Array, " n"],
) -> tuple[Array, Array, Residuals]:  # fmt: skip
    """q, and then v, on the constraints, and whether they were reached.

    Gauss-Newton steps in the metric of M, all with one factorization, as `Projection` makes them.
    """
    metric, A = place.metric, place.A
    structure, base = metric.structure, q

    def step(level: Array, sizes: Any) -> Array:
        c = along_norms(structure, base, sizes)
        if structure.norms and metric.factor is not None:
            level = level - rows.matvec(structure, A, c)
        return metric.directions.widened(metric.min_norm_solve(level)) + c

    def moved(_: Array, q: Array) -> Array:
        level = rows.position_level(structure, q, v, t, params)
        return q - step(level, lambda group, _: _stretch(quaternions(group, q)))

    # Loops, so that a solution is compiled once for each.
    q = jax.lax.fori_loop(0, iterations, moved, q)

    def corrected(_: Array, v: Array) -> Array:
        level = rows.velocity_level(structure, q, v, t, params)
        return v - step(level, lambda g, _: (quaternions(g, q) * quaternions(g, v)).sum(1))

    v = jax.lax.fori_loop(0, iterations, corrected, v)
    residuals = audit(structure, q, v, t, params, A, extents, motion_share(q.dtype))
    return q, v, replace(residuals, met=residuals.met & metric.definite)


def _stretch(e: Float[Array, "k 4"]) -> Float[Array, " k"]:
    """The residuals of unit quaternions."""
    return ((e * e).sum(1) - 1) / 2
