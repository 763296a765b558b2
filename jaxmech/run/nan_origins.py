"""The function, the argument and the time at which a derivative that is NaN starts.

Reverse mode multiplies the derivatives of all steps, and 0 times NaN is NaN: one function without a
derivative at one state makes the gradient by everything before it NaN. So every function of a
system is differentiated by itself, in reverse mode, at every state of the motion.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.trees import number_names, numbers_of

REMEDY = (
    "a root, norm, power, quotient or arctan2 is evaluated where it has no derivative, often at 0: "
    "write x = jnp.where(safe, x, 1.0) before it and jnp.where(safe, result, limit) after it"
)


def nan_origins(system: System, q: Array, v: Array, ts: Array, params: Params) -> list[str]:
    """Where along a motion functions of a system begin to have no derivative, in words."""
    inputs = (*state_names(system.coordinates), *number_names(params))
    origins = []
    for name, rows in _bad(system, q, v, ts, params).items():
        bad = np.asarray(rows)
        for k in np.flatnonzero(bad.any(0)):
            t = float(ts[int(bad[:, k].argmax())])
            origins.append((abs(t - float(ts[0])), f"{name} by {inputs[k]} at t = {t:.6g} s"))
    return [text for _, text in sorted(origins, key=lambda origin: origin[0])]


@jit_of("system")
def _bad(system: System, q: Array, v: Array, ts: Array, params: Params) -> dict[str, Array]:
    """Whether the derivatives of each function by q, v and numbers are non-finite, (T, 2 n + p)."""

    def slopes(fn: Callable[..., Any]) -> Array:
        def value(q: Array, v: Array, t: Array, params: Params) -> Any:
            return fn(q, v, t, system.with_outputs(params))

        return jax.vmap(partial(bad_slopes, value), (0, 0, 0, None))(q, v, ts, params)[1]

    return {name: slopes(fn) for name, fn in functions_of(system).items()}


def state_names(coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of the coordinates, then those of the velocities, such as x'."""
    return (*coordinates, *(f"{name}'" for name in coordinates))


def bad_slopes(
    fn: Callable[..., Any], q: Array, v: Array, t: Array, params: Params
) -> tuple[Any, Array]:
    """The value of a function, and flags of its non-finite derivatives by q, v and numbers."""
    numbers, with_numbers = numbers_of(params)
    value, pull = jax.vjp(lambda q, v, x: fn(q, v, t, with_numbers(x)), q, v, numbers)
    return value, ~jnp.isfinite(jnp.concatenate(pull(jax.tree.map(jnp.ones_like, value))))


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
