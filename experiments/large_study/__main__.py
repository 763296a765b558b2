"""Run a large study that keeps statistics alone, and compare its speed with `vmap(simulate)`.

The same study of 10,000 trajectories that are kept whole must agree: its probability and its
quantiles are inside the intervals, or the intervals of both overlap.

Usage: python -m experiments.large_study [--size N] [--out FOLDER]
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmech as jm
from jaxmech.config.environment import environment

HERE = Path(__file__).parent
STEPS, SUBSTEPS = 1000, 500
BATCH, ROUNDS = 16_384, 8  # of the bare kernel
KEPT = 10_000


def bare() -> float:
    """Trajectory-steps per CPU second of a batch of the same trajectories, without statistics."""
    model = jm.models.double_pendulum()
    ts = jnp.linspace(0.0, 2.0, STEPS // SUBSTEPS + 1)
    draw = np.random.default_rng(1)
    angles = draw.uniform(-3, 3, (BATCH, 2))
    masses = 1 + 0.02 * draw.standard_normal((BATCH, 2))

    @jax.jit
    @jax.vmap
    def run(angles: Any, masses: Any) -> Any:
        params = {**model.params}
        params |= {"m1": params["m1"] * masses[0], "m2": params["m2"] * masses[1]}
        start = {**model.start, "theta1": angles[0], "theta2": angles[1]}
        q, v = model.state(start, params)
        return jm.simulate(model.system, q, v, ts, params, method=jm.RK4(SUBSTEPS))

    jax.block_until_ready(run(angles, masses))
    began = time.process_time()
    for _ in range(ROUNDS):
        jax.block_until_ready(run(angles, masses))
    return ROUNDS * BATCH * STEPS / (time.process_time() - began)


def study(folder: Path, size: int, store: str) -> dict[str, Any]:
    """The study in a process of its own: its CPU seconds and its statistics."""
    config = folder / f"study_{size}.toml"
    text = (HERE / "study.toml").read_text().replace("10_000_000", str(size))
    config.write_text(text.replace('store = "statistics"', f'store = "{store}"'))
    (folder / "quantities.py").write_text((HERE / "quantities.py").read_text())
    out = folder / f"run_{size}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "jaxmech", "ensemble", str(config), "--out", str(out)]
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with np.load(out / "statistics.npz") as found:
        statistics = {name: found[name] for name in found.files}
    return {"cpu": cpu, "memory": after.ru_maxrss / 1024, "statistics": statistics}


def agree(large: dict[str, Any], small: dict[str, Any]) -> bool:
    """Whether the intervals of both overlap everywhere."""
    pairs = [("fast/low", "fast/high"), ("band/low", "band/high")]
    return all(
        bool(np.all(large[low] <= small[high]) and np.all(small[low] <= large[high]))
        for low, high in pairs
    )


def main(size: int, folder: Path) -> None:
    """Run both and print a table."""
    folder.mkdir(parents=True, exist_ok=True)
    large = study(folder, size, "statistics")  # first: the peak is that of all processes so far
    small = study(folder, KEPT, "all")
    speed = bare()
    if not agree(large["statistics"], small["statistics"]):
        raise SystemExit("The statistics do not agree with those of trajectories that are kept.")
    own = size * STEPS / large["cpu"]
    result = {
        "trajectories": size,
        "steps": STEPS,
        "cpu_seconds": large["cpu"],
        "peak_memory_mib": large["memory"],
        "steps_per_cpu_second": own,
        "bare_steps_per_cpu_second": speed,
        "probability": [float(large["statistics"][f"fast/{k}"]) for k in ("low", "high")],
        "probability_of_kept": [float(small["statistics"][f"fast/{k}"]) for k in ("low", "high")],
        "environment": environment(),
    }
    (folder / "large_study.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{size:,} trajectories of {STEPS:,} steps, statistics only, all that the command does:")
    print(f"  CPU time      {large['cpu']:.1f} s, {own / 1e6:.0f} M steps/s")
    print(f"  bare kernel   {speed / 1e6:.0f} M steps/s, so the study has {own / speed:.0%} of it")
    print(f"  peak memory   {large['memory']:.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=Path("runs/large_study"))
    given = parser.parse_args()
    main(given.size, given.out)
