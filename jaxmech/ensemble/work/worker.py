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

from jaxmech.config.environment import changes, environment
from jaxmech.config.run_folder import FolderError, stored_environment
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


def refusal(then: Mapping[str, Any], now: Mapping[str, Any], where: str) -> str | None:
    """The reason why a worker must not take part, or None."""
    found = changes(then, now, SAME)
    if not found:
        return None
    differences = "; ".join(found)
    advice = "install the same versions everywhere, and start the workers again"
    return f"the worker {where} differs from the others: {differences}; {advice}"


def compute_blocks(order: bytes, blocks: tuple[int, ...]) -> Computed:
    """Compute the blocks that are not finished yet, one after the other."""
    with _COMPUTING:
        begun = time.perf_counter()
        run, kernel = _prepared(order)
        target = RunFolder(run.path, run.study.size, run.study.block_size)
        failed: dict[int, int] = {}
        left: list[int] = []

        def missing() -> Iterator[int]:
            for block in blocks:
                if mark_of(run.path, block).exists():
                    continue
                if left or not is_leased(run.path, run.lease):
                    left.append(block)
                else:
                    yield block

        with ThreadPoolExecutor(1) as writer:
            waiting = None
            for inputs, found in computed_blocks(kernel, missing()):
                block = int(inputs.first) // kernel.block
                failed[block] = int(found.failed)
                if waiting is not None:
                    waiting.result()
                waiting = writer.submit(target.write, block, arrays_of(kernel, inputs, found))
            if waiting is not None:
                waiting.result()
        return Computed(failed, tuple(left), time.perf_counter() - begun)


@lru_cache(maxsize=2)
def _prepared(order: bytes) -> tuple[Order, BlockProgram]:
    """The program of a run, after a check that this process computes the same."""
    run: Order = pickle.loads(order)
    now = facts_of_worker(run.x64)
    where = f"on {now['host']}"
    try:
        then = stored_environment(run.path)
    except FolderError as error:
        text = "the run folder must be on a file system that all workers share"
        raise ClusterError(f"the worker {where} cannot read {run.path}; {text}") from error
    if problem := refusal(then, now, where):
        raise ClusterError(problem)
    found = planned(run.study, run.path, run.folder)
    study = replace(found.study, **found.functions)
    kernel = compile_kernel(study, found.subject, found.sampler)
    if other := changes(then, origin(kernel), ("functions", "draws")):
        text = f"{'; '.join(other)}; the files of the study must be the same for all workers"
        raise ClusterError(f"the worker {where} would compute another study: {text}")
    return run, kernel
