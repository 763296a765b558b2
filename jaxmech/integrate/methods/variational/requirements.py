"""The requirements of RATTLE, and the messages where they are violated."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxmech.compiler import hoisted
from jaxmech.constraints import Holonomic
from jaxmech.formulations import AbstractFormulation
from jaxmech.integrate.methods.runge_kutta import require_udwadia_kalaba
from jaxmech.stabilization import AbstractStabilization, Free, Projection
from jaxmech.system import Params, System
from jaxmech.utils.probing import cached_by_shapes, concrete_at, depends_on, generic


def require_policies(
    name: str, formulation: AbstractFormulation, stabilization: AbstractStabilization
) -> None:
    """Raise a ValueError unless the policies suit a method that finds constraint forces itself."""
    does = "solves for the constraint forces itself"
    require_udwadia_kalaba(name, formulation, does, "`jm.RK4()`")
    if not isinstance(stabilization, Projection | Free):
        raise ValueError(
            f"Argument `projection` must be left out for `{name}`, whose steps end on the "
            f"constraints, but is {stabilization!r}; it goes with `jm.RK4()`."
        )


def require_holonomic(name: str, system: System) -> None:
    """Raise a ValueError, which names the constraint, unless all are holonomic and ideal."""
    for constraint in system.constraints:
        if not isinstance(constraint, Holonomic):
            kind = type(constraint).__name__
            raise _refusal(name, "holonomic constraints", f"{constraint.name!r} is {kind}")
    if system.states:
        need, violation = "no states of first order", f"the system has {', '.join(system.states)}"
        raise _refusal(name, need, violation)
    if system.nonideal is not None:
        raise _refusal(name, "ideal constraints", "the system has a force `nonideal`")


def require_separable(
    name: str, system: System, q: Array, v: Array, t: Array, params: Params
) -> None:
    """Raise a ValueError unless M is constant and regular, and no force depends on velocities."""
    if system.singular_mass:
        raise _refusal(name, "a regular mass matrix", "that of the system is singular")
    for need, violation in _obstacles(system, q, v, t, params):
        raise _refusal(name, need, violation)


def _refusal(name: str, need: str, violation: str) -> ValueError:
    return ValueError(
        f"Argument `method` must suit the system: `{name}` needs {need}, but {violation}; "
        f"use `jm.RK4()`, which takes all systems."
    )


@cached_by_shapes
def _obstacles(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[tuple[str, str], ...]:
    """The requirements of a separable system, each with its violation, tested at generic states."""
    state = q, v, t, params
    constant, of_positions = "a constant mass matrix", "forces that depend only on q and t"
    dependences = [name for k, name in enumerate("qvt") if _depends(system.dynamics.mass, state, k)]
    violations = [(constant, f"that of the system depends on {name}") for name in dependences]
    if system.force is not None and _depends(system.force, state, 1):
        violations.append((of_positions, "`force` depends on v"))
    if not dependences and _depends(system.dynamics.conservative_force, state, 1):
        violations.append(
            (of_positions, "the Lagrangian has gyroscopic terms, a force that depends on v")
        )
    return tuple(violations)


def _depends(fn: Callable[..., Array], state: tuple[Any, ...], k: int) -> bool:
    with_traced, traced = hoisted(fn, *state)

    def call(traced: Any, *state: Any) -> Array:
        return with_traced(traced, *state) if traced else fn(*state)

    points = list(_points((traced, *state), 1 + k))
    results = list(concrete_at(call, points))
    values = [x for x in results if x is not None and np.isfinite(x).all()]
    if len(values) == len(points):
        # Well above round-off in float32, and far below an intended dependence.
        size = 1e-5 * max(np.abs(x).max(initial=0.0) for x in values)
        return any(np.abs(x - values[0]).max(initial=0.0) > size for x in values[1:])

    # A function without a value at generic states is classified by its operations.
    def moved(x: Any, *arguments: Any) -> Array:
        return call(*arguments[: 1 + k], x, *arguments[1 + k :])

    point = points[0]
    return depends_on(moved, (point[1 + k], *point[: 1 + k], *point[2 + k :]))


def _points(state: tuple[Any, ...], k: int) -> Iterator[tuple[Any, ...]]:
    base = [generic(x, seed) for seed, x in enumerate(state)]
    yield tuple(base)
    for seed in (21, 22):
        yield (*base[:k], generic(state[k], seed), *base[k + 1 :])
