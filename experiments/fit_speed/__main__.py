"""Fits beside `scipy.optimize.least_squares` over a jitted RK4 that is written by hand.

For each problem (`cases.py`): CPU seconds of a first fit in a fresh process with empty caches, of a
first fit with kernels on disk, and of a second fit; Jacobians; the optimum of both, which must
agree; and fits from 20 starts off by a factor of three, of which those count that end within 1e-3
of the best loss. Imports are not counted. Weights, bounds and starts are the same for both sides.

Usage: python -m experiments.fit_speed [problem ...] [--starts 20] [--out docs/speed/fits.json]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import jaxmech as jm
from experiments.fit_speed.cases import CASES, Case
from jaxmech.config.environment import environment

NEAR = 1e-3  # of the best loss


class Ours:
    """Fits by jaxmech, with its defaults."""

    def __init__(self, case: Case, observed: np.ndarray) -> None:
        self.case = case
        q0, v0 = case.expand(jnp.asarray(case.state), {**case.known, **case.truth})
        weights = 1 / np.array(case.noise)
        self.recording = jm.Recording(case.ts, observed, q0, v0, weights=weights)

    def fit(self, start: dict[str, float]) -> dict[str, Any]:
        """The loss, the parameters, and what they took."""
        case = self.case
        found = jm.fit(
            case.system, self.recording, {**case.known, **start}, free=tuple(case.truth),
            observe=case.observe, bounds=dict.fromkeys(case.truth, (0, None)),
        )  # fmt: skip
        values = dict(zip(found.names, found.values, strict=True))
        errors = dict(zip(found.names, found.uncertainty.standard_errors, strict=True))
        return {
            "loss": found.history[-1],
            "jacobians": len(found.history),
            "evaluations": found.evaluations,
            "converged": found.converged,
            "values": [float(values[name]) for name in case.truth],
            "errors": [float(errors[name]) for name in case.truth],
        }


class Scipy:
    """Fits by scipy's trust region over a jitted RK4 and its forward derivatives."""

    def __init__(self, case: Case, observed: np.ndarray) -> None:
        self.case, p = case, len(case.truth)
        weights, ts = 1 / jnp.array(case.noise), jnp.asarray(case.ts)

        def residuals(x: Any) -> Any:
            params = dict(zip(case.truth, x[:p], strict=True))
            states = case.path(x[p:], params, case.substeps)
            predicted = jax.vmap(lambda s, t: case.sensors(s, t, params))(states, ts)
            return (weights * (predicted - observed)).ravel()

        self.residuals, self.jacobian = jax.jit(residuals), jax.jit(jax.jacfwd(residuals))

    def fit(self, start: dict[str, float]) -> dict[str, Any]:
        """The loss, the parameters, and what they took."""
        p = len(start)
        x = np.array([*start.values(), *self.case.state])
        low = np.r_[np.zeros(p), np.full(len(x) - p, -np.inf)]
        try:
            found = least_squares(
                lambda x: np.asarray(self.residuals(x)), x, lambda x: np.asarray(self.jacobian(x)),
                bounds=(low, np.inf), method="trf", x_scale="jac",
            )  # fmt: skip
        except ValueError:  # residuals or derivatives that are not finite
            return {"loss": np.inf, "converged": False}
        return {
            "loss": float(found.cost),
            "jacobians": int(found.njev),
            "evaluations": int(found.nfev),
            "converged": bool(found.status > 0),
            "values": found.x[:p].tolist(),
        }


SIDES: dict[str, Any] = {"jaxmech": Ours, "scipy": Scipy}


def timed(name: str, side: str) -> dict[str, Any]:
    """CPU seconds of a first and of a second fit in this process."""
    case = CASES[name]()
    observed = case.observed()
    begun = time.process_time()
    fits = SIDES[side](case, observed)
    found = fits.fit(case.start())
    first = time.process_time()
    fits.fit(case.start())
    return {"cold": first - begun, "warm": time.process_time() - first, **found}


def successes(name: str, side: str, starts: int) -> list[float]:
    """The losses of fits from starts off by a factor of three up or down."""
    case = CASES[name]()
    fits, rng = SIDES[side](case, case.observed()), np.random.default_rng(0)
    losses = []
    for signs in rng.choice([-1.0, 1.0], (starts, len(case.truth))):
        start = {
            name: value * 3.0**sign
            for (name, value), sign in zip(case.truth.items(), signs, strict=True)
        }
        try:
            losses.append(float(fits.fit(start)["loss"]))
        except ValueError:  # it cannot be simulated at the start
            losses.append(float("inf"))
    return losses


def in_a_fresh_process(name: str, side: str, cache: str, starts: int = 0) -> Any:
    """The result of `timed` or `successes` in a process of its own."""
    command = [sys.executable, "-m", "experiments.fit_speed", name, "--side", side]
    command += ["--starts", str(starts)]
    caches = {"XDG_CACHE_HOME": cache}
    done = subprocess.run(
        command, env=os.environ | caches, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, starts: int) -> dict[str, Any]:
    """The results of both sides for one problem."""
    found: dict[str, Any] = {"unknowns": len(CASES[name]().truth) + len(CASES[name]().state)}
    with tempfile.TemporaryDirectory() as cache:
        found["scipy"] = in_a_fresh_process(name, "scipy", cache)
        found["jaxmech"] = in_a_fresh_process(name, "jaxmech", cache)
        found["jaxmech"]["cold, kernels on disk"] = in_a_fresh_process(name, "jaxmech", cache)[
            "cold"
        ]
        require_agreement(found)
        if starts:
            losses = {side: in_a_fresh_process(name, side, cache, starts) for side in SIDES}
            best = min(min(part) for part in losses.values())
            for side, part in losses.items():
                arrived = [loss <= best * (1 + NEAR) for loss in part]
                found[side]["successes"] = int(np.sum(arrived))
    return found


def require_agreement(found: dict[str, Any]) -> None:
    """Raise unless both sides have converged to the same optimum."""
    ours, theirs = found["jaxmech"], found["scipy"]
    apart = np.abs(np.subtract(ours["values"], theirs["values"])) / np.array(ours["errors"])
    found["apart, in standard errors"] = float(apart.max())
    if not (ours["converged"] and theirs["converged"] and apart.max() < 0.05):
        raise RuntimeError(f"the optima differ by {apart.max():.2g} standard errors: {found}")


def main() -> int:
    """Print the table, and write it."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m experiments.fit_speed")
    parser.add_argument("problems", nargs="*", choices=[*CASES, []], default=[])
    parser.add_argument("--side", choices=[*SIDES], help="one side alone, in this process")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.side:
        (name,) = given.problems
        result = (
            successes(name, given.side, given.starts) if given.starts else timed(name, given.side)
        )
        print(json.dumps(result))
        return 0
    table: dict[str, Any] = {}
    if given.out and given.out.is_file():  # problems that are not run again keep their rows
        table = json.loads(given.out.read_text(encoding="utf-8"))["table"]
    head = f"{'':26}{'cold':>8}{'disk':>8}{'warm':>8}{'Jac.':>6}{'eval.':>7}{'of starts':>11}"
    for name in given.problems or CASES:
        table[CASES[name]().name] = found = row(name, given.starts)
        found["load"] = os.getloadavg()[0] / (os.cpu_count() or 1)
        print(f"{CASES[name]().name} ({found['unknowns']} unknowns)\n{head}")
        for side in SIDES:
            one = found[side]
            disk = one.get("cold, kernels on disk", float("nan"))
            print(
                f"  {side:24}{one['cold']:8.2f}{disk:8.2f}{one['warm']:8.3f}"
                f"{one['jacobians']:6}{one['evaluations']:7}{one.get('successes', '-'):>11}",
                flush=True,
            )
        if given.out:
            facts = {"environment": environment(), "starts": given.starts, "table": table}
            given.out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
