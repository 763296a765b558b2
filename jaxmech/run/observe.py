"""`observe`: accelerations, multipliers, reactions and residuals along a trajectory."""

from contextlib import nullcontext

import jax
from jaxtyping import Array

from jaxmech.compiler import batched_closure, unoptimized
from jaxmech.integrate import EventSet, Gaps
from jaxmech.laws import AbstractFormulation, Observation, UdwadiaKalaba, observed_at
from jaxmech.run.solution import Solution
from jaxmech.system import Params, Subject, System, with_params
from jaxmech.utils.checks import is_known, require_kind, with_standard_promotion
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import digests_of, warn_of_others

_BRIEF = 100_000  # times at which optimizing the code takes longer than it saves


@with_standard_promotion
def observe(
    system: Subject,
    solution: Solution,
    params: Params = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
    other_params: bool = False,
) -> Observation:
    """Accelerations, multipliers and reactions by constraint name along a trajectory.

    While a constraint is switched off by an event, it has no reaction.

    A pure function of a single trajectory: for a batch, apply `jax.vmap` over solutions and
    parameters.

    Args:
        system: the simulated system.
        solution: the result of `simulate`.
        params: the parameters of the simulation. If all values are known, different ones cause a
            `ParameterWarning`.
        formulation: the law of motion.
        other_params: whether the parameters are meant to differ, so that there is no warning.

    Returns:
        An `Observation`; NaN where the solution is NaN.

    Raises:
        TypeError: if `system` is not a `System`, or `solution` is not a `Solution`.
        ValueError: if `solution` is a batch, or its coordinates are not those of the system.

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
    system, params = with_params(system, params)
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
    events, gaps = solution.events, Gaps.of(system, solution.q[0], solution.ts[0], params)
    names: tuple[str, ...] = () if events is None else events.switched
    active = None if events is None else events.switches
    # With the switches of the run, of which those of gaps are the last.
    event_set = EventSet(inactive=names[: len(names) - len(gaps.switches)], gaps=gaps)
    is_brief = is_known((solution, params)) and len(solution.ts) < _BRIEF
    with unoptimized() if is_brief else nullcontext():
        observation = _observe(
            system, event_set, formulation, solution.q, solution.v, solution.memory, solution.ts,
            active, params,
        )  # fmt: skip
    if not other_params and is_known((solution, params, observation)):
        _warn_of_other_params(system, event_set, formulation, solution, params)
    return gaps.joined(observation)


@jit_of("system", "event_set", "formulation", is_frame=True)
def _observe(
    system: System, event_set: EventSet, formulation: AbstractFormulation, q: Array, v: Array,
    memory: Array, ts: Array, active: Array | None, params: Params,
) -> Observation:  # fmt: skip
    switched = event_set.system(system)

    def observed_state(
        q: Array, v: Array, memory: Array, t: Array, active: Array | None, params: Params
    ) -> Observation:
        params = system.with_outputs(params, memory)
        return observed_at(switched, formulation, q, v, t, event_set.params(params, active))

    rows = q, v, memory, ts, active
    observed = batched_closure(observed_state, *jax.tree.map(lambda x: x[0], rows), params)
    return jax.vmap(observed, (0, 0, 0, 0, 0, None))(*rows, params)


def _warn_of_other_params(
    system: System, event_set: EventSet, formulation: AbstractFormulation, solution: Solution,
    params: Params,
) -> None:  # fmt: skip
    """Warn if parameters on which the observation depends are not those of the simulation."""
    start = solution.q[0], solution.v[0], solution.ts[0]
    q, v, t, params = system.arguments(*start, params)

    def observed(params: Params) -> Observation:
        params = system.with_outputs(params, solution.memory[0])
        if solution.events is not None:
            params = event_set.params(params, solution.events.switches[0])
        return observed_at(event_set.system(system), formulation, q, v, t, params)

    # Events and functions of the user may read others.
    consequence = "Reactions and energies are not those of the simulated motion"
    warn_of_others(solution.digests or {}, digests_of(params), observed, params, consequence)
