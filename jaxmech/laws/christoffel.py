"""The kinetic energy as a metric, and its Christoffel symbols.

For a Lagrangian at most quadratic in the velocities, with time as coordinate q^0 = t, q'^0 = 1,

    L = g_ab q'^a q'^b / 2 + U,    a, b = 0, 1, ..., n

where g_rs (r, s = 1...n) is the mass matrix, g_r0 the part of L linear in the velocities (moving
coordinates, gyroscopic and magnetic terms), and U(t, q) the part independent of velocities, which
includes g_00. With the symbols of the first and of the second kind

    Gamma_r,ab = (dg_ra/dq^b + dg_rb/dq^a - dg_ab/dq^r) / 2,    Gamma^s_ab = g^sr Gamma_r,ab

Lagrange's equations are (Zegzhda, Naumova, Soltakhanov and Yushkov 2016, equation (3.1), with the
total mass included in g)

    g_rs q''^s + Gamma_r,ab q'^a q'^b = Q_r,    Q_r = dU/dq^r + F_r.

The terms with a = 0 or b = 0 are those of a non-stationary basis.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.linalg import cholesky
from jaxmech.system import Params, Subject, System, require_no_states, with_params
from jaxmech.utils.probing import concrete, generic

Lagrangian: TypeAlias = Callable[[Array, Array, Array], Array]  # of q, v and t


class Christoffel(eqx.Module):
    """Christoffel symbols at a state; the last two indices start with time.

    Attributes:
        first: Gamma_r,ab, shape (n, n + 1, n + 1), symmetric in a and b.
        second: Gamma^s_ab, of the same shape; NaN where the mass matrix is not definite.
    """

    first: Float[Array, " n k k"]
    second: Float[Array, " n k k"]


def metric_tensor(
    system: Subject, q: Any, t: Any = 0.0, params: Params = None
) -> Float[Array, " k k"]:
    """g_ab (n + 1, n + 1) of the kinetic energy, time first; its block [1:, 1:] is M.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.

    Raises:
        ValueError: if the Lagrangian is not quadratic in the velocities, or a shape is wrong.
        TypeError: if `system` is not a `System`.
    """
    lagrangian, q, t = _arguments(system, q, t, params)
    return metric(lagrangian, q, t)


def christoffel_symbols(
    system: Subject, q: Any, t: Any = 0.0, params: Params = None
) -> Christoffel:
    """The Christoffel symbols of the kinetic energy at a state, of the first and second kind.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.

    Raises:
        ValueError: if the Lagrangian is not quadratic in the velocities, or a shape is wrong.
        TypeError: if `system` is not a `System`.
    """
    lagrangian, q, t = _arguments(system, q, t, params)
    first = first_kind(lagrangian, q, t)
    mass = cholesky(metric(lagrangian, q, t)[1:, 1:])
    root = mass.lower(jnp.eye(q.size, dtype=q.dtype))
    # g^-1 = L^-T L^-1 raises the first index.
    second = jnp.einsum("ks,kr,rab->sab", root, root, first)
    return Christoffel(first, jnp.where(mass.definite, second, jnp.nan))


def first_kind(lagrangian: Lagrangian, q: Array, t: Array) -> Float[Array, " n k k"]:
    """Gamma_r,ab for arguments that are arrays."""
    extended = jnp.concatenate([t[None], q])
    slope = jax.jacfwd(lambda x: metric(lagrangian, x[1:], x[0]))(extended)  # [a, b, c]: dg_ab/dq^c
    twice = slope + slope.transpose(0, 2, 1) - slope.transpose(2, 0, 1)
    return twice[1:] / 2


def potential_force(lagrangian: Lagrangian, q: Array, t: Array) -> Float[Array, " n"]:
    """dU/dq, where U is the part of the Lagrangian independent of velocities."""
    return jax.grad(lambda q: lagrangian(q, jnp.zeros_like(q), t))(q)


def require_quadratic(system: System, q: Array, v: Array, t: Array, params: Params) -> None:
    """Raise a ValueError if the mass matrix depends on the velocities, at generic arguments."""

    def masses(q: Array, v: Array, t: Array, params: Params) -> Array:
        is_moved = jnp.arange(v.size) < system.dynamics.mechanical_velocities
        scaled = [jnp.where(is_moved, scale * v, v) for scale in (0.0, 0.1, 1.0)]
        return jnp.stack([system.dynamics.mass(q, v, t, params) for v in scaled])

    difference = concrete(masses, *generic((q, v, t, params), seed=21))
    if difference is None:
        return
    size = np.abs(difference).max(initial=0.0)
    if not np.allclose(difference, difference[:1], rtol=0, atol=1e-5 * size, equal_nan=True):
        raise ValueError(
            "Christoffel symbols need a `lagrangian` that is quadratic in the velocities, but the "
            "mass matrix of this one depends on them; choose another law, such as UdwadiaKalaba()."
        )


def metric(lagrangian: Lagrangian, q: Array, t: Array) -> Float[Array, " k k"]:
    """g_ab: the Hessian of L at rest, bordered by its gradient."""
    momentum = jax.grad(lambda v: lagrangian(q, v, t))
    zeros = jnp.zeros_like(q)
    border = momentum(zeros)
    # The corner g_00 is zero here, because U holds all terms of L without a velocity.
    corner = jnp.zeros((1, 1), q.dtype)
    return jnp.block([[corner, border[None]], [border[:, None], jax.jacfwd(momentum)(zeros)]])


def _arguments(system: Subject, q: Any, t: Any, params: Params) -> tuple[Lagrangian, Array, Array]:
    system, params = with_params(system, params)
    require_no_states(system.states, "Argument `system`", "take the system without them")
    q, v, t, params = system.plain.arguments(q, q, t, params)
    require_quadratic(system.plain, q, v, t, params)
    return system.dynamics.mechanical_lagrangian(q, v, t, params), q, t
