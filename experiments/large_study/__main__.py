"""The CPU seconds of large studies by stage, compared with the speed of `vmap(simulate)` alone.

Each study is computed by the command `jaxmech ensemble`, start and pictures included; the kernel
alone is measured before and after it, on the same cores and blocks of the same size. The study that
stores statistics only must agree with one of 10,000 trajectories that are stored completely: the
intervals of its probability and its quantiles overlap with those of the other one.

Usage: python -m experiments.large_study [--studies NAME ...] [--scale S] [--out FOLDER]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from experiments.large_study.table import as_markdown, as_page
from jaxmech.config.environment import environment

HERE = Path(__file__).parent
STUDIES = {
    "statistics": "statistics only",
    "two_saves": "two saves",
    "many_saves": "all steps saved",
}
KEPT = 10_000


def main(names: list[str], scale: float, folder: Path) -> None:
    """Measure the studies, compare the statistics, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "quantities.py", folder / "quantities.py")
    found: dict[str, Any] = {
        "environment": environment(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "studies": {},
    }
    for name in names:
        found["studies"][name] = measured(name, scale, folder)
    if "statistics" in names:
        found["agreement"] = agreement(folder)
    (folder / "large_study.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "large_study.md").write_text(as_page(found))
    print(as_markdown(found))


def measured(name: str, scale: float, folder: Path) -> dict[str, Any]:
    """Measure a study and the kernel alone, each in a process of its own."""
    text = (HERE / f"{name}.toml").read_text()
    size = round(_number(text, "size") * scale)
    config = folder / f"{name}.toml"
    config.write_text(re.sub(r"(?m)^size = .*$", f"size = {size}", text))
    before = _kernel_alone(config, folder)
    out, result = folder / f"run_{name}", folder / f"{name}.json"
    shutil.rmtree(out, ignore_errors=True)
    _run("stages", config, out, result)
    one: dict[str, Any] = json.loads(result.read_text())
    if one.pop("code") != 0:
        raise SystemExit(f"The study {name} failed; see {out}.")
    after = _kernel_alone(config, folder)
    steps = (_number(text, "saves") - 1) * _number(text, "per_save")
    rates = [x["steps_per_cpu_second"] for x in (before, after)]
    own, bare = size * steps / one["cpu_seconds"], sum(rates) / 2
    states = np.mean([x["initial_states_cpu_seconds"] for x in (before, after)])
    return {
        "size": size,
        "steps": steps,
        "stored": STUDIES[name],
        **one,
        "own_steps_per_cpu_second": own,
        "bare_steps_per_cpu_second": bare,
        "share": own / bare,
        "initial_states_cpu_seconds": float(states) * -(-size // before["block"]),
        "kernel_alone": [before, after],
    }


def agreement(folder: Path) -> dict[str, Any]:
    """Compare the study of statistics with one of 10,000 trajectories stored completely."""
    text = re.sub(r"(?m)^size = .*$", f"size = {KEPT}", (HERE / "statistics.toml").read_text())
    config, out = folder / "kept.toml", folder / "run_kept"
    config.write_text(text.replace('store = "statistics"', 'store = "all"'))
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "jaxmech", "ensemble", str(config), "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    large, small = _statistics(folder / "run_statistics"), _statistics(out)
    for low, high in [("fast/low", "fast/high"), ("band/low", "band/high")]:
        if np.any(large[low] > small[high]) or np.any(small[low] > large[high]):
            raise SystemExit("The statistics differ from those of the stored trajectories.")
    return {
        "probability": [float(large[f"fast/{end}"]) for end in ("low", "high")],
        "probability_of_kept": [float(small[f"fast/{end}"]) for end in ("low", "high")],
    }


def _statistics(run: Path) -> dict[str, np.ndarray]:
    with np.load(run / "statistics.npz") as found:
        return {name: found[name] for name in found.files}


def _kernel_alone(config: Path, folder: Path) -> dict[str, float]:
    result = folder / "bare.json"
    _run("bare", config, result)
    found: dict[str, float] = json.loads(result.read_text())
    return found


def _run(module: str, *arguments: Path) -> None:
    command = [sys.executable, "-m", f"experiments.large_study.{module}", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _number(text: str, key: str) -> int:
    found = re.search(rf"(?m)^{key} = ([\d_]+)", text)
    assert found, key
    return int(found[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=[*STUDIES], metavar="NAME")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes [1]")
    parser.add_argument("--out", type=Path, default=Path("runs/large_study"))
    given = parser.parse_args()
    main(given.studies, given.scale, given.out)
