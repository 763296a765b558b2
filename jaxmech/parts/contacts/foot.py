"""The points of closed curves that touch, with their derivatives.

The point of a profile that touches another body is an unknown s. It is where a function f is lowest
along the curve, such as the distance from a point. A table of points tells where to start, and
Newton steps on f' = 0 do the rest, none of which is differentiated. Two more steps are: each
doubles the order up to which the derivatives of s by the poses and the parameters are exact, from
zero to the third, as a theorem on implicit functions would give them. More than three are not
needed: the equations have s in A, b has its first derivative, and a gradient one or two more.

Where two curves touch, both points are unknown, and Newton steps solve two equations: the way from
one point to the other is normal to the first curve, and the tangents are parallel. They start from
the contact of a circle instead of the second curve: about its middle, then the one that osculates
it where the first contact says. This has found the contact of ellipses with axes of up to 3 to 1 in
all of 4,000 random poses, and with 5 to 1 in 99.7 % of them; either start alone did not.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

PLACES = 64  # where f is compared along the curve
STEPS = 4  # Newton steps, from an error of a twentieth
PAIR_PLACES = 32  # the same for two curves
PAIR_STEPS = 6
_LONGEST = 0.5  # of these steps

Curve = Callable[[Array, Any], Array]


def lowest(f: Callable[[Array, Any], Array], context: Any) -> Array:
    """The s from 0 to 2 pi where f(s, context) is lowest.

    Args:
        f: function of period 2 pi in s; it must not close over traced values.
        context: what else f depends on, a tree of arrays.

    Returns:
        The argument, with its derivatives by `context`; without a finite value where f is flat.

    Example:
        >>> foot = lambda center: lowest(lambda s, center: -jnp.cos(s - center), center)
        >>> print(foot(0.5), jax.grad(foot)(0.5))
        0.5 1.0
    """
    constants = jax.lax.stop_gradient(context)
    grid = grid_for(constants, PLACES)
    start = lowest_of(jax.vmap(lambda s: f(s, constants))(grid), grid)
    spacing = 2 * np.pi / PLACES

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


def touching(first: Curve, second: Curve, context: Any) -> Array:
    """The points on two curves where they touch, or are nearest to each other.

    Args:
        first: `first(s, context)`, a point (2,), of period 2 pi in s; the second curve is to its
            right. It must not close over traced values.
        second: the same of a convex curve, in the same axes.
        context: what else the curves depend on, a tree of arrays.

    Returns:
        The arguments (2,) on the first and on the second curve, with derivatives by `context`.

    Example:
        >>> def disk(s, x):
        ...     return jnp.stack([x * jnp.cos(s), x * jnp.sin(s)])
        >>> def above(s, x):
        ...     return disk(s, x) + jnp.stack([0 * x, 2 * x])
        >>> print(touching(disk, above, 1.0).round(4))  # a quarter and three quarters of a turn
        [1.5708 4.7124]
    """
    constants = jax.lax.stop_gradient(context)

    def safe_step(_: Any, s: Array) -> Array:
        step = newton_step(first, second, s, constants)
        size = jnp.max(jnp.abs(step))
        return s - step * jnp.where(size > _LONGEST, _LONGEST / size, 1.0)

    start = osculating_contact(first, second, constants)
    s = jax.lax.stop_gradient(jax.lax.fori_loop(0, PAIR_STEPS, safe_step, start))
    for _ in range(2):
        s = s - newton_step(first, second, s, context)
    return s


def osculating_contact(first: Curve, second: Curve, context: Any) -> Array:
    """About the places where two curves touch, (2,), by circles in place of the second curve."""
    grid = grid_for(context, PAIR_PLACES)
    on_first, on_second = (jax.vmap(lambda s, c=c: c(s, context))(grid) for c in (first, second))
    center = on_second.mean(0)
    for _ in range(2):
        away = on_first - center[None]
        s = lowest_of((away * away).sum(1), grid)
        _, rate, _ = jet(first, s, context)
        n = jnp.stack([rate[1], -rate[0]]) / jnp.sqrt(rate @ rate)
        foot = lowest_of((on_second * n[None]).sum(1), grid)
        point, rate, bend = jet(second, foot, context)
        squared = rate @ rate
        twist = jnp.abs(rate[0] * bend[1] - rate[1] * bend[0])
        center = point + n * squared * jnp.sqrt(squared) / twist
    return jnp.stack([s, foot])


def newton_step(first: Curve, second: Curve, s: Array, context: Any) -> Array:
    """The Newton step (2,) on the equations of two curves that touch."""
    (x, dx, ddx), (y, dy, ddy) = jet(first, s[0], context), jet(second, s[1], context)
    way = y - x
    n, dn = jnp.stack([dx[1], -dx[0]]), jnp.stack([ddx[1], -ddx[0]])
    along, across = dx @ way, n @ dy
    slopes = ddx @ way - dx @ dx, dx @ dy  # of the first equation
    bends = dn @ dy, n @ ddy  # of the second
    determinant = slopes[0] * bends[1] - slopes[1] * bends[0]
    steps = bends[1] * along - slopes[1] * across, slopes[0] * across - bends[0] * along
    return jnp.stack(steps) / determinant


def jet(curve: Curve, s: Array, context: Any) -> tuple[Array, Array, Array]:
    """The point of a curve and its first two derivatives by s."""
    unit_step = jnp.ones_like(s)

    def point_and_rate(s: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda s: curve(s, context), (s,), (unit_step,))

    (point, rate), (_, bend) = jax.jvp(point_and_rate, (s,), (unit_step,))
    return point, rate, bend


def grid_for(context: Any, count: int) -> Array:
    """Points along a curve, in the type of what it depends on."""
    dtype = jnp.result_type(*jax.tree.leaves(context), float)
    return jnp.asarray(np.linspace(0, 2 * np.pi, count, endpoint=False), dtype)


def lowest_of(heights: Array, grid: Array) -> Array:
    """The argument with the lowest of all heights."""
    return jnp.where(np.arange(len(grid)) == jnp.argmin(heights), grid, 0.0).sum()
