"""The point of a closed curve where a function is lowest, with its derivatives.

The point of a profile that touches another body is an unknown s. It is where a function f is lowest
along the curve, such as the distance from a point. A table of points tells where to start, and
Newton steps on f' = 0 do the rest, none of which is differentiated. Two more steps are: each
doubles the order up to which the derivatives of s by the poses and the parameters are exact, from
zero to the third, as a theorem on implicit functions would give them. More than three are not
needed: the equations have s in A, b has its first derivative, and a gradient one or two more.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

PLACES = 64  # where f is compared along the curve
STEPS = 4  # Newton steps, from an error of a twentieth


def lowest(f: Callable[[Array, Any], Array], context: Any) -> Array:
    """The s from 0 to 2 pi where f(s, context) is lowest.

    Args:
        f: function of period 2 pi in s; it must not close over traced values.
        context: what else f depends on, a tree of arrays.

    Returns:
        The place, with its derivatives by `context`; without a finite value where f is flat.

    Example:
        >>> place = lambda center: lowest(lambda s, center: -jnp.cos(s - center), center)
        >>> print(place(0.5), jax.grad(place)(0.5))
        0.5 1.0
    """
    constants = jax.lax.stop_gradient(context)
    dtype = jnp.result_type(*jax.tree.leaves(constants), float)
    grid = np.linspace(0, 2 * np.pi, PLACES, endpoint=False).astype(dtype)
    heights = jax.vmap(lambda s: f(s, constants))(jnp.asarray(grid))
    start = jnp.where(np.arange(PLACES) == jnp.argmin(heights), grid, 0.0).sum()
    spacing = float(grid[1])

    def safe_step(_: Any, s: Array) -> Array:
        slope, bend = slope_and_bend(f, s, constants)
        convex = bend > 0
        step = jnp.where(convex, slope / jnp.where(convex, bend, 1.0), jnp.sign(slope) * spacing)
        return s - jnp.clip(step, -spacing, spacing)

    s = jax.lax.stop_gradient(jax.lax.fori_loop(0, STEPS, safe_step, start))
    for _ in range(2):
        slope, bend = slope_and_bend(f, s, context)
        s = s - slope / bend
    return s


def slope_and_bend(f: Callable[[Array, Any], Array], s: Array, context: Any) -> tuple[Array, Array]:
    """The first two derivatives of f along the curve."""
    unit_step = jnp.ones_like(s)

    def slope(s: Array) -> Array:
        return jax.jvp(lambda s: f(s, context), (s,), (unit_step,))[1]

    return jax.jvp(slope, (s,), (unit_step,))
