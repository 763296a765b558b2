"""Fits beside `scipy.optimize.least_squares` over a jitted RK4 that is written by hand.

For each problem (`cases.py`, `six_axes.py`): CPU seconds of a first fit in a fresh process with
empty caches, of a first fit with kernels on disk, and of a second fit; Jacobians; the optimum,
which must be the same for jaxmech and scipy. Imports are not counted. Weights, bounds and starts
are the same for both sides.

Usage: python -m experiments.fit_speed [problem ...] [--out docs/speed/fits.json]
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.fit_speed.sides import PROBLEMS, SIDES, two_fits
from experiments.measuring import in_a_process, write

APART = 0.05  # standard errors between the same optima


def row(name: str) -> dict[str, Any]:
    """The results of both sides for one problem, which must have converged to the same optimum."""
    case = PROBLEMS[name]()
    with tempfile.TemporaryDirectory() as cache:
        ours, again, theirs = (
            in_a_process(two_fits, name, side, XDG_CACHE_HOME=cache)
            for side in ("jaxmech", "jaxmech", "scipy")
        )
    off = np.subtract(ours["values"], theirs["values"]) / np.array(ours["errors"])
    apart = float(np.abs(off).max())
    if not (ours["converged"] and theirs["converged"] and apart < APART):
        raise RuntimeError(f"the optima differ: {ours}, {theirs}")
    return {
        "unknowns": len(case.start()) + case.states.size,
        "jaxmech": {**ours, "cold, kernels on disk": again["cold"]},
        "scipy": {**theirs, "apart, in standard errors": apart},
        "load": os.getloadavg()[0] / (os.cpu_count() or 1),
    }


def show(name: str, found: dict[str, Any]) -> None:
    """Print one row."""
    head = f"{'':26}{'cold':>8}{'disk':>8}{'warm':>8}{'Jac.':>6}{'eval.':>7}"
    print(f"{name} ({found['unknowns']} unknowns, load {found['load']:.1f})\n{head}")
    for side in SIDES:
        one = found[side]
        disk = one.get("cold, kernels on disk", float("nan"))
        print(
            f"  {side:24}{one['cold']:8.2f}{disk:8.2f}{one['warm']:8.3f}"
            f"{one['jacobians']:>6}{one['evaluations']:>7}",
            flush=True,
        )


def main() -> int:
    """Print the table, and write it."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m experiments.fit_speed")
    parser.add_argument("problems", nargs="*", choices=[*PROBLEMS, []], default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    table: dict[str, Any] = {}
    if given.out and given.out.is_file():  # problems that are not run again keep their rows
        table = json.loads(given.out.read_text(encoding="utf-8"))["table"]
    for name in given.problems or PROBLEMS:
        case = PROBLEMS[name]()
        table[case.name] = row(name)
        show(case.name, table[case.name])
        if given.out:
            remark = "load: of the machine, per core, after the row; 1 and more is busy"
            write(given.out, table=table, remark=remark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
