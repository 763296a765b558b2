"""Whether a state satisfies the joints, judged by the size of the mechanism.

The same measure as in `jaxmech/consistency.py`, constraint by constraint: how far coordinates can
move until the constraints on them have changed their directions.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.consistency import SHARE, allowed_changes, allowed_rates
from jaxmech.sparse import rows
from jaxmech.sparse.bodies import masses_and_forces, quaternions
from jaxmech.sparse.structure import BodyGraph
from jaxmech.system import Params

_STRAIGHT = 10.0  # as in `jaxmech/consistency.py`


class Residuals(eqx.Module):
    """The residuals at a state.

    Attributes:
        met: whether q and v satisfy all constraints.
        position: largest |phi|.
        velocity: largest |dphi/dt| and |psi|.
    """

    met: Bool[Array, ""]
    position: Float[Array, ""]
    velocity: Float[Array, ""]


def audit(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Params,
    A: list[tuple[Array, ...]], extents: Float[Array, " n"], share: float,
) -> Residuals:  # fmt: skip
    """The residuals of the constraints with rows A, and whether they are a share of the extents."""
    q, v, t, params, A, extents = jax.lax.stop_gradient((q, v, t, params, A, extents))
    levels = _levels(structure, q, v, t, params, A, extents, share)
    positions, velocities = _allowed(q, v, extents, share)
    for group in structure.bodies:
        if group.template.has_norm:
            e, rate = quaternions(group, q), quaternions(group, v)
            norms = jnp.abs((e * e).sum(1) - 1) / 2, jnp.abs((e * rate).sum(1))
            for k, allowed in enumerate((positions, velocities)):
                tolerance = (jnp.abs(e) * quaternions(group, allowed)).sum(1)
                levels[k] = tuple(
                    jnp.concatenate([x.ravel(), y])
                    for x, y in zip(levels[k], (norms[k], tolerance), strict=True)
                )
    met = jnp.stack([(size <= allowed).all() for size, allowed in levels]).all()
    return Residuals(met, *(jnp.max(size, initial=0.0) for size, _ in levels))


def _allowed(q: Array, v: Array, extents: Array, share: float) -> tuple[Array, Array]:
    """How far coordinates and velocities may be off, (n,) each."""
    return allowed_changes(q, extents, share), allowed_rates(v, q, extents, share)


def _levels(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Params,
    A: list[tuple[Array, ...]], extents: Float[Array, " n"], share: float,
) -> list[Any]:  # fmt: skip
    """|phi| and |dphi/dt| or |psi| of the joints, each with what is allowed, (b, m)."""
    sizes = [tuple(jnp.abs(a) for a in jacobian) for jacobian in A]
    levels = (
        rows.position_level(structure, q, v, t, params),
        rows.velocity_level(structure, q, v, t, params),
    )
    allowed = _allowed(q, v, extents, share)
    pairs = zip(levels, allowed, strict=True)
    return [(jnp.abs(level), rows.matvec(structure, sizes, x)) for level, x in pairs]


def misses(structure: BodyGraph, q: Array, v: Array, t: Array, params: Params) -> list[Any]:
    """The residuals of the joints at a given state, each with what is allowed, (b, m)."""
    extents = extents_at(structure, q, v, t, params)
    A = rows.jacobians(structure, q, v, t, params)
    return _levels(structure, q, v, t, params, A, extents, SHARE)


def extents_at(
    structure: BodyGraph, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " n"]:
    """The extents of all coordinates."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    units, widest = _units(structure, q, v, t, params), jnp.zeros((), q.dtype)
    extents = jnp.zeros_like(q)
    for group in structure.constraints:
        A, radius = group.of_each(
            partial(_radius_of_joint, t), params,
            group.blocks(q), group.blocks(v), group.blocks(units),
        )  # fmt: skip
        widest = jnp.maximum(widest, radius.max())
        for entries, jacobian in zip(group.entries, A, strict=True):
            touched = jnp.where((jacobian != 0).any(1), radius[:, None], 0.0)
            extents = extents.at[entries].max(touched)
    for group in structure.bodies:
        if group.template.has_norm:
            e, unit = quaternions(group, q), quaternions(group, units)
            radius = jax.vmap(_radius_of_norm)(e, unit)
            widest = jnp.maximum(widest, radius.max())
            extents = extents.at[group.entries[0][:, -4:]].max(radius[:, None])
    radii = extents * units
    widths = jnp.minimum(widest * units, 1.0)
    return jnp.where(radii > 0, radii, jnp.where(widths > 0, widths, 1.0))


def _units(structure: BodyGraph, q: Array, v: Array, t: Array, params: Params) -> Array:
    """The units of coordinates in which the diagonal of M is one."""
    parts = []
    for group, M in zip(
        structure.bodies, masses_and_forces(structure, q, v, t, params)[0], strict=True
    ):
        mass = jnp.diagonal(M, axis1=1, axis2=2)
        if group.template.has_norm:
            # No part of a quaternion is without inertia, although it may be along e.
            turns = jnp.max(mass[:, -4:], axis=1, keepdims=True)
            mass = mass.at[:, -4:].max(turns)
        parts.append(1 / jnp.sqrt(jnp.where(mass > 0, mass, 1.0)).ravel())
    return jnp.concatenate(parts)[structure.entries]


def _radius_of_joint(
    t: Array, e: Any, params: Any, q: rows.Blocks, v: rows.Blocks, units: rows.Blocks
) -> tuple[tuple[Array, ...], Array]:
    A = rows.jacobian(e, params, q, v, t)

    def turned(q: rows.Blocks, direction: rows.Blocks) -> Array:
        products = zip(rows.jacobian(e, params, q, v, t), direction, strict=True)
        return jnp.stack([(a * x[None]).sum(1) for a, x in products]).sum(0)

    draw = np.random.default_rng(29)
    bent = jnp.zeros((), t.dtype)
    for _ in range(2):
        first, second = (
            tuple(jnp.asarray(_way(draw, u.shape), u.dtype) * u for u in units) for _ in range(2)
        )
        bend = jax.jvp(lambda q: turned(q, second), (q,), (first,))[1]  # noqa: B023
        bent = bent + (bend * bend).sum() / 2
    size = sum(((a * u[None]) ** 2).sum() for a, u in zip(A, units, strict=True))
    wide = sum(((a * (1 + jnp.abs(x))[None]) ** 2).sum() for a, x in zip(A, q, strict=True))
    return A, _radius(size, bent, wide)


def _radius_of_norm(e: Array, units: Array) -> Array:
    scaled = (e * units) @ (e * units)
    return _radius(scaled, ((units * units) ** 2).sum(), ((e * (1 + jnp.abs(e))) ** 2).sum())


def _radius(size: Any, bent: Array, wide: Any) -> Array:
    """The radius of curvature of a constraint, zero if it is straight."""
    is_straight = ~(size * size <= _STRAIGHT**2 * bent * wide) | (bent <= 0)
    return jnp.where(is_straight, 0.0, jnp.sqrt(size / jnp.where(is_straight, 1.0, bent)))


def _way(draw: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A direction in which all terms have an effect."""
    return draw.uniform(0.5, 1.5, shape) * draw.choice([-1.0, 1.0], shape)
