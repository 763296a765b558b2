"""Compute blocks on the workers of a cluster: send tasks, and merge the statistics in order."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

import jax
import numpy as np

from jaxmech.config import FolderError, write_whole
from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.accumulate import Accumulator
from jaxmech.ensemble.checksums import block_damage, damage_text
from jaxmech.ensemble.layout import STATES
from jaxmech.ensemble.progress import RunProgress
from jaxmech.ensemble.store import RunFolder
from jaxmech.ensemble.study import Study
from jaxmech.ensemble.work.tasks import Tasks, pickled
from jaxmech.ensemble.work.worker import Computed, Order, compute_blocks, lease_of

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
