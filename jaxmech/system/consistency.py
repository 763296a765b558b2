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
from numpy.typing import NDArray

from jaxmech.compiler import jacobian, native_program
from jaxmech.linalg import coordinate_units, matvec
from jaxmech.system.constraints import Holonomic, Nonholonomic
from jaxmech.system.system import Params, System
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.jit_cache import jit_of

SHARE = 1e-6  # of its extents by which a given state may be off its constraints
_ROUNDING = 4.0  # units of round-off in each coordinate and in each term of a constraint
_ANY = 1e12  # extent of a state of first order, which no constraint holds
_ANY_MASS = 100.0  # units of round-off of the largest mass up to which there is none
_SHARED = 0.3  # part that a coordinate takes in a motion without mass
_AWAY = 0.02  # relative to 1 + |q|, off the constraints
_STRAIGHT = 10.0  # ratio of radius of curvature to coordinates beyond which a surface is a plane


class Levels(NamedTuple):
    """The constraints at a state, with Jacobians by the coordinates and their rates."""

    position: Float[Array, " k"]
    velocity: Float[Array, " l"]
    A_position: Float[Array, " k n"]
    A_velocity: Float[Array, " l n"]


def levels_of(system: System, q: Array, v: Array, t: Array, params: Params) -> Levels:
    """The residuals of positions and velocities at a state, with their Jacobians.

    With quasi-velocities those of `System.plain`, which has invariants among the constraints.
    """
    system, v = system.plain, system.dynamics.speeds(q, v, t, params)
    return Levels(
        system.dynamics.position_level(q, t, params),
        system.dynamics.velocity_level(q, v, t, params),
        *constraint_jacobians(system, q, v, t, params),
    )


def without_mass(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[str, ...]:
    """The velocities that a motion on the constraints can have without kinetic energy.

    Also with a negative one, by negative masses or inertias.
    """
    eom = system.dynamics.at(q, v, t, params)
    M, A = (np.asarray(x, float) for x in (eom.M, eom.A))
    if not (np.isfinite(M).all() and np.isfinite(A).all()):
        return ()
    least = _ANY_MASS * float(jnp.finfo(q.dtype).eps)
    rows = A / np.linalg.norm(A, axis=1, keepdims=True).clip(np.finfo(float).tiny)
    values, vectors = np.linalg.eigh(M / (np.abs(M).max() or 1.0) + rows.T @ rows)
    free = np.abs(vectors[:, values <= least])
    return tuple(
        name
        for name, row in zip(system.velocity_names, free, strict=True)
        if row.max(initial=0.0) > _SHARED
    )


def independent_equations(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[int, int]:
    """The number of independent constraint equations at a known state, and a little away."""
    draw, x = np.random.default_rng(7), np.asarray(q)
    away = x + _AWAY * (1 + np.abs(x)) * draw.uniform(-1, 1, x.shape)
    ranks = []
    for index in (x, away.astype(x.dtype)):
        A = np.asarray(levels_at_known(system, index, v, t, params).A_velocity)
        rows = A / np.linalg.norm(A, axis=1, keepdims=True).clip(np.finfo(float).tiny)
        ranks.append(int(np.linalg.matrix_rank(rows, tol=float(jnp.finfo(q.dtype).eps) ** 0.375)))
    return ranks[0], ranks[1]


def constraint_jacobians(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Array, Array]:
    """The Jacobians d(position level)/dq and d(velocity level)/dv, (k, n) and (l, n).

    With quasi-velocities the first one is that by displacements du, dq = T du.
    """
    A_velocity = system.dynamics.velocity_jacobian(q, v, t, params)
    if not any(isinstance(c, Nonholonomic) for c in system.constraints):
        return A_velocity, A_velocity
    A_position = system.dynamics.position_jacobian(q, t, params)
    return system.dynamics.kinematics.rows(A_position, q, t, params), A_velocity


def motion_share(dtype: Any) -> float:
    """The share of its extents by which a mechanism may be off its constraints in a motion.

    It is 1.3e-6 in float64 and 2.5e-3 in float32: near a pose where the rank of A drops, rows that
    a projection takes as dependent are satisfied no better.
    """
    return float(jnp.finfo(dtype).eps) ** 0.375


def on_constraints(
    system: System, q: Array, v: Array, t: Array, params: Params,
    extents: Float[Array, " n"] | None = None, share: float = SHARE,
) -> Bool[Array, ""]:  # fmt: skip
    """Whether a state satisfies the constraints; by default with the extents at that state."""
    if extents is None:
        extents = extents_at(system, q, v, t, params)
    levels = levels_of(system, q, v, t, params)
    return levels_are_met(system, levels, (q, v, t, params), extents, share)


def levels_are_met(
    system: System, levels: Levels, state: tuple[Array, Array, Array, Params],
    extents: Float[Array, " n"], share: float = SHARE,
) -> Bool[Array, ""]:  # fmt: skip
    """Whether the constraints at a state are satisfied."""
    q, speeds = state[0], system.dynamics.speeds(*state)
    of_positions, of_velocities = sizes_of_levels(system.plain, q, speeds, *state[2:])
    is_met = near(levels.position, levels.A_position, q, extents, share, of_positions)
    return is_met & near_rates(
        levels.velocity, levels.A_velocity, speeds, q, extents, share, of_velocities
    )


def near(
    level: Float[AnyArray, " k"], A: Float[AnyArray, " k n"], q: Float[AnyArray, " n"],
    extents: Float[AnyArray, " n"], share: float = SHARE, sizes: Sequence[int] = (), xp: Any = jnp,
) -> Any:  # fmt: skip
    """Whether q satisfies level(q) = 0 with the Jacobian A, to a share of the extents.

    Args:
        level: residuals.
        A: their Jacobian.
        q: coordinates.
        extents: extents of the coordinates.
        share: the share of its extent by which each coordinate may be off.
        sizes: the number of equations of each constraint; by default all are one constraint.
        xp: `numpy` for numbers on the host.
    """
    rounding = _rounding(q) * (xp.abs(q) + extents)
    return _is_within(level, A, share * extents, rounding, sizes, xp)


def near_rates(
    level: Float[AnyArray, " k"], A: Float[AnyArray, " k n"], rate: Float[AnyArray, " n"],
    q: Float[AnyArray, " n"], extents: Float[AnyArray, " n"], share: float = SHARE,
    sizes: Sequence[int] = (), xp: Any = jnp,
) -> Any:  # fmt: skip
    """Whether velocities or accelerations satisfy a level with the Jacobian A."""
    # Of the rates themselves, and of the extents per second, since all rates may be zero.
    allowed = share * (extents + xp.abs(rate))
    # Rounding of q turns the rows of A, so that all rates have an effect on each row.
    fastest = xp.max(xp.abs(rate) / extents, initial=0.0)
    rounding = _rounding(q) * (xp.abs(q) + extents) * (1 + fastest)
    return _is_within(level, A, allowed, rounding, sizes, xp)


def _is_within(
    level: AnyArray,
    A: AnyArray,
    allowed: AnyArray,
    rounding: AnyArray,
    sizes: Sequence[int],
    xp: Any,
) -> Any:
    size = xp.abs(A)
    # A row that is zero in a pose, since it depends on others of its constraint, is computed from
    # terms as large as theirs.
    blocks = xp.split(size, np.cumsum(sizes)[:-1]) if sizes else [size]
    terms = [xp.broadcast_to(block.max(0, initial=0.0), block.shape) for block in blocks]
    limit = (size * allowed[None]).sum(1) + (xp.concatenate(terms) * rounding[None]).sum(1)
    return xp.all(xp.abs(level) <= limit)


def sizes_of_levels(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The number of equations of each constraint on the positions, and on the velocities."""
    pairs = list(zip(system.constraints, system.dynamics.sizes(q, v, t, params), strict=True))
    return (
        tuple(size for c, size in pairs if isinstance(c, Holonomic)),
        tuple(size for c, size in pairs if isinstance(c, Holonomic | Nonholonomic)),
    )


def _rounding(q: AnyArray) -> float:
    return _ROUNDING * float(jnp.finfo(q.dtype).eps)


def extents_at(system: System, q: Array, v: Array, t: Array, params: Params) -> Float[Array, " n"]:
    """The extent of each coordinate: how far it moves until the constraints change direction.

    It is one where no constraint depends on the coordinates in a nonlinear way.
    """
    return finite_extents(system, q, v, t, params)[0]


@jit_of("system")
def finite_extents(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """The extents, and whether the masses and units that they depend on are finite."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    system, v = system.plain, system.dynamics.speeds(q, v, t, params)
    constraints = [c for c in system.constraints if isinstance(c, Holonomic | Nonholonomic)]
    if not constraints:
        return jnp.ones_like(q), jnp.asarray(True)
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
    is_finite = jnp.isfinite(jnp.trace(M) + units.sum())
    extents = _extents(row_products, rows, units, q)
    # Nothing that states do turns a row of A.
    is_of_state = np.arange(system.n) >= system.dynamics.mechanical
    return jnp.where(is_of_state, _ANY, extents) if is_of_state.any() else extents, is_finite


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


def reach(A: Array, x: Array) -> Array:
    """The largest effect of a relative change of every component on each row, |A| (1 + |x|)."""
    return matvec(jnp.abs(A), 1 + jnp.abs(x))


class Violation(NamedTuple):
    """A violated constraint, with the level and the size of its residual."""

    name: str
    level: str
    size: float


def violations(system: System, q: Array, v: Array, t: Array, params: Params) -> list[Violation]:
    """The violated constraints at a known state, positions before velocities."""
    system, v = system.plain, system.dynamics.speeds(q, v, t, params)
    if not system.constraints:
        return []
    levels, extents = (
        levels_at_known(system, q, v, t, params),
        extents_at_known(system, q, v, t, params),
    )
    sizes = system.dynamics.sizes(q, v, t, params)
    x, rates, found = np.asarray(q), np.asarray(v), []
    for level, kind, residuals, A in (
        ("position", Holonomic, levels.position, levels.A_position),
        ("velocity", Holonomic | Nonholonomic, levels.velocity, levels.A_velocity),
    ):
        first = 0
        for constraint, size in zip(system.constraints, sizes, strict=True):
            if not isinstance(constraint, kind) or not size:
                continue
            rows = slice(first, first + size)
            first += size
            if level == "position":
                is_met = near(residuals[rows], A[rows], x, extents, xp=np)
            else:
                is_met = near_rates(residuals[rows], A[rows], rates, x, extents, xp=np)
            if not is_met:
                largest = float(np.abs(residuals[rows]).max())
                found.append(Violation(constraint.name, level, largest))
    return found


def levels_at_known(system: System, q: Any, v: Any, t: Any, params: Params) -> Any:
    """`levels_of` for a known state, by a compiled function, as `Levels` of numpy arrays."""
    return jax.tree.map(np.asarray, _levels(system, q, v, t, params))


def extents_at_known(
    system: System, q: Any, v: Any, t: Any, params: Params
) -> NDArray[np.floating]:
    """`extents_at` for a known state, by a compiled function, as numbers of numpy."""
    return np.asarray(_extents_at(system, q, v, t, params))


_known = native_program("system", differ=(True, True, False, False))
_levels, _extents_at = _known(levels_of), _known(extents_at)
