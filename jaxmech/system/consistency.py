"""Whether a state satisfies the constraints, judged by the size of the mechanism.

A residual says little by itself: it depends on how a constraint was written, and on units. It is
compared with the change of its constraint when the coordinates move by a millionth of their
*extents*, and with the effect of rounding errors. The extent of a coordinate is how far it moves
until the constraints have changed their directions: the length of a rod, or about one radian. It
does not depend on where the origin is.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import jacobian
from jaxmech.linalg import coordinate_units
from jaxmech.system.constraints import Holonomic, Nonholonomic
from jaxmech.system.system import Params, System
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.jit_cache import jit_of

SHARE = 1e-6  # of its extents by which a given state may be off its constraints
_ROUNDING = 4.0  # units of round-off in each coordinate and in each term of a constraint
_ANY = 1e12  # extent of a state of first order, which no constraint holds
_STRAIGHT = 10.0  # ratio of radius of curvature to coordinates beyond which a surface is a plane


class Levels(NamedTuple):
    """The constraints at a state, with Jacobians by the coordinates and their rates."""

    position: Float[AnyArray, " k"]
    velocity: Float[AnyArray, " l"]
    A_position: Float[AnyArray, " k n"]
    A_velocity: Float[AnyArray, " l n"]

    @staticmethod
    def at(
        system: System, q: Array, v: Array, t: Array, params: Params,
        jacobians: tuple[Array, Array] | None = None,
    ) -> "Levels":  # fmt: skip
        """Those at a state, by default with the Jacobians there.

        With quasi-velocities those of `System.plain`, which has invariants among the constraints.
        """
        dynamics, v = system.plain.dynamics, system.dynamics.speeds(q, v, t, params)
        return Levels(
            dynamics.position_level(q, t, params),
            dynamics.velocity_level(q, v, t, params),
            *(dynamics.jacobians(q, v, t, params) if jacobians is None else jacobians),
        )


def motion_share(dtype: Any) -> float:
    """The share of its extents by which a mechanism may be off its constraints in a motion.

    It is 1.3e-6 in float64 and 2.5e-3 in float32: near a pose where the rank of A drops, rows that
    a projection takes as dependent are satisfied no better.
    """
    return float(jnp.finfo(dtype).eps) ** 0.375


def on_constraints(
    system: System, q: Array, v: Array, t: Array, params: Params,
    extents: Float[Array, " n"] | None = None, share: float = SHARE, levels: Levels | None = None,
) -> Bool[Array, ""]:  # fmt: skip
    """Whether a state satisfies the constraints, to a share of the extents of the coordinates.

    Extents and levels are by default those at that state.
    """
    extents = extents_at(system, q, v, t, params) if extents is None else extents
    levels = Levels.at(system, q, v, t, params) if levels is None else levels
    dynamics, v = system.plain.dynamics, system.dynamics.speeds(q, v, t, params)
    of_positions, of_velocities = dynamics.sizes_of_levels(q, v, t, params)
    is_met = near(levels.position, levels.A_position, q, extents, share, of_positions)
    return is_met & near(
        levels.velocity, levels.A_velocity, q, extents, share, of_velocities, rates=v
    )


def near(
    level: Float[AnyArray, " k"], A: Float[AnyArray, " k n"], q: Float[AnyArray, " n"],
    extents: Float[AnyArray, " n"], share: float = SHARE, sizes: Sequence[int] = (), *,
    rates: Float[AnyArray, " n"] | None = None, xp: Any = jnp,
) -> Any:  # fmt: skip
    """Whether q, or rates at q, satisfy level = 0 with the Jacobian A, to a share of the extents.

    Args:
        level: residuals.
        A: their Jacobian, by the coordinates or the rates.
        q: coordinates.
        extents: extents of the coordinates.
        share: the share of its extent by which each coordinate may be off.
        sizes: the number of equations of each constraint; by default all are one constraint.
        rates: velocities or accelerations, if it is they that have to satisfy the level.
        xp: `numpy` for numbers on the host.
    """
    allowed, rounding = extents, _rounding(q) * (xp.abs(q) + extents)
    if rates is not None:
        # Of the rates themselves, and of the extents per second, since all rates may be zero.
        allowed = extents + xp.abs(rates)
        # Rounding of q turns the rows of A, so that all rates have an effect on each row.
        rounding = rounding * (1 + xp.max(xp.abs(rates) / extents, initial=0.0))
    size = xp.abs(A)
    # A row that is zero in a pose, since it depends on others of its constraint, is computed from
    # terms as large as theirs.
    blocks = xp.split(size, np.cumsum(sizes)[:-1]) if sizes else [size]
    terms = [xp.broadcast_to(block.max(0, initial=0.0), block.shape) for block in blocks]
    limit = (size * (share * allowed)[None]).sum(1)
    limit = limit + (xp.concatenate(terms) * rounding[None]).sum(1)
    return xp.all(xp.abs(level) <= limit)


def _rounding(q: AnyArray) -> float:
    return _ROUNDING * float(jnp.finfo(q.dtype).eps)


@jit_of("system")
def extents_at(system: System, q: Array, v: Array, t: Array, params: Params) -> Float[Array, " n"]:
    """The extent of each coordinate: how far it moves until the constraints change direction.

    It is one where no constraint depends on the coordinates in a nonlinear way, and NaN where a
    mass or a unit is not finite.
    """
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    system, v = system.plain, system.dynamics.speeds(q, v, t, params)
    constraints = [c for c in system.constraints if isinstance(c, Holonomic | Nonholonomic)]
    if not constraints:
        return jnp.ones_like(q)
    rows = [
        c.jacobian(q, v, t, params) if isinstance(c, Nonholonomic) else c.jacobian(q, t, params)
        for c in constraints
    ]

    def row_products(e: Array, q: Array) -> Array:
        """The rows times a direction, A e."""

        def value(c: Holonomic | Nonholonomic, x: Array) -> Array:
            return c.value(x, t, params) if isinstance(c, Holonomic) else c.value(q, x, t, params)

        pairs = [(c, v if isinstance(c, Nonholonomic) else q) for c in constraints]
        return jnp.concatenate([jax.jvp(partial(value, c), (x,), (e,))[1] for c, x in pairs])

    M = system.dynamics.mass(q, v, t, params)
    units = coordinate_units(M, jnp.concatenate(rows))
    extents = _extents(row_products, rows, units, q)
    # Nothing that states do turns a row of A.
    is_of_state = np.arange(system.n) >= system.dynamics.mechanical
    extents = jnp.where(is_of_state, _ANY, extents) if is_of_state.any() else extents
    return jnp.where(jnp.isfinite(jnp.trace(M) + units.sum()), extents, jnp.nan)


def extents_of_level(
    level: Any, y: Float[Array, " n"], M: Float[Array, " n n"]
) -> Float[Array, " n"]:
    """The extents of the variables of a function level(y), for a metric M."""
    A = jacobian(level, y)
    units = coordinate_units(M, A)
    return _extents(lambda e, y: jax.jvp(level, (y,), (e,))[1], [A], units, y)


def _extents(
    row_products: Any, rows: Sequence[Array], units: Float[Array, " n"], q: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The extents for the rows A of each constraint; `row_products` is A(q) e, for e and q."""

    def bend(pair: Array) -> Array:
        """The derivative of A e along d, for two directions in which all terms have an effect."""
        d, e = pair * units[None]
        return jax.jvp(partial(row_products, e), (q,), (d,))[1]

    draw = np.random.default_rng(29)
    shape = 2, 2, q.size
    pairs = draw.uniform(0.5, 1.5, shape) * draw.choice([-1.0, 1.0], shape)
    bends = jax.vmap(bend)(jnp.asarray(pairs, q.dtype))
    rounding = _rounding(q) * jnp.max((1 + jnp.abs(q)) / units)
    first, radii, touched = 0, [], []
    for A in rows:
        own_bends, first = bends[:, first : first + len(A)], first + len(A)
        size = ((A * units[None]) ** 2).sum()
        bent = (own_bends * own_bends).sum() / 2
        wide = ((A * (1 + jnp.abs(q))[None]) ** 2).sum()
        is_straight = ~(size * size <= _STRAIGHT**2 * bent * wide) | (bent <= 0)
        # Where A itself is round-off, as in a pose far from an inactive constraint, the radius is
        # that of rounding.
        is_straight |= size <= bent * rounding**2
        safe = jnp.where(is_straight, 1.0, bent)
        radii.append(jnp.where(is_straight, 0.0, jnp.sqrt(size / safe)))
        touched.append((A != 0).any(0))
    radius = jnp.stack(radii)
    own_bends = jnp.max(jnp.where(jnp.stack(touched), radius[:, None], 0.0), axis=0) * units
    # A coordinate in linear equations alone: not above one, its unit.
    largest = jnp.minimum(jnp.max(radius) * units, 1.0)
    divisor = jnp.where(largest > 0, largest, 1.0)
    return jnp.where(own_bends > 0, own_bends, divisor)
