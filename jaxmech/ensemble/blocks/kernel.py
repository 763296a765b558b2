"""The compiled kernel of a study: one block of trajectories, from draws to arrays and statistics.

Every call has the same shape, `study.block` trajectories, whatever the size of the
study. So it is compiled once, and a trajectory is bit-identical however the work is divided. A
block is computed in slices whose series fit into a small memory; only stored results outlive them.
`computed_blocks` are several of them, and the `Accumulator` merges their statistics in order.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config import ENDED, Subject
from jaxmech.config.errors import StudyError, refuse
from jaxmech.ensemble.blocks.estimate import bytes_of, sized, slice_of, study_devices
from jaxmech.ensemble.draws.sampler import Sampler, stored_name
from jaxmech.ensemble.members.trajectory import StudyTrajectory, Tree, first_of, inputs_of, merged
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Sample, StatisticResult
from jaxmech.ensemble.store.results import STATES
from jaxmech.ensemble.study import Study
from jaxmech.integrate import MEMBERS, FixedSteps, choose_steps
from jaxmech.utils.checks import MissingParameterError
from jaxmech.utils.tracers import evenly_spaced

States = dict[str, Any]
Shapes = tuple[Mapping[str, Any], Mapping[str, Any]]


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

    member: StudyTrajectory  # one trajectory
    sampler: Sampler  # the draws
    block: int  # trajectories of one call
    statistics: Mapping[str, AbstractStatistic]  # those that are updated, by name
    shapes: Shapes = ({}, {})  # of the stored arrays and the quantities of one trajectory

    def inputs(self, block: int) -> Inputs:
        """The draws of a block, padded with copies of the last trajectory."""
        first = block * self.block
        return self.inputs_between(first, min(first + self.block, self.sampler.size))

    def inputs_between(self, first: int, last: int) -> Inputs:
        """The draws of at most a block of trajectories, padded with copies of the last one."""
        # The last block has the shape of all others, so that one program serves.
        padding = self.block - (last - first)
        varying, shared = inputs_of(self.sampler.rows(first, last), self.member.dtype, padding)
        index = np.int64 if jax.config.read("jax_enable_x64") else np.int32
        return Inputs(varying, shared, index(first), np.int32(last - first))

    def devices(self) -> list[jax.Device]:
        """The devices that compute blocks at the same time."""
        devices = study_devices()
        if len(devices) == 1 or devices[0].platform != "cpu":
            return devices
        # See "JAX versions" in docs/limits.md: two batched calls of LAPACK at a time can hang. The
        # callbacks of `modes` call LAPACK on the host.
        program = self._program.lower(self.inputs(0), True).as_text()
        return devices[:1] if "lapack" in program or "callback" in program else devices

    def run(self, inputs: Inputs) -> Block:
        """Start to compute a block, with states that need no assembly where possible."""
        block: Block = self._program(inputs, not self.member.may_skip_assembly)
        return block

    def finished(self, inputs: Inputs, block: Block) -> Block:
        """A block that was begun, when it is computed; again if states had to be assembled."""
        if not self.member.may_skip_assembly or bool(block.met):
            return jax.block_until_ready(block)
        return jax.block_until_ready(self._program(inputs, True))

    @cached_property
    def _program(self) -> Any:
        return jax.jit(self._computed, static_argnums=1)

    @cached_property
    def merged(self) -> Callable[[States, States], States]:
        """The function of two states that gives those of the trajectories of both."""

        def merge(first: States, second: States) -> States:
            with jax.numpy_rank_promotion("allow"):
                states = self.statistics.items()
                return {name: s.merge(first[name], second[name]) for name, s in states}

        return jax.jit(merge)

    @property
    def stored_bytes(self) -> int:
        """The bytes that one trajectory stores."""
        drawn = self.sampler.columns(0, 1) if self.member.study.store != "statistics" else ()
        return bytes_of(self.shapes[0]) + 8 * len(drawn)

    @cached_property
    def states(self) -> States:
        """Shapes and types of the states of all statistics."""
        return jax.eval_shape(self._empty)

    def _computed(self, inputs: Inputs, assembled: bool) -> Block:
        study, ends = self.member.study, self.member.subject.inputs.ends
        size = slice_of(study, self.member.system.n, ends)
        count = self.block // size
        index = inputs.first + jnp.arange(self.block, dtype=inputs.first.dtype)
        real = jnp.arange(self.block) < inputs.count
        lanes = (inputs.varying, index, real)

        def compute(varying: Tree) -> Any:
            return self.member.computed(merged(inputs.shared, varying), assembled)

        def step(states: States, lanes: Any) -> tuple[States, tuple[Any, Array]]:
            varying, index, real = lanes
            arrays, values, met = jax.vmap(compute, axis_size=len(index))(varying)
            good, updated = real & self.member.is_good(values), {}
            for name, s in self.statistics.items():
                sample = Sample({x: values[x] for x in s.names}, good, real, index)
                with jax.numpy_rank_promotion("allow"):
                    updated[name] = s.update(states[name], sample)
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
        for name, s in self.statistics.items():
            values = {x: jnp.zeros((1, *shapes[x].shape), shapes[x].dtype) for x in s.names}
            with jax.numpy_rank_promotion("allow"):
                states[name] = s.init(Sample(values, nothing, nothing, jnp.zeros(1, int)))
        return states


@contextmanager
def errors_as_problems() -> Iterator[None]:
    """Raise errors of the model's functions as a StudyError."""
    try:
        yield
    except StudyError:
        raise
    except MissingParameterError as error:
        message = f"must give the parameter {error.name!r}, which {error.read_by} reads"
        if error.similar:
            message += f"; correct the name {error.similar!r} if it is meant"
        raise refuse("parameters", message) from error
    except KeyError as error:
        message = f"must give the parameter {error}, which the model reads"
        raise refuse("parameters", message) from error
    except SystemExit as error:
        raise refuse("model", f"cannot be computed: {ENDED}") from error
    except Exception as error:  # the model is the user's code and may raise anything
        description = f"{type(error).__name__}: {error}"
        raise refuse("model", f"cannot be computed: {description}") from error


def with_steps(study: Study, subject: Subject, sampler: Sampler) -> Study:
    """The study with its number of steps, chosen from some of its trajectories if not set."""
    steps = study.steps
    if not isinstance(steps, FixedSteps) or steps.per_save is not None:
        return study
    member, rows = StudyTrajectory(study, subject), evenly_spaced(study.size, MEMBERS)
    parts = [inputs_of(sampler.rows(row, row + 1), member.dtype) for row in rows.tolist()]
    varying = jax.tree.map(lambda *x: np.concatenate(x), *(draws for draws, _ in parts))
    chosen: list[FixedSteps] = []

    def choose(q: Array, v: Array, params: Any) -> Array:
        policy = choose_steps(
            member.system, q, v, member.ts, params,
            method=study.method, steps=steps, projection=study.projection,
            formulation=study.formulation,
            events=member.event_set.events, inactive=study.inactive,
        )  # fmt: skip
        chosen.append(policy)
        return q

    with errors_as_problems():
        states = member.states(varying, parts[0][1], len(rows))
        jax.vmap(choose, axis_size=len(rows))(*states)
    found = replace(steps, per_save=chosen[0].per_save, times=chosen[0].times)
    return replace(study, steps=found)


def compile_kernel(study: Study, subject: Subject, sampler: Sampler) -> BlockProgram:
    """The kernel of a study, whose block is sized by the shapes of one trajectory.

    It is compiled at its first call. A StudyError tells what is wrong with the model.
    """
    statistics = dict(study.statistics)
    quantities = frozenset(name for statistic in statistics.values() for name in statistic.names)
    member = StudyTrajectory(study, subject, quantities)
    varying, shared = inputs_of(sampler.rows(0, 1), member.dtype)
    with errors_as_problems():
        arrays, values, _ = jax.eval_shape(
            lambda inputs: member.computed(inputs, not member.may_skip_assembly),
            first_of(varying, shared),
        )
    kernel = BlockProgram(member, sampler, study.block_size, statistics, (arrays, values))
    study = sized(study, kernel.stored_bytes)
    return replace(kernel, member=replace(member, study=study), block=study.block_size)


class Accumulator:
    """The states of the first blocks, merged one after the other."""

    def __init__(self, program: BlockProgram) -> None:
        self._program = program
        leaves, self._tree = jax.tree.flatten(program.states)
        self._row = np.dtype([(f"{k}", x.dtype, x.shape) for k, x in enumerate(leaves)])
        self._total: States | None = None

    def unpacked(self, data: np.ndarray) -> States:
        """The states of a block from their bytes."""
        (row,) = np.frombuffer(data.tobytes(), self._row)
        states: States = jax.tree.unflatten(self._tree, list(row))
        return states

    def add(self, states: States) -> None:
        """Add the states of the next block."""
        total = states if self._total is None else self._program.merged(self._total, states)
        # On the host: a total on one device could not be merged with a block from another one.
        self._total = jax.device_get(total)

    def results(self) -> dict[str, StatisticResult]:
        """The results of all statistics."""
        if (total := self._total) is None:
            return {}
        statistics = self._program.statistics.items()
        return {name: statistic.result(total[name]) for name, statistic in statistics}


def packed(states: States) -> np.ndarray:
    """Pack the states of a block as bytes."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(states)]
    return np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)


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
