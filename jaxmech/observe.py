"""`observe`: accelerations, multipliers, reactions and residuals along a trajectory."""

from functools import partial

import jax
from jaxtyping import Array

from jaxmech.compiler import batched_closure
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.formulations.observation import Observation, observed_at
from jaxmech.solution import Solution
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of


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
    at = batched_closure(partial(observed_at, system, formulation), q[0], v[0], ts[0], params)
    return jax.vmap(at, (0, 0, 0, None))(q, v, ts, params)
