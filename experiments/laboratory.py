"""A laboratory pendulum and a cart on a spring, of Schmidt and Lipson, Science 324 (2009).

Usage: python -m experiments.laboratory FOLDER

The folder holds `real_pend_h_1.txt` and `real_linear_h_1.txt` of the public repository
erwincoumans/tiny-differentiable-simulator (Apache-2.0), which are not part of this project. Their
columns are recording, time [s], then the angle [rad] or the position, and its rate.

    pendulum    th'' = -k sin(th - o) - c th' - d th' |th'|
    spring      x'' = -k (x - o) - c x'

The rates are not used, except for the guess of the initial state.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm

PENDULUM = jm.System(
    lambda q, v, t, p: v[0] ** 2 / 2 + p["k"] * jnp.cos(q[0] - p["o"]),
    force=lambda q, v, t, p: -p["c"] * v - p["d"] * v * jnp.abs(v),
    coordinates={"angle": "rad"},
)
SPRING = jm.System(
    lambda q, v, t, p: (v[0] ** 2 - p["k"] * (q[0] - p["o"]) ** 2) / 2,
    force=lambda q, v, t, p: -p["c"] * v,
    coordinates=("position",),
)
STARTS = {
    "real_pend_h_1.txt": (PENDULUM, {"k": 1.3, "o": 0.0, "c": 0.01, "d": 0.01}),
    "real_linear_h_1.txt": (SPRING, {"k": 6.0, "o": 0.0, "c": 0.02}),
}


def recording(file: Path) -> jm.Recording:
    """The recording in a file, with times from zero."""
    ts, values, rates = np.loadtxt(file, comments="%")[:, 1:4].T
    return jm.Recording(ts - ts[0], values[:, None], values[:1], rates[:1])


def fitted(file: Path) -> jm.identify.Fit:
    """Fit all parameters of the model of a file."""
    system, start = STARTS[file.name]
    return jm.fit(system, recording(file), start)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    jax.config.update("jax_enable_x64", True)
    for name in STARTS:
        fit = fitted(Path(sys.argv[1]) / name)
        print(name, fit, "", sep="\n")
