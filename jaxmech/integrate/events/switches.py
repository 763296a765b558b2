"""Systems whose constraints are switched on and off: `Switched` takes the place of the parameters.

An inactive constraint is zero. So are its rows of A and b; every solver drops a row of zeros.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxmech.constraints import AbstractConstraint
from jaxmech.integrate.times.spans import Timed
from jaxmech.system import Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems


class Switched(eqx.Module):
    """The parameters of a system with switches."""

    params: Params  # those of the functions of the system
    active: Bool[Array, " C"]  # whether each constraint with a switch is on


def plain(params: Params) -> Params:
    """The parameters that the functions of users expect, without switches and spans of time."""
    while isinstance(params, Switched | Timed):
        params = params.params
    return params


@kept_by(KEPT)
def with_switches(system: System, names: tuple[str, ...]) -> System:
    """The system with a switch for each of the named constraints, and `Switched` parameters."""

    def unswitched(fn: Callable[..., Any], role: str) -> Callable[..., Any]:
        def value(*args: Any) -> Any:
            params = args[-1].params
            with naming_missing(role, params):
                return fn(*args[:-1], params)

        return value

    def switched(constraint: AbstractConstraint) -> AbstractConstraint:
        if constraint.name not in names:
            return constraint

        def value(*args: Any) -> Any:
            residual = jnp.asarray(constraint.fn(*args))
            active = args[-1].active[names.index(constraint.name)]
            # The value itself is zero, so that its derivatives, the rows of A and b, are zero with
            # it.
            return jnp.where(active, residual, jnp.zeros_like(residual))

        return replace(constraint, fn=value)

    system = system.with_functions(unswitched)
    return replace(system, constraints=tuple(map(switched, system.constraints)))
