"""A run of `simulate` with `SparseElimination`."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmech.consistency import Violation
from jaxmech.integrate import (
    AbstractMethod,
    AbstractRungeKutta,
    AbstractSteps,
    FixedSteps,
    Scheme,
    StepCounts,
    Trajectory,
)
from jaxmech.integrate.steps.default_steps import UNKNOWN_STEPS, StepWarning
from jaxmech.linalg import LDL
from jaxmech.sparse import rows
from jaxmech.sparse.bodies import applied_force, energy
from jaxmech.sparse.consistency import misses
from jaxmech.sparse.default_steps import steps_per_save
from jaxmech.sparse.run import run
from jaxmech.sparse.step import SparsePlan
from jaxmech.sparse.structure import BodyGraph, structure_of
from jaxmech.stabilization import AbstractStabilization, Free, Projection
from jaxmech.system import Params, System
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.parameters import warn_of_slips
from jaxmech.utils.probing import depends_on


def sparse_trajectory(
    scheme: Scheme, q: Array, v: Array, ts: Array, params: Params
) -> tuple[Trajectory, Float[Array, " T"], bool]:
    """The trajectory, the energy at its saves, and whether the system conserves it.

    Raises:
        ValueError: if the system or a policy is not supported.
    """
    system, method, steps = scheme.system, scheme.method, scheme.steps
    stabilization = scheme.stabilization
    _require_supported(method, steps, stabilization)
    assert isinstance(method, AbstractRungeKutta)
    assert isinstance(steps, FixedSteps)
    structure = structure_of(system)
    state = q, v, ts[0], params
    warn_of_slips(
        params, lambda params: _everything(structure, q, v, ts[0], params), system.declared
    )
    iterations = stabilization.iterations if isinstance(stabilization, Projection) else 0
    plan, per_save = SparsePlan(structure, method, iterations), steps.per_save
    if per_save is None:
        per_save = steps_per_save(plan, q, v, ts, params)
        if per_save is None:
            warn_caller(UNKNOWN_STEPS, StepWarning)
    trajectory, energies = run(plan, per_save or 1, q, v, ts, params)
    counts = StepCounts.of_fixed(method, per_save or 1, ts, trajectory.t_failed)
    return replace(trajectory, counts=counts), energies, _conserves_energy(structure, *state)


def _require_supported(
    method: AbstractMethod, steps: AbstractSteps, stabilization: AbstractStabilization
) -> None:
    start = "with SparseElimination()"
    if not isinstance(method, AbstractRungeKutta):
        raise ValueError(
            f"Argument `method` must be an explicit Runge-Kutta method {start}, such as RK4(), but "
            f"is {method!r}."
        )
    if not isinstance(steps, FixedSteps) or steps.max_step is not None or np.size(steps.times):
        raise ValueError(
            f"Argument `steps` must be FixedSteps() without `max_step` and `times` {start}, but is "
            f"{steps!r}; give the number of steps, as in FixedSteps(per_save=10)."
        )
    if isinstance(stabilization, Projection):
        if stabilization.solver != LDL():
            raise ValueError(
                f"Argument `projection` must have the solver LDL() {start}, but has "
                f"{stabilization.solver!r}."
            )
    elif not isinstance(stabilization, Free):
        raise ValueError(
            f"Argument `projection` must be Projection() or None {start}, but is {stabilization!r}."
        )


def _everything(structure: BodyGraph, q: Array, v: Array, t: Array, params: Params) -> Any:
    """The values of all functions, to see which parameters they read."""
    levels = rows.velocity_level(structure, q, v, t, params)
    return energy(structure, q, v, t, params), levels, applied_force(structure, q, v, t, params)


def _conserves_energy(structure: BodyGraph, q: Array, v: Array, t: Array, params: Params) -> bool:
    """Whether no force or equation on velocities acts, and nothing depends on time."""
    if structure.loads or structure.others:
        return False
    if any(group.template.of_velocities for group in structure.constraints):
        return False

    def values(t: Array, q: Array, v: Array, params: Params) -> Any:
        levels = rows.position_level(structure, q, v, t, params)
        return energy(structure, q, v, t, params), levels

    return not depends_on(values, (t, q, v, params))


def sparse_violations(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> list[Violation]:
    """The violated constraints at a known state, positions before velocities."""
    structure = structure_of(system)
    levels = jax.jit(partial(misses, structure))(q, v, t, params)
    return [
        Violation(structure.names[k], level, float(size[:, k].max()))
        for level, (size, allowed) in zip(("position", "velocity"), levels, strict=True)
        for k in np.flatnonzero((np.asarray(size) > np.asarray(allowed)).any(0))
    ]
