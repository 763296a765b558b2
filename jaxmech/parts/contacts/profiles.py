"""Closed curves in the plane: `curve(s, t, params)`, a point (2,) [m] for s from 0 to 2 pi.

The point is along the axes of a body. Any such function is a profile. This file makes profiles from
the usual data: a radius as a function of the angle, or a table of points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.utils.checks import is_known, require_function

Profile = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class PolarProfile:
    """A curve given by its distance from the origin as a function of the angle."""

    radius: Callable[[Any, Any, Any], Any]

    def __call__(self, s: Any, t: Any, params: Any) -> Array:
        """The point at an angle, (2,)."""
        return self.radius(s, t, params) * jnp.stack([jnp.cos(s), jnp.sin(s)])


@dataclass(frozen=True)
class SplineProfile:
    """A closed cubic spline through points at equal steps of s."""

    points: Any  # the name of a parameter, or a tuple of pairs

    def __call__(self, s: Any, t: Any, params: Any) -> Array:
        """The point of the spline, (2,)."""
        is_named = isinstance(self.points, str)
        points = jnp.asarray(params[self.points]) if is_named else np.array(self.points)
        points = points.astype(jnp.result_type(s))
        k = points.shape[0]
        slopes = slopes_of_spline(k).astype(points.dtype) @ points
        u = s * (k / (2 * np.pi))
        w = u - jnp.floor(u)
        i = jnp.mod(jnp.floor(u), k).astype(int)
        is_first, is_next = jnp.arange(k) == i, jnp.arange(k) == (i + 1) % k
        (p0, m0), (p1, m1) = (
            tuple(jnp.where(is_end[:, None], x, 0.0).sum(0) for x in (points, slopes))
            for is_end in (is_first, is_next)
        )
        chord = p1 - p0
        return p0 + w * (m0 + w * (3 * chord - 2 * m0 - m1 + w * (m0 + m1 - 2 * chord)))


def slopes_of_spline(k: int) -> np.ndarray:
    """The matrix (k, k) from the points of a closed cubic spline to its slopes in them.

    The second derivative is continuous where m[i-1] + 4 m[i] + m[i+1] = 3 (p[i+1] - p[i-1]).
    """
    shift = np.roll(np.eye(k), 1, axis=1)
    return np.linalg.solve(4 * np.eye(k) + shift + shift.T, 3 * (shift - shift.T))


def polar_profile(radius: Callable[[Any, Any, Any], Any]) -> Profile:
    """The profile of a cam, given by its radius as a function of the angle.

    Args:
        radius: `radius(angle, t, params)` [m], with a period of 2 pi and two continuous
            derivatives. If the lift of a roller is known, use the radius of the path of its centre,
            including base circle and roller; the follower is then a point.

    Example:
        >>> nose = polar_profile(lambda angle, t, p: 0.03 + p["lift"] * jnp.sin(angle / 2) ** 4)
        >>> print(nose(jnp.pi, 0.0, {"lift": 0.01}).round(6))
        [-0.04  0.  ]
    """
    require_function("radius", radius, "angle, t, params")
    return PolarProfile(radius)


def spline_profile(points: Any) -> Profile:
    """A smooth closed curve through points: a cubic spline with two continuous derivatives.

    Args:
        points: at least four points [m], shape (k, 2), about equally far apart, without repeating
            the first one at the end; counter-clockwise if the follower is outside. Or the name of a
            parameter that holds such points.

    Raises:
        ValueError: if the points have the wrong shape, or are not finite.

    Example:
        >>> angle = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        >>> circle = spline_profile(np.stack([np.cos(angle), np.sin(angle)], axis=1))
        >>> print(circle(jnp.pi / 16, 0.0, {}).round(4), np.cos(np.pi / 16).round(4))
        [0.9808 0.1951] 0.9808
    """
    if isinstance(points, str):
        return SplineProfile(points)
    if not is_known(points):
        raise TypeError(
            "Argument `points` must not be traced; write the name of a parameter there and pass "
            "the points in `params`."
        )
    table = np.asarray(points, float)
    if table.ndim != 2 or table.shape[1] != 2 or table.shape[0] < 4:
        raise ValueError(
            "Argument `points` must have shape (k, 2) with k of at least 4, but has shape "
            f"{table.shape}; write one row for each point."
        )
    if not np.isfinite(table).all():
        raise ValueError("Argument `points` must be finite, but holds NaN or infinity.")
    if np.allclose(table[0], table[-1], rtol=0, atol=1e-9 * np.ptp(table)):
        raise ValueError(
            "Argument `points` must not repeat the first point at the end, since the curve is "
            "closed by itself; leave the last one out."
        )
    return SplineProfile(tuple(map(tuple, table.tolist())))
