"""Which parameters a bare system uses: a misspelled one must not pass as one without effect."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from jaxmech.ensemble.errors import Problem
from jaxmech.system import System


def unused_parameters(system: System, params: Mapping[str, Any]) -> list[Problem]:
    """The parameters on which neither M, Q, A and b nor the constraints depend.

    Args:
        system: the system.
        params: one value for each name.

    Returns:
        One problem for each name without effect, found by following the traced operations
        backwards from their results.

    Example:
        >>> free = System(lambda q, v, t, p: p["m"] * v @ v, coordinates=("x",))
        >>> [problem.key for problem in unused_parameters(free, {"m": 1.0, "mass": 1.0})]
        [('parameters', 'mass')]
    """
    zero = jnp.zeros(system.n)

    def everything(params: Mapping[str, Any], q: Any, v: Any, t: Any) -> Any:
        levels = system.position_level(q, t, params), system.velocity_level(q, v, t, params)
        return system.equations(q, v, t, params), system.lagrangian(q, v, t, params), levels

    jaxpr = jax.make_jaxpr(everything)(params, zero, zero, zero[0]).jaxpr
    live = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for operation in reversed(jaxpr.eqns):
        if not live.isdisjoint(operation.outvars):
            live.update(var for var in operation.invars if not isinstance(var, Literal))
    places = jax.tree.leaves_with_path(params)
    names = {
        path[0].key for (path, _), var in zip(places, jaxpr.invars, strict=False) if var in live
    }
    known = ", ".join(sorted(names)) or "none"
    return [
        Problem(("parameters", name), f"is not used by the system; it uses {known}")
        for name in params
        if name not in names
    ]
