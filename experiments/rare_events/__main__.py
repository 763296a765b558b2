"""Probabilities of failure beside brute force.

python -m experiments.rare_events count NAME 1000000  failures of a mechanism, counted
python -m experiments.rare_events compare             the methods beside what was counted
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from experiments.measuring import table_head, table_row
from experiments.rare_events.mechanisms import counted_interval, counts, mechanisms
from jaxmech.ensemble import failure_probability
from jaxmech.ensemble.failure.limit_state import limit_state_of

_COUNTED = 8192  # trajectories of a batch


def count(name: str, trajectories: str) -> None:
    """Count the failures of a mechanism among so many trajectories as drawn with seed 0."""
    study = mechanisms()[name]
    assert study.failure is not None
    limit = limit_state_of(replace(study, block=_COUNTED), Path())
    rng, failures = np.random.default_rng(0), 0
    for first in range(0, int(trajectories), _COUNTED):
        size = min(_COUNTED, int(trajectories) - first)
        limit.most = first + size
        failures += int((limit.values(rng.normal(size=(size, limit.size))) <= 0).sum())
    print(f"{name}: {failures:,} failures in {int(trajectories):,} trajectories")


def compare() -> None:
    """The table of methods beside counts, of docs/rare_events.md."""
    kinds = "counted", "`auto`", "`subset`"
    print(table_head(["mechanism", *(f"{kind}, 95 % interval" for kind in kinds)]))
    for name, study in mechanisms().items():
        assert study.failure is not None
        counted = counts()[name]
        low, high = counted_interval(**counted)
        share = f"{counted['failures']:,} of {counted['trajectories']:,}"
        cells = [f"{low:.3g} ... {high:.3g}, {share}"]
        for method in ("auto", "subset"):
            result = failure_probability(study, failure=replace(study.failure, method=method))
            low, high = result.interval
            cells.append(f"{low:.3g} ... {high:.3g}, {result.trajectories:,} trajectories")
        print(table_row([name, *cells]), flush=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    command, *rest = sys.argv[1:] or ["compare"]
    commands: dict[str, Callable[..., None]] = {"count": count, "compare": compare}
    if command not in commands:
        sys.exit(__doc__)
    commands[command](*rest)
