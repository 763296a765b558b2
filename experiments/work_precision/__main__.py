"""Error against processor time: adaptive steps, fixed steps, diffrax and scipy.

Each case of cases.py is integrated by each contender for several settings, alone and as a batch in
which one parameter varies; errors are those at the end, relative to max(1, |x|). `mixed` has
double pendulums with small to large amplitudes, for which the fixed step is chosen to have the same
worst error. Each case has a file of results; pictures and tables are drawn from all of these files.

Usage: python -m experiments.work_precision --out FOLDER [--case NAME ...] [--batch 4096]
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.measuring import write
from experiments.work_precision.cases import Case, cases
from experiments.work_precision.contenders import (
    CONTENDERS,
    Contender,
    Run,
    reference,
)
from experiments.work_precision.mixed import mixed
from experiments.work_precision.report import draw, summary_of, tables

TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12)
PARTS = 1, 4, 16, 64, 256  # of the first step of RK4
LONGEST = 1.0  # seconds of processor time, after which a contender gets no finer setting
MIXED = "mixed"

Found = dict[str, Any]


def main(arguments: list[str] | None = None) -> None:
    """Measure cases and write their files, then draw the pictures and write the tables."""
    jax.config.update("jax_enable_x64", True)  # before the cases: they have initial states
    known = cases()
    parser = argparse.ArgumentParser(prog="python -m experiments.work_precision")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--case", nargs="+", choices=[*known, MIXED], help="all by default")
    parser.add_argument("--batch", type=int, default=4096, help="trajectories of a batch")
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.case or [*known, MIXED]:
        size = given.batch
        results = measure_mixed(size) if name == MIXED else measure(known[name], size)
        write(given.out / f"{name}.json", size=size, **results)
    write_report(given.out)


def measure(case: Case, size: int) -> Found:
    """The results of one trajectory and of a batch, for which every other tolerance is used."""
    results: Found = {"rules": {"longest": LONGEST}}
    varied = case.params[case.varied] * (1 + case.spread * np.linspace(-1, 1, size))
    coarse = tuple(x for x in TOLERANCES[1::2] if x >= case.finest)
    for kind, batch, tolerances in (("single", None, TOLERANCES), ("batch", varied, coarse)):
        print(f"{case.name}, {kind}", flush=True)
        results[kind] = {}
        for name, rows in diagram(case, batch, tolerances):
            results[kind][name] = rows
            print(f"  {name:28s} {summary_of(rows)}", flush=True)
    return results


def diagram(
    case: Case, batch: np.ndarray | None, tolerances: tuple[float, ...]
) -> Iterator[tuple[str, Found]]:
    """Yield each contender's name and number of trajectories, with settings, errors and times."""
    wanted = reference(case, batch)
    for name, one in CONTENDERS.items():
        if not (batch is None or one.batches):
            continue
        part = _part(one, batch)
        given = None if batch is None else batch[part]
        settings = [case.step / part for part in PARTS] if one.fixed else tolerances
        run, rows = one.prepare(case, given), []
        for setting in settings:
            made = run(setting)
            row = {"setting": setting, **measured(made, wanted[part])}
            rows.append(row)
            if made.seconds > LONGEST:
                break
        yield name, {"trajectories": 1 if given is None else len(given), "rows": rows}


def _part(one: Contender, batch: np.ndarray | None) -> Any:
    """Select evenly spaced trajectories of a batch for a contender with a smaller batch."""
    if batch is None or one.most is None or one.most >= len(batch):
        return slice(None)
    return np.linspace(0, len(batch) - 1, one.most).round().astype(int)


def measured(run: Run, wanted: np.ndarray) -> Found:
    """The error and the cost of a run."""
    return {
        "error": error_of(run.end, wanted),
        "seconds": run.seconds,
        "evaluations": run.evaluations,
        "steps": run.steps,
    }


def error_of(found: np.ndarray | None, wanted: np.ndarray) -> float | None:
    """The largest error relative to max(1, |x|)."""
    if found is None or not np.isfinite(found).all():
        return None
    return float(np.max(np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))))


def measure_mixed(size: int) -> Found:
    """The results of the mixed double pendulums."""
    print("mixed double pendulums", flush=True)
    rows = []
    for row in mixed(size):
        rows.append(row)
        print(f"  {row}", flush=True)
    return {"rows": rows}


def write_report(out: Path) -> None:
    """Draw the pictures and write the tables from the files of a folder."""
    files = [(name, out / f"{name}.json") for name in [*cases(), MIXED]]
    found = {
        name: json.loads(path.read_text(encoding="utf-8")) for name, path in files if path.exists()
    }
    for name, one in found.items():
        if name != MIXED:
            draw(name, one, out / f"{name}.png")
    (out / "work_precision.md").write_text(tables(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
