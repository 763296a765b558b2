"""Compute blocks in this process: one is stored while the next is computed."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from jaxmech.config.errors import StoppedError
from jaxmech.ensemble.blocks.accumulate import Accumulator, packed
from jaxmech.ensemble.blocks.kernel import Block, BlockProgram, Inputs
from jaxmech.ensemble.draws.sampler import stored_name
from jaxmech.ensemble.store.folder import RunFolder
from jaxmech.ensemble.store.layout import STATES


def compute_here(
    kernel: BlockProgram, target: RunFolder, accumulator: Accumulator, progress: "tqdm[Any]",
    stop: Callable[[], bool], missing: set[int],
) -> None:  # fmt: skip
    """Compute the missing blocks of a run, and add up the statistics of all of them."""
    waiting: Future[None] | None = None  # of the thread that writes
    computed = computed_blocks(kernel, sorted(missing))
    # One thread writes, so that blocks reach the disk in order while the next is computed.
    with ThreadPoolExecutor(1) as writer:
        try:
            for block in range(target.count):
                if block in missing:
                    if stop():
                        raise StoppedError
                    inputs, results = next(computed)
                    if waiting is not None:
                        waiting.result()
                    arrays = arrays_of(kernel, inputs, results)
                    waiting = writer.submit(target.write, block, arrays)
                    if kernel.statistics:
                        accumulator.add(results.states)
                    progress.update(target.trajectories([block]))
                elif kernel.statistics:
                    accumulator.add(accumulator.unpacked(target.states(block)))
        finally:
            # What was computed is kept, also after an interruption or an error, which the result
            # of a future raises here if it was one of writing.
            computed.close()
            if waiting is not None:
                waiting.result()


def arrays_of(kernel: BlockProgram, inputs: Inputs, block: Block) -> dict[str, np.ndarray]:
    """The arrays of a block that are stored: results, draws, and the states of the statistics."""
    arrays = dict(block.arrays)
    if kernel.member.study.store != "statistics":
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
