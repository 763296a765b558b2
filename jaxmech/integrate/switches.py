"""Systems whose constraints are switched on and off: `Switched` takes the place of the parameters.

An inactive constraint is zero. So are its rows of A and b; every solver drops a row of zeros. The
gaps of unilateral constraints are usually open, and then computed without their rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxmech.constraints import AbstractConstraint, Holonomic
from jaxmech.dry_friction import Component
from jaxmech.integrate.spans import Timed
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
        number, is_gap = names.index(constraint.name), constraint.name in gaps
        return replace(constraint, fn=_Switch(constraint.fn, number, is_gap))

    gaps = {
        c.name
        for c in system.constraints
        if isinstance(c, Holonomic) and isinstance(c.fn, Component)
    }
    system = system.with_functions(unswitched)
    return replace(system, constraints=tuple(map(switched, system.constraints)))


@dataclass(frozen=True)
class _Switch:
    """The function of a constraint with a switch."""

    fn: Callable[..., Any]
    number: int
    is_gap: bool

    def __call__(self, *args: Any) -> Any:
        residual = jnp.asarray(self.fn(*args))
        active = args[-1].active[self.number]
        # The value itself is zero, so that its derivatives, the rows of A and b, are zero with it.
        return jnp.where(active, residual, jnp.zeros_like(residual))


def gap_count(system: System) -> int:
    """The number of gaps that are the last constraints of a system: none if it has friction."""
    count = 0
    for constraint in reversed(system.constraints):
        if not (isinstance(constraint.fn, _Switch) and constraint.fn.is_gap):
            break
        count += 1
    return count


@kept_by(KEPT)
def without_last(system: System, count: int) -> System:
    """The system without its last constraints."""
    shorter = replace(system, constraints=system.constraints[: len(system.constraints) - count])
    return shorter.with_singular_mass(system.singular_mass)
