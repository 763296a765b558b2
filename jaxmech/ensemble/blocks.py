"""Blocks of trajectories: one compiled program, from draws to arrays and statistics.

Every call has the same shape, `study.block` trajectories, whatever the size of the study. So it is
compiled once, and a trajectory is bit-identical however the work is divided. A block is computed in
slices whose series fit into a small memory; only stored results outlive them. `computed_blocks` are
several of them, whose statistics are merged in order.
"""

import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isqrt
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import StoppedError, refuse
from jaxmech.ensemble.member import StudyTrajectory, Tree, merged
from jaxmech.ensemble.plan import STATES, Plan, errors_as_problems
from jaxmech.ensemble.statistics import Sample, StatisticResult
from jaxmech.ensemble.study import LANES, Study
from jaxmech.integrate import FixedSteps
from jaxmech.status import succeeded

States = dict[str, Any]
Shapes = tuple[Mapping[str, Any], Mapping[str, Any]]
_SLICE = 2**24  # bytes of the series of a slice of a block
# A GPU computes one trajectory in each thread. A large one runs some 34,000 threads at a time with
# the registers that a kernel needs; with twice as many trajectories, few threads idle at the end.
_LARGEST_BLOCK = 2**16
_LEAST_BLOCK = 1024  # whatever its trajectories store
LARGEST_RESULTS = 2**28  # bytes of a block, which is copied while the next one is computed
_LARGEST_ON_A_CPU = 2**24  # bytes of a block there, so that few files hold short trajectories,
_LONGEST_BLOCK = 2**24  # times the steps of its trajectories: the largest loss at an interruption
_UNKNOWN_STEPS = 16
_SHARE = 16  # of the memory of a device: largest part for the results of a block


def compile_kernel(plan: Plan) -> "BlockProgram":
    """The program of a study whose steps are known; the shapes of a trajectory size its block.

    It is compiled at its first call. A StudyError tells what is wrong with the model.
    """
    member = plan.member
    with errors_as_problems():
        arrays, values, _ = jax.eval_shape(
            lambda inputs: member.computed(inputs, not member.may_skip_assembly), plan.first
        )
    kernel = BlockProgram(plan, 0, (arrays, values))
    return replace(kernel, block=block_of(plan.study, kernel.stored_bytes))


def block_of(study: Study, trajectory: int) -> int:
    """The size of a block: that of the study, or one that is good for the first device.

    Args:
        study: the study.
        trajectory: the bytes that one trajectory stores.
    """
    if study.block is not None:
        return study.block
    if jax.devices()[0].platform == "cpu":
        per_save = study.steps.per_save if isinstance(study.steps, FixedSteps) else None
        steps = (study.times.saves - 1) * (per_save or _UNKNOWN_STEPS)
        most = min(_LARGEST_ON_A_CPU // max(trajectory, 1), _LONGEST_BLOCK // steps)
    else:
        memory = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", inf)
        most = int(min(LARGEST_RESULTS, memory / _SHARE)) // max(trajectory, 1)
    block = _LARGEST_BLOCK
    while block > max(most, _LEAST_BLOCK):
        block //= 2
    return -(-min(block, study.size) // LANES) * LANES


def slice_of(study: Study, block: int, coordinates: int, ends: int = 0) -> int:
    """Trajectories that are computed at a time: a part of a block.

    The series of as many fit into a cache or so, at the saved times and at those between them at
    which a step `ends`; a device other than a CPU takes the whole block.
    """
    if jax.devices()[0].platform != "cpu":
        return block
    series = (study.times.saves + ends) * (2 * coordinates + 3 + len(study.observe))
    kept = sum(1 if event.terminal else event.keep for event in study.events.values())
    numbers = series + kept * (1 + 2 * coordinates)  # of one trajectory while it is computed
    largest = max(_SLICE // (np.dtype(study.precision).itemsize * numbers), LANES)
    small = [part for part in range(1, isqrt(block) + 1) if block % part == 0]
    sizes = {size for part in small for size in (part, block // part)}
    good = [size for size in sizes if LANES // 2 <= size <= largest]
    # Fewer than the lanes of native code would take many times as long: rather more memory.
    return max(good) if good else min((size for size in sizes if size > largest), default=block)


def study_devices() -> list[jax.Device]:
    """The devices that compute a block each: all, or the one of `jax.default_device`."""
    if jax.config.jax_default_device is not None:  # type: ignore[attr-defined]
        return list(jax.numpy.zeros(()).devices())
    return jax.local_devices()


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Block:
    """The results of one block."""

    arrays: dict[str, Any]  # the stored arrays of each trajectory
    states: States  # states of the statistics, by name
    met: Any  # whether all trajectories begin on their constraints without being assembled


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a block."""

    varying: Tree  # values that vary from trajectory to trajectory, padded with copies of the last
    shared: Tree  # values that all trajectories share
    first: Any  # number of the first trajectory
    count: Any  # number of trajectories that are not padding


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """The compiled computation of one block of a study."""

    plan: Plan  # with its steps
    block: int  # the number of trajectories of one call
    shapes: Shapes = ({}, {})  # of the stored arrays and the quantities of one trajectory

    @property
    def study(self) -> Study:
        return self.plan.study

    @property
    def member(self) -> StudyTrajectory:
        return self.plan.member

    def require_possible(self, out: Path) -> None:
        """Raise a StudyError if the disk cannot hold the results."""
        # With what the run folder occupies already, which a continued run does not write again.
        folder = next((x for x in (out, *out.absolute().parents) if x.is_dir()), Path())
        size = self.study.size
        usage, disk = shutil.disk_usage(folder), size * self.stored_bytes
        stored = (file for file in out.glob("results.zarr/**/*") if file.is_file())
        occupied = sum(file.stat().st_size for file in stored)
        free = usage.free + occupied if usage.total else inf  # /proc, which cannot be written
        if disk > free:
            message = f"must be smaller: {size} trajectories take {disk / 1e9:.3g} GB of "
            message += f"disk, of which {free / 1e9:.3g} GB are free; save fewer times or series"
            raise refuse("size", message)

    @property
    def stored_bytes(self) -> int:
        """The bytes that one trajectory stores."""
        drawn = self.plan.sampler.columns(0, 1) if self.study.store != "statistics" else ()
        return _bytes_of(self.shapes[0]) + 8 * len(drawn)

    @property
    def state_bytes(self) -> int:
        """The bytes of the states of all statistics."""
        return _bytes_of(self.states)

    def devices(self) -> list[jax.Device]:
        """The devices that compute blocks at the same time."""
        devices = study_devices()
        if len(devices) == 1 or devices[0].platform != "cpu":
            return devices
        # See "JAX versions" in docs/limits.md: two batched calls of LAPACK at a time can hang. The
        # callbacks of `modes` call LAPACK on the host.
        program = self._program.lower(self.inputs(0), True).as_text()
        return devices[:1] if "lapack" in program or "callback" in program else devices

    def inputs(self, block: int) -> Inputs:
        """The draws of a block, padded with copies of the last trajectory."""
        first = block * self.block
        return self.inputs_between(first, min(first + self.block, self.plan.sampler.size))

    def inputs_between(self, first: int, last: int) -> Inputs:
        """The draws of at most a block of trajectories, padded with copies of the last one."""
        # The last block has the shape of all others, so that one program serves.
        padding = self.block - (last - first)
        varying, shared = self.plan.inputs(first, last, padding)
        index = np.int64 if jax.config.read("jax_enable_x64") else np.int32
        return Inputs(varying, shared, index(first), np.int32(last - first))

    def run(self, inputs: Inputs) -> Block:
        """Start to compute a block, with states that need no assembly where possible."""
        block: Block = self._program(inputs, not self.member.may_skip_assembly)
        return block

    def finished(self, inputs: Inputs, block: Block) -> Block:
        """A block that was begun, when it is computed; again if states had to be assembled."""
        if not self.member.may_skip_assembly or bool(block.met):
            return jax.block_until_ready(block)
        return jax.block_until_ready(self._program(inputs, True))

    def stored(self, inputs: Inputs, block: Block) -> dict[str, np.ndarray]:
        """The arrays of a block that are stored: results, draws, and states of the statistics."""
        arrays = dict(block.arrays)
        if self.study.store != "statistics":
            first = int(inputs.first)
            drawn = self.plan.sampler.rows(first, first + int(inputs.count))
            arrays |= {v.stored_name: v.values for v in drawn if v.varies}
        if block.states:
            leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(block.states)]
            arrays[STATES] = np.frombuffer(b"".join(x.tobytes() for x in leaves), np.uint8)[None]
        return arrays

    def unpacked(self, data: np.ndarray) -> States:
        """The states of the statistics of a block, from the bytes that are stored."""
        leaves, tree = jax.tree.flatten(self.states)
        row = np.dtype([(f"{k}", x.dtype, x.shape) for k, x in enumerate(leaves)])
        states: States = jax.tree.unflatten(tree, list(np.frombuffer(data.tobytes(), row)[0]))
        return states

    @cached_property
    def merge(self) -> Callable[[States, States], States]:
        """The function that merges the states of some blocks with those of later ones."""

        def merge(first: States, second: States) -> States:
            with jax.numpy_rank_promotion("allow"):
                return {
                    name: s.merge(first[name], second[name])
                    for name, s in self.study.statistics.items()
                }

        return jax.jit(merge)

    def results(self, states: States) -> dict[str, StatisticResult]:
        """The results of all statistics, from the merged states of all blocks."""
        states = jax.device_get(states)
        return {name: s.result(states[name]) for name, s in self.study.statistics.items()}

    @cached_property
    def states(self) -> States:
        """Shapes and types of the states of all statistics."""
        return jax.eval_shape(self._empty)

    @cached_property
    def _program(self) -> Any:
        return jax.jit(self._computed, static_argnums=1)

    def _computed(self, inputs: Inputs, assembled: bool) -> Block:
        size = slice_of(
            self.study, self.block, self.member.system.n, self.member.subject.inputs.ends
        )
        count = self.block // size
        index = inputs.first + jnp.arange(self.block, dtype=inputs.first.dtype)
        real = jnp.arange(self.block) < inputs.count
        lanes = (inputs.varying, index, real)

        def compute(varying: Tree) -> Any:
            return self.member.computed(merged(inputs.shared, varying), assembled)

        def step(states: States, lanes: Any) -> tuple[States, tuple[Any, Array]]:
            varying, index, real = lanes
            arrays, values, met = jax.vmap(compute, axis_size=len(index))(varying)
            good, updated = real & jnp.asarray(succeeded(values["status"])), {}
            for name, s in self.study.statistics.items():
                sample = Sample({x: values[x] for x in s.names}, good, real, index)
                with jax.numpy_rank_promotion("allow"):
                    updated[name] = s.add(states[name], sample)
            return updated, (arrays, met.all())

        states = self._empty()
        if count == 1:
            states, (arrays, met) = step(states, lanes)
            return Block(arrays, states, met)
        sliced = jax.tree.map(lambda x: x.reshape(count, size, *x.shape[1:]), lanes)
        states, (arrays, met) = jax.lax.scan(step, states, sliced)
        arrays = jax.tree.map(lambda x: x.reshape(self.block, *x.shape[2:]), arrays)
        return Block(arrays, states, met.all())

    def _empty(self) -> States:
        """The states of no trajectory."""
        nothing, shapes, states = jnp.zeros(1, bool), self.shapes[1], {}
        for name, s in self.study.statistics.items():
            values = {x: jnp.zeros((1, *shapes[x].shape), shapes[x].dtype) for x in s.names}
            with jax.numpy_rank_promotion("allow"):
                states[name] = s.init(Sample(values, nothing, nothing, jnp.zeros(1, int)))
        return states


def _bytes_of(shapes: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes))


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


def compute_here(
    kernel: BlockProgram, missing: list[int], write: Callable[[int, dict[str, np.ndarray]], None],
    stop: Callable[[], bool], finished: Callable[[int], None],
) -> None:  # fmt: skip
    """Compute the missing blocks of a run in this process, and write each one meanwhile."""
    waiting: Future[None] | None = None  # of the thread that writes
    computed = computed_blocks(kernel, missing)
    # One thread writes, so that blocks reach the disk in order while the next is computed.
    with ThreadPoolExecutor(1) as writer:
        try:
            for block in missing:
                if stop():
                    raise StoppedError
                inputs, results = next(computed)
                if waiting is not None:
                    waiting.result()
                waiting = writer.submit(write, block, kernel.stored(inputs, results))
                finished(block)
        finally:
            # What was computed is kept, also after an interruption or an error, which the result
            # of a future raises here if it was one of writing.
            computed.close()
            if waiting is not None:
                waiting.result()
