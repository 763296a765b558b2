"""Systems in spins and other quasi-velocities, beside the same ones in rates of coordinates."""

from typing import Any

import jax.numpy as jnp

import jaxmech as jm

QUATERNION = ("e0", "e1", "e2", "e3")
SPINS = ("w1", "w2", "w3")


def by_spins(q: Any, t: Any, p: Any) -> Any:
    """The rates of a quaternion by the spins in body axes, e' = e (0, w) / 2, shape (4, 3)."""
    e0, e1, e2, e3 = q
    rows = [[-e1, -e2, -e3], [e0, -e3, e2], [e3, e0, -e1], [-e2, e1, e0]]
    return 0.5 * jnp.stack([jnp.stack(row) for row in rows])


def unit(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - 1) / 2


def _turning(q: Any, v: Any, p: Any) -> Any:
    w = 4 * by_spins(q, 0.0, p).T @ v
    return 0.5 * p["J"] @ w**2


def axis(q: Any) -> Any:
    """The third axis of the body in space."""
    e0, e1, e2, e3 = q
    return jnp.stack([
        2 * (e1 * e3 + e0 * e2), 2 * (e2 * e3 - e0 * e1), e0**2 - e1**2 - e2**2 + e3**2
    ])  # fmt: skip


def _top(q: Any, v: Any, t: Any, p: Any) -> Any:
    return _turning(q, v, p) - p["mgl"] * axis(q)[2]


# A rigid body with a fixed point in its third axis, with gravity; a free one where mgl is zero.
TOP = jm.System(
    _top,
    coordinates=QUATERNION,
    velocities=SPINS,
    kinematics=by_spins,
    invariants=[jm.Holonomic(unit, name="unit")],
)


def _sheared(q: Any, t: Any, p: Any) -> Any:
    n = q.size
    shear = 0.4 * jnp.sin(q[:, None] + jnp.arange(n)[None] + t)
    return jnp.eye(n) * (1.5 + 0.3 * jnp.cos(q))[:, None] + jnp.triu(shear, 1)


def sheared(system: jm.System) -> jm.System:
    """The same system in velocities that depend on all coordinates and on the time."""
    names = tuple(f"u{k}" for k in range(system.n))
    return jm.System(
        system.lagrangian,
        system.constraints,
        system.force,
        coordinates=system.coordinates,
        nonideal=system.nonideal,
        velocities=names,
        kinematics=_sheared,
    )
