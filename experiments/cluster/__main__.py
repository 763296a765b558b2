"""Studies on clusters: rates with a few processes here, and a simulation of a thousand workers.

Usage: python -m experiments.cluster --out FOLDER [--processes 1 2] [--workers 1000]
"""

import argparse
import json
import sys
from pathlib import Path

import jax

from experiments.cluster.scaling import scaling
from experiments.cluster.simulated import messages, simulated
from jaxmech.config.environment import environment

CONFIG = Path("configs/cluster_scaling.toml")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("experiments.cluster", description=__doc__)
    parser.add_argument("--out", required=True, metavar="FOLDER", help="for cluster.json and runs")
    parser.add_argument("--config", default=CONFIG, type=Path, help="the study [%(default)s]")
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2], help="[1 2]")
    parser.add_argument("--workers", type=int, default=1000, help="that are simulated [1000]")
    parser.add_argument("--seconds", type=float, default=180.0, help="of the simulation [180]")
    parser.add_argument("--each", type=float, default=10.0, help="seconds of a block there [10]")
    parser.add_argument("--failures", type=float, default=60.0, help="seconds between them [60]")
    given = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    found = {"environment": environment(), "messages": messages(given.config)}
    if given.processes:
        found["scaling"] = scaling(given.config, given.processes, out)
    if given.workers:
        found["simulated"] = simulated(given.workers, given.seconds, given.each, given.failures)
    text = json.dumps(found, indent=2)
    (out / "cluster.json").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
