"""Limit states with known probabilities: an oscillator under a pulse, and functions of numbers."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from scipy.special import log_ndtr, ndtri_exp

import jaxmech as jm
from jaxmech.config.toml import read
from jaxmech.ensemble import Failure, Fixed, Observed, Study, Times, WhiteNoise
from jaxmech.integrate import FixedSteps

PULSE = """
import jax.numpy as jnp
import jaxmech as jm


def lagrangian(q, v, t, p):
    return 0.5 * p["m"] * v[0] ** 2 - 0.5 * (p["c1"] + p["c2"]) * q[0] ** 2


system = jm.System(
    lagrangian, force=lambda q, v, t, p: v[1:], coordinates=("x",),
    states=("load",), rates=lambda q, v, t, p: jnp.zeros(1),
)


def state(start, p):
    load = jnp.where(p["t1"] > 0, p["F1"], 0.0)
    return jnp.zeros(2), jnp.stack([0.0 * load, load])


params = {"m": 1.0, "c1": 1.0, "c2": 0.1, "r": 0.5, "t1": 1.0, "F1": 1.0}
pulse = jm.models.Model("pulse", "an oscillator under a pulse", system, params, {}, state)


def after(q, v, t, p):
    return t - p["t1"]


def unload(q, v, t, p):
    return q, v.at[1].set(0.0)


def excess(q, v, t, p):
    return jnp.abs(q[0]) - 3 * p["r"]
"""

PULSE_STUDY = """
model = "pulse.py:pulse"
size = 512
block = 512

[times]
end = 6.0
saves = 61

[steps]
per_save = 1

[parameters]
m = { distribution = "normal", sd = 0.05 }
c1 = { distribution = "normal", sd = 0.1 }
c2 = { distribution = "normal", sd = 0.01 }
r = { distribution = "normal", sd = 0.05 }
t1 = { distribution = "normal", sd = 0.2 }
F1 = { distribution = "normal", mean = 0.45, sd = 0.075 }

[observe]
excess = "pulse.py:excess"

[events]
unload = { function = "pulse.py:after", direction = 1, jump = "pulse.py:unload" }

[failure]
of = "excess"
above = 0.0
"""

# Mean and deviation of the load, and the probability by quadrature in six dimensions.
LOADS = {(1.0, 0.2): 0.028595593839, (0.6, 0.1): 9.1309759049e-6, (0.45, 0.075): 1.51444067446e-8}


def write_pulse(folder: Path, text: str = PULSE_STUDY) -> Path:
    """Write the study of the oscillator."""
    (folder / "pulse.py").write_text(PULSE)
    config = folder / "pulse.toml"
    config.write_text(text)
    return config


def pulse_study(folder: Path, mean: float = 0.45, sd: float = 0.075) -> Study:
    """The study of the oscillator with a load."""
    text = PULSE_STUDY.replace("mean = 0.45, sd = 0.075", f"mean = {mean}, sd = {sd}")
    return read(write_pulse(folder, text), Study)


OMEGA, DAMPING, INTENSITY = 2.0, 0.1, 0.32  # of an oscillator under white noise


def noisy_study(interval: float, intervals: int, deviations: float, **settings: Any) -> Study:
    """First passage of an oscillator from rest, |x| beyond so many stationary deviations."""
    system = jm.System(
        lambda q, v, t, p: 0.5 * v @ v - 0.5 * OMEGA**2 * q @ q,
        force=lambda q, v, t, p: p["gust"](t) - 2 * DAMPING * OMEGA * v,
        coordinates=("x",),
    )
    return Study(
        model=system, size=512, steps=FixedSteps(per_save=2), coordinates={"x": Fixed(0.0)},
        times=Times(end=interval * intervals, saves=intervals + 1),
        inputs={"gust": WhiteNoise(intensity=INTENSITY, interval=interval)},
        observe={"far": Observed(lambda q, v, t, p: jnp.abs(q[0]))},
        failure=Failure(of="far", above=deviations * stationary_deviation(), **settings),
    )  # fmt: skip


def stationary_deviation() -> float:
    """The standard deviation of the displacement, long after the start."""
    return float(np.sqrt(INTENSITY / (4 * DAMPING * OMEGA**3)))


def noise_response(interval: float, parts: int) -> tuple[np.ndarray, np.ndarray]:
    """What a part of an interval does to (x, v), and what its noise of deviation one adds."""
    A = np.zeros((3, 3))
    A[:2] = [[0.0, 1.0, 0.0], [-(OMEGA**2), -2 * DAMPING * OMEGA, 1.0]]
    whole = expm(A * interval / parts)
    return whole[:2, :2], whole[:2, 2] * np.sqrt(INTENSITY / interval)


def first_passage(
    interval: float, intervals: int, deviations: float, count: int = 20_000
) -> tuple[float, float]:
    """The exact probability, and the deviation with which it is known, relative to it.

    Au and Beck, "First excursion probabilities for linear systems by very efficient importance
    sampling", Probabilistic Engineering Mechanics 16, 2001: by the half-spaces in which x is beyond
    the bound at a time, eight times in an interval, as x is linear in the noise.
    """
    parts, rows = 8, []
    F, b = noise_response(interval, parts)
    state = np.zeros((2, intervals))
    for k in range(intervals):
        for _ in range(parts):
            state = F @ state
            state[:, k] += b
            rows.append(state[0].copy())
    H, bound = np.array(rows), deviations * stationary_deviation()
    lengths = np.linalg.norm(H, axis=1)
    directions = H / lengths[:, None]
    logs = log_ndtr(-bound / lengths)
    shares = np.exp(logs - logs.max())
    rng = np.random.default_rng(0)
    k = rng.choice(len(H), size=count, p=shares / shares.sum())
    beyond, u = -ndtri_exp(logs[k] + np.log(rng.random(count))), rng.normal(size=(count, intervals))
    u += (beyond - (u * directions[k]).sum(1))[:, None] * directions[k]
    times = (np.abs(u @ H.T) >= bound * (1 - 1e-12)).sum(1)
    estimates = 2 * np.exp(logs).sum() / times
    return float(estimates.mean()), float(estimates.std() / np.sqrt(count) / estimates.mean())
