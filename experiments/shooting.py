"""Fits whose segments must join: evaluations and CPU seconds.

    python -m experiments.shooting [problem ...] [--starts 10]

Each problem is fitted twice by multiple shooting; an evaluation is one of residuals and Jacobian
together. With `--starts` it is fitted from that many further starts, parameters off by up to a
factor of two, and those count as arrived that end within 1e-3 of the best loss. The motions of the
double pendulum are chaotic, with guesses at every sample from differences of the angles.
"""

import argparse
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.recovery.mechanisms import four_bar
from jaxmech.identify import Fit, Recording, Shooting, TrustRegion

MOST = 200  # evaluations of a fit from a further start
Arguments = dict[str, Any]


def double_pendulum(seconds: int) -> Arguments:
    """A length and a mass, from angles with 1 mrad of noise at 100 Hz."""
    model, ts = jm.models.double_pendulum_angles(), np.arange(100 * seconds + 1) / 100
    sol = jm.simulate(model.system, *model.initial(), ts, model.params, steps=jm.FixedSteps(1))
    angles = np.asarray(sol.q) + np.random.default_rng(0).normal(0.0, 1e-3, sol.q.shape)
    recording = Recording(ts, angles, angles, np.gradient(angles, ts, axis=0), weights=1e3)
    return {
        "system": model.system, "recordings": recording, "free": ("l1", "m2"),
        "params0": {**model.params, "l1": 1.1, "m2": 0.8},
        "horizon": Shooting(0.5), "steps": jm.FixedSteps(1),
    }  # fmt: skip


def cartesian_four_bar() -> Arguments:
    """A mass and two frictions, from the angles of two cranks with 1 mrad of noise at 50 Hz."""
    case, ts = four_bar(), np.arange(201) / 50
    place = jnp.array([0.5]), jnp.array([5.0])
    names = ("m_rocker", "c_A", "c_D")
    sol = jm.simulate(
        case.system, *case.start(*place, case.params), ts, case.params, steps=jm.FixedSteps(2)
    )
    seen = jax.vmap(lambda q, v, t: case.observe(q, v, t, case.params))(sol.q, sol.v, sol.ts)
    seen = np.asarray(seen) + np.random.default_rng(0).normal(0.0, 1e-3, seen.shape)
    guess = {**case.params, **{name: 1.05 * case.params[name] for name in names}}
    q, v = map(np.asarray, case.start(*place, guess))
    return {
        "system": case.system, "recordings": Recording(ts, seen, q, v, weights=1e3),
        "params0": guess, "free": names, "observe": case.observe,
        "horizon": Shooting(1.0), "steps": jm.FixedSteps(2),
    }  # fmt: skip


PROBLEMS = {
    "four-bar": cartesian_four_bar,
    "double pendulum, 4 s": lambda: double_pendulum(4),
    "double pendulum, 8 s": lambda: double_pendulum(8),
    "double pendulum, 16 s": lambda: double_pendulum(16),
}


def fitted(arguments: Arguments) -> tuple[Fit, float]:
    """A fit, and its CPU seconds."""
    begun = time.process_time()
    fit = jm.fit(**arguments)
    return fit, time.process_time() - begun


def from_starts(arguments: Arguments, count: int) -> tuple[int, list[int]]:
    """How many starts arrive, and the evaluations of those that do."""
    ends = []
    for seed in range(count):
        draw, params = np.random.default_rng(seed), dict(arguments["params0"])
        params |= {x: params[x] * 2 ** draw.uniform(-1, 1) for x in arguments["free"]}
        try:
            fit = jm.fit(**arguments | {"params0": params, "optimizer": TrustRegion(MOST)})
        except ValueError:  # the motion of the start fails
            continue
        ends.append((fit.history[-1] if fit.converged else np.inf, fit.evaluations))
    best = min((loss for loss, _ in ends), default=np.inf)
    evaluations = [spent for loss, spent in ends if loss <= best * (1 + 1e-3) < np.inf]
    return len(evaluations), evaluations


def main(arguments: list[str] | None = None) -> int:
    """Print the table; fail unless all fits converge."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m experiments.shooting")
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []], default=[])
    parser.add_argument("--starts", type=int, default=0)
    options = parser.parse_args(arguments)
    print(f"{'problem':<24}{'evaluations':>12}{'first [CPU s]':>15}{'second':>8}{'arrived':>9}")
    failed = False
    for name in options.problems or PROBLEMS:
        problem = PROBLEMS[name]()
        (fit, first), (_, second) = fitted(problem), fitted(problem)
        failed |= not fit.converged
        line = f"{name:<24}{fit.evaluations:>12}{first:>15.2f}{second:>8.2f}"
        if options.starts:
            count, spent = from_starts(problem, options.starts)
            median = np.median(spent) if spent else np.nan
            line += f"{count:>5} of {options.starts}, {median:g} evaluations, {max(spent)} at most"
        print(line if fit.converged else f"{line} NOT CONVERGED", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
