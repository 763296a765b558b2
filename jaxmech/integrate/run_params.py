"""`RunParams`: the parameters of a system within a run, with a span of time and switches.

They take the place of the user's where a run has times at which a step ends, or constraints that
are switched on and off. The functions of a system `in_run` expect them.

An inactive constraint is zero. So are its rows of A and b; every solver drops a row of zeros. The
gaps of unilateral constraints are usually open, and then computed without their rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.system import AbstractConstraint, Component, Holonomic, Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems


class RunParams(eqx.Module):
    """The parameters of a system in a part of a run."""

    params: Params  # the user's, with what controllers give out
    low: Float[Array, ""] | None = None  # earliest time at which functions are evaluated
    high: Float[Array, ""] | None = None  # latest time
    active: Any = None  # whether each constraint with a switch is on, (C,)
    # The directions of slips in space that are slow in a step, their rates, and when it begins.
    axes: tuple[Float[Array, "D 2"], Float[Array, "D 2"], Float[Array, ""]] | None = None

    def inside(self, t: Array) -> Array:
        """A time within the span, with the derivative of the given one."""
        if self.low is None:
            return t
        return t + jax.lax.stop_gradient(jnp.clip(t, self.low, self.high) - t)


def with_run(params: Params, **changes: Any) -> RunParams:
    """The parameters, those of the user or of a run, with another span or other switches."""
    return replace(params if isinstance(params, RunParams) else RunParams(params), **changes)


def plain(params: Params) -> Params:
    """The parameters that the functions of users expect."""
    return params.params if isinstance(params, RunParams) else params


def with_outputs(system: System, params: Params, memory: Array) -> Params:
    """The parameters, those of the user or of a run, with what controllers give out."""
    if isinstance(params, RunParams):
        return replace(params, params=system.with_outputs(params.params, memory))
    return system.with_outputs(params, memory)


def after_samples(
    system: System, memory: Array, q: Array, v: Array, t: Array, params: Params
) -> Array:
    """The memory after the controllers that are due."""
    t = jax.lax.stop_gradient(t)
    inner = params.inside(t) if isinstance(params, RunParams) else t
    new_memory: Array = system.sampling(memory, q, v, inner, plain(params), inner - t)
    return new_memory


@dataclass(frozen=True)
class _InRun:
    """A function of a system, of `RunParams`."""

    fn: Callable[..., Any]
    role: str

    def __call__(self, *args: Any) -> Any:
        *state, t, params = args
        with naming_missing(self.role, params.params):
            return self.fn(*state, params.inside(t), params.params)


@kept_by(KEPT)
def in_run(system: System) -> System:
    """The system whose functions take `RunParams`."""
    return system if isinstance(system.lagrangian, _InRun) else system.with_functions(_InRun)


@kept_by(KEPT)
def with_switches(
    system: System, names: tuple[str, ...], slots: tuple[int, ...] = (),
    removable: tuple[tuple[str, int], ...] = (),
) -> System:  # fmt: skip
    """The system `in_run` with a switch for each of the named constraints.

    `slots` are the rows of its gaps where any is closed (`with_shared_rows`), and those that are
    `removable` have a second switch of some number.
    """

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
    system = in_run(system)
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
