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
from jaxmech.ensemble.blocks.accumulate import Accumulator, RunProgress, packed
from jaxmech.ensemble.blocks.estimate import LONG, in_time
from jaxmech.ensemble.blocks.kernel import Block, BlockProgram, Inputs
from jaxmech.ensemble.draws.sampler import stored_name
from jaxmech.ensemble.store.folder import RunFolder
from jaxmech.ensemble.store.layout import STATES


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
        study = self.kernel.member.study
        most_waiting = max(study.chunk_size // study.block_size, 1)
        waiting: list[Future[None]] = []  # of the thread that writes
        with_states = bool(self.kernel.statistics)
        clock = _Clock(len(missing), self.tell)
        computed = computed_blocks(self.kernel, sorted(missing))
        # One thread writes, so that blocks reach the disk in order while the next is computed.
        with ThreadPoolExecutor(1) as writer:
            try:
                for block in blocks:
                    if block in missing:
                        if self.stop():
                            raise StoppedError
                        clock.tick()
                        inputs, results = next(computed)
                        arrays = arrays_of(self.kernel, inputs, results)
                        waiting.append(writer.submit(self.target.write, block, arrays))
                        # The memory of a study is that of the blocks that wait to be written.
                        while len(waiting) > most_waiting:
                            waiting.pop(0).result()
                        states = results.states
                    elif with_states:
                        states = self.accumulator.unpacked(self.target.states(block))
                    if with_states:
                        self.accumulator.add(states)
                    if block in missing:
                        finished, failed = self.target.trajectories([block]), int(results.failed)
                        self.progress.add(finished, failed, self.accumulator.estimates)
                    if self.accumulator.enough:
                        break
            finally:
                # What was computed is kept, also after an interruption or an error, which the
                # result of a future raises here if it was one of writing.
                computed.close()
                for future in waiting:
                    future.result()


def arrays_of(kernel: BlockProgram, inputs: Inputs, block: Block) -> dict[str, np.ndarray]:
    """The arrays of a block that are stored: results, draws, and the states of the statistics."""
    arrays = dict(block.arrays)
    if arrays:
        first = int(inputs.first)
        drawn = kernel.sampler.rows(first, first + int(inputs.count))
        arrays |= {stored_name(v): v.values for v in drawn if v.varies}
    if block.states:
        arrays[STATES] = packed(block.states)[None]
    return arrays


def computed_blocks(kernel: BlockProgram, blocks: Iterable[int]) -> Generator[tuple[Inputs, Block]]:
    """The results of one block after the other; every device computes one at a time."""
    prepared = map(kernel.inputs, blocks)

    def start(device: jax.Device, inputs: Any) -> Any:
        on_device = jax.device_put(inputs, device)
        return device, inputs, on_device, kernel.run(on_device)

    running = deque(start(*pair) for pair in zip(kernel.devices(), prepared, strict=False))
    while running:
        device, inputs, on_device, ahead = running.popleft()
        following = next(prepared, None)
        ready = kernel.finished(on_device, ahead)
        if following is not None:
            running.append(start(device, following))
        yield inputs, jax.device_get(ready)


@dataclass
class _Clock:
    """Estimates the time of all blocks after the second one, the first that is not compiled."""

    count: int
    tell: Callable[[str], None]
    order: int = -1
    begun: float = 0.0

    def tick(self) -> None:
        """Note the start of a block."""
        self.order += 1
        if self.order == 2:
            seconds = (self.count - 2) * (time.perf_counter() - self.begun)
            if seconds > LONG:
                remainder = f"the other {self.count - 2} of {self.count} blocks"
                self.tell(f"about {in_time(seconds)} for {remainder}")
        self.begun = time.perf_counter()
