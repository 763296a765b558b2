"""The work of a worker of a cluster: compute blocks of a study into the shared run folder.

Blocks are written atomically, and are bitwise the same whichever worker computes them. So it does
no harm if two workers compute the same block, or if a worker is killed at any moment.
"""

import pickle
import platform
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from jaxmech.config import FolderError, changes, environment, stored_environment
from jaxmech.ensemble.checksums import mark_of
from jaxmech.ensemble.kernel import BlockProgram, compile_kernel
from jaxmech.ensemble.provenance import origin
from jaxmech.ensemble.store import RunFolder
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.work.here import arrays_of, computed_blocks
from jaxmech.ensemble.work.plan import planned
from jaxmech.ensemble.work.tasks import ClusterError, use_x64

SAME = ("jaxmech", "jaxmech_sha256", "jax", "jaxlib", "xla_flags", "x64", "platform")
MAY_DIFFER = ("device", "devices", "processor")  # reported: the last bits may differ too
_COMPUTING = Lock()  # a worker with several threads computes one task at a time


@dataclass(frozen=True)
class Order:
    """The instructions by which a worker computes blocks of a run."""

    study: Study  # with its sizes and steps
    folder: Path  # to which its paths refer
    path: Path  # the run folder
    lease: str  # content of the lease file there; the work ends when it changes
    x64: bool  # whether JAX computes with 64 bits


class Computed(NamedTuple):
    """A worker's report: the number of failures in each block that it computed itself."""

    failed: dict[int, int]
    left: tuple[int, ...]  # not computed, since the run has ended
    seconds: float


def lease_of(path: Path) -> Path:
    """The file that names the run which the workers are computing for."""
    return path / ".lease"


def is_leased(path: Path, lease: str) -> bool:
    """Whether the work for a run continues."""
    try:
        return lease_of(path).read_text(encoding="utf-8") == lease
    except FileNotFoundError:
        return False


def facts_of_worker(x64: bool) -> dict[str, Any]:
    """The environment of the process of a worker, which computes with 64 bits or not."""
    use_x64(x64)
    return {**environment(), "host": platform.node()}


def refusal(expected: Mapping[str, Any], facts: Mapping[str, Any], location: str) -> str | None:
    """The reason why a worker must not take part, or None."""
    differences = changes(expected, facts, SAME)
    if not differences:
        return None
    difference_text = "; ".join(differences)
    advice = "install the same versions everywhere, and start the workers again"
    return f"the worker {location} differs from the others: {difference_text}; {advice}"


def compute_blocks(order: bytes, blocks: tuple[int, ...]) -> Computed:
    """Compute the blocks that are not finished yet, one after the other."""
    with _COMPUTING:
        start = time.perf_counter()
        run, kernel = _prepared(order)
        target = RunFolder(run.path, run.study.size, run.study.block_size)
        failed: dict[int, int] = {}
        remaining: list[int] = []

        def missing() -> Iterator[int]:
            for block in blocks:
                if mark_of(run.path, block).exists():
                    continue
                if remaining or not is_leased(run.path, run.lease):
                    remaining.append(block)
                else:
                    yield block

        with ThreadPoolExecutor(1) as writer:
            waiting = None
            # The lease is looked up when a block is begun, one ahead of the one that is written.
            for inputs, block_results in computed_blocks(kernel, missing()):
                block = int(inputs.first) // kernel.block
                failed[block] = int(block_results.failed)
                if waiting is not None:
                    waiting.result()
                waiting = writer.submit(
                    target.write, block, arrays_of(kernel, inputs, block_results)
                )
            if waiting is not None:
                waiting.result()
        return Computed(failed, tuple(remaining), time.perf_counter() - start)


@lru_cache(maxsize=2)
def _prepared(order: bytes) -> tuple[Order, BlockProgram]:
    """The program of a run, after a check that this process computes the same."""
    run: Order = pickle.loads(order)
    facts = facts_of_worker(run.x64)
    location = f"on {facts['host']}"
    try:
        expected = stored_environment(run.path)
    except FolderError as error:
        message = "the run folder must be on a file system that all workers share"
        raise ClusterError(f"the worker {location} cannot read {run.path}; {message}") from error
    if problem := refusal(expected, facts, location):
        raise ClusterError(problem)
    plan = planned(run.study, run.path, run.folder)
    study = replace(plan.study, **plan.functions)
    kernel = compile_kernel(study, plan.subject, plan.sampler)
    if differences := changes(expected, origin(kernel), ("functions", "draws")):
        message = (
            f"{'; '.join(differences)}; the files of the study must be the same for all workers"
        )
        raise ClusterError(f"the worker {location} would compute another study: {message}")
    return run, kernel
