"""Energy over ten million steps: RATTLE, RK4 and DOP853.

Two regular motions are integrated with the same fixed step by three methods, as native code on one
core: a double pendulum with rods as constraints, and Sun, Earth and Moon. DOP853 of scipy
integrates the same motions in coordinates without constraints, for a part of the time (`share` in
cases.py): it computes some ten thousand right-hand sides per second.

Usage: python -m experiments.long_time --out FOLDER [--steps 10000000]
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp

import jaxmech as jm
from experiments.long_time.cases import Motion, motions
from experiments.measuring import timed, write
from jaxmech.plot.panels import styled

SAVES = 1000
TOLERANCE = 1e-10  # of DOP853
METHODS = {"RATTLE": jm.RATTLE(), "RK4": jm.RK4()}


def fixed(motion: Motion, method: Any, steps: int) -> dict[str, Any]:
    """Compute the energy errors of a run of `steps` steps, relative to the energy of the motion."""
    ts = jnp.arange(SAVES + 1) * (motion.step * (steps // SAVES))
    run = partial(
        jm.simulate, motion.system, motion.q, motion.v, ts, motion.params, method=method,
        steps=jm.FixedSteps(steps // SAVES), throw=False,
    )  # fmt: skip
    seconds, _, sol = timed(run, 0)
    return {
        "status": jm.Status(int(sol.status)).name,
        "cpu_seconds": seconds,
        "steps": steps,
        "position_residual": float(np.max(sol.position_residual)),
        "t": np.asarray(ts).tolist(),
        **_errors(np.asarray(sol.energy), motion),
    }


def adaptive(motion: Motion, steps: int) -> dict[str, Any]:
    """Compute the same with DOP853, for a part of the time."""
    ts = np.linspace(0, motion.share * motion.step * steps, SAVES // 2 + 1)
    ends, near = (0, ts[-1]), {"rtol": TOLERANCE, "atol": 1e-3 * TOLERANCE}
    run = partial(solve_ivp, motion.rate, ends, motion.free, "DOP853", ts, **near)
    seconds, _, sol = timed(run, 0)
    return {
        "status": "OK" if sol.success else sol.message,
        "cpu_seconds": seconds,
        "evaluations": int(sol.nfev),
        "t": ts.tolist(),
        **_errors(motion.energy(sol.y), motion),
    }


def _errors(energy: np.ndarray, motion: Motion) -> dict[str, Any]:
    """Energy errors relative to the energy above rest, or to that of the orbits."""
    size = abs(energy[0]) if motion.unit == "years" else _swing()
    errors = (energy - energy[0]) / size
    tenth = len(errors) // 10
    return {
        "first_tenth": float(np.abs(errors[: tenth + 1]).max()),
        "last_tenth": float(np.abs(errors[-tenth:]).max()),
        "error": errors.tolist(),
    }


def _swing() -> float:
    """The energy of the double pendulum above rest [J]."""
    return 9.81 * (2 * (1 - np.cos(0.4)) + 1 - np.cos(0.2))


def draw(found: dict[str, dict[str, Any]]) -> Figure:
    """Plot the size of the energy error over time."""
    figure, axes = plt.subplots(1, len(found), figsize=(11, 4.2), layout="constrained")
    for ax, (name, runs) in zip(axes, found.items(), strict=True):
        motion = motions()[name]
        for method, run in runs.items():
            t, error = np.array(run["t"][1:]), np.abs(run["error"][1:])
            ax.loglog(t, np.maximum(error, 1e-17), ".-", ms=3, lw=0.5, label=method)
        ax.set_title(motion.title)
        ax.set_xlabel(f"time [{motion.unit}]")
        ax.set_ylabel("relative energy error")
        ax.legend(fontsize="small", markerscale=3)
    return figure


def main(out: Path, steps: int) -> int:
    """Run all methods, write the folder, and return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, Any]] = {}
    for name, motion in motions().items():
        found[name] = {}
        for label, method in METHODS.items():
            found[name][label] = fixed(motion, method, steps)
            _tell(name, label, found[name][label])
        found[name]["DOP853"] = adaptive(motion, steps)
        _tell(name, "DOP853", found[name]["DOP853"])
    write(out / "results.json", steps=steps, runs=found)
    with styled():
        draw(found).savefig(out / "energy.png")
    rattle = {name: runs["RATTLE"] for name, runs in found.items()}
    grows = [name for name, run in rattle.items() if not run["last_tenth"] < 2 * run["first_tenth"]]
    if grows:
        print(f"the energy error of RATTLE grows: {', '.join(grows)}", file=sys.stderr)
    return int(bool(grows))


def _tell(name: str, label: str, run: dict[str, Any]) -> None:
    print(
        f"{name:16} {label:12} {run['status']:3} energy error {run['first_tenth']:.2e} in the "
        f"first tenth, {run['last_tenth']:.2e} in the last; {run['cpu_seconds']:.1f} CPU s",
        flush=True,
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10_000_000)
    given = parser.parse_args()
    raise SystemExit(main(given.out, given.steps))
