"""The two motions: a double pendulum with rods as constraints, and Sun, Earth and Moon."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmech as jm


@dataclass(frozen=True)
class Motion:
    """A system with its initial state, and its motion in coordinates without constraints.

    Attributes:
        title: title of the panel.
        system: the system integrated by fixed steps.
        params: parameters of the system.
        q: initial coordinates.
        v: initial velocities.
        step: the fixed step.
        unit: unit of time.
        free: initial state for scipy.
        rate: time derivative of that state.
        energy: energy of that state.
        share: fraction of the fixed steps' time that scipy integrates.
    """

    title: str
    system: jm.System
    params: dict[str, Any]
    q: np.ndarray
    v: np.ndarray
    step: float
    unit: str
    free: np.ndarray
    rate: Callable[[float, np.ndarray], np.ndarray]
    energy: Callable[[np.ndarray], np.ndarray]
    share: float


def motions() -> dict[str, Motion]:
    """Both motions, by name."""
    return {"double_pendulum": _double_pendulum(), "sun_earth_moon": _sun_earth_moon()}


G = 9.81  # m/s^2


def _rods(q: Any, t: Any, p: Any) -> Any:
    first, second = q[:2], q[2:] - q[:2]
    return (jnp.stack([first @ first, second @ second]) - 1) / 2


def _double_pendulum() -> Motion:
    """Two masses of 1 kg on rods of 1 m, released from 0.4 and 0.2 rad."""
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - p["g"] * (q[1] + q[3]),
        [jm.Holonomic(_rods, "rods")],
        coordinates=("x1", "y1", "x2", "y2"),
    )
    a, b = 0.4, 0.2
    q = np.cumsum([[np.sin(a), -np.cos(a)], [np.sin(b), -np.cos(b)]], axis=0).ravel()

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        a, b, wa, wb = y
        c, s = np.cos(a - b), np.sin(a - b)
        ra, rb = -s * wb**2 - 2 * G * np.sin(a), s * wa**2 - G * np.sin(b)
        det = 2 - c * c
        return np.array([wa, wb, (ra - c * rb) / det, (2 * rb - c * ra) / det])

    def energy(y: np.ndarray) -> np.ndarray:
        a, b, wa, wb = y
        kinetic = wa**2 + 0.5 * wb**2 + wa * wb * np.cos(a - b)
        return kinetic - G * (2 * np.cos(a) + np.cos(b))

    free = np.array([a, b, 0.0, 0.0])
    return Motion(
        "double pendulum, two rods as constraints", system, {"g": G}, q, np.zeros(4), 0.02, "s",
        free, rate, energy, share=0.01,
    )  # fmt: skip


MASSES = np.array([1.0, 3.003e-6, 3.694e-8])  # Sun, Earth and Moon [solar masses]
GRAVITY = 4 * np.pi**2  # au^3 / (solar mass year^2)


def _attraction(q: Any, xp: Any) -> Any:
    """The potential energy of three bodies in the plane."""
    total = 0.0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = q[2 * i : 2 * i + 2] - q[2 * j : 2 * j + 2]
        total = total - GRAVITY * MASSES[i] * MASSES[j] / xp.sqrt((apart * apart).sum(0))
    return total


def _sun_earth_moon() -> Motion:
    """The motion from circular orbits, in the frame of the centre of mass."""
    m = np.repeat(MASSES, 2)
    system = jm.System(
        lambda q, v, t, p: 0.5 * (p["m"] * v) @ v - _attraction(q, jnp),
        coordinates=("x_sun", "y_sun", "x_earth", "y_earth", "x_moon", "y_moon"),
    )
    distance = 0.00257  # of the Moon [au]
    pull = np.sqrt(GRAVITY * MASSES[1:].sum() / distance)
    orbit = np.sqrt(GRAVITY * MASSES.sum())
    q = np.array([0.0, 0.0, 1.0, 0.0, 1.0 + distance, 0.0])
    v = np.array([0.0, 0.0, 0.0, orbit, 0.0, orbit + pull])
    for x in (q, v):
        x -= np.tile((m * x).reshape(3, 2).sum(0) / MASSES.sum(), 3)

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        q = y[:6].reshape(3, 2)
        a = np.zeros((3, 2))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            apart = q[j] - q[i]
            force = GRAVITY * apart / (apart @ apart) ** 1.5
            a[i] += MASSES[j] * force
            a[j] -= MASSES[i] * force
        return np.concatenate([y[6:], a.ravel()])

    def energy(y: np.ndarray) -> np.ndarray:
        return 0.5 * (m[:, None] * y[6:] ** 2).sum(0) + _attraction(y[:6], np)

    return Motion(
        "Sun, Earth and Moon", system, {"m": m}, q, v, 1e-3, "years", np.concatenate([q, v]),
        rate, energy, share=0.01,
    )  # fmt: skip
