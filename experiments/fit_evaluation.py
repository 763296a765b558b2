"""The cost of one evaluation of a fit: gradient and Jacobian, compared with the forward run.

The fit has ten parameters of a double pendulum in Cartesian coordinates (two rods, friction in both
hinges, two sensors with offset and scale) and 26 recordings, as many and as long as those of the
measured pendulum (`configs/measured_pendulum_double.toml`). The reverse-mode gradient must agree
with that from the Jacobian before anything is timed. The cost of the Jacobian by p parameters is
also stated per run, as if it took 1 + p of them.

Usage: python -m experiments.fit_evaluation [FILE.json]
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.coverage import double_pendulum
from experiments.measuring import shortest, table_head, table_row, write
from jaxmech.identify.fit import prepare
from jaxmech.identify.problem import Task, evaluated, half_squares, linearized, residual_rows, runs

FREE = ("m2", "l1", "l2", "c1", "c2", "g", "offset1", "offset2", "scale1", "scale2")


RECORDINGS, SAMPLES = 26, 2667  # and samples of each
INTERVAL = 1e-3  # between samples, and the step of RK4 [s]
ROUNDS = 5  # the best one counts
HEAD = "", "ms", "forward runs", "runs per 1 + p", "million steps/s"

CASE = double_pendulum()


def sensors(q: Any, v: Any, t: Any, p: Any) -> Any:
    scales, offsets = (jnp.stack([p[f"{name}1"], p[f"{name}2"]]) for name in ("scale", "offset"))
    return scales * CASE.observe(q, v, t, p) + offsets


def task() -> tuple[Task, Any]:
    """The task, and the unknowns where it begins."""
    truth = {**CASE.params, "offset1": 0.0, "offset2": 0.0, "scale1": 1.0, "scale2": 1.0}
    ts = INTERVAL * np.arange(SAMPLES)
    draw = np.random.default_rng(0)
    ranges = zip(CASE.low, CASE.high, strict=True)
    starts = [draw.uniform(low, high, (RECORDINGS, 2)) for low, high in ranges]

    def motion(x: Any, rate: Any) -> Any:
        start = CASE.start(x, rate, truth)
        sol = jm.simulate(CASE.system, *start, ts, truth, steps=jm.FixedSteps(per_save=1))
        return jax.vmap(lambda q, v, t: sensors(q, v, t, truth))(sol.q, sol.v, sol.ts)

    seen = np.asarray(jax.jit(jax.vmap(motion))(*map(jnp.asarray, starts)))
    seen = seen + draw.normal(0.0, 1e-3, seen.shape)
    recordings = [
        jm.Recording(ts, angles, x, rate, weights=1e3)
        for angles, x, rate in zip(seen, *starts, strict=True)
    ]
    subject = jm.identify.Identifiable(
        CASE.system, truth, observe=sensors, start=CASE.start, free=FREE
    )
    ways = jm.identify.Settings(initial_states="fixed", steps=jm.FixedSteps(1))
    made, at = prepare(subject, recordings, ways)
    return made, at.y


def evaluations(made: Task) -> dict[str, Callable[[Any], Any]]:
    """The timed functions of the unknowns, by name."""
    problem, numbers = made.problem, (made.data, made.conditions)
    return {
        "forward run": lambda y: runs(problem, y, made.data),
        "reverse gradient": jax.jit(
            jax.grad(lambda y: half_squares(problem, y[None], *numbers)[0])
        ),
        "Jacobian": lambda y: linearized(problem, y, made.data),
        "rows of the trust region": partial(_rows, made),
    }


def _rows(made: Task, y: Any) -> tuple[Any, Any]:
    """Compute the input of a step of the optimizer: compressed residuals and derivatives."""
    rows = residual_rows(made, evaluated(made, y), made.conditions)
    return rows.values, rows.jacobian.T


def require_agreement(y: Any, found: dict[str, Callable[[Any], Any]]) -> float:
    """Return the relative difference of gradient and Jacobian; raise if they disagree."""
    gradient = np.asarray(found["reverse gradient"](y))
    values, J = (np.asarray(x) for x in found["rows of the trust region"](y))
    difference = float(np.abs(J @ values - gradient).max() / np.abs(gradient).max())
    if not difference < 1e-8:
        raise RuntimeError(f"gradient and Jacobian differ by {difference:.1e}")
    return difference


def measured() -> dict[str, Any]:
    made, y = task()
    found = evaluations(made)
    difference = require_agreement(y, found)

    def clocked(evaluate: Callable[[Any], Any]) -> float:
        return shortest(lambda: evaluate(y), ROUNDS, time.perf_counter)

    forward = clocked(found["forward run"])
    steps = RECORDINGS * (SAMPLES - 1)
    size = len(FREE)
    table = {}
    for name, evaluate in found.items():
        seconds = clocked(evaluate)
        directions = 1 if name in ("forward run", "reverse gradient") else 1 + size
        table[name] = {
            "seconds": seconds,
            "forward runs": seconds / forward,
            "million steps per second": steps * directions / seconds / 1e6,
            "runs per 1 + p": seconds / forward / directions,
        }
    return {"difference": difference, "steps": steps, "parameters": size, "table": table}


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    results = measured()
    print(
        f"{results['parameters']} parameters, {results['steps']:,} steps; gradient and Jacobian "
        f"agree to {results['difference']:.0e}\n\n{table_head(HEAD)}"
    )
    for name, row in results["table"].items():
        numbers = row["forward runs"], row["runs per 1 + p"], row["million steps per second"]
        print(table_row([name, 1e3 * row["seconds"], *numbers]))
    write(Path(sys.argv[1]) if sys.argv[1:] else None, **results)
