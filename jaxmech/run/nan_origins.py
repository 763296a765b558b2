"""Origins of a NaN derivative: the function, the argument, and the time.

Reverse mode multiplies the derivatives of all steps, and 0 times NaN is NaN: one function without a
derivative at one state makes the gradient by everything before it NaN. So every function of a
system is differentiated by itself, in reverse mode, at every state of the motion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate import Scheme
from jaxmech.run.solution import Solution
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import numbers_of

REMEDY = (
    "a root, norm, power, quotient or arctan2 is evaluated where it has no derivative, often at 0: "
    "write x = jnp.where(safe, x, 1.0) before it and jnp.where(safe, result, limit) after it"
)


@dataclass(frozen=True)
class NanOrigin:
    """A function that has a finite value and a non-finite derivative."""

    function: str  # such as "`lagrangian`", "constraint 'rod'", "the projection"
    variables: tuple[str, ...]  # coordinates, velocities and parameters of the derivative
    t: float | None  # first such time [s]; None for what does not belong to a time

    def __str__(self) -> str:
        time = "" if self.t is None else f" at t = {self.t:.6g} s"
        variables = ", ".join(self.variables)
        location = f"it starts in {self.function}"
        return f"{location}, which has no derivative with respect to {variables}{time}"


def origins_in_system(
    scheme: Scheme, q: Array, v: Array, ts: Array, params: Params, names: tuple[str, ...]
) -> list[NanOrigin]:
    """The functions of a system without a derivative along a motion, the earliest first."""
    inputs = (*state_names(scheme.system.coordinates), *names)
    # The projection and the law of motion have no derivative where the rank of the constraints
    # changes, but also where one of the functions has none: they are tried last.
    for with_solver in (False, True):
        bad = _bad(scheme, with_solver, q, v, ts, params)
        origins = [
            x for function, rows in bad.items() for x in _origins(function, rows, inputs, ts)
        ]
        if origins:
            return sorted(origins, key=lambda origin: abs(float(origin.t or 0.0) - float(ts[0])))
    return []


def state_names(coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of the coordinates, then those of the velocities, such as x'."""
    return (*coordinates, *(f"{name}'" for name in coordinates))


def _origins(function: str, bad: Any, inputs: Sequence[str], ts: Any) -> list[NanOrigin]:
    bad = np.asarray(bad)
    columns = np.flatnonzero(bad.any(0)).tolist()
    return [NanOrigin(function, (inputs[k],), float(ts[int(bad[:, k].argmax())])) for k in columns]


def _nan(
    fn: Callable[..., Any], q: Array, v: Array, t: Array, params: Params
) -> tuple[Any, list[Array]]:
    numbers, with_numbers = numbers_of(params)
    value, pull = jax.vjp(lambda q, v, x: fn(q, v, t, with_numbers(x)), q, v, numbers)
    return value, [~jnp.isfinite(x) for x in pull(jax.tree.map(jnp.ones_like, value))]


def bad_slopes(
    fn: Callable[..., Any], q: Array, v: Array, t: Array, params: Params
) -> tuple[Any, Array]:
    """The value of a function, and flags of its non-finite derivatives by q, v and numbers."""
    value, bad = _nan(fn, q, v, t, params)
    return value, jnp.concatenate(bad)


@jit_of("scheme", "with_solver")
def _bad(
    scheme: Scheme, with_solver: bool, q: Array, v: Array, ts: Array, params: Params
) -> dict[str, Array]:
    """Whether the derivatives of each function by q, v and numbers are non-finite, (T, 2 n + p)."""
    functions = functions_of(scheme.system)
    if with_solver:
        after_step = partial(scheme.stabilization.after_step, scheme.system)
        functions = {
            "the projection": lambda *state: after_step(*state)[:2],
            "the law of motion": lambda *state: scheme.law(*state)[1].qdd,
        }

    def slopes(fn: Callable[..., Any]) -> Array:
        def value(q: Array, v: Array, t: Array, params: Params) -> Any:
            return fn(q, v, t, scheme.system.with_outputs(params))

        return jax.vmap(partial(bad_slopes, value), (0, 0, 0, None))(q, v, ts, params)[1]

    return {name: slopes(fn) for name, fn in functions.items()}


def functions_of(system: System) -> dict[str, Callable[..., Any]]:
    """The functions of q, v, t, params in a motion: M and Q, forces, constraints with A and b."""

    def friction(q: Array, v: Array, t: Array, params: Params) -> Array:
        multipliers = jnp.ones(sum(system.dynamics.sizes(q, v, t, params)), q.dtype)
        return system.dynamics.nonideal_force(q, v, multipliers, t, params)

    def rows(constraint: Any, q: Array, v: Array, t: Array, params: Params) -> Any:
        level = constraint.residual(q, v, jnp.zeros_like(v), t, params)
        return level, constraint.rows(q, v, t, params)

    functions: dict[str, Callable[..., Any]] = {
        "`lagrangian`": lambda *state: (
            system.dynamics.mass(*state),
            system.dynamics.conservative_force(*state),
        )
    }
    if system.force is not None:
        functions["`force`"] = system.force
    if system.nonideal is not None:
        functions["`nonideal`"] = friction
    if system.rates is not None:
        functions["`rates`"] = system.rates
    return functions | {f"constraint {c.name!r}": partial(rows, c) for c in system.constraints}


def origins_in_loss(
    loss: Callable[..., Any], solution: Solution, params: Params, names: tuple[str, ...]
) -> list[NanOrigin]:
    """The coordinates, velocities and numbers by which `loss` has no derivative."""
    _, (by_q, by_v, by_numbers) = _nan(loss, solution.q, solution.v, solution.ts, params)
    inputs = state_names(solution.coordinates)
    origins = _origins("`loss`", np.hstack([by_q, by_v]), inputs, solution.ts)
    return origins + [NanOrigin("`loss`", (names[k],), None) for k in np.flatnonzero(by_numbers)]


def concerning(
    name: str | None, origins: list[NanOrigin], names: tuple[str, ...]
) -> tuple[NanOrigin, ...]:
    """The earliest origins of a NaN by one of the named numbers; None stands for forward mode."""
    # A function without a derivative by a state makes all gradients NaN. One without a derivative
    # by a number concerns in reverse mode that number alone, in forward mode, where 0 times
    # infinity counts, all of them.
    excluded = set() if name is None else set(names) - {name}
    relevant = [origin for origin in origins if not excluded & set(origin.variables)]
    first = next((origin.t for origin in relevant if origin.t is not None), None)
    merged: dict[tuple[str, float | None], tuple[str, ...]] = {}
    for origin in relevant:
        if origin.t is None or origin.t == first:
            key = origin.function, origin.t
            merged[key] = (*merged.get(key, ()), *origin.variables)
    return tuple(NanOrigin(function, variables, t) for (function, t), variables in merged.items())
