"""Probabilities of failure beside brute force, and how often intervals hold.

python -m experiments.rare_events coverage 100        intervals in repeats with other seeds
python -m experiments.rare_events count NAME 1000000  failures of a mechanism, counted
python -m experiments.rare_events compare             the methods beside what was counted
python -m experiments.rare_events overhead            CPU seconds beside the trajectories
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.rare_events.limit_states import coverage
from experiments.rare_events.mechanisms import counted_interval, counts, mechanisms
from jaxmech.ensemble import failure_probability
from jaxmech.ensemble.failure.limit_state import LimitState, limit_state_of

_COUNTED = 8192  # trajectories of a batch


def count(name: str, trajectories: str) -> None:
    """Count the failures of a mechanism among so many trajectories as drawn with seed 0."""
    study = mechanisms()[name]
    assert study.failure is not None
    limit = limit_state_of(replace(study, block=_COUNTED), Path())
    rng, failures, start = np.random.default_rng(0), 0, time.process_time()
    for first in range(0, int(trajectories), _COUNTED):
        size = min(_COUNTED, int(trajectories) - first)
        limit.most = first + size
        failures += int((limit.values(rng.normal(size=(size, limit.size))) <= 0).sum())
    seconds = time.process_time() - start
    print(
        f"{name}: {failures:,} failures in {int(trajectories):,} trajectories, {seconds:.0f} CPU s"
    )


def compare() -> None:
    """The table of methods beside counts, of docs/rare_events.md."""
    print(
        "| mechanism | counted, 95 % interval | `auto`, 95 % interval | `subset`, 95 % interval |"
    )
    print("|---|---|---|---|")
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
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def overhead() -> None:
    """CPU seconds of the programs of the trajectories, and of all else, once compiled."""
    seconds, first, ready = [0.0], [0.0], [0.0]

    def timed(program: Callable[..., Any]) -> Callable[..., Any]:
        is_first = [True]

        def call(*args: Any) -> Any:
            start = time.process_time()
            ready[0] = ready[0] or start
            values = jax.block_until_ready(program(*args))
            (first if is_first[0] else seconds)[0] += time.process_time() - start
            is_first[0] = False
            return values

        return call

    plain = vars(LimitState)["program"].func
    program = cached_property(lambda limit: timed(plain(limit)))
    program.__set_name__(LimitState, "program")
    LimitState.program = program  # type: ignore[method-assign]
    for name, study in mechanisms().items():
        for method in ("auto", "subset"):
            seconds[0], first[0], ready[0] = 0.0, 0.0, 0.0
            assert study.failure is not None
            start = time.process_time()
            failure = replace(study.failure, method=method, coefficient_of_variation=0.02)
            result = failure_probability(replace(study, block=None), failure=failure)
            rest = time.process_time() - ready[0] - seconds[0] - first[0]
            print(f"{name}, {method}: {result.trajectories:,} trajectories, {seconds[0]:.2f} s, "
                  f"planned in {ready[0] - start:.2f} s, first calls {first[0]:.2f} s, "
                  f"all else {rest:.2f} s: {100 * rest / seconds[0]:.0f} %",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    command, *rest = sys.argv[1:] or ["compare"]
    commands: dict[str, Callable[..., None]] = {
        "coverage": coverage, "count": count, "compare": compare,
        "overhead": overhead,
    }  # fmt: skip
    if command not in commands:
        sys.exit(__doc__)
    commands[command](*rest)
