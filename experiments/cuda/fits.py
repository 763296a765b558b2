"""The evaluations of a fit: forward run, gradient and Jacobian.

The fit has ten parameters of a double pendulum in Cartesian coordinates (two rods, friction in both
hinges, two sensors with offset and scale) and 26 recordings, as many and as long as those of the
measured pendulum (`configs/measured_pendulum_double.toml`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.coverage import double_pendulum
from jaxmech.identify.fit import prepare
from jaxmech.identify.problem import Task, half_squares, linearized, runs

FREE = ("m2", "l1", "l2", "c1", "c2", "g", "offset1", "offset2", "scale1", "scale2")
RECORDINGS, SAMPLES = 26, 2667  # and samples of each
INTERVAL = 1e-3  # between samples, and the step of RK4 [s]
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


def evaluations() -> tuple[dict[str, Callable[[Any], Any]], Any]:
    """The functions of the unknowns, by name, and the unknowns where the fit begins."""
    made, y = task()
    problem, numbers = made.problem, (made.data, made.conditions)
    functions = {
        "forward run": lambda y: runs(problem, y, made.data),
        "reverse gradient": jax.jit(
            jax.grad(lambda y: half_squares(problem, y[None], *numbers)[0])
        ),
        "Jacobian": lambda y: linearized(problem, y, made.data),
    }
    return functions, y
