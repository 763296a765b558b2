"""Equations of a joint that the other joints of its loop imply, whatever the coordinates are.

In a planar loop in space, the joint that closes it states again that the axes are parallel. In
exact numbers such an equation has derivatives of zero in all states. Computed ones are zero only if
the axes are coordinate axes; otherwise they are sums whose terms cancel up to round-off, and a
solver, which compares a row with its own length, would take them for another equation. So rows are
compared with their terms, before a program is compiled: it then contains zeros, which cost nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import jacobian, native_call
from jaxmech.utils.probing import concrete_at, generic, wide

STATES = 6  # number of states at which equations are evaluated
SHARE = float(jnp.finfo(np.float64).eps) ** (1 / 3)  # of its terms, below which a sum is zero


def terms_of(
    equations: Callable[..., Array], variables: tuple[Array, ...], context: tuple[Any, ...]
) -> list[float | None]:
    """The size of the terms of each implied equation, None for the others.

    Args:
        equations: the residuals (k,) as a function of `variables` and `context`.
        variables: examples of coordinates and velocities, of which the first array has to satisfy
            the equations.
        context: examples of time and parameters.
    """

    def sums(x: Array, *others: Any) -> Array:
        def level(x: Array) -> Array:
            return equations(x, *others)

        return jnp.concatenate([level(x)[:, None], jacobian(level, x)], axis=1)

    points = [(*wide(variables, k), *generic(context, k)) for k in range(STATES)]
    single, double = (_evaluated(sums, points, dtype) for dtype in (np.float32, np.float64))
    if not (np.isfinite(single).all() and np.isfinite(double).all()):
        return [None] * len(jax.eval_shape(equations, *variables, *context))
    # Single precision leaves the round-off of the terms, however small their sum is.
    terms = _size(single - double) / float(jnp.finfo(np.float32).eps)
    is_implied = (_size(double) <= SHARE * terms)[:, 1:].all(1)
    is_implied &= terms[:, 1:].any(1)  # exact zeros have no terms, and need no care
    sizes = zip(is_implied, terms.max(1), strict=True)
    return [float(size) if implied else None for implied, size in sizes]


def _evaluated(fn: Callable[..., Array], points: Sequence[Any], dtype: Any) -> np.ndarray:
    """The values at all points in a precision; NaN where there are none."""

    def leaf(x: Any) -> Any:
        is_real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
        # From single precision, so that both precisions are given the same numbers.
        return np.asarray(np.asarray(x, np.float32), dtype) if is_real else x

    with jax.enable_x64(True):
        # As native code, which compiles several times faster.
        values = list(concrete_at(partial(native_call, fn), jax.tree.map(leaf, points)))
    return np.array([np.nan if x is None else x for x in values], float)


def _size(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x).mean(0))


def without_implied(values: Array, x: Array, terms: Sequence[float | None]) -> Array:
    """The residuals at x, (k,), those of implied equations as constants: zero up to round-off."""
    if all(size is None for size in terms):
        return values
    share = float(jnp.finfo(values.dtype).eps) ** (1 / 3)
    reach = jax.lax.stop_gradient(1 + jnp.max(jnp.abs(x)))

    def constant(value: Array, size: float) -> Array:
        # Not zero if the loop cannot be closed, which the residual then tells.
        return jnp.where(jnp.abs(value) <= share * size * reach, 0.0, value)

    return jnp.stack(
        [
            value if size is None else constant(jax.lax.stop_gradient(value), size)
            for value, size in zip(values, terms, strict=True)
        ]
    )
