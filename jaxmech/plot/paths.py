"""The shapes of a mechanism at the times of an animation, from its saved motion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.geometry import Geometry

Shapes = dict[str, np.ndarray]  # (N, K, d) or (N, K, points, d): trajectories, times, ...

THICK = 20  # number of points up to which a line is drawn as a rod, and above as a curve
_STILL = 1e-9  # motion relative to the size of the picture below which a shape is at rest


@dataclass(frozen=True, eq=False)
class Track:
    """Coordinates of one or several trajectories at their saved times."""

    ts: np.ndarray  # [s], (N, T), increasing or decreasing
    q: np.ndarray  # (N, T, n), NaN after a failure
    v: np.ndarray  # rates of the coordinates, (N, T, n)

    @property
    def span(self) -> tuple[float, float]:
        """The first time, and the last at which some trajectory has not failed."""
        is_finite = np.isfinite(self.q).all(axis=2)
        first = float(self.ts[0, 0])
        last = self.ts[is_finite]
        return first, float(last[np.argmax(np.abs(last - first))])

    def at(self, times: np.ndarray) -> np.ndarray:
        """Interpolate the coordinates at times (K,) by cubics, shape (N, K, n)."""
        return np.stack([
            _cubic(ts, q, v, times) for ts, q, v in zip(self.ts, self.q, self.v, strict=True)
        ])  # fmt: skip


def _cubic(ts: np.ndarray, q: np.ndarray, v: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Hermite interpolation of values and rates; NaN outside of the saved times."""
    sign = 1.0 if ts[-1] >= ts[0] else -1.0
    k = np.clip(np.searchsorted(sign * ts, sign * times, side="right") - 1, 0, len(ts) - 2)
    h = (ts[k + 1] - ts[k])[:, None]
    s = (times - ts[k])[:, None] / h
    values = (1 + 2 * s) * (1 - s) ** 2 * q[k] + s**2 * (3 - 2 * s) * q[k + 1]
    rates = s * (1 - s) ** 2 * v[k] - s**2 * (1 - s) * v[k + 1]
    slack = 1e-9
    inside = (s >= -slack) & (s <= 1 + slack)
    exact = np.where(np.abs(s) <= slack, q[k], values + h * rates)  # before a failure
    return np.where(inside, exact, np.nan)


def shapes_at(
    geometry: Geometry, track: Track, times: np.ndarray, params: Any, *, batched: bool
) -> Shapes:
    """The shapes at times (K,) of all trajectories; params may have one entry for each."""
    q, ts = jnp.asarray(track.at(times)), jnp.asarray(times)
    names: list[str] = []  # in insertion order, which is lost in a dictionary: JAX sorts its keys

    def drawn(*state: Any) -> tuple[Any, ...]:
        shapes = _checked(geometry(*state))
        names[:] = shapes
        return tuple(shapes.values())

    over_time = jax.vmap(drawn, (0, 0, None))
    of_all = jax.jit(jax.vmap(over_time, (0, None, 0 if batched else None)))
    shapes = of_all(q, ts, params)
    shapes = {name: np.asarray(x, float) for name, x in zip(names, shapes, strict=True)}
    if not any(np.isfinite(points).all(axis=-1).any() for points in shapes.values()):
        raise ValueError(
            "The geometry function must return finite points, but all of them are NaN or "
            "infinite; look at its values for one state."
        )
    return shapes


def _checked(output: Any) -> dict[str, Any]:
    if not isinstance(output, Mapping):
        raise TypeError(
            "The geometry function must return a dict of arrays, got "
            f"{type(output).__name__}; see `jaxmech.geometry`."
        )
    shapes = {str(name): 1.0 * jnp.asarray(points) for name, points in output.items()}
    sizes = {points.shape[-1] if points.ndim in (1, 2) else 0 for points in shapes.values()}
    if len(sizes) != 1 or not sizes <= {2, 3}:
        listing = ", ".join(f"{name} {points.shape}" for name, points in shapes.items())
        raise ValueError(
            "The geometry function must return dots of shape (d,) and lines of shape (k, d), with "
            f"d = 2 or d = 3 for all of them, but the shapes are: {listing or 'none'}."
        )
    return shapes


def dimension(shapes: Shapes) -> int:
    """The dimension: 2 in the plane, 3 in space."""
    return int(next(iter(shapes.values())).shape[-1])


def is_dot(points: np.ndarray) -> bool:
    """Whether a shape over trajectories and times is a dot."""
    return points.ndim == 3


def is_outline(points: np.ndarray) -> bool:
    """Whether a line over time, (K, points, d), ends where it begins, around some area."""
    first = points[np.argmax(np.isfinite(points).all(axis=(1, 2)))]  # if there is a finite one
    return len(first) > 3 and np.array_equal(first[0], first[-1])


def moving(shapes: Shapes) -> Shapes:
    """The shapes that are not always at rest."""
    low, high = bounds(shapes)
    least = _STILL * float((high - low).max())

    def moves(points: np.ndarray) -> bool:
        filled = np.where(np.isfinite(points), points, points[:, :1])
        return bool(np.nanmax(np.ptp(filled, axis=1), initial=0.0) > least)

    return {name: points for name, points in shapes.items() if moves(points)}


def bounds(shapes: Shapes) -> tuple[np.ndarray, np.ndarray]:
    """The smallest box around all shapes at all times, as two corners (d,)."""
    d = dimension(shapes)
    corners = np.concatenate([points.reshape(-1, d) for points in shapes.values()])
    corners = corners[np.isfinite(corners).all(axis=1)]
    return corners.min(axis=0), corners.max(axis=0)


def is_empty(points: np.ndarray) -> bool:
    """Whether a line has no length at any time, or is always unknown."""
    if is_dot(points):
        return not np.isfinite(points).any()
    return not np.nanmax(np.ptp(points, axis=2), initial=0.0) > 0
