"""A batch of double pendulums of small to large amplitude: one tolerance, or one step for all."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import diffrax
import numpy as np

import jaxmech as jm
from experiments.work_precision.cases import Case, cases
from experiments.work_precision.contenders import MOST, PAIRS, Run, diffrax_method, simulated

RTOL = 1e-8
END = 3.0
FEWEST, LARGEST = 1000, 500_000  # steps of RK4 that are tried
FINER = 0.5, 0.2, 0.1, 0.05, 0.02, 0.01  # of RTOL, until a method of diffrax is as accurate
SOLVERS = {
    "diffrax Dopri8": diffrax.Dopri8(),
    "diffrax Dopri5": diffrax.Dopri5(),
    "diffrax Tsit5": diffrax.Tsit5(),
}

Row = dict[str, Any]


def starts(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Both rods at random angles of up to 0.1 to 3 rad from rest, at rest: shapes (N, 4)."""
    random = np.random.default_rng(7)
    angles = random.uniform(-1, 1, (size, 2)) * np.geomspace(0.1, 3.0, size)[:, None]
    tips = np.stack([np.sin(angles), -np.cos(angles)], axis=-1)
    q = np.concatenate([tips[:, 0], tips[:, 0] + tips[:, 1]], axis=1)
    return q, np.zeros_like(q)


def mixed(size: int) -> Iterator[Row]:
    """Measure adaptive steps, diffrax, and the best fixed step, as rows of a table.

    diffrax runs with the same tolerance, and with finer ones until its typical error is at most
    that of the fastest method of jaxmech.
    """
    case, start = replace(cases()["double_pendulum"], end=END), starts(size)
    wanted = simulated(case, start, jm.DormandPrince8(), jm.Adaptive(rtol=1e-13, atol=1e-13)).end
    assert wanted is not None
    own = []
    for name, pair in PAIRS.items():
        steps = jm.Adaptive(rtol=RTOL, atol=RTOL, max_steps=MOST)
        own.append(_row(name, RTOL, simulated(case, start, pair, steps), wanted))
        yield own[-1]
    best = min(own, key=lambda row: row["seconds"])
    for name, solver in SOLVERS.items():
        run = diffrax_method(solver)(case, start)
        for part in (1.0, *FINER):
            row = _row(name, RTOL * part, run(RTOL * part), wanted)
            as_accurate = row["typical"] is not None and row["typical"] <= best["typical"]
            if part == 1.0 or as_accurate:
                yield row
            if as_accurate:
                break
    yield _as_accurate(case, start, wanted, best["error"])


def _as_accurate(case: Case, start: Any, wanted: np.ndarray, error: float) -> Row:
    """The fewest steps of RK4, to a few percent, with at most this worst error."""
    steps = FEWEST
    while steps <= LARGEST:
        run = simulated(case, start, jm.RK4(), jm.FixedSteps(steps))
        row = _row("RK4, steps", steps, run, wanted)
        if row["error"] is not None and row["error"] <= error:
            return row
        # Its error falls with the fourth power of the step, where the step resolves the motion.
        ratio = 2.0 if row["error"] is None else (row["error"] / error) ** 0.25
        steps = int(steps * min(max(1.05 * ratio, 1.05), 4.0))
    raise ValueError(f"more than {LARGEST} steps of RK4 would be needed")


def _row(name: str, setting: float, run: Run, wanted: np.ndarray) -> Row:
    """The worst error, and the geometric mean of those of the trajectories."""
    worst = typical = None
    if run.end is not None and np.isfinite(run.end).all():
        errors = np.max(np.abs(run.end - wanted), axis=1)
        worst = float(np.max(errors))
        typical = float(np.exp(np.mean(np.log(np.maximum(errors, 1e-17)))))
    return {
        "name": name,
        "setting": setting,
        "error": worst,
        "typical": typical,
        "seconds": run.seconds,
        "evaluations": run.evaluations,
        "steps": run.steps,
    }
