"""The shapes of a mechanism at the times of an animation, from its saved motion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.geometry import Geometry, Solid
from jaxmech.run import Solution
from jaxmech.utils.checks import require_sequence

# A dot (N, K, d) or line (N, K, points, d) over trajectories and times, or a solid: its frame over
# both, its vertices over trajectories.
Shape = Any
Shapes = dict[str, Shape]

THICK = 20  # number of points up to which a line is drawn as a rod, and above as a curve
_BASE = 0.6  # size of a solid at rest that a picture frames, relative to what moves
_STILL = 1e-9  # motion relative to the size of the picture below which a shape is at rest


@dataclass(frozen=True, eq=False)
class Track:
    """Coordinates of one or several trajectories at their saved times."""

    ts: np.ndarray  # [s], (N, T), increasing or decreasing
    q: np.ndarray  # (N, T, n), NaN after a failure
    v: np.ndarray  # rates of the coordinates, (N, T, n)
    dense: Solution | None = None  # the same trajectories, if events change their velocities

    @property
    def span(self) -> tuple[float, float]:
        """The first time, and the last at which some trajectory has not failed."""
        is_finite = np.isfinite(self.q).all(axis=2)
        first = float(self.ts[0, 0])
        last = self.ts[is_finite]
        return first, float(last[np.argmax(np.abs(last - first))])

    def at(self, times: np.ndarray) -> np.ndarray:
        """The coordinates at times (K,), shape (N, K, n), NaN outside of a trajectory.

        They are those of dense output, and without it, or after more events than it knows, cubics
        between the saves.
        """
        q = np.stack([
            _cubic(ts, q, v, times) for ts, q, v in zip(self.ts, self.q, self.v, strict=True)
        ])  # fmt: skip
        if self.dense is not None:
            exact = np.asarray(_dense(self.dense, times)).reshape(q.shape)
            q = np.where(np.isfinite(exact), exact, q)
        return q


@jax.jit
def _dense(solution: Solution, times: Array) -> Array:
    """The coordinates at any times; under `jit` those that are not known are NaN, and no errors."""
    return solution.at(times).q


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

    def frames(*state: Any) -> tuple[Any, ...]:
        return tuple(
            (x.origin, x.axes, x.reach) if isinstance(x, Solid) else x for x in drawn(*state)
        )

    def at_start(q: Any, params: Any) -> tuple[Any, ...]:
        shapes = drawn(q[0], ts[0], params)
        return tuple(x[2:5] if isinstance(x, Solid) else () for x in shapes)

    def of_each(q: Any, params: Any) -> tuple[Any, Any]:
        return jax.vmap(frames, (0, 0, None))(q, ts, params), at_start(q, params)

    over_time, fixed = jax.jit(jax.vmap(of_each, (0, 0 if batched else None)))(q, params)
    pairs = zip(over_time, fixed, strict=True)
    shapes = {name: _merged(*pair) for name, pair in zip(names, pairs, strict=True)}
    if not any(np.isfinite(points_of(shape)).all(axis=-1).any() for shape in shapes.values()):
        raise ValueError(
            "The geometry function must return finite points, but all of them are NaN or "
            "infinite; look at its values for one state."
        )
    return shapes


def _merged(over_time: Any, fixed: Any) -> Shape:
    """The arrays of a shape over trajectories and times; vertices over trajectories only."""
    if not fixed:
        return np.asarray(over_time, float)
    origin, axes, reach = (np.asarray(x, float) for x in over_time)
    vertices, faces, color = map(np.asarray, fixed)
    vertices = vertices.astype(float)
    if np.isfinite(reach).any():
        low, high = np.nanmin(reach), np.nanmax(reach)
        vertices[..., 0] += low + vertices[..., 0] * (high - low - 1)
    return Solid(origin, axes, vertices, faces[0].astype(int), color[0].astype(float), reach)


def _checked(output: Any) -> dict[str, Any]:
    if not isinstance(output, Mapping):
        raise TypeError(
            "The geometry function must return a dict of arrays, got "
            f"{type(output).__name__}; see `jaxmech.geometry`."
        )
    shapes: dict[str, Any] = {
        str(name): Solid(*map(jnp.asarray, x)) if isinstance(x, Solid) else 1.0 * jnp.asarray(x)
        for name, x in output.items()
    }
    sizes = {
        x.origin.shape[-1] if isinstance(x, Solid) else x.shape[-1] if x.ndim in (1, 2) else 0
        for x in shapes.values()
    }
    if len(sizes) != 1 or not sizes <= {2, 3}:
        listing = ", ".join(
            f"{name} {(x.origin if isinstance(x, Solid) else x).shape}"
            for name, x in shapes.items()
        )
        raise ValueError(
            "The geometry function must return dots of shape (d,), lines of shape (k, d) and "
            "solids, with d = 2 or d = 3 for all of them, but the shapes are: "
            f"{listing or 'none'}."
        )
    return shapes


def points_of(shape: Shape) -> np.ndarray:
    """Points over trajectories and times that show where a shape is, (N, K, ..., d).

    For a solid they are the corners of the box around it.
    """
    if not isinstance(shape, Solid):
        return shape
    d = shape.origin.shape[-1]
    low, high = shape.vertices.min(axis=1)[:, :d], shape.vertices.max(axis=1)[:, :d]
    bits = np.stack(np.meshgrid(*[[0.0, 1.0]] * d, indexing="ij"), -1).reshape(-1, d)
    corners = low[:, None] + bits * (high - low)[:, None]
    arms = np.einsum("nkij,ncj->nkci", shape.axes, corners)
    points: np.ndarray = shape.origin[:, :, None] + arms
    return points


def path(shape: Shape) -> np.ndarray:
    """The path of a dot, or of the origin of a solid, (N, K, d)."""
    return shape.origin if isinstance(shape, Solid) else shape


def dimension(shapes: Shapes) -> int:
    """The dimension: 2 in the plane, 3 in space."""
    return int(points_of(next(iter(shapes.values()))).shape[-1])


def is_dot(shape: Shape) -> bool:
    """Whether a shape over trajectories and times is a dot."""
    return not isinstance(shape, Solid) and shape.ndim == 3


def is_outline(points: np.ndarray) -> bool:
    """Whether a line over time, (K, points, d), ends where it begins, around some area."""
    first = points[np.argmax(np.isfinite(points).all(axis=(1, 2)))]  # if there is a finite one
    return len(first) > 3 and np.array_equal(first[0], first[-1])


def moving(shapes: Shapes) -> Shapes:
    """The shapes that are not always at rest."""
    low, high = bounds(shapes)
    least = _STILL * float((high - low).max())

    def moves(shape: Shape) -> bool:
        points = points_of(shape)
        filled = np.where(np.isfinite(points), points, points[:, :1])
        return bool(np.nanmax(np.ptp(filled, axis=1), initial=0.0) > least)

    return {name: shape for name, shape in shapes.items() if moves(shape)}


def bounds(shapes: Shapes) -> tuple[np.ndarray, np.ndarray]:
    """The smallest box around all shapes at all times, as two corners (d,)."""
    d = dimension(shapes)
    corners = np.concatenate([points_of(shape).reshape(-1, d) for shape in shapes.values()])
    corners = corners[np.isfinite(corners).all(axis=1)]
    return corners.min(axis=0), corners.max(axis=0)


def framed(shapes: Shapes) -> Shapes:
    """The shapes that a picture frames: those that move, and small solids at rest."""
    in_motion = moving(shapes)
    if not in_motion:
        return shapes
    low, high = bounds(in_motion)
    largest = _BASE * float((high - low).max())
    fixed = {n: x for n, x in shapes.items() if isinstance(x, Solid) and n not in in_motion}
    return in_motion | {
        n: x for n, x in fixed.items() if np.ptp(points_of(x), axis=2).max() < largest
    }


def is_empty(shape: Shape) -> bool:
    """Whether a shape has no size at any time, or is always unknown."""
    points = points_of(shape)
    if is_dot(shape):
        return not np.isfinite(points).any()
    return not np.nanmax(np.ptp(points, axis=2), initial=0.0) > 0


def trail_names(shapes: Shapes, trails: Sequence[str] | None) -> Sequence[str]:
    """Check the names of dots and solids that leave a trail; by default the last dot that moves."""
    in_motion = moving(shapes)
    if trails is None:
        return [name for name, shape in in_motion.items() if is_dot(shape)][-1:]
    require_sequence("trails", trails)
    names = [n for n, x in in_motion.items() if is_dot(x) or isinstance(x, Solid)]
    names = [n for n in names if not n.endswith(".solid")]  # of a dot
    unknown = [name for name in trails if name not in names]
    if unknown:
        raise ValueError(
            "Argument `trails` must name dots or solids that move, but has "
            f"{', '.join(map(repr, unknown))}; there are {', '.join(names) or 'none'}."
        )
    return trails
