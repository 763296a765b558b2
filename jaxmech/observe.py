"""`observe`: accelerations, multipliers, reactions and residuals along a trajectory."""

from functools import partial
from itertools import accumulate

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from jaxmech.compiler import batched_closure
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.formulations.acceleration import motion_at
from jaxmech.solution import Solution
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of


class Observation(eqx.Module):
    """Accelerations, multipliers and reactions at the saved times of a `Solution`.

    Attributes:
        qdd: accelerations, shape (T, n).
        multipliers: by constraint name, shape (T, k): the shortest possible lambda.
        reactions: by constraint name, A_k^T lambda_k, shape (T, n): the generalized force of that
            constraint on the system.
        constraint_force: the sum of the reactions, shape (T, n); unique even under redundancy.
        nonideal_force: the force that non-ideal constraints add, shape (T, n); zero for ideal ones.
        energy: v . dL/dv - L [J], shape (T,).
        residuals: by constraint name, shape (T, k): phi of a holonomic constraint, psi of a
            nonholonomic one, A qdd - b of one on accelerations.
        rank: number of independent constraint equations, shape (T,).
    """

    qdd: Float[Array, " *T n"]
    multipliers: dict[str, Float[Array, " *T _"]]
    reactions: dict[str, Float[Array, " *T n"]]
    constraint_force: Float[Array, " *T n"]
    nonideal_force: Float[Array, " *T n"]
    energy: Float[Array, " *T"]
    residuals: dict[str, Float[Array, " *T _"]]
    rank: Int[Array, " *T"]


@with_standard_promotion
def observe(
    system: System,
    solution: Solution,
    params: Params = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Observation:
    """Accelerations, multipliers and reactions by constraint name along a trajectory.

    Pure and single-trajectory: for a batch, `jax.vmap` it over solutions and parameters.

    Args:
        system: the system that was simulated.
        solution: the result of `simulate`.
        params: the parameters of the simulation.
        formulation: law of motion.

    Returns:
        An `Observation`; NaN where the solution is.

    Raises:
        TypeError: `system` is not a `System`, or `solution` is not a `Solution`.
        ValueError: `solution` is a batch, or has other coordinates than the system.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> sol = jm.simulate(model.system, q0, v0, jnp.linspace(0, 1, 11), model.params)
        >>> seen = jm.observe(model.system, sol, model.params)
        >>> seen.multipliers["rod"].shape, seen.reactions["rod"].shape
        ((11, 1), (11, 2))
    """
    require_kind("system", system, System, "System(...)")
    require_kind("solution", solution, Solution, "what `simulate` gives back")
    if solution.q.ndim != 2:
        raise ValueError(
            "Argument `solution` must be a single trajectory with q of shape (T, n), but has shape "
            f"{solution.q.shape}; for a batch use `jax.vmap`."
        )
    return _observe(system, formulation, solution.q, solution.v, solution.ts, params)


@jit_of("system", "formulation")
def _observe(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, ts: Array, params: Params
) -> Observation:
    at = batched_closure(partial(_at, system, formulation), q[0], v[0], ts[0], params)
    return jax.vmap(at, (0, 0, 0, None))(q, v, ts, params)


def _at(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, t: Array, params: Params
) -> Observation:
    q, v, t, params = system.arguments(q, v, t, params)
    A = system.equations(q, v, t, params).A
    motion = motion_at(system, formulation, q, v, t, params)
    names = [constraint.name for constraint in system.constraints]
    ends = list(accumulate(system.sizes(q, v, t, params)))
    rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    multipliers = {name: motion.multipliers[k] for name, k in zip(names, rows, strict=True)}
    return Observation(
        qdd=motion.qdd,
        multipliers=multipliers,
        reactions={name: A[k].T @ multipliers[name] for name, k in zip(names, rows, strict=True)},
        constraint_force=motion.constraint_force,
        nonideal_force=motion.nonideal_force,
        energy=system.energy(q, v, t, params),
        residuals={c.name: c.residual(q, v, motion.qdd, t, params) for c in system.constraints},
        rank=motion.rank,
    )
