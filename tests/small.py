"""Small systems with parameters and consistent states, one property each, that most tests use.

The systems are defined at module level, so that all tests share their compiled programs.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from jaxmech import Acceleration, Holonomic, Nonholonomic, System


class Case(NamedTuple):
    """A system with parameters and a consistent state at t = 0."""

    system: System
    params: dict[str, Any]
    q: np.ndarray
    v: np.ndarray


def along(q: Any, v: Any, t: Any, p: Any) -> Any:
    """L of a point mass in gravity along -y."""
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


def rod(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - p["l"] ** 2) / 2


PENDULUM = Case(
    System(along, [Holonomic(rod)], coordinates=("x", "y")),
    {"m": 1.3, "g": 9.81, "l": 2.0},
    np.array([1.2, -1.6]),
    np.array([0.8, 0.6]),
)


def _rods(q: Any, t: Any, p: Any) -> Any:
    first, second = q[:2], q[2:] - q[:2]
    return jnp.stack([first @ first - p["l1"] ** 2, second @ second - p["l2"] ** 2]) / 2


def _two_masses(q: Any, v: Any, t: Any, p: Any) -> Any:
    kinetic = 0.5 * p["m1"] * v[:2] @ v[:2] + 0.5 * p["m2"] * v[2:] @ v[2:]
    return kinetic - p["g"] * (p["m1"] * q[1] + p["m2"] * q[3])


DOUBLE = Case(
    System(_two_masses, [Holonomic(_rods, "rods")], coordinates=("x1", "y1", "x2", "y2")),
    {"m1": 1.0, "m2": 0.7, "l1": 1.0, "l2": 0.8, "g": 9.81},
    np.array([0.8, -0.6, 1.28, 0.04]),
    np.array([0.3, 0.4, 0.7, 0.1]),
)

# The rod three times, once scaled and once squared: rank 1 of 3 rows.
REDUNDANT = Case(
    System(
        along,
        [
            Holonomic(lambda q, t, p: 1e3 * rod(q, t, p), "scaled"),
            Holonomic(lambda q, t, p: jnp.stack([rod(q, t, p), q @ q / p["l"] ** 2 - 1]), "twice"),
        ],
        coordinates=("x", "y"),
    ),
    *PENDULUM[1:],
)


def _conjugate_times(e: Any, d: Any) -> Any:
    """Vector part of conj(e) d, two quaternions."""
    return e[0] * d[1:] - d[0] * e[1:] - jnp.cross(e[1:], d[1:])


def _spin(q: Any, v: Any, t: Any, p: Any) -> Any:
    w = 2 * _conjugate_times(q, v)
    return 0.5 * p["J"] @ (w * w) + p["k"] * q[0] * q[1]


# M has rank 3 of 4; the unit length makes up for it.
QUATERNION = Case(
    System(_spin, [Holonomic(lambda q, t, p: q @ q - 1, "unit")], coordinates=("a", "b", "c", "d")),
    {"J": np.array([1.0, 2.0, 3.5]), "k": 0.4},
    np.array([0.5, 0.5, -0.5, 0.5]),
    np.array([0.3, 0.1, 0.7, 0.3]),
)


def _skate(q: Any, v: Any, t: Any, p: Any) -> Any:
    kinetic = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2) + 0.5 * p["J"] * v[2] ** 2
    return kinetic + p["m"] * p["g"] * q[0]


SKATE = Case(
    System(
        _skate,
        [Nonholonomic(lambda q, v, t, p: v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2]), "edge")],
        coordinates=("x", "y", "phi"),
    ),
    {"m": 2.0, "J": 0.3, "g": 1.5},
    np.array([0.0, 0.0, 0.4]),
    np.array([np.cos(0.4), np.sin(0.4), 1.2]),
)

# A bead on a rotating wire, r'' = w^2 r, with friction along it.
WIRE = Case(
    System(
        lambda q, v, t, p: 0.5 * p["m"] * v @ v,
        [
            Holonomic(
                lambda q, t, p: q[0] * jnp.sin(p["w"] * t) - q[1] * jnp.cos(p["w"] * t), "wire"
            )
        ],
        force=lambda q, v, t, p: -p["c"] * (q @ v) / (q @ q) * q,
        coordinates=("x", "y"),
    ),
    {"m": 0.7, "w": 1.1, "c": 0.2},
    np.array([0.5, 0.0]),
    np.array([0.3, 0.55]),
)

# All three kinds at once. A cart follows a road, a blade steers it, a servo turns a wheel.
MIXED = Case(
    System(
        lambda q, v, t, p: 0.5 * v @ (p["m"] * v) - p["g"] * q[2],
        [
            Acceleration(lambda q, v, a, t, p: a[4] - p["w"] * jnp.cos(t) - v[3] * a[3], "servo"),
            Holonomic(lambda q, t, p: q[2] - 0.1 * jnp.sin(q[0]) * q[1] - 0.2 * t**2, "road"),
            Nonholonomic(
                lambda q, v, t, p: jnp.stack(
                    [
                        v[0] * jnp.sin(q[3]) - v[1] * jnp.cos(q[3]),
                        v[0] ** 2 + v[1] ** 2 - (1 + t) ** 2,
                    ]
                ),
                "blade and speed",
            ),
        ],
        force=lambda q, v, t, p: -p["c"] * v + jnp.array([0.0, 0.0, 0.0, 1.0, 0.5]) * t,
        coordinates=("x", "y", "z", "phi", "wheel"),
    ),
    {"m": np.array([1.0, 1.0, 1.0, 0.5, 0.2]), "g": 9.81, "w": 1.5, "c": 0.3},
    np.array([0.0, 0.0, 0.0, 0.0, 0.0]),
    np.array([1.0, 0.0, 0.0, 0.5, 0.0]),
)

# As many constraints as coordinates: the motion is prescribed.
PRESCRIBED = Case(
    System(
        along,
        [Holonomic(lambda q, t, p: q - jnp.stack([jnp.sin(t), p["l"] * t**3]), "path")],
        coordinates=("x", "y"),
    ),
    PENDULUM.params,
    np.array([0.0, 0.0]),
    np.array([1.0, 0.0]),
)

# No constraint at all: an oscillator in both directions.
OSCILLATOR = Case(
    System(lambda q, v, t, p: 0.5 * v @ v - 0.5 * p["k"] * q @ q, coordinates=("x", "y")),
    {"k": 4.0},
    np.array([1.0, 0.0]),
    np.array([0.0, 3.0]),
)

# One mass on two coordinates that are tied: M has rank 1 of 2.
MASSLESS = Case(
    System(
        lambda q, v, t, p: 0.5 * p["m"] * (v[0] + v[1]) ** 2 - 0.5 * p["k"] * q[0] ** 2,
        [Holonomic(lambda q, t, p: q[0] - 2 * q[1] - p["d"], "tie")],
        coordinates=("x", "s"),
    ),
    {"m": 1.2, "k": 3.0, "d": 0.3},
    np.array([1.1, 0.4]),
    np.array([-0.4, -0.2]),
)

CASES = {
    "pendulum": PENDULUM,
    "double": DOUBLE,
    "redundant": REDUNDANT,
    "quaternion": QUATERNION,
    "massless": MASSLESS,
    "skate": SKATE,
    "wire": WIRE,
    "mixed": MIXED,
    "prescribed": PRESCRIBED,
    "oscillator": OSCILLATOR,
}


def times_of(steps: int, most: int, span: float) -> np.ndarray:
    """The times of a run of few steps, its last one repeated, so that all runs have one shape."""
    return np.minimum(np.arange(most + 1) * (span / steps), span)


def from_angles(angles: Any, rates: Any, p: Any) -> tuple[Any, Any]:
    """q and v of the double pendulum, from its angles to the vertical and their rates."""
    (a, b), (wa, wb) = angles, rates
    first = p["l1"] * jnp.stack([jnp.sin(a), -jnp.cos(a)])
    second = p["l2"] * jnp.stack([jnp.sin(b), -jnp.cos(b)])
    turned = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    v1, v2 = wa * (turned @ first), wb * (turned @ second)
    return jnp.concatenate([first, first + second]), jnp.concatenate([v1, v1 + v2])


def solved(start: Any, span: float) -> np.ndarray:
    """The double pendulum in its angles, by an independent integrator: (q, v) at the end."""
    p = DOUBLE.params
    m1, m2, l1, l2, g = (p[name] for name in ("m1", "m2", "l1", "l2", "g"))

    def rate(_: float, y: Any) -> Any:
        a, b, wa, wb = y
        c, s = np.cos(a - b), np.sin(a - b)
        M = [[(m1 + m2) * l1, m2 * l2 * c], [l1 * c, l2]]
        pull = [-m2 * l2 * wb**2 * s - (m1 + m2) * g * np.sin(a), l1 * wa**2 * s - g * np.sin(b)]
        return [wa, wb, *np.linalg.solve(M, pull)]

    y = solve_ivp(rate, (0, span), start, "DOP853", rtol=3e-14, atol=1e-14).y[:, -1]
    return np.concatenate(from_angles(y[:2], y[2:], p))
