"""A pendulum with unknown friction, for `jaxmech fit configs/fit_pendulum.toml`.

The angle theta is measured from the downward vertical. The motion determines only ratios, so all
parameters are divided by the moment of inertia.

    python configs/fit_pendulum.py        writes fit_pendulum.csv: simulated swings with noise
"""

import csv
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jaxmech as jm

SLOW = 0.05  # rad/s, below which dry friction is smoothed


def lagrangian(q, v, t, p):
    return 0.5 * v @ v + p["gravity"] * jnp.cos(q[0])


def viscous(q, v, t, p):
    return -p["viscous"] * v


def dry(q, v, t, p):
    return -p["dry"] * jnp.tanh(v / SLOW)


def both(q, v, t, p):
    return viscous(q, v, t, p) + dry(q, v, t, p)


LAWS = {"viscous": viscous, "dry": dry, "both": both}


def pendulum(law="both"):
    start = {"gravity": 8.0, "viscous": 0.1, "dry": 0.1}
    used = ("gravity", *(name for name in ("viscous", "dry") if law in (name, "both")))
    return jm.identify.Identifiable(
        jm.System(lagrangian, force=LAWS[law], coordinates=("theta",)),
        {name: start[name] for name in used},
        bounds=dict.fromkeys(used, (0, None)),
    )


def swings(seed=1):
    """Rows of swing, t, theta, omega, with noise of 2 mrad and 10 mrad/s."""
    random = np.random.default_rng(seed)
    truth = {"gravity": 9.6, "viscous": 0.06, "dry": 0.12}
    ts = np.linspace(0.0, 5.0, 51)
    for number, angle in enumerate((0.5, 1.0, 1.5, 2.0, 2.5, 1.2), start=1):
        motion = jm.simulate(pendulum().system, [angle], [0.0], ts, truth, steps=jm.FixedSteps(20))
        theta = motion.q[:, 0] + random.normal(0, 2e-3, ts.shape)
        omega = motion.v[:, 0] + random.normal(0, 1e-2, ts.shape)
        for row in zip(ts, theta, omega, strict=True):
            yield [number, *(f"{x:.4f}" for x in row)]


if __name__ == "__main__":
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["swing", "t [s]", "theta [rad]", "omega [rad/s]"])
        rows.writerows(swings())
