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
from jaxmech.system import Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems


class Switched(eqx.Module):
    """The parameters of a system with switches."""

    params: Params  # those of the functions of the system
    active: Bool[Array, " C"]  # whether each constraint with a switch is on


@kept_by(KEPT)
def with_switches(system: System, names: tuple[str, ...]) -> System:
    """The system with a switch for each of the named constraints, and `Switched` parameters."""

    def plain(fn: Callable[..., Any] | None, role: str) -> Any:
        def call(*args: Any) -> Any:
            assert fn is not None
            params = args[-1].params
            with naming_missing(role, params):
                return fn(*args[:-1], params)

        return None if fn is None else call

    def switched(constraint: AbstractConstraint) -> AbstractConstraint:
        fn, name = constraint.fn, constraint.name

        def value(*args: Any) -> Any:
            with naming_missing(f"constraint {name!r}", args[-1].params):
                residual = fn(*args[:-1], args[-1].params)
            if name not in names:
                return residual
            active = args[-1].active[names.index(name)]
            # The value itself is zero, so that its derivatives, the rows of A and b, are zero with
            # it.
            return jnp.where(active, jnp.asarray(residual), jnp.zeros_like(residual))

        return replace(constraint, fn=value)

    return replace(
        system,
        lagrangian=plain(system.lagrangian, "`lagrangian`"),
        force=plain(system.force, "`force`"),
        nonideal=plain(system.nonideal, "`nonideal`"),
        loads=plain(system.loads, "`loads`"),
        rates=plain(system.rates, "`rates`"),
        mass_and_force=plain(system.mass_and_force, "`mass_and_force`"),
        quasi_mass_and_force=plain(system.quasi_mass_and_force, "`quasi_mass_and_force`"),
        kinematics=plain(system.kinematics, "`kinematics`"),
        constraints=tuple(map(switched, system.constraints)),
        invariants=tuple(map(switched, system.invariants)),
    )
