"""What `animate` and `view` display: the shapes of a subject along a motion of it.

Moving lines and dots become solids: links, bobs and pins, and the supports they hang on. A geometry
of points says nothing about thickness, so one is chosen that suits the picture. Shapes of a body
that has solids of its own stay as they are, and so do outlines and curves.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import BY_BODY, DARK, GROUND, Geometry, Solid, between, hull
from jaxmech.meshes import Triangles
from jaxmech.models import Model
from jaxmech.parts import Mechanism
from jaxmech.run import Solution
from jaxmech.system import System
from jaxmech.utils.checks import require_positive, require_sequence

# A dot (N, K, d) or line (N, K, points, d) over trajectories and times, or a solid: its frame over
# both, its vertices over trajectories.
Shape = Any
Shapes = dict[str, Shape]

THICK = 20  # number of points up to which a line is drawn as a rod, and above as a curve
_STILL = 1e-9  # motion relative to the size of the picture below which a shape is at rest
_WIDTH = 0.035  # half the width of a link, relative to the usual length of a link
_LEAST, _MOST = 0.005, 0.025  # the same, relative to the size of the picture
_BOB, _PIN = 2.8, 0.5  # radii relative to half the width of a link
_NEAR = 1e-6  # distance of points that coincide, relative to the size of the picture
_LAYERS = 3  # of links in the plane, one above the other
_HANGING = -0.3  # mean height of the links below a support that is above them, in their lengths
MOST = 16  # number of trajectories of a batch drawn by default
_SHORTEST, _LONGEST, _CHOSEN = 1.0, 30.0, 10.0  # seconds: limits of real time, else the longest


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


def shapes_at(geometry: Geometry, track: Track, times: np.ndarray, params: Any) -> Shapes:
    """The shapes at times (K,) of all trajectories, with the parameters of each."""
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

    over_time, fixed = jax.jit(jax.vmap(of_each))(q, params)
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
    shapes: dict[str, Any] = {
        str(name): Solid(*map(jnp.asarray, x)) if isinstance(x, Solid) else 1.0 * jnp.asarray(x)
        for name, x in (output.items() if isinstance(output, Mapping) else ())
    }
    points = {name: x.origin if isinstance(x, Solid) else x for name, x in shapes.items()}
    if {x.shape[-1] if x.ndim in (1, 2) else 0 for x in points.values()} not in ({2}, {3}):
        listing = ", ".join(f"{name} {x.shape}" for name, x in points.items())
        raise ValueError(
            "The geometry function must return a dict of dots of shape (d,), lines of shape (k, d) "
            f"and solids, with d = 2 or d = 3 for all of them, but they are: {listing or 'none'}."
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


def _is_empty(shape: Shape) -> bool:
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


def links_of(shapes: Shapes) -> Shapes:
    """The shapes, with moving lines and dots as solids.

    The solid of a dot `mass` is called `mass.solid`; the dot itself remains, for its trail.
    """
    with_solids = {name.partition(".")[0] for name, x in shapes.items() if isinstance(x, Solid)}
    bare = {name for name in shapes if name.partition(".")[0] not in with_solids}
    if not bare:
        return shapes
    in_motion = moving(shapes)
    lines = {name: x for name, x in in_motion.items()
             if name in bare and not (isinstance(x, Solid) or is_dot(x) or x.shape[2] > THICK)
             and not is_outline(x.reshape(-1, *x.shape[2:]))}  # fmt: skip
    low, high = bounds(in_motion or shapes)
    size = float((high - low).max()) or 1.0
    sides = [np.linalg.norm(np.diff(_first(x), axis=1), axis=2) for x in lines.values()]
    lengths = np.concatenate([np.zeros(0), *map(np.ravel, sides)])
    lengths = lengths[lengths > 0]
    usual = float(np.median(lengths)) if lengths.size else size / 3
    width = float(np.clip(_WIDTH * usual, _LEAST * size, _MOST * size))
    links = _Links(lines, size, width)
    solids: Shapes = {}
    layer = 0
    for name, x in shapes.items():
        if name in lines:
            for k in range(x.shape[2] - 1):
                solids[f"{name}.{k + 1}"] = links.rod(x[:, :, k], x[:, :, k + 1], layer)
                layer += 1
        elif name in bare and is_dot(x):
            solids |= dict(links.joint(name, x, moves=name in in_motion))
        else:
            solids[name] = x
    return solids


@dataclass(frozen=True)
class _Links:
    """The moving lines of a set of shapes, the size of the picture and half the width of a link."""

    lines: Shapes
    size: float
    width: float

    @property
    def height(self) -> float:
        """The thickness of a link in the plane."""
        return 1.1 * self.width

    def depth(self, layer: int) -> float:
        """The depth of a link in the plane [m]."""
        return 1.25 * self.height * (layer % _LAYERS)

    def rod(self, start: np.ndarray, end: np.ndarray, layer: int) -> Solid:
        """A link with round ends, stretched if its length changes."""
        along, d = end - start, start.shape[2]
        length = np.linalg.norm(along, axis=2, keepdims=True)
        first = _first(length)
        ends = np.zeros((len(start), 2, d))
        ends[:, 1, :1] = first
        made = [hull(points, self.width) for points in ends]
        with np.errstate(divide="ignore", invalid="ignore"):
            axes = np.array(_axes_along(along / length))
            axes[..., 0] *= length / first[:, None]
        vertices = np.stack([np.asarray(mesh.vertices) for mesh in made])
        if d == 2:
            lift = np.array([0.0, 0.0, self.depth(layer)])
            vertices = vertices * [1.0, 1.0, self.height] + lift
        return Solid(start, axes, vertices, made[0].faces)

    def joint(self, name: str, dot: np.ndarray, *, moves: bool) -> Iterator[tuple[str, object]]:
        """A dot as a bob, as a pin between several links, or as a support at rest."""
        held: Shapes = {}  # the lines of which the dot is always a point
        for line_name, line in self.lines.items():
            gaps = np.linalg.norm(line - dot[:, :, None], axis=3)
            known = np.isfinite(gaps).all(axis=2)
            if known.any() and (gaps[known].max(axis=0) < _NEAR * self.size).any():
                held[line_name] = line
        if moves:
            yield name, dot
            yield f"{name}.solid", self._pin(dot) if len(held) > 1 else self._ball(dot, _BOB)
        elif held:
            yield f"{name}.ground", self._support(dot, held)
            yield f"{name}.pin", self._pin(dot)
        else:
            yield name, dot

    def _ball(self, dot: np.ndarray, radius: float, color: object = BY_BODY) -> Solid:
        mesh = meshes.sphere().moved(axes=radius * self.width * np.eye(3))
        if dot.shape[2] == 2:  # in the middle of the layers
            mesh = mesh.moved((0.0, 0.0, self.depth(1)))
        return _at(dot, mesh, np.eye(dot.shape[2]), color)

    def _pin(self, dot: np.ndarray) -> Solid:
        if dot.shape[2] == 3:
            return self._ball(dot, 1.3, DARK)
        radius, top = _PIN * self.width, self.depth(_LAYERS - 1) + 2 * self.height
        tall = np.diag([radius, radius, top + self.height])
        middle = (0.0, 0.0, (top - self.height) / 2)
        return _at(dot, meshes.cylinder(24).moved(middle, tall), np.eye(2), DARK)

    def _support(self, dot: np.ndarray, held: Shapes) -> Solid:
        """What holds a pivot: above the links that hang on it, otherwise below."""
        heights = []
        for line in held.values():
            away = line - dot[:, :, None]
            known = away[np.isfinite(away).all(axis=(2, 3))]
            heights.append(known[..., -1].mean(axis=0).min() / np.linalg.norm(known, axis=2).max())
        up = -1.0 if min(heights) < _HANGING else 1.0
        if dot.shape[2] == 3:
            axes = np.diag([1.0, up, -up]) * self.width
            return _at(dot, meshes.foot().moved(axes=axes), np.eye(3), GROUND)
        mesh = meshes.support().moved((0.0, 0.0, -1.25 * self.height), self.width * np.eye(3))
        return _at(dot, mesh, np.diag([up, up]), GROUND)


def _first(x: np.ndarray) -> np.ndarray:
    """The first finite values over time of (N, K, ...), zero where there are none."""
    known = np.isfinite(x).reshape(*x.shape[:2], -1).all(axis=2)
    return np.nan_to_num(x[np.arange(len(x)), known.argmax(axis=1)])


@jax.jit
@jax.vmap
@jax.vmap
def _axes_along(u: Array) -> Array:
    """Axes as columns (N, K, d, d), the first along unit vectors (N, K, d)."""
    return jnp.asarray(between(meshes.box(), jnp.zeros_like(u), u, 1.0).axes)


def _at(dot: np.ndarray, mesh: Triangles, axes: np.ndarray, color: object) -> Solid:
    """A mesh that follows a dot (N, K, d)."""
    axes = np.broadcast_to(axes, (*dot.shape, dot.shape[2]))
    vertices = np.broadcast_to(mesh.vertices, (len(dot), *mesh.vertices.shape))
    return Solid(dot, axes, vertices, mesh.faces, np.asarray(color, float))


@dataclass(frozen=True, eq=False)
class Display:
    """The shapes of one or several trajectories, and how fast they are shown.

    Attributes:
        times: the times of the motion that are shown [s], (K,), several for each frame.
        shapes: the shapes that have a size, over trajectories and these times.
        trails: the names of those that leave a trail.
        track: the coordinates over time.
        params: the parameters of each trajectory.
        speed: seconds of the motion per second.
        label: text beside the time.
        solution: the trajectories, if they come from a simulation.
    """

    times: np.ndarray
    shapes: Shapes
    trails: Sequence[str]
    track: Track
    params: Any
    speed: float
    label: str
    solution: Solution | None

    @property
    def first_params(self) -> Any:
        return jax.tree.map(lambda x: x[0], self.params)


def display_of(
    subject: Any, motion: Any, params: Any, trails: Sequence[str] | None, *,
    speed: float | None, fps: float, fine: int = 1,
) -> Display:  # fmt: skip
    """What `animate` and `view` show, which explain the arguments; `fine` times for each frame."""
    subject = getattr(subject, "mechanism", subject)  # of a robot
    geometry, system = _geometry(subject)
    for name, value in (("speed", speed), ("fps", fps)):
        if value is not None:
            require_positive(name, value)
    ts, q, v = _arrays(motion, system)
    count = len(q)
    shown = min(count, MOST)
    track, solution, run = Track(ts[:shown], q[:shown], v[:shown]), None, None
    if isinstance(motion, Solution):
        axes = motion.status.ndim
        # Not by -1, which has no meaning for arrays without entries; numpy compiles nothing.
        arrays = jax.tree.map(np.asarray, motion)
        solution = jax.tree.map(lambda x: x.reshape(count, *x.shape[axes:])[:shown], arrays)
        run = solution.run
        if params is None and run is None:
            raise ValueError(
                "Argument `params` must be given for a batch whose parameters are too many to be "
                "kept for each of its trajectories."
            )
    elif params is None and system is not None:
        params = dict(subject.params)
    if params is None and run is not None:
        params = run.params
    else:
        params = jax.tree.map(lambda x: np.broadcast_to(x, (shown, *np.shape(x))), params)
    if run is not None and run.program.event_set.has_transitions:
        track = replace(track, dense=solution)
    if np.isfinite(track.q).all(axis=2).sum(axis=1).max(initial=0) < 2:
        raise ValueError(
            "Argument `motion` must have a trajectory with at least two finite states, but all of "
            "them failed earlier; look at `status` and `t_failed`."
        )
    first, last = track.span
    seconds = abs(last - first)
    if speed is None:  # real time for a usual duration, else 1, 2 or 5 times a power of ten
        least = seconds / _CHOSEN
        power = 10.0 ** floor(log10(least))
        usual = (k * power for k in (1, 2, 5, 10) if k * power >= 0.999 * least)
        speed = 1.0 if _SHORTEST <= seconds <= _LONGEST else float(f"{next(usual):.3g}")
    speed = float(speed)
    label = "" if speed == 1 else f",  {speed:.3g} times faster"
    if speed < 1:
        label = f",  {1 / speed:.3g} times slower"
    label += f", {shown} of {count}" if shown < count else ""
    frames = max(int(np.ceil(seconds / speed * fps - 1e-6)), 1)
    times = first + (last - first) * np.linspace(0, 1, fine * frames + 1)
    shapes = links_of(shapes_at(geometry, track, times, params))
    shapes = {name: shape for name, shape in shapes.items() if not _is_empty(shape)}
    names = trail_names(shapes, trails)
    return Display(times, shapes, names, track, params, speed, label, solution)


def digits(speed: float) -> int:
    """The number of decimals of a time that change."""
    return int(np.clip(2 - np.floor(np.log10(speed)), 0, 12))


def extent(ts: np.ndarray, fps: float, speed: float) -> str:
    """The span, the pace and the number of frames of a motion."""
    pace = "in real time" if speed == 1 else f"at {speed:g} times real time"
    frames = f"{len(ts)} frames in {(len(ts) - 1) / fps:.3g} s"
    return f"t = {ts[0]:g} ... {ts[-1]:g} s {pace}, {frames}"


def file_path(argument: str, path: str | Path, suffix: str) -> Path:
    """The path of a file that can be written."""
    target = Path(path)
    if target.suffix.lower() != suffix:
        raise ValueError(f"Argument `{argument}` must end in {suffix}, but is {str(path)!r}.")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"Argument `{argument}` must be in a folder that exists, but {target.parent} does not."
        )
    return target


def _geometry(subject: Any) -> tuple[Geometry, System | None]:
    if isinstance(subject, Model):
        if subject.geometry is None:
            raise ValueError(
                f"Argument `subject` must have a geometry, but the model {subject.name!r} has "
                "none; give it `geometry=`, or pass a function (q, t, params) that returns points."
            )
        return subject.geometry, subject.system
    if isinstance(subject, Mechanism):
        return subject.geometry, subject.system
    if not callable(subject):
        raise TypeError(
            "Argument `subject` must be a Model, a Mechanism or a function (q, t, params) that "
            f"returns points by name, but is {type(subject).__name__}."
        )
    return subject, None


def _arrays(motion: Any, system: System | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if isinstance(motion, Solution):
        ts, q = (np.asarray(x, float) for x in (motion.ts, motion.q))
        are_rates = motion.velocities[0] == motion.coordinates[0]  # unlike quasi-velocities
        v = np.asarray(motion.v, float) if are_rates else None
    elif isinstance(motion, tuple) and len(motion) == 2:
        ts, q = (np.asarray(x, float) for x in motion)
        v = None
    else:
        raise TypeError(
            "Argument `motion` must be a Solution, or a tuple of times and coordinates, but is "
            f"{type(motion).__name__}."
        )
    if q.ndim < 2 or q.shape[-2] < 2 or ts.shape[-1:] != q.shape[-2:-1]:
        raise ValueError(
            "Argument `motion` must have times (T,) and coordinates (T, n) with at least two "
            f"times, but they have the shapes {ts.shape} and {q.shape}."
        )
    if system is not None and q.shape[-1] != system.n:
        raise ValueError(
            f"Argument `motion` must have the {system.n} coordinates of the subject, "
            f"{', '.join(system.coordinates)}, but has {q.shape[-1]}."
        )
    ts = np.broadcast_to(ts, q.shape[:-1]).reshape(-1, q.shape[-2])
    steps = np.diff(ts, axis=1)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError("Argument `motion` must have times that increase, or decrease, steadily.")
    q = q.reshape(-1, *q.shape[-2:])
    if v is None:
        return ts, q, np.stack([np.gradient(x, t, axis=0) for x, t in zip(q, ts, strict=True)])
    return ts, q, v.reshape(q.shape)
