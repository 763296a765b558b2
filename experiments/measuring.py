"""What experiments share: fresh processes, shortest times, rows of tables, files of results."""

import json
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np

from jaxmech.config.run_folder import environment


def in_a_process(fn: Callable[..., Any], *args: Any, **variables: str) -> Any:
    """The result of a function in a fresh process, in float64, with environment variables."""
    with (
        patch.dict(os.environ, variables),
        ProcessPoolExecutor(1, get_context("spawn"), in_float64) as pool,
    ):
        return pool.submit(fn, *args).result()


def in_float64() -> None:
    jax.config.update("jax_enable_x64", True)


Clock = Callable[[], float]


class Times(NamedTuple):
    """Seconds of a first call and of the shortest of some others, and the result."""

    first: float
    best: float
    result: Any


def timed(
    run: Callable[[], Any], rounds: int = 5, clock: Clock = time.process_time,
    enough: float = np.inf,
) -> Times:  # fmt: skip
    """Time a first call, and the shortest of some others: none after `enough` seconds of them."""
    return in_turns({"": run}, rounds, clock, enough)[""]


def in_turns(
    runs: Mapping[Hashable, Callable[[], Any]], rounds: int = 5, clock: Clock = time.process_time,
    enough: float = np.inf,
) -> dict[Any, Times]:  # fmt: skip
    """`timed` for several functions, which alternate: other load of the machine slows all alike."""
    times: dict[Hashable, list[float]] = {name: [] for name in runs}
    results = {}
    for _ in range(1 + rounds):
        for name, run in runs.items():
            if sum(times[name][1:]) <= enough:
                begun = clock()
                results[name] = jax.block_until_ready(run())
                times[name].append(clock() - begun)
    return {
        name: Times(first, min(others, default=first), results[name])
        for name, (first, *others) in times.items()
    }


def mean_seconds(
    run: Callable[[], Any], at_least: float, clock: Clock = time.process_time
) -> float:
    """Mean over as many runs as fill a given time; a run shorter than that first warms up."""
    begun = clock()
    run()
    alone = clock() - begun
    if alone >= at_least:
        return alone
    begun, runs = clock(), 0
    while runs == 0 or clock() - begun < at_least:
        run()
        runs += 1
    return (clock() - begun) / runs


def rollout(
    model: Any, start: np.ndarray, steps: int, rounds: int = 5, threads: int = 2,
    clock: Clock = time.process_time,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """Seconds of the shortest of some rollouts of MuJoCo, and the last states without their times.

    `start` has the positions and velocities of a batch.
    """
    import mujoco
    from mujoco.rollout import Rollout

    workers = [mujoco.MjData(model) for _ in range(threads)]
    start = np.concatenate([np.zeros((len(start), 1)), start], axis=1)
    states = np.empty((len(start), steps, start.shape[1]))
    with Rollout(nthread=threads) as pool:
        seconds = timed(
            lambda: pool.rollout(model, workers, start, nstep=steps, state=states), rounds, clock
        )
    return seconds.best, states[:, -1, 1:]


def words(numbers: Any) -> str:
    """Numbers in the text of a model of MuJoCo."""
    return " ".join(f"{x:.17g}" for x in np.ravel(numbers))


def quaternion_of(turn: Any) -> np.ndarray:
    """The quaternion of a rotation of scipy, its scalar first and not negative."""
    return np.roll(turn.as_quat(canonical=True), 1)


def table_row(cells: Iterable[Any]) -> str:
    """A row of a table in Markdown; None is a cell without a figure."""
    texts = ("–" if x is None else f"{x:.3g}" if isinstance(x, float) else str(x) for x in cells)
    return f"| {' | '.join(texts)} |"


def table_head(cells: Iterable[str]) -> str:
    """The first two lines of a table in Markdown."""
    names = [*cells]
    return f"{table_row(names)}\n|{'---|' * len(names)}"


def write(path: Path | None, **facts: Any) -> None:
    """Write facts, and those of the machine, as JSON; nothing without a path."""
    if path is not None:
        text = json.dumps({"environment": environment(), **facts}, indent=1, default=str)
        path.write_text(text + "\n", encoding="utf-8")
