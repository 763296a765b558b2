"""Blocks of a study on the workers of a cluster: `compute_blocks` there, `AwayWork` here.

Workers write blocks into the shared run folder, and this process merges the statistics in order.
Blocks are written atomically, and are bitwise the same whichever worker computes them. So it does
no harm if two workers compute the same block, or if a worker is killed at any moment.
"""

import pickle
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import median
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import jax
import numpy as np

from jaxmech.config import FolderError, changes, environment, stored_environment, write_whole
from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.blocks.accumulate import Accumulator, RunProgress
from jaxmech.ensemble.blocks.kernel import BlockProgram, compile_kernel
from jaxmech.ensemble.blocks.local import arrays_of, computed_blocks
from jaxmech.ensemble.blocks.plan import planned
from jaxmech.ensemble.cluster.tasks import ClusterError, Tasks, pickled, use_x64
from jaxmech.ensemble.store.checksums import block_damage, damage_text, mark_of
from jaxmech.ensemble.store.folder import RunFolder, origin
from jaxmech.ensemble.store.layout import STATES
from jaxmech.ensemble.study import Study

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


Blocks = tuple[int, ...]
_TASK = 30.0  # intended seconds of a task
_SHARES = 4  # smallest number of remaining tasks for each worker
_VISIBLE = 60.0  # seconds within which a shared file system shows files of a worker


@dataclass
class Sizes:
    """The size of the next task in blocks: about half a minute, less towards the end.

    A task never has more than a quarter of a worker's share of the remaining blocks, which keeps
    all workers busy to the end (guided self-scheduling, Polychronopoulos and Kuck 1987). The
    results do not depend on it.

    Example:
        >>> sizes = Sizes()
        >>> sizes.next(remaining=1000, workers=10)
        1
        >>> sizes.took(blocks=1, seconds=3.0)
        >>> sizes.next(remaining=1000, workers=10), sizes.next(remaining=100, workers=10)
        (10, 3)
    """

    fixed: int | None = None  # blocks of each task, if set in the study
    _each: deque[float] = field(default_factory=lambda: deque(maxlen=50))

    def took(self, blocks: int, seconds: float) -> None:
        """Note the duration of a task."""
        if blocks:
            self._each.append(seconds / blocks)

    def next(self, remaining: int, workers: int) -> int:
        """The number of blocks of the next task."""
        if self.fixed:
            return min(self.fixed, remaining)
        intended = int(_TASK / max(median(self._each), 1e-6)) if self._each else 1
        # At most a part of what each worker has left to do, so that none is still at a long task
        # when the others have finished.
        share = -(-remaining // (_SHARES * max(workers, 1)))
        return max(min(intended, share, remaining), 1)


@dataclass(eq=False)
class AwayWork:
    """The computation of the blocks of a run by the workers of a cluster."""

    tasks: Tasks  # tasks of the cluster
    accumulator: Accumulator  # accumulator of the statistics
    target: RunFolder  # the run folder
    progress: RunProgress  # receives finished blocks
    study: Study  # with its sizes and steps, as loaded by workers
    folder: Path  # to which its paths refer
    stop: Callable[[], bool] = lambda: False  # called repeatedly: whether to stop
    _waiting: set[int] = field(default_factory=set, init=False)
    _added: int = field(default=0, init=False)

    def all(self, blocks: range, missing: set[int]) -> None:
        """Compute those of the blocks that are missing, and merge the statistics of all of them."""
        self._waiting = set(missing)
        self._add_up(blocks)
        path, lease = self.target.path.resolve(), uuid4().hex
        x64 = bool(jax.config.read("jax_enable_x64"))
        order = pickled(Order(self.study, self.folder.resolve(), path, lease, x64))
        # a chunk of one block is the default of a study
        fixed = self.study.chunk_size // self.study.block_size
        sizes, ended = Sizes(fixed if fixed > 1 else None), False

        def ends() -> bool:
            nonlocal ended
            if not ended and (self.stop() or self.accumulator.enough):
                # A worker cannot be interrupted within a block, but looks for its lease before
                # each.
                lease_of(path).unlink(missing_ok=True)  # the workers end at their next block
                ended = True
            return ended

        # Workers that outlive this process see another lease, or none, and stop writing.
        write_whole(lease_of(path), lease)
        try:
            function, parts = partial(compute_blocks, order), self._parts(sorted(missing), sizes)
            for part, computed in self.tasks.as_done(function, parts, ends):
                sizes.took(len(computed.failed), computed.seconds)
                if computed.left and not ended:
                    raise FolderError(f"{path} was taken over by another run")
                self._note(part, computed)
                self._add_up(blocks)
        finally:
            lease_of(path).unlink(missing_ok=True)
        if self._waiting and not self.accumulator.enough:
            raise StoppedError

    def _parts(self, missing: list[int], sizes: Sizes) -> Iterator[Blocks]:
        while missing:
            count = sizes.next(len(missing), self.tasks.workers)
            part, missing = missing[:count], missing[count:]
            yield tuple(part)

    def _note(self, part: Blocks, computed: Computed) -> None:
        finished = set(part) - set(computed.left)
        self._waiting -= finished
        failed = sum(computed.failed.get(block, 0) for block in finished)
        self.progress.add(self.target.trajectories(finished), failed, self.accumulator.estimates)

    def _add_up(self, blocks: range) -> None:
        """Add the statistics of all blocks before the first that is not yet done."""
        if not self.study.all_statistics:
            return
        for block in blocks[self._added :]:
            if block in self._waiting or self.accumulator.enough:
                return
            self.accumulator.add(self.accumulator.unpacked(self._states(block)))
            self._added += 1

    def _states(self, block: int) -> np.ndarray:
        # When they are visible here: a worker may have written them on another machine.
        deadline = time.monotonic() + _VISIBLE
        # A shared file system may show what another machine has written only after a while.
        while damage := block_damage(self.target.path, block, STATES):
            if time.monotonic() > deadline:
                message = f"what the workers have written cannot be read: {damage_text(damage)}"
                raise FolderError(f"{self.target.path}: {message}; is it on a shared file system?")
            time.sleep(0.2)
        return self.target.states(block)
