"""The motions of the work-precision diagrams, each with a different difficulty."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.special import ellipj, ellipk

import jaxmech as jm


@dataclass(frozen=True)
class Case:
    """A motion from 0 to `end` [s].

    Attributes:
        name: of the case.
        system: the system.
        params: its parameters.
        q: initial coordinates, consistent.
        v: initial velocities, consistent.
        end: last time [s].
        spread: relative change of the gravity or torque `varied` in a batch.
        varied: the parameter that differs in a batch.
        step: a first step of RK4 [s].
        finest: smallest tolerance of a batch.
        exact: q and v for a value of `varied` and a time, where there is a closed form.
    """

    name: str
    system: jm.System
    params: dict[str, Any]
    q: np.ndarray
    v: np.ndarray
    end: float
    varied: str
    step: float
    finest: float = 0.0
    spread: float = 0.02
    exact: Callable[[float, float], np.ndarray] | None = None


def cases() -> dict[str, Case]:
    """All cases by name."""
    found = [
        _model("andrews", "mom", 0.03, 1e-4),
        _car_axis(),
        _slider_crank(),
        _model("double_pendulum", "g", 3.0, 1e-2),
        _spherical_pendulum(),
        _four_bars(),
        _rolling_disc(),
        _governor(),
    ]
    return {case.name: case for case in found}


def _model(name: str, varied: str, end: float, step: float) -> Case:
    model = jm.models.make(name)
    q, v = (np.asarray(x) for x in model.initial())
    return Case(name, model.system, dict(model.params), q, v, end, varied, step)


def car_axis() -> jm.System:
    """Two masses on springs, the right wheel on a moving road (Test Set for IVP Solvers, Bari)."""

    def wheel(t: Any, p: Any) -> Any:
        height = p["r"] * jnp.sin(p["w"] * t)
        return jnp.sqrt(p["L"] ** 2 - height**2), height

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        xb, yb = wheel(t, p)
        left, right = jnp.hypot(q[0], q[1]), jnp.hypot(q[2] - xb, q[3] - yb)
        springs = 0.5 * (left - p["L0"]) ** 2 + 0.5 * (right - p["L0"]) ** 2
        mass = p["M"] * p["eps"] ** 2 / 2
        return 0.5 * mass * v @ v - springs - mass * p["g"] * (q[1] + q[3])

    def level(q: Any, t: Any, p: Any) -> Any:
        xb, yb = wheel(t, p)
        return xb * q[0] + yb * q[1]

    def axle(q: Any, t: Any, p: Any) -> Any:
        return (q[0] - q[2]) ** 2 + (q[1] - q[3]) ** 2 - p["L"] ** 2

    constraints = [jm.Holonomic(level), jm.Holonomic(axle)]
    return jm.System(lagrangian, constraints, coordinates=("xl", "yl", "xr", "yr"))


def _car_axis() -> Case:
    """A constraint that moves with time."""
    params = {"eps": 0.01, "M": 10.0, "L": 1.0, "L0": 0.5, "r": 0.1, "w": 10.0, "g": 1.0}
    q, v = np.array([0.0, 0.5, 1.0, 0.5]), np.array([-0.5, 0.0, -0.5, 0.0])
    return Case("car_axis", car_axis(), params, q, v, 3.0, "g", 1e-2)


def _slider_crank() -> Case:
    """A crank, a rod by its centre and angle, and a slider on the x axis; the crank turns over."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        rod = p["m"] * (v[1] ** 2 + v[2] ** 2) + p["m"] * (2 * p["b"]) ** 2 / 12 * v[3] ** 2
        kinetic = 0.5 * (p["J"] * v[0] ** 2 + rod + p["ms"] * v[4] ** 2)
        return kinetic - p["m"] * p["g"] * q[2]

    def joints(q: Any, t: Any, p: Any) -> Any:
        along = p["b"] * jnp.stack([jnp.cos(q[3]), jnp.sin(q[3])])
        pin = p["a"] * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
        center = q[1:3]
        slider = jnp.stack([q[4], 0.0 * q[4]])
        return jnp.concatenate([center - along - pin, center + along - slider])

    system = jm.System(
        lagrangian, [jm.Holonomic(joints)], coordinates=("crank", "x", "y", "rod", "slider")
    )
    params = {"a": 0.1, "b": 0.15, "m": 0.5, "ms": 0.3, "J": 2e-3, "g": 9.81}
    crank = np.pi / 3
    rod = -np.arcsin(params["a"] * np.sin(crank) / (2 * params["b"]))
    pin = params["a"] * np.array([np.cos(crank), np.sin(crank)])
    center = pin + params["b"] * np.array([np.cos(rod), np.sin(rod)])
    slider = pin[0] + 2 * params["b"] * np.cos(rod)
    q = np.array([crank, *center, rod, slider])
    rate = 20.0
    turn = -params["a"] * np.cos(crank) * rate / (2 * params["b"] * np.cos(rod))
    speed = rate * params["a"] * np.array([-np.sin(crank), np.cos(crank)])
    across = params["b"] * turn * np.array([-np.sin(rod), np.cos(rod)])
    v = np.array([rate, *(speed + across), turn, speed[0] + 2 * across[0]])
    return Case("slider_crank", system, params, q, v, 2.0, "g", 5e-3)


def spherical_pendulum() -> jm.System:
    """A mass on a sphere, whose motion is given by elliptic functions."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        return 0.5 * v @ v - p["g"] * q[2]

    def sphere(q: Any, t: Any, p: Any) -> Any:
        return q @ q - p["L"] ** 2

    return jm.System(lagrangian, [jm.Holonomic(sphere)], coordinates=("x", "y", "z"))


def _spherical_pendulum() -> Case:
    q, v = np.array([0.8, 0.0, -0.6]), np.array([0.0, 1.5, 0.0])
    params = {"g": 9.81, "L": 1.0}
    return Case("spherical_pendulum", spherical_pendulum(), params, q, v, 5.0, "g", 1e-2)


def cranks(ts: Any, bars: int, g: float, length: float) -> tuple[Any, Any]:
    """Angle from the downward vertical and rate of the cranks of four-bars in a row, which swing.

    psi = 2 am(K(m) - a t | m),  a = sqrt(E / 2),  m = 2 c / E,  E = 1/2 + 2 c,
    c = ((N + 1) / 2 + N) g / (((N + 1) / 3 + N) l).
    """
    c = ((bars + 1) / 2 + bars) * g / (((bars + 1) / 3 + bars) * length)
    energy = 0.5 + 2 * c
    m, rate = 2 * c / energy, np.sqrt(energy / 2)
    _, _, dn, amplitude = ellipj(ellipk(m) - rate * ts, m)
    return 2 * amplitude, -2 * rate * dn


def _four_bars() -> Case:
    """Two four-bars in a row, collinear twice per turn: a pendulum (`jaxmech.models.four_bars`)."""
    model = jm.models.four_bars(2)

    def exact(g: float, t: float) -> np.ndarray:
        psi, omega = cranks(t, 2, g, model.params["l"])
        return np.concatenate(model.initial({"angle": psi - np.pi / 2, "omega": omega}))

    q, v = (np.asarray(x) for x in model.initial())
    return Case(
        "four_bars", model.system, dict(model.params), q, v, 2.0, "g", 1e-2, exact=exact,
        finest=1e-9,  # below, some members get lost in rounding errors beside a singular pose
    )  # fmt: skip


def rolling_disc() -> jm.System:
    """A thin disc that rolls and leans (Le Saux, Leine and Glocker 2005), attitude Rz Rx Ry.

    Its height is a holonomic constraint, no slip along and across nonholonomic ones.
    """

    def rates(q: Any, v: Any) -> Any:
        """Angular velocity in the axes that turn and lean with the disc but do not spin."""
        return jnp.stack([
            v[4], v[5] + v[3] * jnp.sin(q[4]), v[3] * jnp.cos(q[4])
        ])  # fmt: skip

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        w, J = rates(q, v), p["m"] * p["r"] ** 2 / 4
        rotation = 0.5 * J * (w[0] ** 2 + 2 * w[1] ** 2 + w[2] ** 2)
        return 0.5 * p["m"] * v[:3] @ v[:3] + rotation - p["m"] * p["g"] * q[2]

    def height(q: Any, t: Any, p: Any) -> Any:
        return q[2] - p["r"] * jnp.cos(q[4])

    def rolling(q: Any, v: Any, t: Any, p: Any) -> Any:
        w = rates(q, v)
        along, across = -p["r"] * w[1], p["r"] * w[0] * jnp.cos(q[4])
        c, s = jnp.cos(q[3]), jnp.sin(q[3])
        return jnp.stack([v[0] + along * c - across * s, v[1] + along * s + across * c])

    return jm.System(
        lagrangian,
        [jm.Holonomic(height), jm.Nonholonomic(rolling)],
        coordinates=("x", "y", "z", "alpha", "beta", "gamma"),
    )


def _rolling_disc() -> Case:
    params, system = {"m": 0.3, "r": 0.05, "g": 9.81}, rolling_disc()
    q = np.array([0.0, 0.0, params["r"] * np.cos(0.3), 0.2, 0.3, 0.0])
    guess = np.array([0.0, 0.0, 0.0, 2.0, 0.0, 30.0])
    state = jm.assemble(system, q, guess, 0.0, params, fixed=("alpha", "beta", "gamma"))
    q, v = (np.asarray(x) for x in state)
    return Case("rolling_disc", system, params, q, v, 2.0, "g", 2e-3)


def _governor() -> Case:
    """A fly-ball governor whose sleeve has a spring and a strong damper: stiff."""

    def lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
        balls = p["m"] * p["l"] ** 2 * (v[1] ** 2 + (jnp.sin(q[1]) * v[0]) ** 2)
        kinetic = balls + 0.5 * p["J"] * v[0] ** 2 + 0.5 * p["M"] * v[2] ** 2
        weight = -2 * p["m"] * p["g"] * p["l"] * jnp.cos(q[1]) - p["M"] * p["g"] * q[2]
        return kinetic - weight - 0.5 * p["k"] * (q[2] - p["rest"]) ** 2

    system = jm.System(
        lagrangian,
        [jm.Holonomic(lambda q, t, p: q[2] - 2 * p["l"] * jnp.cos(q[1]), name="sleeve")],
        force=lambda q, v, t, p: jnp.stack([p["torque"] * jnp.sin(t), 0.0 * t, -p["c"] * v[2]]),
        coordinates=("spindle", "arm", "sleeve"),
    )
    params = {
        "m": 1.0, "M": 5.0, "J": 0.1, "l": 0.2, "k": 1e3, "rest": 0.4, "c": 4e4, "g": 9.81,
        "torque": 2.0,
    }  # fmt: skip
    q, v = np.array([0.0, 0.5, 0.4 * np.cos(0.5)]), np.array([10.0, 0.0, 0.0])
    return Case("governor", system, params, q, v, 1.0, "torque", 5e-5)
