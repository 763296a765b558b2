"""What a picture or a page shows of a motion: items, and pictures of them at one time.

Items are solids, lines, dots and trails, each with its frames or points over time, by group. In a
picture solids are outlines seen from above in the plane, and shaded faces in space.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

from jaxmech import meshes
from jaxmech.geometry import Solid
from jaxmech.meshes import Triangles
from jaxmech.plot.motions import (
    THICK,
    Shapes,
    bounds,
    dimension,
    is_dot,
    is_outline,
    moving,
    path,
    points_of,
)
from jaxmech.plot.panels import COLORS, GREY, ORANGE, add_axes, new_figure

DARK = "#333333"  # dots
FRAMED = 60  # number of times at which the outermost points are looked for
_ROD, CURVE, _DOT = 0.014, 0.004, 0.024  # radii relative to the size of the moving shapes
_REACH = 2.0  # how far lines at rest are drawn beyond the box, relative to its size
_SUN = np.array([0.35, -0.5, 0.8])  # in space, towards the light
_SHADE, _GLOW = 0.45, 0.6  # brightness away from the light, and what it adds
_GHOST = 0.3  # opacity in a large group of trajectories
_BASE = 0.6  # size of a solid at rest that a picture frames, relative to what moves
_DEPTHS = 0.4  # of the order in which solids in the plane are drawn
_WIDTH = 5.2  # inches
_ROOM = 0.06  # margin around moving shapes, relative to their size
_MOST_TICKS = 7  # over the width of the picture
_FLAT = 0.25  # smallest side of the picture relative to the largest

Color = tuple[float, float, float]
Moved = tuple[Any, Callable[[int], None]]  # an artist, and what moves it to an entry of the shapes


@dataclass(frozen=True)
class Box:
    """The box around what moves: corners (3,)."""

    low: np.ndarray
    high: np.ndarray
    is_planar: bool
    outermost: np.ndarray  # points in many directions (m, 3), which the first picture frames

    @property
    def center(self) -> np.ndarray:
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
        mesh: that of a solid.
        radius: of a line, dot or arrow [m].
        closed: whether a line is filled.
    """

    group: str
    kind: str
    member: int
    color: Color
    points: np.ndarray
    mesh: Triangles | None = None
    radius: float = 0.0
    closed: bool = False


def box_around(shapes: Shapes) -> Box:
    """The box around what moves, and small solids at rest; around everything if nothing moves."""
    shown = {name: shape for name, shape in shapes.items() if not is_inside(name, shapes)}
    framed = moving(shown) or shown
    low, high = bounds(framed)
    largest = _BASE * (high - low).max()
    framed |= {
        name: shape
        for name, shape in shown.items()
        if isinstance(shape, Solid) and np.ptp(points_of(shape), axis=2).max() < largest
    }
    is_planar = dimension(shapes) == 2
    points = np.concatenate([_corners(shape) for shape in framed.values()])
    points = points[np.isfinite(points).all(axis=1)]
    directions = meshes.sphere(16, 8).vertices
    outermost = points[np.unique((directions @ points.T).argmax(axis=1))]
    return Box(points.min(axis=0), points.max(axis=0), is_planar, outermost)


def _corners(shape: Any) -> np.ndarray:
    """Points at the outside of a shape at many times, (m, 3)."""
    if not isinstance(shape, Solid):
        points = shape[:, :: max(1, shape.shape[1] // FRAMED)]
        points = points.reshape(-1, shape.shape[-1])
        return np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    outside = []
    directions = meshes.sphere(8, 4).vertices
    for k in range(len(shape.origin)):
        frames = _frames(shape, k)[:: max(1, shape.origin.shape[1] // FRAMED)]
        vertices = shape.vertices[k]
        far = vertices[np.unique((directions @ vertices.T).argmax(axis=1))]
        outside.append((frames[:, None, 3] + far @ frames[:, :3]).reshape(-1, 3))
    return np.concatenate(outside)


def items_of(shapes: Shapes, box: Box, trails: Sequence[str]) -> Iterator[Item]:
    """The items of all shapes: the first trajectory in full, the others as ghosts."""
    in_motion = moving(shapes)
    colors = _colors_by_body(in_motion)
    for name, shape in shapes.items():
        if is_inside(name, shapes):
            continue
        group = name.rpartition(".")[0] if name.endswith(".center") else name.partition(".")[0]
        moves = name in in_motion
        color = to_rgb(colors.get(name, DARK) if moves else GREY)
        start: Any = () if moves else points_of(shape)[:, 0]
        for k in range(len(path(shape) if moves else start)):
            if not moves and k and np.array_equal(start[k], start[0]):
                continue  # at rest where it is in the first trajectory
            member = k if moves else -1
            if isinstance(shape, Solid):
                r, g, b = map(float, shape.color)
                own = color if np.isnan(r) else (r, g, b)
                mesh = Triangles(shape.vertices[k], shape.faces)
                yield Item(group, "solid", member, own, _frames(shape, k), mesh)
                continue
            points = in_space(shape[k], box)
            if is_dot(shape):
                radius = _DOT * box.size
                yield Item(group, "dot", member, color, points[:, None], radius=radius)
                continue
            radius = (_ROD if points.shape[1] <= THICK and moves else CURVE) * box.size
            if not moves:
                points = _clipped(points, box)
            closed = is_outline(points)
            yield Item(group, "line", member, color, points, radius=radius, closed=closed)
    for name in trails:
        for k, way in enumerate(path(shapes[name])):
            points = in_space(way, box)[:, None]
            yield Item("trails", "trail", k, to_rgb(ORANGE), points, radius=0.6 * CURVE * box.size)


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


def is_inside(name: str, shapes: Shapes) -> bool:
    """Whether a dot is drawn by a solid, or is the centre of mass of a body that is."""
    has_solids = any(isinstance(shape, Solid) for shape in shapes.values())
    is_center = name.endswith(".center") and has_solids
    return is_dot(shapes[name]) and (is_center or f"{name}.solid" in shapes)


def _colors_by_body(shapes: Shapes) -> dict[str, str]:
    """The colour of each line or solid without one of its own, common to all of a body."""
    plain = {
        name: name.partition(".")[0]
        for name, x in shapes.items()
        if not (np.isfinite(x.color).all() if isinstance(x, Solid) else is_dot(x))
    }
    bodies = list(dict.fromkeys(plain.values()))
    return {name: COLORS[bodies.index(body) % len(COLORS)] for name, body in plain.items()}


class Outline(PathPatch):
    """A solid seen from above, moved by its transformation."""

    def __init__(self, item: Item, **style: Any) -> None:
        assert item.mesh is not None
        super().__init__(_silhouette(*item.mesh), **style)

    def show(self, item: Item, k: int) -> None:
        (a, c), (b, d), _, (x, y) = item.points[k, :, :2]
        self.set_visible(bool(np.isfinite([a, b, c, d, x, y]).all()))
        if self.get_visible():
            moved = Affine2D.from_values(a, c, b, d, x, y)
            self.set_transform(moved + self.axes.transData)  # type: ignore[union-attr]


class Faces(Poly3DCollection):  # type: ignore[misc]
    """The faces of all solids in space, from back to front, shaded by a light from above."""

    def __init__(self, items: Sequence[Item], **style: Any) -> None:
        super().__init__([np.zeros((3, 3))], **style)
        self._meshes = [item.mesh for item in items if item.mesh is not None]
        counts = [len(mesh.faces) for mesh in self._meshes]
        self._colors = np.repeat([item.color for item in items], counts, axis=0)
        self._corners = np.zeros((0, 3, 3))

    def show(self, items: Sequence[Item], k: int) -> None:
        frames = [item.points[k] for item in items]
        pairs = zip(frames, self._meshes, strict=True)
        self._corners = np.concatenate([(f[3] + x @ f[:3])[faces] for f, (x, faces) in pairs])

    def do_3d_projection(self) -> float:
        """Leave out the faces that look away, shade the others, and project them."""
        corners = self._corners
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        sizes = np.linalg.norm(normals, axis=1)
        azimuth, rise = np.deg2rad([self.axes.azim, self.axes.elev])
        toward = [np.cos(azimuth) * np.cos(rise), np.sin(azimuth) * np.cos(rise), np.sin(rise)]
        with np.errstate(invalid="ignore"):
            seen = (normals @ np.array(toward) > -0.2 * sizes) & (sizes > 0)
        light = np.maximum(normals[seen] @ (_SUN / np.linalg.norm(_SUN)) / sizes[seen], 0.0)
        shaded = np.minimum(self._colors[seen] * (_SHADE + _GLOW * light)[:, None], 1.0)
        self.set_verts(corners[seen] if seen.any() else [np.full((3, 3), np.nan)])
        opacity = np.full((len(shaded), 1), 1.0 if self.get_alpha() is None else self.get_alpha())
        colors = np.concatenate([shaded, opacity], axis=1)
        self.set_facecolor(colors)
        self.set_edgecolor(colors)
        return float(super().do_3d_projection())


def _solids(ax: Axes, items: Sequence[Item], members: int) -> list[Moved]:
    """The artists of solids, each with what moves it."""
    if not items:
        return []
    opacity = _GHOST + (0.92 - _GHOST) / members
    if ax.name == "3d":
        faces = Faces(items, linewidths=0.3, zorder=3, alpha=opacity if members > 1 else None)
        ax.add_collection3d(faces)  # type: ignore[attr-defined]
        return [(faces, partial(faces.show, items))]
    depths = np.array([item.mesh.vertices[:, 2].max() for item in items if item.mesh is not None])
    span = np.ptp(depths) or 1.0
    pairs: list[Moved] = []
    for item, depth in zip(items, depths, strict=True):
        fill = (*item.color, opacity)
        edge = tuple(0.6 * x for x in item.color)
        order = 2 + _DEPTHS * float(depth - depths.min()) / span
        style = {"facecolor": fill, "edgecolor": edge, "linewidth": 0.8, "zorder": order}
        outline: Any = ax.add_patch(Outline(item, **style))
        pairs.append((outline, partial(outline.show, item)))
    return pairs


def _silhouette(vertices: np.ndarray, faces: np.ndarray) -> Path:
    """The boundary of the faces that look up, in the plane."""
    size = float(np.abs(vertices).max()) or 1.0
    _, first, same = np.unique(
        (vertices / size).round(9), axis=0, return_index=True, return_inverse=True
    )
    faces = first[same.reshape(-1)][faces]  # as at the pole of a sphere
    corners = vertices[faces][..., :2]
    u, v = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    up = faces[u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0] > 1e-12 * np.abs(corners).max() ** 2]
    edges = np.concatenate([up[:, [0, 1]], up[:, [1, 2]], up[:, [2, 0]]])
    pairs = {(int(a), int(b)) for a, b in edges}
    following: dict[int, list[int]] = {}
    for a, b in pairs:
        if (b, a) not in pairs:
            following.setdefault(a, []).append(b)
    loops = []
    while following:
        start = here = next(iter(following))
        loop = [start]
        while here in following:
            others = following[here]
            here = others.pop()
            if not others:
                del following[loop[-1]]
            loop.append(here)
            if here == start:
                break
        loops.append(Path(vertices[loop, :2], closed=True))
    return Path.make_compound_path(*loops) if loops else Path(np.zeros((1, 2)))


class Scene:
    """The shapes of one or several trajectories in axes, drawn for one time by `show`."""

    def __init__(
        self, ax: Axes | None, shapes: Shapes, trails: Sequence[str], stride: int
    ) -> None:  # fmt: skip
        """Make the artists; times are `stride` entries of the shapes apart."""
        self._every, self._d = stride, dimension(shapes)
        box = box_around(shapes)
        self.ax: Axes = _new_axes(box) if ax is None else ax
        self._frame(box)
        self._count = count = len(path(next(iter(shapes.values()))))
        items = [*items_of(shapes, box, trails)]
        if count > 1:  # each trajectory in a colour of its own
            spread = colormaps["viridis"](np.linspace(0, 0.92, count))
            colors = COLORS if count <= len(COLORS) else spread
            items = [
                replace(x, color=to_rgb(colors[x.member])) if x.member >= 0 else x for x in items
            ]
        self._artists: list[Moved] = []
        for item in items:
            if item.mesh is None:
                artist, move = self._artist(item)
                move(0)
                self._artists += [] if item.member < 0 else [(artist, move)]
        self._artists += _solids(self.ax, [x for x in items if x.mesh is not None], count)

    @property
    def artists(self) -> list[Any]:
        """The artists that move, from back to front."""
        return sorted((x for x, _ in self._artists), key=lambda x: x.get_zorder())

    def show(self, moment: int) -> None:
        """Draw the shapes at a time, and the trails up to it."""
        for _, move in self._artists:
            move(moment * self._every)

    def _artist(self, item: Item) -> Moved:
        """Make a dot, a line, a filled outline or a trail, and what moves it."""
        space: Any = self.ax
        is_fixed, is_curve = item.member < 0, item.points.shape[1] > THICK
        is_thin, order = is_fixed or self._count > 1, 1 if is_fixed else 3
        if item.closed:
            style: Any = {
                "facecolor": to_rgba(item.color, 0.15), "edgecolor": to_rgba(item.color, 0.95),
                "linewidth": 1.4 if is_thin or is_curve else 2.2, "zorder": min(order, 2),
            }  # fmt: skip
            if self._d == 2:
                artist: Any = space.add_patch(Polygon(np.zeros((2, 2)), closed=True, **style))
            else:
                artist = space.add_collection3d(Poly3DCollection([np.zeros((3, 3))], **style))
        else:
            style = {
                "trail": {"linewidth": 0.9, "alpha": 0.6, "zorder": 1.5},
                "dot": {"marker": "o", "markersize": 4 if is_thin else 6, "zorder": 4},
                "line": {"linewidth": 1.4 if is_thin or is_curve else 3, "zorder": order},
            }[item.kind]
            if self._d == 3 and is_fixed:
                style["axlim_clip"] = True
            (artist,) = space.plot(*[[]] * self._d, color=item.color, **style)

        def move(k: int) -> None:
            points = item.points[: k + 1, 0] if item.kind == "trail" else item.points[k]
            points = points[:, : self._d]
            if not item.closed:
                (artist.set_data_3d if self._d == 3 else artist.set_data)(*points.T)
            elif self._d == 2:
                artist.set_xy(points)
            else:
                artist.set_verts([points])

        return artist, move

    def _frame(self, box: Box) -> None:
        low, high = box.low[: self._d], box.high[: self._d]
        size = (high - low).max() or 1.0
        half = np.maximum((high - low) / 2, _FLAT / 2 * size) + _ROOM * size
        limits = list(zip((low + high) / 2 - half, (low + high) / 2 + half, strict=True))
        for letter, ends in zip("xyz", limits, strict=False):
            self.ax.set(**{f"{letter}lim": ends, f"{letter}label": f"{letter} [m]"})
        if self._d == 2:
            self.ax.set_aspect("equal")
            most = max(3, round(_MOST_TICKS * half[0] / half.max()))  # labels must not touch
            self.ax.xaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
            self.ax.spines[["top", "right"]].set_visible(False)
        else:
            space: Any = self.ax
            for axis in (space.xaxis, space.yaxis, space.zaxis):
                axis.set_major_locator(MaxNLocator(4))
            space.set_box_aspect(half, zoom=0.85)  # leaves room for the labels


def _new_axes(box: Box) -> Axes:
    """Make a figure and axes with the proportions of a box."""
    if not box.is_planar:
        figure = new_figure(_WIDTH, 0.85 * _WIDTH)
        return add_axes(figure, projection="3d", computed_zorder=False)
    sides = (box.high - box.low)[:2]
    size = np.maximum(sides, _FLAT * sides.max())
    height = float(np.clip(_WIDTH * size[1] / (size[0] or 1.0), 0.45 * _WIDTH, 1.1 * _WIDTH))
    return add_axes(new_figure(_WIDTH, height + 0.4))
