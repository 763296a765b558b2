"""Systems with published or closed-form motion that are not models of the package.

Parameters have the names of the reference files; each function says where the system comes from.
"""

from typing import Any

import jax.numpy as jnp

from jaxmech import Holonomic, Nonholonomic, System


def knife_edge() -> System:
    """A blade on an incline that slides only along itself (Bloch, chapter 1)."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        kinetic = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2) + 0.5 * p["J"] * v[2] ** 2
        return kinetic + p["m"] * p["g"] * jnp.sin(p["alpha"]) * q[0]

    def edge(q: Any, v: Any, t: Any, p: Any) -> Any:
        return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])

    return System(lagrangian, [Nonholonomic(edge)], coordinates=("x", "y", "phi"))


def vertical_coin() -> System:
    """An upright coin that rolls on an incline (Lemos, "Analytical Mechanics")."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        kinetic = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2) + 0.5 * p["I"] * v[2] ** 2
        weight = p["m"] * p["g"] * jnp.sin(p["alpha"])
        return kinetic + 0.5 * p["J"] * v[3] ** 2 + weight * q[0]

    def rolling(q: Any, v: Any, t: Any, p: Any) -> Any:
        rim = p["r"] * v[2]
        return jnp.stack([v[0] - rim * jnp.cos(q[3]), v[1] - rim * jnp.sin(q[3])])

    return System(lagrangian, [Nonholonomic(rolling)], coordinates=("x", "y", "psi", "phi"))


def ball_on_turntable() -> System:
    """A rolling ball on a turntable, its attitude a unit quaternion (Milne; singular M).

    The angular velocity w = 2 e' conj(e) is that in space.
    """

    def spin(q: Any, v: Any) -> Any:
        (e0, e1, e2, e3), (d0, d1, d2, d3) = q[2:], v[2:]
        return 2 * jnp.stack([
            e0 * d1 - e1 * d0 + e2 * d3 - e3 * d2,
            e0 * d2 - e2 * d0 + e3 * d1 - e1 * d3,
            e0 * d3 - e3 * d0 + e1 * d2 - e2 * d1,
        ])  # fmt: skip

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        w = spin(q, v)
        rotation = 0.5 * (0.4 * p["m"] * p["r"] ** 2) * w @ w
        fall = p["m"] * p["g"] * jnp.sin(p["tilt"]) * q[0]
        return 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2) + rotation + fall

    def unit(q: Any, t: Any, p: Any) -> Any:
        return q[2:] @ q[2:] - 1

    def rolling(q: Any, v: Any, t: Any, p: Any) -> Any:
        w = spin(q, v)
        return jnp.stack([
            v[0] - p["r"] * w[1] + p["Omega"] * q[1],
            v[1] + p["r"] * w[0] - p["Omega"] * q[0],
        ])  # fmt: skip

    return System(
        lagrangian,
        [Holonomic(unit), Nonholonomic(rolling)],
        coordinates=("x", "y", "e0", "e1", "e2", "e3"),
    )


def accelerated_pivot() -> System:
    """A pendulum whose pivot accelerates sideways, as if gravity were tilted."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - p["g"] * q[1]

    def rod(q: Any, t: Any, p: Any) -> Any:
        return (q[0] - p["a"] * t**2 / 2) ** 2 + q[1] ** 2 - p["L"] ** 2

    return System(lagrangian, [Holonomic(rod)], coordinates=("x", "y"))


def kapitza() -> System:
    """A pendulum that stands upside down on a shaken pivot."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - p["g"] * q[1]

    def rod(q: Any, t: Any, p: Any) -> Any:
        return q[0] ** 2 + (q[1] - p["a"] * jnp.cos(p["W"] * t)) ** 2 - p["L"] ** 2

    return System(lagrangian, [Holonomic(rod)], coordinates=("x", "y"))


def rotating_wire() -> System:
    """A bead on a rotating wire in two coordinates."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v

    def wire(q: Any, t: Any, p: Any) -> Any:
        return q[0] * jnp.sin(p["W"] * t) - q[1] * jnp.cos(p["W"] * t)

    return System(lagrangian, [Holonomic(wire)], coordinates=("x", "y"))


def two_masses() -> System:
    """Two masses on springs with a redundant coordinate: M has rank 2 of 3.

    Structure after Udwadia and Phohomsiri, Proc. R. Soc. A 462 (2006) 2097.
    """

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        kinetic = 0.5 * p["m1"] * v[0] ** 2 + 0.5 * p["m2"] * (v[1] + v[2]) ** 2
        return kinetic - 0.5 * p["k1"] * q[0] ** 2 - 0.5 * p["k2"] * q[2] ** 2

    def joint(q: Any, t: Any, p: Any) -> Any:
        return q[1] - q[0] - p["d"]

    return System(lagrangian, [Holonomic(joint)], coordinates=("x1", "q1", "x2"))
