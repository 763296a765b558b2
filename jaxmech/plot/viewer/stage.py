"""What a page shows: solids, lines, dots and arrows, each with its frames, by group."""

import base64
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from jaxmech import meshes
from jaxmech.geometry import Solid
from jaxmech.plot.panels import GREY, ORANGE
from jaxmech.plot.paths import THICK, Shapes, dimension, is_dot, is_empty, is_outline, moving, path
from jaxmech.plot.scene import DARK, colors_by_body, is_inside

_LARGEST = 2.0**30  # of a multiple: its second difference must fit into 32 bits


@dataclass
class Stream:
    """Arrays, one after another; equal ones once."""

    parts: list[np.ndarray] = field(default_factory=list)
    count: int = 0
    seen: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def add(self, values: np.ndarray, step: float) -> dict[str, Any]:
        """Add an array (K, C); where it is and how it is read.

        Unknown rows at the end are left out; others repeat the one before.
        """
        known = np.isfinite(values).all(axis=1)
        rows = int(np.flatnonzero(known)[-1]) + 1 if known.any() else 0
        last = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))[:rows]
        kept = values[:rows][last] if rows else np.zeros((0, values.shape[1]))
        if rows and not known[0]:
            kept = np.where(np.isfinite(kept), kept, kept[np.argmax(known)])
        if rows > 1 and (np.abs(kept - kept[:1]) < step / 2).all() and rows == len(values):
            kept, rows = kept[:1], 1
        step = max(step, float(np.abs(kept).max(initial=0.0)) / _LARGEST)
        whole = np.round(kept / step).astype(np.int64)
        key = (whole.shape, step, rows == 1 or rows == len(values), whole.tobytes())
        if key not in self.seen:
            first = np.diff(whole, axis=0, prepend=0)
            second = np.diff(first, axis=0, prepend=0).astype("<i4")
            self.seen[key] = {
                "at": self.count,
                "rows": rows,
                "columns": whole.shape[1],
                "step": step,
            }
            self.parts.append(second.T.ravel())
            self.count += second.size
        return self.seen[key]

    def text(self) -> str:
        """All numbers: bytes of equal significance together, compressed, in base 64."""
        numbers = np.concatenate([np.zeros(0, "<i4"), *self.parts])
        planes = numbers.view(np.uint8).reshape(-1, 4).T.tobytes()
        return base64.b64encode(gzip.compress(planes, 6, mtime=0)).decode("ascii")


ROD, CURVE, DOT = 0.014, 0.004, 0.024  # radii relative to the size of the moving shapes
_FRAMED = 60  # number of times at which the outermost points are looked for
_FINE = 1e-5  # step of lengths relative to the size
_REACH = 2.0  # how far lines at rest are drawn beyond the box, relative to its size

_BASIC = {  # of which lines, dots and arrows consist
    "cylinder": meshes.cylinder(12),
    "cone": meshes.cone(20),
    "sphere": meshes.sphere(16, 8),
    "triangle": meshes.Triangles(
        np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]])
    ),
}

Color = tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """The box around what moves: corners (3,)."""

    low: np.ndarray
    high: np.ndarray
    is_planar: bool
    outermost: np.ndarray  # points in many directions (m, 3), which the first picture frames

    @property
    def center(self) -> np.ndarray:
        """The middle of the box."""
        return (self.low + self.high) / 2

    @property
    def size(self) -> float:
        """The largest side [m]."""
        return float((self.high - self.low).max()) or 1.0


@dataclass(frozen=True, eq=False)
class Item:
    """Something in a group, with its points or frames over time.

    Attributes:
        group: the name of its body, joint or force.
        kind: "solid", "line", "dot", "arrow" or "trail".
        member: index of the trajectory, 0 for the one shown in full; -1 for what is at rest.
        color: red, green and blue from 0 to 1.
        points: points (K, k, 3); for a solid the columns of its frame and its origin, (K, 4, 3).
        mesh: vertices and faces of a solid.
        radius: of a line, dot or arrow [m].
        closed: whether a line is filled.
    """

    group: str
    kind: str
    member: int
    color: Color
    points: np.ndarray
    mesh: tuple[np.ndarray, np.ndarray] | None = None
    radius: float = 0.0
    closed: bool = False


def packed(
    shown: Sequence[Item], size: float, facts: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], Stream]:
    """Items for the page, with facts about bodies by name, and the numbers that they refer to."""
    stream = Stream()
    stored: dict[Any, Any] = {}
    basic = {name: _mesh(mesh, stream, stored) for name, mesh in _BASIC.items()}
    groups: dict[str, int] = {}
    items = []
    for item in shown:
        entry = {
            "group": groups.setdefault(item.group, len(groups)), "kind": item.kind,
            "member": item.member, "color": [round(x, 4) for x in item.color],
            "radius": item.radius, "closed": item.closed,
        }  # fmt: skip
        points = item.points
        if item.mesh is not None:
            entry["mesh"] = _mesh(item.mesh, stream, stored)
            # Axes are as exact as lengths, whatever the unit of the latter.
            points = points * np.array([[size]] * 3 + [[1.0]])
        entry["track"] = stream.add(points.reshape(len(points), -1), _FINE * size)
        items.append(entry)
    listed = [{"name": name, **facts.get(name, {})} for name in groups]
    for group in listed:
        if "values" in group:
            values = group["values"]
            largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
            group["values"] = stream.add(values, 1e-6 * largest)
    scene = {"items": items, "meshes": [*stored.values()], "groups": listed, "basic": basic}
    return scene, stream


def _mesh(mesh: tuple[np.ndarray, np.ndarray], stream: Stream, stored: dict[Any, Any]) -> int:
    vertices, faces = mesh
    size = float(np.abs(vertices).max(initial=0.0)) or 1.0
    entry = {
        "vertices": stream.add(vertices, 1e-5 * size) | {"all": len(vertices)},
        "faces": stream.add(faces.astype(float), 1.0),
    }
    key = (entry["vertices"]["at"], entry["faces"]["at"])
    stored.setdefault(key, entry)
    return [*stored].index(key)


def box_around(shapes: Shapes) -> Box:
    """The box around all solids, and around the other shapes that move, or all if none does."""
    framed = {n: x for n, x in shapes.items() if isinstance(x, Solid) and not is_empty(x)}
    framed |= moving(shapes)
    is_planar = dimension(shapes) == 2
    points = np.concatenate([_corners(shape) for shape in (framed or shapes).values()])
    points = points[np.isfinite(points).all(axis=1)]
    directions = meshes.sphere(16, 8).vertices
    outermost = points[np.unique((directions @ points.T).argmax(axis=1))]
    return Box(points.min(axis=0), points.max(axis=0), is_planar, outermost)


def framing(box: Box, items: Sequence[Item]) -> Box:
    """The box with a first picture that frames these items too."""
    points = [item.points[np.isfinite(item.points).all(axis=(1, 2))] for item in items]
    ends = [x.reshape(-1, 3)[:: max(1, len(x) // _FRAMED)] for x in points]
    return replace(box, outermost=np.concatenate([box.outermost, *ends]))


def _corners(shape: Any) -> np.ndarray:
    """Points at the outside of a shape at many times, (m, 3)."""
    if not isinstance(shape, Solid):
        points = shape[:, :: max(1, shape.shape[1] // _FRAMED)]
        points = points.reshape(-1, shape.shape[-1])
        return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    outside = []
    directions = meshes.sphere(8, 4).vertices
    for k in range(len(shape.origin)):
        frames = _frames(shape, k)[:: max(1, shape.origin.shape[1] // _FRAMED)]
        vertices = shape.vertices[k]
        far = vertices[np.unique((directions @ vertices.T).argmax(axis=1))]
        outside.append((frames[:, None, 3] + far @ frames[:, :3]).reshape(-1, 3))
    return np.concatenate(outside)


def items_of(
    shapes: Shapes, members: Sequence[int], box: Box, trails: Sequence[str]
) -> Iterator[Item]:
    """The items of all shapes: the first trajectory in full, the others as ghosts."""
    shapes = {name: shape for name, shape in shapes.items() if not is_empty(shape)}
    in_motion = moving(shapes)
    colors = colors_by_body(in_motion)
    for name, shape in shapes.items():
        group = name.rpartition(".")[0] if name.endswith(".center") else name.partition(".")[0]
        moves = name in in_motion
        if is_inside(name, shapes):
            continue
        for k in range(len(members) if moves else 1):
            color = to_rgb(colors.get(name, DARK) if moves else GREY)
            yield _item(group, shape, k, k if moves else -1, color, box)
    for name in trails:
        for k in range(len(members)):
            points = in_space(path(shapes[name])[k], box)[:, None]
            yield Item("trails", "trail", k, to_rgb(ORANGE), points, radius=0.6 * CURVE * box.size)


def _item(group: str, shape: Any, k: int, member: int, color: Color, box: Box) -> Item:
    if isinstance(shape, Solid):
        own = (float(shape.color[0]), float(shape.color[1]), float(shape.color[2]))
        return Item(
            group, "solid", member, color if np.isnan(own[0]) else own, _frames(shape, k),
            (shape.vertices[k], shape.faces),
        )  # fmt: skip
    points = in_space(shape[k], box)
    if is_dot(shape):
        return Item(group, "dot", member, color, points[:, None], radius=DOT * box.size)
    radius = (ROD if points.shape[1] <= THICK and member >= 0 else CURVE) * box.size
    if member < 0:
        points = _clipped(points, box)
    closed = is_outline(points)
    return Item(group, "line", member, color, points, radius=radius, closed=closed)


def _frames(shape: Solid, k: int) -> np.ndarray:
    """Axes as rows and the origin, (K, 4, 3)."""
    axes, origin = shape.axes[k].swapaxes(1, 2), shape.origin[k]
    if origin.shape[1] == 2:
        axes = np.pad(axes, ((0, 0), (0, 1), (0, 1)))
        axes[:, 2, 2] = 1.0
        origin = np.pad(origin, ((0, 0), (0, 1)))
    return np.concatenate([axes, origin[:, None]], axis=1)


def in_space(points: np.ndarray, box: Box) -> np.ndarray:
    """Points in space; those of the plane lie in the middle of the depth."""
    if points.shape[-1] == 3:
        return points
    depth = np.full((*points.shape[:-1], 1), box.center[2])
    return np.concatenate([points, depth], axis=-1)


def _clipped(points: np.ndarray, box: Box) -> np.ndarray:
    """The part near the moving shapes of a straight line that goes far; other lines as they are."""
    if points.shape[1] != 2:
        return points
    low, high = box.center - _REACH * box.size, box.center + _REACH * box.size
    start, direction = points[:, :1], points[:, 1:] - points[:, :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        first, last = (low - start) / direction, (high - start) / direction
    inward = np.where(direction == 0, -np.inf, np.minimum(first, last))
    outward = np.where(direction == 0, np.inf, np.maximum(first, last))
    s = np.concatenate([inward.max(axis=2).clip(0, 1), outward.min(axis=2).clip(0, 1)], axis=1)
    return start + s[..., None] * direction
