"""Systems in spins and other quasi-velocities, beside the same ones in rates of coordinates."""

from typing import Any

import jax
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


# A thin disc that rolls on a plane, leaning: point of contact x, y, heading, lean, and angle of
# spin about its axis n; d points from the contact to the center.
DISC = ("x", "y", "heading", "lean", "spin")


def _frame(q: Any) -> tuple[Any, Any, Any]:
    heading, lean = q[2], q[3]
    zero = jnp.zeros_like(heading)
    ahead = jnp.stack([jnp.cos(heading), jnp.sin(heading), zero])
    left = jnp.stack([-jnp.sin(heading), jnp.cos(heading), zero])
    up = jnp.stack([zero, zero, zero + 1])
    n = jnp.cos(lean) * left + jnp.sin(lean) * up
    d = -jnp.sin(lean) * left + jnp.cos(lean) * up
    return ahead, n, d


def _disc(q: Any, v: Any, t: Any, p: Any) -> Any:
    def center(q: Any) -> Any:
        return jnp.concatenate([q[:2], jnp.zeros(1, q.dtype)]) + p["r"] * _frame(q)[2]

    speed = jax.jvp(center, (q,), (v,))[1]
    ahead, n, _ = _frame(q)
    up = jnp.array([0.0, 0.0, 1.0])
    spin = v[2] * up + v[3] * ahead + v[4] * n
    about = p["m"] * p["r"] ** 2 / 4
    turning = about * (spin @ spin + (spin @ n) ** 2) / 2
    return p["m"] * speed @ speed / 2 + turning - p["m"] * p["g"] * p["r"] * jnp.cos(q[3])


def _rolls(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[:2] - p["r"] * v[4] * _frame(q)[0][:2]


def by_disc_spins(q: Any, t: Any, p: Any) -> Any:
    """The rates of the disc by its spins along ahead, d and n, with which it always rolls."""
    zero, one = jnp.zeros_like(q[3]), jnp.ones_like(q[3])
    turn = jnp.stack([zero, 1 / jnp.cos(q[3]), zero])
    lean = jnp.stack([one, zero, zero])
    spin = jnp.stack([zero, -jnp.tan(q[3]), one])
    ahead = p["r"] * _frame(q)[0]
    return jnp.stack([ahead[0] * spin, ahead[1] * spin, turn, lean, spin])


DISC_BY_SPINS = jm.System(
    _disc, coordinates=DISC, velocities=("ahead", "across", "axle"), kinematics=by_disc_spins
)
DISC_BY_RATES = jm.System(_disc, [jm.Nonholonomic(_rolls, name="rolls")], coordinates=DISC)
DISC_VALUES = {"m": 2.0, "g": 9.81, "r": 0.4}


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
