"""`observe`: accelerations, multipliers, reactions and residuals along a trajectory."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import batched_closure, unoptimized
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.formulations.observation import Observation, observed_at
from jaxmech.integrate.events.switches import Switched, with_switches
from jaxmech.solution import Solution
from jaxmech.system import Params, System
from jaxmech.utils.checks import is_known, require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of

_BRIEF = 100_000  # times at which optimizing the code takes longer than it saves


@with_standard_promotion
def observe(
    system: System,
    solution: Solution,
    params: Params = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> Observation:
    """Accelerations, multipliers and reactions by constraint name along a trajectory.

    Constraints have no reactions at times at which events have switched them off.

    Pure and single-trajectory: for a batch, apply `jax.vmap` over solutions and parameters.

    Args:
        system: the simulated system.
        solution: the result of `simulate`.
        params: the parameters of the simulation.
        formulation: the law of motion.

    Returns:
        An `Observation`; NaN where the solution is NaN.

    Raises:
        TypeError: `system` is not a `System`, or `solution` is not a `Solution`.
        ValueError: `solution` is a batch, or has other coordinates than the system.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> sol = jm.simulate(model.system, q0, v0, jnp.linspace(0, 1, 11), model.params)
        >>> observation = jm.observe(model.system, sol, model.params)
        >>> observation.multipliers["rod"].shape, observation.reactions["rod"].shape
        ((11, 1), (11, 2))
    """
    require_kind("system", system, System, "System(...)")
    require_kind("solution", solution, Solution, "the result of `simulate`")
    if solution.q.ndim != 2:
        raise ValueError(
            "Argument `solution` must be a single trajectory with q of shape (T, n), but has shape "
            f"{solution.q.shape}; for a batch use `jax.vmap`."
        )
    if solution.coordinates != system.coordinates:
        raise ValueError(
            f"Argument `solution` must have the coordinates {', '.join(system.coordinates)} of "
            f"`system`, but has {', '.join(solution.coordinates)}."
        )
    active = solution.events.active if solution.events is not None else {}
    if active:
        system = with_switches(system, tuple(active))
    on = jnp.stack([*active.values()], axis=1) if active else None
    is_brief = is_known((solution, params)) and len(solution.ts) < _BRIEF
    with unoptimized() if is_brief else nullcontext():
        return _observe(system, formulation, solution.q, solution.v, solution.ts, on, params)


@jit_of("system", "formulation", is_frame=True)
def _observe(
    system: System, formulation: AbstractFormulation, q: Array, v: Array, ts: Array,
    active: Array | None, params: Params,
) -> Observation:  # fmt: skip
    def observed_state(
        q: Array, v: Array, t: Array, active: Array | None, params: Params
    ) -> Observation:
        own = params if active is None else Switched(params, active)
        return observed_at(system, formulation, q, v, t, own)

    first = None if active is None else active[0]
    at = batched_closure(observed_state, q[0], v[0], ts[0], first, params)
    return jax.vmap(at, (0, 0, 0, 0, None))(q, v, ts, active, params)
