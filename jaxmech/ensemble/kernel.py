"""The compiled kernel of a study: one block of trajectories, from draws to arrays and statistics.

Every call has the same shape, `study.block` trajectories, whatever the size and the chunks of the
study. So it is compiled once, and a trajectory is bit-identical however the work is divided. A
block is computed in slices whose series fit into a small memory; only stored results outlive them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import StudyError, refuse
from jaxmech.config.load import ENDED, Subject
from jaxmech.ensemble.draws import Sampler, Variable
from jaxmech.ensemble.estimate import slice_of, study_devices
from jaxmech.ensemble.statistics.audit import AUDIT, Audit
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Sample
from jaxmech.ensemble.study import SECTIONS, Study
from jaxmech.ensemble.trajectory import StudyTrajectory, Tree, merged
from jaxmech.integrate import FixedSteps, method_and_steps
from jaxmech.integrate.default_steps import members_need
from jaxmech.integrate.step_size import MEMBERS, Plan, rounded_up
from jaxmech.status import succeeded
from jaxmech.system import as_dtype
from jaxmech.utils.checks import MissingParameterError
from jaxmech.utils.tracers import evenly_spaced

States = dict[str, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Block:
    """The results of one block."""

    arrays: dict[str, Any]  # the stored arrays of each trajectory
    states: States  # states of the statistics, by name
    met: Any  # whether all trajectories begin on their constraints without being assembled
    failed: Any  # number of failed trajectories


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of a block."""

    varying: Tree  # values that vary from trajectory to trajectory, padded with copies of the last
    same: Tree  # values that all trajectories share
    weight: Any  # importance weights, zero for padding, shape (block,)
    columns: dict[str, Any]  # the numbers that vary by full name, shape (block,) each
    first: Any  # number of the first trajectory
    count: Any  # number of trajectories that are not padding


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """The compiled computation of one block of a study."""

    trajectory: StudyTrajectory  # one trajectory
    sampler: Sampler  # the draws
    block: int  # trajectories of one call
    statistics: Mapping[str, AbstractStatistic]  # those that are updated, by name

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating-point type of the computation."""
        return self.trajectory.dtype

    def inputs(self, block: int) -> Inputs:
        """The draws of a block, padded with copies of the last trajectory."""
        first = block * self.block
        return self.inputs_between(first, min(first + self.block, self.sampler.size))

    def inputs_between(self, first: int, last: int) -> Inputs:
        """The draws of at most a block of trajectories, padded with copies of the last one."""
        # The last block has the shape of all others, so that one program serves; its padding has no
        # weight.
        padding = self.block - (last - first)
        varying, same = inputs_of(self.sampler.rows(first, last), self.dtype, padding)
        columns = {}
        if any(one.with_inputs for one in self.statistics.values()):
            columns = self.sampler.columns(first, last)
            columns = {k: np.pad(x, (0, padding), mode="edge") for k, x in columns.items()}
        weight = np.pad(self.sampler.weights(first, last), (0, padding)).astype(self.dtype)
        index = np.int64 if jax.config.read("jax_enable_x64") else np.int32
        return Inputs(varying, same, weight, columns, index(first), np.int32(last - first))

    def devices(self) -> list[jax.Device]:
        """The devices that compute blocks at the same time."""
        found = study_devices()
        if len(found) == 1 or found[0].platform != "cpu":
            return found
        # See "JAX versions" in docs/limits.md: two batched calls of LAPACK at a time can hang.
        return found[:1] if "lapack" in self._whole.lower(self.inputs(0)).as_text() else found

    def run(self, inputs: Inputs) -> Block:
        """Start to compute a block, with states that need no assembly where possible."""
        return self._fast(inputs) if self.trajectory.may_skip_assembly else self._whole(inputs)

    def finished(self, inputs: Inputs, begun: Block) -> Block:
        """A block that was begun, when it is computed; again if states had to be assembled."""
        if not self.trajectory.may_skip_assembly or bool(begun.met):
            return jax.block_until_ready(begun)
        return jax.block_until_ready(self._whole(inputs))

    @cached_property
    def _fast(self) -> Any:
        return jax.jit(lambda inputs: self._computed(inputs, False))

    @cached_property
    def _whole(self) -> Any:
        return jax.jit(lambda inputs: self._computed(inputs, True))

    @cached_property
    def merged(self) -> Callable[[States, States], States]:
        """The function of two states that gives those of the trajectories of both."""

        def merge(first: States, second: States) -> States:
            with jax.numpy_rank_promotion("allow"):
                states = self.statistics.items()
                return {name: s.merge(first[name], second[name]) for name, s in states}

        return jax.jit(merge)

    def shapes(self) -> Block:
        """Shapes and types of the results of a block, by tracing, or a StudyError of the model."""
        with errors_as_problems():
            return jax.eval_shape(self.run, self.inputs(0))

    def _computed(self, inputs: Inputs, assembled: bool) -> Block:
        """Compute all slices of a block, one after the other."""
        size = slice_of(self.trajectory.study, self.trajectory.system.n, self.sampler.points.group)
        count = self.block // size
        index = inputs.first + jnp.arange(self.block, dtype=inputs.first.dtype)
        real = jnp.arange(self.block) < inputs.count
        each = (inputs.varying, inputs.weight, inputs.columns, index, real)

        def step(states: States, each: Any) -> tuple[States, tuple[Any, Array, Array]]:
            arrays, values, met, sample = self._slice(each, inputs.same, assembled)
            states = self._updated(states, values, sample)
            failed = (sample.real & (~succeeded(values["status"]))).sum()
            return states, (arrays, met, failed)

        first = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), each)
        empty = jax.eval_shape(lambda e: self._slice(e, inputs.same, assembled), first)
        states = self._empty(empty[1], empty[3])
        if count == 1:
            states, (arrays, met, failed) = step(states, each)
            return Block(arrays, states, met, failed)
        sliced = jax.tree.map(lambda x: x.reshape(count, size, *x.shape[1:]), each)
        states, (arrays, met, failed) = jax.lax.scan(step, states, sliced)
        arrays = jax.tree.map(lambda x: x.reshape(self.block, *x.shape[2:]), arrays)
        return Block(arrays, states, met.all(), failed.sum())

    def _slice(
        self, each: Any, same: Tree, assembled: bool
    ) -> tuple[dict[str, Array], dict[str, Array], Array, Sample]:
        varying, weight, columns, index, real = each

        def one(own: Tree) -> Any:
            return self.trajectory.computed(merged(same, own), assembled)

        arrays, values, met = jax.vmap(one, axis_size=len(index))(varying)
        good = real & succeeded(values["status"])
        sample = Sample(columns, jnp.where(good, weight, 0), real, index, good)
        return arrays, values, met.all(), sample

    def _samples(self, values: Mapping[str, Array], sample: Sample) -> Iterator[Any]:
        """Yield each statistic with its sample."""
        for name, one in self.statistics.items():
            own = {of: values[of] for of in one.names}
            inputs = sample.values if one.with_inputs else {}
            yield name, one, sample._replace(values={**own, **inputs})

    def _updated(self, states: States, values: Mapping[str, Array], sample: Sample) -> States:
        with jax.numpy_rank_promotion("allow"):
            return {name: s.update(states[name], x) for name, s, x in self._samples(values, sample)}

    def _empty(self, values: Mapping[str, Any], sample: Any) -> States:
        """The states of no trajectory."""
        values, sample = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (values, sample))
        found = {}
        for name, statistic, own in self._samples(values, sample):
            if statistic.scalars_only:
                _require_scalars(name, statistic, own)
            with jax.numpy_rank_promotion("allow"):
                found[name] = statistic.init(own)
        return found


def _require_scalars(name: str, statistic: AbstractStatistic, sample: Sample) -> None:
    for of in statistic.names:
        if sample.values[of].ndim > 1:
            shape = sample.values[of].shape[1:]
            text = f"must be one number per trajectory, but {of} has shape {shape}; "
            text += 'observe it with `keep`, such as keep = "max"'
            raise refuse(("statistics", name, "of"), text)


def inputs_of(
    variables: Iterable[Variable], dtype: np.dtype[Any], padding: int = 0
) -> tuple[Tree, Tree]:
    """Split draws into varying ones, padded with copies of the last trajectory, and shared ones."""
    varying: Tree = {section: {} for section in SECTIONS}
    same: Tree = {section: {} for section in SECTIONS}
    for variable in variables:
        values = variable.values
        if variable.varies and padding:
            values = np.concatenate([values, np.repeat(values[-1:], padding, axis=0)])
        tree = varying if variable.varies else same
        values = values.astype(dtype) if values.dtype.kind == "f" else values
        tree[variable.section][variable.name] = values
    return varying, same


@contextmanager
def errors_as_problems() -> Iterator[None]:
    """Raise errors of the model's functions as a StudyError."""
    try:
        yield
    except StudyError:
        raise
    except MissingParameterError as error:
        message = f"must give the parameter {error.name!r}, which {error.read_by} reads"
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
    method, steps = method_and_steps(study.method, study.steps)
    if not isinstance(steps, FixedSteps) or steps.per_save is not None:
        return study
    program = StudyTrajectory(study, subject)
    rows = evenly_spaced(study.size, MEMBERS)
    parts = [inputs_of(sampler.rows(row, row + 1), program.dtype) for row in rows.tolist()]
    varying = jax.tree.map(lambda *x: np.concatenate(x), *(own for own, _ in parts))
    same = parts[0][1]
    with errors_as_problems():
        system, _ = program.switched(None)
        plan = Plan(system, method, study.formulation, study.projection)
        q, v, params = program.states(varying, same, len(rows))
        params = jax.vmap(lambda p: program.switched(p)[1])(params)
        ts = np.tile(program.ts, (len(rows), 1))
        needed = members_need(plan, q, v, ts, as_dtype(params, program.dtype))
    per_save = rounded_up((needed or 1) / (study.times.saves - 1))
    return replace(study, steps=replace(steps, per_save=per_save))


def compile_kernel(study: Study, subject: Subject, sampler: Sampler) -> BlockProgram:
    """The kernel of a study, which is compiled at its first call."""
    statistics: dict[str, AbstractStatistic] = dict(study.statistics)
    if study.store == "statistics":
        statistics[AUDIT] = Audit()
    wanted = frozenset(name for one in statistics.values() for name in one.names)
    trajectory = StudyTrajectory(study, subject, wanted)
    return BlockProgram(trajectory, sampler, study.block_size, statistics)
