"""Studies of mechanisms without a closed form, whose failures are frequent enough to be counted.

A crane whose load swings by more than 30 degrees, a double pendulum that swings over, a bicycle
that falls in gusts, and a four-bar linkage with a clearance whose coupler leaves its window.
"""

import tomllib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from scipy import stats

import jaxmech as jm
from jaxmech.ensemble import Failure, Fixed, Normal, Observed, Study, Times, WhiteNoise
from jaxmech.integrate import FixedSteps

COUNTS = Path(__file__).parents[2] / "tests" / "published" / "rare_events.toml"


def counts() -> dict[str, dict[str, int]]:
    """The failures that were counted, and among how many trajectories, by mechanism."""
    return tomllib.loads(COUNTS.read_text(encoding="utf-8"))


def counted_interval(failures: int, trajectories: int) -> tuple[float, float]:
    """The exact interval of 95 % (Clopper and Pearson, Biometrika 26, 1934)."""
    low = stats.beta.ppf(0.025, failures, trajectories - failures + 1)
    high = stats.beta.ppf(0.975, failures + 1, trajectories - failures)
    return float(low), float(high)


def trolley(t: Any, p: Any) -> Any:
    phase = jnp.clip(t / p["rise"], 0.0, 1.0)
    return 0.5 * p["speed"] * (1 - jnp.cos(jnp.pi * phase))


def crane_lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    (angle,), (rate,) = q, v
    u, w = trolley(t, p) + p["l"] * rate * jnp.cos(angle), p["l"] * rate * jnp.sin(angle)
    return 0.5 * p["m"] * (u**2 + w**2) + p["m"] * 9.81 * p["l"] * jnp.cos(angle)


def bicycle_force(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Of a riderless bicycle, roll and steer (Meijaard et al., Proc. R. Soc. A 463, 2007)."""
    K0 = jnp.array([[-80.95, -2.59951685249872], [-2.59951685249872, -0.80329488458618]])
    K2 = jnp.array([[0.0, 76.59734589573222], [0.0, 2.65431523794604]])
    C1 = jnp.array([[0.0, 33.86641391492494], [-0.85035641456978, 1.6854039739756]])
    speed = p["speed"]
    return -speed * C1 @ v - (9.81 * K0 + speed**2 * K2) @ q + jnp.stack([p["gust"](t), 0.0 * t])


def bicycle_energy(q: Any, v: Any, t: Any, p: Any) -> Any:
    M = jnp.array([[80.81722, 2.31941332208709], [2.31941332208709, 0.29784188199686]])
    return 0.5 * v @ M @ v


CLEARANCE = {
    "crank": 0.05, "coupler": 0.12, "rocker": 0.10, "ground": 0.13, "clearance": 5e-4,
    "speed": 10.0, "load": 0.3, "coupler_mass": 0.3, "rocker_mass": 0.4,
    "stiffness": 2e6, "damping": 2.0, "bearing": 0.01,
}  # fmt: skip
NOMINAL = {name: CLEARANCE[name] for name in ("crank", "coupler", "rocker", "ground")}


def along(angles: Any) -> Any:
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)


def across(vectors: Any) -> Any:
    return jnp.stack([-vectors[..., 1], vectors[..., 0]], axis=-1)


def crank_pin(t: Any, p: Any) -> Any:
    return p["crank"] * along(p["speed"] * t)


def closed_angles(t: Any, p: Any) -> Any:
    """The angles of coupler and rocker if there were no clearance."""
    base = jnp.stack([p["ground"], 0.0])
    (x, y) = base - crank_pin(t, p)
    square = x**2 + y**2
    cosine = p["coupler"] ** 2 + square - p["rocker"] ** 2
    cosine = cosine / (2 * p["coupler"] * jnp.sqrt(square))
    coupler = jnp.arctan2(y, x) + jnp.arccos(cosine)
    x, y = crank_pin(t, p) + p["coupler"] * along(coupler) - base
    return jnp.stack([coupler, jnp.arctan2(y, x)])


def linkage_lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    pin, units = crank_pin(t, p), along(q)
    center = pin + 0.5 * p["coupler"] * units[0]
    rate = p["speed"] * across(pin) + 0.5 * p["coupler"] * v[0] * across(units[0])
    kinetic = p["coupler_mass"] * (rate @ rate + (p["coupler"] * v[0]) ** 2 / 12)
    kinetic += p["rocker_mass"] * (p["rocker"] * v[1]) ** 2 / 3
    height = p["coupler_mass"] * center[1] + p["rocker_mass"] * 0.5 * p["rocker"] * units[1, 1]
    return 0.5 * kinetic - 9.81 * height


def linkage_force(q: Any, v: Any, t: Any, p: Any) -> Any:
    """A pin in a hole that is wider (Hunt and Crossley, J. Appl. Mech. 42, 1975), and a load."""
    pin, lengths = crank_pin(t, p), jnp.stack([p["coupler"], p["rocker"]])
    arms = lengths[:, None] * along(q)
    gap = pin + arms[0] - arms[1] - jnp.stack([p["ground"], 0.0])
    rate = p["speed"] * across(pin) + v[0] * across(arms[0]) - v[1] * across(arms[1])
    distance = jnp.sqrt(gap @ gap + 1e-16)
    normal = gap / distance
    depth = jnp.maximum(distance - p["clearance"], 0.0)
    push = p["stiffness"] * depth * jnp.sqrt(depth + 1e-12)
    push = push * jnp.maximum(1 + p["damping"] * (normal @ rate), 0.0)
    torques = push * across(arms) @ normal
    return jnp.stack([-torques[0], torques[1] - p["load"]]) - p["bearing"] * v


def closed_state(start: Any, p: Any) -> Any:
    return jax.jvp(lambda t: closed_angles(t, p), (0.0,), (1.0,))


def off_course(q: Any, v: Any, t: Any, p: Any) -> Any:
    """By how much a point of the coupler is off its path without clearance or tolerances [mm]."""

    def point(angle: Any, p: Any) -> Any:
        return crank_pin(t, p) + 0.08 * along(angle) + 0.03 * across(along(angle))

    nominal = {**p, **NOMINAL}
    error = point(q[0], p) - point(closed_angles(t, nominal)[0], nominal)
    return 1e3 * jnp.sqrt(error @ error + 1e-18)


def mechanisms() -> dict[str, Study]:
    """The studies by name."""
    crane = jm.System(
        crane_lagrangian, coordinates=("angle",),
        force=lambda q, v, t, p: -p["wind"] * p["l"] * jnp.cos(q),
    )  # fmt: skip
    crane_study = Study(
        model=crane, size=2000, block=2000, times=Times(end=10.0, saves=51),
        coordinates={"angle": Normal(mean=0.0, sd=0.03)},
        velocities={"angle": Normal(mean=0.0, sd=0.02)},
        parameters={
            "m": Fixed(2000.0), "l": Normal(mean=8.0, sd=0.5),
            "speed": Normal(mean=3.4, sd=0.25), "rise": Normal(mean=3.0, sd=0.3, low=1.0),
            "wind": Normal(mean=500.0, sd=200.0),
        },
        observe={"swing": Observed(lambda q, v, t, p: jnp.rad2deg(jnp.abs(q[0])))},
        failure=Failure(of="swing", above=30.0),
    )  # fmt: skip
    pendulum_study = Study(
        model="double_pendulum", size=2000, block=2000, times=Times(end=2.0, saves=41),
        start={"theta1": Normal(mean=0.9, sd=0.18), "theta2": Normal(mean=0.9, sd=0.18)},
        parameters={"m1": Normal(sd=0.1, relative=True), "l2": Normal(sd=0.03, relative=True)},
        failure=Failure(of="y2", above=0.0),
    )  # fmt: skip
    bicycle = jm.System(bicycle_energy, coordinates=("roll", "steer"), force=bicycle_force)
    bicycle_study = Study(
        model=bicycle, size=2000, times=Times(end=4.0, saves=41), steps=FixedSteps(per_save=4),
        coordinates={"roll": Normal(mean=0.0, sd=0.02), "steer": Normal(mean=0.0, sd=0.02)},
        parameters={"speed": Normal(mean=4.6, sd=0.15)},
        inputs={"gust": WhiteNoise(intensity=20.0, interval=0.1)},
        observe={"fall": Observed(lambda q, v, t, p: jnp.abs(q[0]))},
        failure=Failure(of="fall", above=0.5),
    )  # fmt: skip
    linkage = jm.System(linkage_lagrangian, force=linkage_force, coordinates=("coupler", "rocker"))
    model = jm.models.Model("linkage", "with a clearance", linkage, CLEARANCE, {}, closed_state)
    tolerance = Normal(sd=1e-4)
    linkage_study = Study(
        model=model, size=2000, times=Times(end=0.7, saves=71), steps=FixedSteps(per_save=10),
        parameters={
            **dict.fromkeys(("crank", "coupler", "rocker", "ground", "clearance"), tolerance),
            "speed": Normal(sd=0.3), "load": Normal(sd=0.05),
        },
        observe={"off": Observed(off_course)}, failure=Failure(of="off", above=1.8),
    )  # fmt: skip
    return {
        "crane": crane_study, "double pendulum": pendulum_study, "bicycle": bicycle_study,
        "four-bar": linkage_study,
    }  # fmt: skip
