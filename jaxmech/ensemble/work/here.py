"""Compute blocks in this process: one is stored while the next is computed."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.accumulate import Accumulator, packed
from jaxmech.ensemble.draws import stored_name
from jaxmech.ensemble.estimate import LONG, in_time
from jaxmech.ensemble.kernel import Block, BlockProgram, Inputs
from jaxmech.ensemble.layout import STATES
from jaxmech.ensemble.progress import RunProgress
from jaxmech.ensemble.store import RunFolder


@dataclass(frozen=True, eq=False)
class Work:
    """The computation of the blocks of a run, in order."""

    kernel: BlockProgram  # of a block
    accumulator: Accumulator  # of the statistics
    target: RunFolder  # the run folder
    progress: RunProgress  # receives finished blocks
    tell: Callable[[str], None]  # called with the estimated time
    stop: Callable[[], bool] = lambda: False  # called before each block: whether to stop

    def all(self, blocks: range, missing: set[int]) -> None:
        """Compute the missing ones of some blocks, and add up the statistics of all of them."""
        study = self.kernel.trajectory.study
        most = max(study.chunk_size // study.block_size, 1)
        waiting: list[Future[None]] = []  # of the thread that writes
        with_states = bool(study.statistics)
        clock = _Clock(len(missing), self.tell)
        computed = computed_blocks(self.kernel, sorted(missing))
        with ThreadPoolExecutor(1) as writer:
            try:
                for block in blocks:
                    if block in missing:
                        if self.stop():
                            raise StoppedError
                        clock.tick()
                        inputs, found = next(computed)
                        arrays = arrays_of(self.kernel, inputs, found)
                        waiting.append(writer.submit(self.target.write, block, arrays))
                        while len(waiting) > most:
                            waiting.pop(0).result()
                        states = found.states
                    elif with_states:
                        states = self.accumulator.unpacked(self.target.states(block))
                    if with_states:
                        self.accumulator.add(states)
                    if block in missing:
                        done, failed = self.target.trajectories([block]), int(found.failed)
                        self.progress.add(done, failed, self.accumulator.estimates)
                    if self.accumulator.enough:
                        break
            finally:
                computed.close()
                for one in waiting:
                    one.result()


def arrays_of(kernel: BlockProgram, inputs: Inputs, found: Block) -> dict[str, np.ndarray]:
    """The arrays of a block that are stored: results, draws, and the states of the statistics."""
    arrays = dict(found.arrays)
    if arrays:
        first = int(inputs.first)
        drawn = kernel.sampler.rows(first, first + int(inputs.count))
        arrays |= {stored_name(v): v.values for v in drawn if v.varies}
    if found.states:
        arrays[STATES] = packed(found.states)[None]
    return arrays


def computed_blocks(kernel: BlockProgram, blocks: Iterable[int]) -> Generator[tuple[Inputs, Block]]:
    """The results of one block after the other; every device computes one at a time."""
    prepared = map(kernel.inputs, blocks)

    def begun(device: jax.Device, inputs: Any) -> Any:
        there = jax.device_put(inputs, device)
        return device, inputs, there, kernel.run(there)

    running = deque(begun(*pair) for pair in zip(kernel.devices(), prepared, strict=False))
    while running:
        device, inputs, there, ahead = running.popleft()
        following = next(prepared, None)
        ready = kernel.finished(there, ahead)
        if following is not None:
            running.append(begun(device, following))
        yield inputs, jax.device_get(ready)


@dataclass
class _Clock:
    """Estimates the time of all blocks after the second one, the first that is not compiled."""

    count: int
    tell: Callable[[str], None]
    place: int = -1
    begun: float = 0.0

    def tick(self) -> None:
        """Note the start of a block."""
        self.place += 1
        if self.place == 2:
            left = (self.count - 2) * (time.perf_counter() - self.begun)
            if left > LONG:
                rest = f"the other {self.count - 2} of {self.count} blocks"
                self.tell(f"about {in_time(left)} for {rest}")
        self.begun = time.perf_counter()
