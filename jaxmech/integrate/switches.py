"""Systems whose constraints are switched on and off: `Switched` takes the place of the parameters.

An inactive constraint is zero. So are its rows of A and b; every solver drops a row of zeros. The
gaps of unilateral constraints are usually open, and then computed without their rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.spans import Timed
from jaxmech.system import AbstractConstraint, Component, Holonomic, Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems


class Switched(eqx.Module):
    """The parameters of a system with switches."""

    params: Params  # those of the functions of the system
    active: Bool[Array, " C"]  # whether each constraint with a switch is on
    # The directions of slips in space that are slow in a step, their rates, and when it begins.
    axes: tuple[Float[Array, "D 2"], Float[Array, "D 2"], Float[Array, ""]] | None = None


def plain(params: Params) -> Params:
    """The parameters that the functions of users expect, without switches and spans of time."""
    while isinstance(params, Switched | Timed):
        params = params.params
    return params


def after_samples(
    system: System, memory: Array, q: Array, v: Array, t: Array, params: Params
) -> Array:
    """The memory after the controllers that are due, for parameters with spans or switches."""
    inner = t = jax.lax.stop_gradient(t)
    while isinstance(params, Switched | Timed):
        inner = params.inside(t) if isinstance(params, Timed) else inner
        params = params.params
    new_memory: Array = system.sampling(memory, q, v, inner, params, inner - t)
    return new_memory


def with_outputs(system: System, params: Params, memory: Array) -> Params:
    """The parameters, maybe with spans or switches, with what controllers give out."""
    if system.sampling is None:
        return params
    if isinstance(params, Switched | Timed):
        return replace(params, params=with_outputs(system, params.params, memory))
    return system.with_outputs(params, memory)


@kept_by(KEPT)
def with_switches(
    system: System, names: tuple[str, ...], slots: tuple[int, ...] = (),
    removable: tuple[tuple[str, int], ...] = (),
) -> System:  # fmt: skip
    """The system with a switch for each of the named constraints, and `Switched` parameters.

    `slots` are the rows of its gaps where any is closed (`with_shared_rows`), and those that are
    `removable` have a second switch of some number.
    """

    def unswitched(fn: Callable[..., Any], role: str) -> Callable[..., Any]:
        def value(*args: Any) -> Any:
            params = args[-1].params
            with naming_missing(role, params):
                return fn(*args[:-1], params)

        return value

    def switched(constraint: AbstractConstraint) -> AbstractConstraint:
        if constraint.name not in names:
            return constraint
        number, slot = names.index(constraint.name), slot_of.get(constraint.name)
        in_place = dict(removable).get(constraint.name)
        return replace(constraint, fn=_Switch(constraint.fn, number, slot, in_place))

    gaps = [
        c.name
        for c in system.constraints
        if isinstance(c, Holonomic) and isinstance(c.fn, Component)
    ]
    slot_of = dict(zip(gaps, slots or range(len(gaps)), strict=True))
    system = system.with_functions(unswitched)
    return replace(system, constraints=tuple(map(switched, system.constraints)))


@dataclass(frozen=True)
class _Switch:
    fn: Callable[..., Any]
    number: int
    slot: int | None  # of a gap
    in_place: int | None = None  # the switch of one that can be removed

    def __call__(self, *args: Any) -> Any:
        residual = jnp.asarray(self.fn(*args))
        active = args[-1].active[self.number]
        if self.in_place is not None:  # what is not there is far away
            residual = jnp.where(args[-1].active[self.in_place], residual, 1.0)
        # The value itself is zero, so that its derivatives, the rows of A and b, are zero with it.
        return jnp.where(active, residual, jnp.zeros_like(residual))


def gap_count(system: System) -> int:
    """The number of gaps that are the last constraints of a system: none if it has friction."""
    count = 0
    for constraint in reversed(system.constraints):
        if not (isinstance(constraint.fn, _Switch) and constraint.fn.slot is not None):
            break
        count += 1
    return count


@kept_by(KEPT)
def without_last(system: System, count: int) -> System:
    """The system without its last constraints, those of gaps and frictions, and their force."""
    own = getattr(system.nonideal, "ideal", system.nonideal)
    constraints = system.constraints[: len(system.constraints) - count]
    shorter = replace(system, constraints=constraints, nonideal=own)
    return shorter.with_singular_mass(system.singular_mass)


@dataclass(frozen=True)
class _Shared:
    """The function of gaps that share a row: the first of them that is closed, or zero."""

    gaps: tuple[_Switch, ...]

    def __call__(self, *args: Any) -> Any:
        *others, last = self.gaps
        residual = last(*args)
        for gap in reversed(others):
            residual = jnp.where(args[-1].active[gap.number], gap(*args), residual)
        return residual


@kept_by(KEPT)
def with_shared_rows(system: System, count: int) -> System:
    """The system, whose last `count` constraints are gaps, with a row for each of their slots."""
    first = len(system.constraints) - count
    own, gaps = system.constraints[:first], system.constraints[first:]
    switches: dict[int, list[_Switch]] = {}
    for gap in gaps:
        assert isinstance(gap.fn, _Switch)
        assert gap.fn.slot is not None
        switches.setdefault(gap.fn.slot, []).append(gap.fn)
    if len(switches) == count:
        return system
    pairs = zip(gaps, switches.values(), strict=False)  # named like some gap
    rows = tuple(replace(gap, fn=_Shared(tuple(members))) for gap, members in pairs)
    return replace(system, constraints=(*own, *rows)).with_singular_mass(system.singular_mass)
