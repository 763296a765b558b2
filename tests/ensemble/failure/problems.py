"""Limit states with known probabilities: an oscillator under a pulse, and functions of numbers."""

from pathlib import Path

from jaxmech.config.toml import read
from jaxmech.ensemble import Study

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
