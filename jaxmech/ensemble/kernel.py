"""The compiled kernel of a study: one block of trajectories, from draws to saved arrays.

Every call has the same shape, `study.block` trajectories, whatever the size and the chunks of the
study. So it is compiled once, and a trajectory has the same bits however the work is divided.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.assemble import assemble
from jaxmech.config.errors import StudyError, refuse
from jaxmech.config.load import Subject
from jaxmech.ensemble.draws import Variable
from jaxmech.ensemble.study import SECTIONS, Study
from jaxmech.integrate.default_steps import members_need
from jaxmech.integrate.step_size import MEMBERS, Plan, rounded_up
from jaxmech.observe import observe
from jaxmech.simulate import simulate
from jaxmech.solution import Solution
from jaxmech.system import as_dtype
from jaxmech.utils.checks import MissingParameterError

Tree = dict[str, dict[str, Any]]  # section, name -> value
_OBSERVED = {"qdd", "multipliers", "constraint_force"}


@dataclass(frozen=True, eq=False)
class BlockProgram:
    """The compiled computation of one block of a study.

    Blocks must be computed one after the other: on a CPU with two cores, the LAPACK calls (of the
    solver `svd`) of two blocks could wait for each other.

    Attributes:
        run: the compiled function of the inputs of one block.
        variables: the draws.
        block: trajectories of one call.
        dtype: floating-point type.
    """

    run: Callable[[Tree, Tree], dict[str, jax.Array]]
    variables: tuple[Variable, ...]
    block: int
    dtype: np.dtype[Any]

    def inputs(self, block: int) -> tuple[Tree, Tree]:
        """What varies in a block, and what does not, padded with copies of the last trajectory."""
        rows = np.arange(block * self.block, (block + 1) * self.block)
        return inputs_of(self.variables, rows, self.dtype)

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of the results of a block, by tracing, or a StudyError of the model."""
        with errors_told():
            return jax.eval_shape(self.run, *self.inputs(0))


def inputs_of(
    variables: Iterable[Variable], rows: np.ndarray, dtype: np.dtype[Any]
) -> tuple[Tree, Tree]:
    """The draws of some trajectories: what varies, and what all of them share."""

    def value(variable: Variable) -> np.ndarray:
        values = variable.values
        if variable.varies:
            values = values[np.minimum(rows, len(values) - 1)]
        return values.astype(dtype) if values.dtype.kind == "f" else values

    varying: Tree = {section: {} for section in SECTIONS}
    same: Tree = {section: {} for section in SECTIONS}
    for variable in variables:
        tree = varying if variable.varies else same
        tree[variable.section][variable.name] = value(variable)
    return varying, same


@contextmanager
def errors_told() -> Iterator[None]:
    """Raise errors of the model's functions as a StudyError."""
    try:
        yield
    except StudyError:
        raise
    except MissingParameterError as error:
        message = f"must give the parameter {error.name!r}, which {error.asked_by} asks for"
        raise refuse("parameters", message) from error
    except KeyError as error:
        message = f"must give the parameter {error}, which the model asks for"
        raise refuse("parameters", message) from error
    except Exception as error:  # the model is the user's code and may raise anything
        told = f"{type(error).__name__}: {error}"
        raise refuse("model", f"cannot be computed: {told}") from error


def with_substeps(study: Study, subject: Subject, variables: Iterable[Variable]) -> Study:
    """The study with its number of substeps, chosen from some of its trajectories if not given."""
    if study.method.substeps is not None:
        return study
    program = _Trajectory(study, subject)
    rows = np.unique(np.linspace(0, study.size - 1, min(study.size, MEMBERS)).round().astype(int))
    varying, same = inputs_of(variables, rows, program.dtype)

    def one(own: Tree) -> tuple[Any, Any, Any]:
        inputs = _merged(same, own)
        return *program.initial(inputs), program.params(inputs)

    plan = Plan(subject.system, study.method, study.formulation, study.projection)
    with errors_told():
        q, v, params = jax.jit(jax.vmap(one, axis_size=len(rows)))(varying)
        ts = np.tile(program.ts, (len(rows), 1))
        needed = members_need(plan, q, v, ts, as_dtype(params, program.dtype))
    substeps = rounded_up((needed or 1) / (study.times.saves - 1))
    return replace(study, method=replace(study.method, substeps=substeps))


def compile_kernel(study: Study, subject: Subject, variables: Iterable[Variable]) -> BlockProgram:
    """The kernel of a study, which is compiled at its first call."""
    program = _Trajectory(study, subject)

    def block(varying: Tree, same: Tree) -> dict[str, jax.Array]:
        def one(own: Tree) -> dict[str, jax.Array]:
            return program.arrays(_merged(same, own))

        return jax.vmap(one, axis_size=study.block_size)(varying)

    return BlockProgram(jax.jit(block), tuple(variables), study.block_size, program.dtype)


def save_times(study: Study) -> np.ndarray:
    """The saved times [s], shape (saves,)."""
    return np.linspace(study.times.start, study.times.end, study.times.saves)


def _merged(same: Tree, own: Tree) -> Tree:
    return {section: same[section] | own[section] for section in SECTIONS}


@dataclass(frozen=True, eq=False)
class _Trajectory:
    """One trajectory of a study as a function of its draws."""

    study: Study
    subject: Subject

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.study.precision)

    @property
    def ts(self) -> np.ndarray:
        return save_times(self.study).astype(self.dtype)

    def params(self, inputs: Tree) -> dict[str, Any]:
        defaults = self.subject.model.params if self.subject.model else {}
        return {**defaults, **inputs["parameters"]}

    def initial(self, inputs: Tree) -> tuple[Any, Any]:
        """The consistent state nearest to that of the model, with the drawn values in place."""
        system, model, params = self.subject.system, self.subject.model, self.params(inputs)
        q, v = jnp.zeros((2, system.n), self.dtype)
        if model:
            q, v = (jnp.asarray(x, self.dtype) for x in model.state(inputs["start"], params))
        for name, value in inputs["coordinates"].items():
            q = q.at[system.coordinates.index(name)].set(value)
        for name, value in inputs["velocities"].items():
            v = v.at[system.coordinates.index(name)].set(value)
        return assemble(system, q, v, self.ts[0], params, fixed=self.study.fixed)

    def arrays(self, inputs: Tree) -> dict[str, Any]:
        """The trajectory, as the arrays that are saved."""
        study, params = self.study, self.params(inputs)
        sol = simulate(
            self.subject.system, *self.initial(inputs), self.ts, params,
            method=study.method, projection=study.projection, formulation=study.formulation,
        )  # fmt: skip
        audit = {
            "status": sol.status,
            "t_failed": sol.t_failed,
            "rank": sol.rank,
            "energy_drift": sol.energy_drift,
            "integration_error": sol.integration_error,
            "worst_position_residual": jnp.nanmax(sol.position_residual),
            "worst_velocity_residual": jnp.nanmax(sol.velocity_residual),
        }
        return audit | self._series(sol, params)

    def _series(self, sol: Solution, params: Any) -> dict[str, Any]:
        """The arrays that are saved at every time."""
        save = self.study.save
        series: dict[str, Any] = {n: getattr(sol, n) for n in save if n not in _OBSERVED}
        if _OBSERVED.isdisjoint(save):
            return series
        seen = observe(self.subject.system, sol, params, formulation=self.study.formulation)
        series |= {n: getattr(seen, n) for n in ("qdd", "constraint_force") if n in save}
        if "multipliers" in save:
            series |= {f"multipliers_{name}": value for name, value in seen.multipliers.items()}
        return series
