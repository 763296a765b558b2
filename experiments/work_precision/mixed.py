"""A batch of double pendulums from gentle to violent: one tolerance, or one step for all."""

from dataclasses import replace
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from experiments.work_precision.cases import Case, cases
from experiments.work_precision.contenders import MOST, PAIRS, Run, timed

RTOL = 1e-8
END = 3.0
FEWEST, LARGEST = 1000, 500_000  # steps of RK4 that are tried


def starts(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Both rods at random angles of up to 0.1 to 3 rad from rest, at rest: shapes (N, 4)."""
    random = np.random.default_rng(7)
    angles = random.uniform(-1, 1, (size, 2)) * np.geomspace(0.1, 3.0, size)[:, None]
    tips = np.stack([np.sin(angles), -np.cos(angles)], axis=-1)
    q = np.concatenate([tips[:, 0], tips[:, 0] + tips[:, 1]], axis=1)
    return q, np.zeros_like(q)


def mixed(size: int) -> dict[str, Any]:
    """Times of steps by a tolerance, of the best fixed step, and of diffrax."""
    case = replace(cases()["double_pendulum"], end=END)
    q, v = starts(size)
    wanted = _end(case, q, v, jm.Adaptive(jm.DormandPrince8(), rtol=1e-13, atol=1e-13)).end
    assert wanted is not None
    found: dict[str, Any] = {}
    for name, pair in PAIRS.items():
        method = jm.Adaptive(pair, rtol=RTOL, atol=RTOL, max_steps=MOST)
        found[name] = _row(_end(case, q, v, method), wanted)
        print(f"  {name:28s} {found[name]}", flush=True)
    found["diffrax Dopri8"] = _row(_by_diffrax(case, q, v), wanted)
    print(f"  {'diffrax Dopri8':28s} {found['diffrax Dopri8']}", flush=True)
    best = min(PAIRS, key=lambda name: found[name]["seconds"])
    found["RK4"] = _as_accurate(case, q, v, wanted, found[best]["error"])
    print(f"  {'RK4':28s} {found['RK4']}, as accurate as {best}", flush=True)
    found["ratios"] = {
        name: found[name]["seconds"] / found[best]["seconds"] for name in ("diffrax Dopri8", "RK4")
    }
    print(f"  times of the fastest: {found['ratios']}", flush=True)
    return found


def _as_accurate(
    case: Case, q: np.ndarray, v: np.ndarray, wanted: np.ndarray, error: float
) -> dict[str, Any]:
    """The fewest steps of RK4, to a few percent, with at most this worst error."""
    steps = FEWEST
    while steps <= LARGEST:
        row = _row(_end(case, q, v, jm.RK4(substeps=steps)), wanted)
        if row["error"] is not None and row["error"] <= error:
            return {**row, "steps": steps}
        # Its error falls with the fourth power of the step, where the step resolves the motion.
        ratio = 2.0 if row["error"] is None else (row["error"] / error) ** 0.25
        steps = int(steps * min(max(1.05 * ratio, 1.05), 4.0))
    raise ValueError(f"more than {LARGEST} steps of RK4 would be needed")


def _by_diffrax(case: Case, q: np.ndarray, v: np.ndarray) -> Run:
    term, _ = jm.to_diffrax(case.system, projection=None)
    controller = diffrax.PIDController(rtol=RTOL, atol=RTOL)

    @jax.jit
    @jax.vmap
    def run(q: Any, v: Any) -> Any:
        sol = diffrax.diffeqsolve(
            term, diffrax.Dopri8(), 0.0, case.end, None, (q, v), args=case.params,
            stepsize_controller=controller, max_steps=MOST, throw=False,
            adjoint=diffrax.ForwardMode(),
        )  # fmt: skip
        return jnp.concatenate([sol.ys[0][-1], sol.ys[1][-1]]), sol.stats["num_steps"]

    seconds, (state, steps) = timed(lambda: jax.block_until_ready(run(q, v)), rounds=1)
    return Run(np.asarray(state), seconds, 13 * int(np.sum(steps)))


def _row(run: Run, wanted: np.ndarray) -> dict[str, Any]:
    error = None if run.end is None else float(np.max(np.abs(run.end - wanted)))
    return {"error": error, "seconds": run.seconds, "evaluations": run.evaluations}


def _end(case: Case, q: np.ndarray, v: np.ndarray, method: Any) -> Run:
    @jax.jit
    @jax.vmap
    def run(q: Any, v: Any) -> Any:
        ts = jnp.array([0.0, case.end])
        sol = jm.simulate(case.system, q, v, ts, case.params, method=method, throw=False)
        return jnp.concatenate([sol.q[-1], sol.v[-1]]), sol.status, sol.evaluations

    seconds, (state, status, evaluations) = timed(lambda: jax.block_until_ready(run(q, v)))
    good = (np.asarray(status) == jm.Status.OK).all()
    return Run(np.asarray(state) if good else None, seconds, int(np.sum(evaluations)))
