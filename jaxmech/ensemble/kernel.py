"""The compiled kernel of a study: one block of trajectories, from draws to saved arrays.

Every call has the same shape, `study.block` trajectories, whatever the size and the chunks of the
study, so that it is compiled once and a trajectory has the same bits however the work is divided.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.assemble import assemble
from jaxmech.ensemble.draws import Variable
from jaxmech.ensemble.errors import refuse
from jaxmech.ensemble.study import SECTIONS, LetDrift, Project, Stabilize, Study
from jaxmech.ensemble.subject import Subject
from jaxmech.formulations import UdwadiaKalaba
from jaxmech.integrate import RK4, DormandPrince5, Midpoint
from jaxmech.linalg import LDL, QR, SVD
from jaxmech.manifold import Baumgarte, Projection
from jaxmech.observe import observe
from jaxmech.simulate import simulate

Inputs = Mapping[str, Mapping[str, Any]]  # section, name -> value
_METHODS = {"rk4": RK4, "midpoint": Midpoint, "dormand-prince5": DormandPrince5}
_SOLVERS = {"ldl": LDL, "qr": QR, "svd": SVD}
_OBSERVED = {"qdd", "multipliers", "constraint_force"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """One block of a study, ready to be computed.

    Attributes:
        run: the compiled function; takes the inputs of one block.
        variables: the draws.
        block: trajectories of one call.
        dtype: floating-point type.
    """

    run: Callable[[Inputs], dict[str, jax.Array]]
    variables: tuple[Variable, ...]
    block: int
    dtype: np.dtype

    def inputs(self, block: int) -> Inputs:
        """The draws of one block; the last one is filled up with copies of its last trajectory."""
        rows = np.arange(block * self.block, (block + 1) * self.block)

        def value(variable: Variable) -> np.ndarray:
            values = variable.values
            if variable.varies:
                values = values[np.minimum(rows, len(values) - 1)]
            return values.astype(self.dtype) if values.dtype.kind == "f" else values

        return _tree(self.variables, value)

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of what a block gives, found by tracing; the functions of a user run here.

        Raises:
            StudyError: a function of the model raises.
        """
        try:
            return jax.eval_shape(self.run, self.inputs(0))
        except KeyError as error:
            message = f"must give the parameter {error}, which the model asks for"
            raise refuse("parameters", message) from error
        except Exception as error:  # whatever the functions of a user raise is the user's to see
            told = f"{type(error).__name__}: {error}"
            raise refuse("model", f"cannot be computed: {told}") from error


def compile_kernel(study: Study, subject: Subject, variables: Iterable[Variable]) -> Kernel:
    """The kernel of a study.

    Args:
        study: the study.
        subject: its system.
        variables: its draws.

    Returns:
        The `Kernel`; it is compiled at its first call.
    """
    variables = tuple(variables)
    dtype = np.dtype(study.precision)
    one = _trajectory(study, subject, dtype)
    axes = _tree(variables, lambda variable: 0 if variable.varies else None)
    run = jax.jit(jax.vmap(one, in_axes=(axes,)))
    return Kernel(run, variables, study.block_size, dtype)


def save_times(study: Study) -> np.ndarray:
    """The saved times [s], shape (saves,)."""
    return np.linspace(study.times.start, study.times.end, study.times.saves)


def _trajectory(
    study: Study, subject: Subject, dtype: np.dtype
) -> Callable[[Inputs], dict[str, jax.Array]]:
    """The function of one trajectory: its draws -> what is saved of it."""
    system, ts = subject.system, save_times(study).astype(dtype)
    method = _METHODS[study.method.name](substeps=study.method.substeps)
    formulation = _law(study)
    projection = _drift_control(study)
    defaults = subject.model.params if subject.model else {}

    def trajectory(inputs: Inputs) -> dict[str, jax.Array]:
        params = {**defaults, **inputs["parameters"]}
        q, v = _initial(subject, inputs, params, dtype)
        q, v = assemble(system, q, v, ts[0], params, fixed=study.fixed)
        sol = simulate(
            system, q, v, ts, params,
            method=method, projection=projection, formulation=formulation,
        )  # fmt: skip
        audit = {
            "status": sol.status,
            "t_failed": sol.t_failed,
            "rank": sol.rank,
            "energy_drift": sol.energy_drift,
            "worst_position_residual": jnp.nanmax(sol.position_residual),
            "worst_velocity_residual": jnp.nanmax(sol.velocity_residual),
        }
        return audit | _series(study, system, sol, params)

    return trajectory


def _initial(
    subject: Subject, inputs: Inputs, params: Any, dtype: np.dtype
) -> tuple[jax.Array, jax.Array]:
    """The state of the model, with the drawn coordinates and velocities in their places."""
    system = subject.system
    q, v = jnp.zeros((2, system.n), dtype)
    if subject.model:
        q, v = (jnp.asarray(x, dtype) for x in subject.model.state(inputs["start"], params))
    place = system.coordinates.index
    for name, value in inputs["coordinates"].items():
        q = q.at[place(name)].set(value)
    for name, value in inputs["velocities"].items():
        v = v.at[place(name)].set(value)
    return q, v


def _series(study: Study, system: Any, sol: Any, params: Any) -> dict[str, jax.Array]:
    """What is saved at every time."""
    series = {name: getattr(sol, name) for name in study.save if name not in _OBSERVED}
    if _OBSERVED.isdisjoint(study.save):
        return series
    seen = observe(system, sol, params, formulation=_law(study))
    plain = {"qdd": seen.qdd, "constraint_force": seen.constraint_force}
    series |= {name: value for name, value in plain.items() if name in study.save}
    if "multipliers" in study.save:
        series |= {f"multipliers_{name}": value for name, value in seen.multipliers.items()}
    return series


def _law(study: Study) -> UdwadiaKalaba:
    law = study.formulation
    return UdwadiaKalaba(solver=_SOLVERS[law.solver](), singular_mass=law.singular_mass)


def _drift_control(study: Study) -> Projection | Baumgarte | None:
    match study.projection:
        case Project(iterations=iterations, solver=solver):
            return Projection(iterations=iterations, solver=_SOLVERS[solver]())
        case Stabilize(alpha=alpha, beta=beta):
            return Baumgarte(alpha=alpha, beta=beta)
        case LetDrift():
            return None


def _tree(
    variables: Iterable[Variable], value: Callable[[Variable], Any]
) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for variable in variables:
        tree[variable.section][variable.name] = value(variable)
    return tree

