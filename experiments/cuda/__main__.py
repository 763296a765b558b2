"""Usage: python -m experiments.cuda --out FOLDER [--offline] [--models pendulum,chain]"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import llvmlite

from experiments.cuda import agreement, chains, offline, ptxas, report, speed, uses
from jaxmech.compiler.platforms import NATIVE
from jaxmech.plot.panels import styled

LIMIT = 540.0  # seconds for all measurements; none is started later
Results = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Measure and write a folder; return 0, or 1 if a result is missing or disagrees."""
    parser = argparse.ArgumentParser(prog="python -m experiments.cuda", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--offline", action="store_true", help="registers by ptxas, without a GPU")
    parser.add_argument("--models", default=",".join(offline.MODELS), help="for --offline")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.offline:
        return _offline(asked.out, asked.models.split(","))
    if not _has_gpu():
        print(
            "No NVIDIA GPU is visible to JAX; for a machine with one, run "
            "`pip install 'jaxmech[cuda12]'` (or cuda13). Everything but the launch runs without "
            f"a GPU: python -m experiments.cuda --offline --out {asked.out}",
            file=sys.stderr,
        )
        return 1
    return _online(asked.out)


def _offline(out: Path, models: list[str]) -> int:
    """Write the table of some models, which is complete up to every kernel."""
    if ptxas.ptxas() is None:
        print("ptxas is missing: pip install nvidia-cuda-nvcc-cu12", file=sys.stderr)
        return 1
    rows = []
    for row in offline.table(models, _tell):
        rows.append(row)
        _write(out, "registers.json", {"environment": _environment(), "kernels": rows})
        (out / "registers.md").write_text(report.registers(rows, ptxas.version()), encoding="utf-8")
    return 0


def _has_gpu() -> bool:
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def _online(out: Path) -> int:
    """Check agreement first, then measure speed, as far as time permits."""
    begun = time.perf_counter()
    results: Results = {"environment": _environment()}
    parts: dict[str, Callable[[], Iterable[Results]]] = {
        "transformations": agreement.transformations,
        "models": agreement.all_models,
        "batches": speed.batches,
        "compared": speed.compared,
        "ten_million": lambda: [speed.largest()],
        "uses": uses.measured,
        "chains": chains.measured,
    }
    results |= {name: [] for name in parts}
    for name, row in ((name, row) for name, part in parts.items() for row in part()):
        _tell(f"{name}: {row}")
        results[name].append(row)
        results["seconds"] = time.perf_counter() - begun
        _write(out, "cuda.json", results)
        if results["seconds"] > LIMIT:
            break
    else:
        (out / "speeds.md").write_text(report.measured(results), encoding="utf-8")
    draw(results, out)
    checked = [row for part in parts for row in results.get(part, []) if "agrees" in row]
    wrong = [row for row in checked if not row["agrees"]]
    for row in wrong:
        print(f"does not agree: {row}", file=sys.stderr)
    return 1 if wrong else 0


@styled()
def draw(results: Results, out: Path) -> None:
    """Draw the picture of stored results."""
    if results.get("batches"):
        report.speeds(results["batches"]).savefig(out / "speeds.png")


def _environment() -> Results:
    devices = {
        name: [device.device_kind for device in jax.devices(name)]
        for name in NATIVE
        if name == "cpu" or _has_gpu()
    }
    return {
        "devices": devices,
        "jax": jax.__version__,
        "llvmlite": llvmlite.__version__,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "ptxas": ptxas.version() if ptxas.ptxas() else None,
    }


def _write(out: Path, name: str, results: Results) -> None:
    (out / name).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    # Kernels are made anew in each run: their compile time is measured, and variants are not kept.
    os.environ["JAXMECH_KERNEL_CACHE"] = "off"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.exit(main())
