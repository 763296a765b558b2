"""Error against processor time: steps by a tolerance beside fixed steps, diffrax and scipy.

Each case of cases.py is integrated by each contender for several settings, alone and as a batch in
which one parameter varies; the errors are those at the end, relative to max(1, |x|). `mixed` has
4,096 double pendulums from gentle to violent, for which the fixed step is the one that meets the
same worst error.

Usage: python -m experiments.work_precision --out FOLDER [--case NAME ...] [--batch 4096]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np

from experiments.work_precision.cases import Case, cases
from experiments.work_precision.contenders import BATCH, SINGLE, reference
from experiments.work_precision.mixed import mixed
from jaxmech.config.environment import environment

TOLERANCES = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12]
DECADES = 1e-10, 1e-4  # of the slopes
FOR_STIFF = "scipy Radau", "diffrax Kvaerno5"
LONGEST = 20.0  # seconds of processor time, after which a contender gets no finer setting


def settings_of(case: Case, name: str) -> list[float]:
    """Steps for RK4, tolerances for the others."""
    if name.startswith("RK4"):
        return [case.step / 2**k for k in range(9)]
    return TOLERANCES[:6:2] if name in FOR_STIFF else TOLERANCES


def diagram(case: Case, batch: np.ndarray | None, contenders: Any) -> dict[str, Any]:
    """Settings, errors and times of each contender."""
    wanted = reference(case, batch)
    scale, found = np.maximum(1.0, np.abs(wanted)), {}
    for name, run in contenders.items():
        if name in FOR_STIFF and not case.stiff:
            continue
        rows = []
        for setting in settings_of(case, name):
            made = run(case, batch, setting)
            error = None if made.end is None else float(np.max(np.abs(made.end - wanted) / scale))
            rows.append(
                {"setting": setting, "error": error, "seconds": made.seconds,
                 "evaluations": made.evaluations}
            )  # fmt: skip
            if made.seconds > LONGEST:
                break
        found[name] = rows
        print(f"  {name:28s} {_summary(rows)}", flush=True)
    return found


def slope(rows: list[dict[str, Any]]) -> float | None:
    """d log error / d log tolerance over six decades of tolerances."""
    low, high = DECADES
    chosen = [r for r in rows if low / 2 < r["setting"] < 2 * high and r["error"]]
    if len(chosen) < 4:
        return None
    tolerances, errors = ([r[key] for r in chosen] for key in ("setting", "error"))
    return float(np.polyfit(np.log10(tolerances), np.log10(errors), 1)[0])


def _summary(rows: list[dict[str, Any]]) -> str:
    good = [r for r in rows if r["error"] is not None and np.isfinite(r["error"])]
    if not good:
        return "no result"
    best = min(good, key=lambda r: r["error"])
    slow = slope(rows)
    told = "" if slow is None else f"slope {slow:.2f}, "
    return f"{told}least error {best['error']:.1e} in {best['seconds']:.3g} s"


def draw(name: str, found: dict[str, Any], path: Path) -> None:
    """The errors over the times."""
    figure, axes = plt.subplots(figsize=(8.5, 4.5), layout="constrained")
    for contender, rows in found.items():
        good = [r for r in rows if r["error"]]
        axes.loglog(
            [r["seconds"] for r in good], [r["error"] for r in good], "o-", ms=4, label=contender
        )
    axes.set(xlabel="processor time [s]", ylabel="error at the end, relative", title=name)
    figure.legend(loc="outside right upper", fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Run the cases and write results.json and the pictures."""
    jax.config.update("jax_enable_x64", True)  # before the cases: they have initial states
    known = cases()
    parser = argparse.ArgumentParser(prog="python -m experiments.work_precision")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--case", nargs="+", choices=[*known, "mixed"], help="all by default")
    parser.add_argument("--batch", type=int, default=4096, help="trajectories of a batch")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"environment": environment(), "batch": given.batch}
    for name in given.case or [*known, "mixed"]:
        if name == "mixed":
            print("mixed double pendulums", flush=True)
            results[name] = mixed(given.batch)
        else:
            results[name] = _both(known[name], given.batch, given.out)
        text = json.dumps(results, indent=1)
        (given.out / "results.json").write_text(text, encoding="utf-8")


def _both(case: Case, size: int, out: Path) -> dict[str, Any]:
    """The diagrams of one trajectory and of a batch."""
    varied = case.params[case.varied] * (1 + case.spread * np.linspace(-1, 1, size))
    found = {}
    for kind, batch, contenders in (("single", None, SINGLE), ("batch", varied, BATCH)):
        print(f"{case.name}, {kind}", flush=True)
        found[kind] = diagram(case, batch, contenders)
        title = case.name.replace("_", " ") + ("" if batch is None else f", {size:,} trajectories")
        draw(title, found[kind], out / f"{case.name}_{kind}.png")
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
