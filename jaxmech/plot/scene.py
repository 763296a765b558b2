"""The picture of a mechanism at one time: its shapes as artists of matplotlib.

Solids are outlines seen from above in the plane, and shaded faces in space.
"""

from collections.abc import Iterator, Sequence
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

from jaxmech.geometry import Solid
from jaxmech.plot.motions import (
    THICK,
    Shape,
    Shapes,
    bounds,
    dimension,
    framed,
    is_dot,
    is_empty,
    is_outline,
    moving,
    path,
    points_of,
)
from jaxmech.plot.panels import COLORS, GREY, ORANGE, add_axes, new_figure

_SUN = np.array([0.35, -0.5, 0.8])  # in space, towards the light
_SHADE, _GLOW = 0.45, 0.6  # brightness away from the light, and what it adds
_GHOST = 0.3  # opacity in a large group of trajectories
_DEPTHS = 0.4  # of the order in which solids in the plane are drawn


class Outline(PathPatch):
    """A solid seen from above, moved by its transformation."""

    def __init__(self, body: Solid, **style: Any) -> None:
        super().__init__(_silhouette(body.vertices, body.faces), **style)

    def show(self, body: Solid, k: int) -> None:
        (a, c), (b, d) = body.axes[k].T
        x, y = body.origin[k]
        self.set_visible(bool(np.isfinite([a, b, c, d, x, y]).all()))
        if self.get_visible():
            moved = Affine2D.from_values(a, c, b, d, x, y)
            self.set_transform(moved + self.axes.transData)  # type: ignore[union-attr]


class Faces(Poly3DCollection):  # type: ignore[misc]
    """The faces of all solids in space, from back to front, shaded by a light from above."""

    def __init__(self, bodies: Sequence[Solid], **style: Any) -> None:
        super().__init__([np.zeros((3, 3))], **style)
        self._colors = np.repeat(
            [body.color for body in bodies], [len(body.faces) for body in bodies], axis=0
        )
        self._corners = np.zeros((0, 3, 3))

    def show(self, bodies: Sequence[Solid], k: int) -> None:
        parts = [(body.origin[k] + body.vertices @ body.axes[k].T)[body.faces] for body in bodies]
        self._corners = np.concatenate(parts)

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


Drawing = Outline | Faces


def drawings(ax: Axes, bodies: Sequence[Solid], *, members: int) -> list[tuple[Drawing, Any]]:
    """The artists of solids, each with what its method `show` needs."""
    if not bodies:
        return []
    opacity = _GHOST + (0.92 - _GHOST) / members
    if bodies[0].origin.shape[1] == 3:
        faces = Faces(bodies, linewidths=0.3, zorder=3, alpha=opacity if members > 1 else None)
        ax.add_collection3d(faces)  # type: ignore[attr-defined]
        return [(faces, bodies)]
    depths = np.array([body.vertices[:, 2].max() for body in bodies])
    span = np.ptp(depths) or 1.0
    pairs: list[tuple[Drawing, Any]] = []
    for body, depth in zip(bodies, depths, strict=True):
        fill = (*body.color, opacity)
        edge = tuple(0.6 * x for x in body.color)
        order = 2 + _DEPTHS * float(depth - depths.min()) / span
        style = {"facecolor": fill, "edgecolor": edge, "linewidth": 0.8, "zorder": order}
        pairs.append((ax.add_patch(Outline(body, **style)), body))  # type: ignore[arg-type]
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


DARK = "#333333"  # dots
_WIDTH = 5.2  # inches
_ROOM = 0.06  # margin around moving shapes, relative to their size
_MOST_TICKS = 7  # over the width of the picture
_FLAT = 0.25  # smallest side of the picture relative to the largest


class Scene:
    """The shapes of one or several trajectories in axes, drawn for one time by `show`."""

    def __init__(
        self, ax: Axes, shapes: Shapes, trails: Sequence[str], stride: int, *,
        is_framed: bool = False,
    ) -> None:  # fmt: skip
        """Make the artists; times are `stride` entries of the shapes apart.

        Axes that show a scene already, `is_framed`, keep their limits and labels.
        """
        self.ax, self._every = ax, stride
        shapes = {name: shape for name, shape in shapes.items() if not is_empty(shape)}
        paths = {name: path(shapes[name]) for name in trails}
        shapes = {name: shape for name, shape in shapes.items() if not is_inside(name, shapes)}
        self._d, in_motion = dimension(shapes), moving(shapes)
        self._moving = in_motion
        if not is_framed:
            self._frame(framed(shapes))
        self._artists: list[tuple[Any, Any]] = []
        colors = colors_by_body(in_motion)
        count = len(points_of(next(iter(shapes.values()))))
        solids: list[Solid] = []
        self._trails = [
            (self._line(color, linewidth=0.9, alpha=0.6, zorder=1.5), paths[name][k])
            for name in trails
            for k, color in enumerate(_colors(count, ORANGE))
        ]
        for name, shape in shapes.items():
            moves = name in in_motion
            single = colors.get(name, DARK) if moves else GREY
            of_each = _colors(count, single) if moves else [GREY] * count
            for k in range(count) if moves else _different(shape):
                if isinstance(shape, Solid):
                    has_own = bool(np.isfinite(shape.color).all())
                    is_own = has_own and (count == 1 or not moves)
                    color = tuple(shape.color) if is_own else of_each[k]
                    frames = shape.origin[k], shape.axes[k], shape.vertices[k]
                    solids.append(Solid(*frames, shape.faces, to_rgb(color)))
                    continue
                artist = _artist(ax, shape[k], of_each[k], is_fixed=not moves, is_group=count > 1)
                if moves:
                    self._artists.append((artist, shape[k]))
                else:
                    _move(artist, shape[k][0])
        self._artists += drawings(ax, solids, members=count)

    @property
    def artists(self) -> list[Any]:
        """The artists that move, from back to front."""
        return sorted((x for x, _ in (*self._artists, *self._trails)), key=lambda x: x.get_zorder())

    def show(self, moment: int) -> None:
        """Draw the shapes at a time, and the trails up to it."""
        k = moment * self._every
        for artist, points in self._artists:
            _move(artist, points, k)
        for artist, points in self._trails:
            _move(artist, points[: k + 1])

    def strobe(self, moments: Sequence[int]) -> None:
        """Draw the shapes at several times, the earlier the fainter and farther behind."""
        for index, moment in enumerate(moments[:-1]):
            earlier = Scene(self.ax, self._moving, (), self._every, is_framed=True)
            earlier.show(moment)
            for artist in earlier.artists:
                artist.set_alpha(0.12 + 0.6 * index / len(moments))
                artist.set_zorder(artist.get_zorder() - 1)
        self.show(moments[-1])

    def _line(self, color: Any, **style: Any) -> Any:
        return self.ax.plot(*[[]] * self._d, color=color, **style)[0]

    def _frame(self, shapes: Shapes) -> None:
        low, high = bounds(shapes)
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


def new_axes(shapes: Shapes) -> Axes:
    """Make a figure and axes with the proportions of the shapes."""
    if dimension(shapes) == 3:
        figure = new_figure(_WIDTH, 0.85 * _WIDTH)
        return add_axes(figure, projection="3d", computed_zorder=False)
    low, high = bounds(framed(shapes))
    size = np.maximum(high - low, _FLAT * (high - low).max())
    height = float(np.clip(_WIDTH * size[1] / (size[0] or 1.0), 0.45 * _WIDTH, 1.1 * _WIDTH))
    return add_axes(new_figure(_WIDTH, height + 0.4))


def is_inside(name: str, shapes: Shapes) -> bool:
    """Whether a dot is drawn by a solid, or is the centre of mass of a body that is."""
    has_solids = any(isinstance(shape, Solid) for shape in shapes.values())
    is_center = name.endswith(".center") and has_solids
    return is_dot(shapes[name]) and (is_center or f"{name}.solid" in shapes)


def _different(shape: Shape) -> Iterator[int]:
    """The trajectories in which a shape at rest is not where it is in the first."""
    points = points_of(shape)
    yield 0
    yield from (k for k in range(1, len(points)) if not np.array_equal(points[k, 0], points[0, 0]))


def colors_by_body(shapes: Shapes) -> dict[str, str]:
    """The colour of each line or solid without one of its own, common to all of a body."""
    lines = {
        n: n.partition(".")[0] for n, x in shapes.items() if not is_dot(x) and not _is_colored(x)
    }
    bodies = list(dict.fromkeys(lines.values()))
    return {name: COLORS[bodies.index(body) % len(COLORS)] for name, body in lines.items()}


def _is_colored(shape: Shape) -> bool:
    return isinstance(shape, Solid) and bool(np.isfinite(shape.color).all())


def _colors(count: int, single: str) -> list[Any]:
    if count == 1:
        return [single]
    if count <= len(COLORS):
        return list(COLORS[:count])
    return [colormaps["viridis"](x) for x in np.linspace(0, 0.92, count)]


def _artist(
    ax: Axes, points: np.ndarray, color: Any, *, is_fixed: bool = False, is_group: bool = False
) -> Any:
    """Make a dot, a line or a filled outline for points (K, d) or (K, k, d) over time."""
    d = points.shape[-1]
    style: dict[str, Any] = {"axlim_clip": True} if d == 3 and is_fixed else {}
    empty: list[list[float]] = [[]] * d
    if points.ndim == 2:
        style |= {
            "marker": "o",
            "markersize": 4.0 if is_fixed or is_group else 6.0,
            "linestyle": "",
        }
        return ax.plot(*empty, color=color, zorder=4, **style)[0]
    is_curve = points.shape[1] > THICK
    if is_outline(points):
        width = 1.0 if is_fixed else 1.4 if is_curve or is_group else 2.2
        return _filled(ax, d, color, linewidth=width, zorder=1 if is_fixed else 2)
    width = 3.0 if not (is_fixed or is_group) else 1.4
    style |= {"linewidth": 1.2 if is_curve else width, "solid_capstyle": "round"}
    return ax.plot(*empty, color=color, zorder=1 if is_fixed else 3, **style)[0]


def _filled(ax: Axes, d: int, color: Any, **style: Any) -> Any:
    style |= {"facecolor": to_rgba(color, 0.15), "edgecolor": to_rgba(color, 0.95)}
    if d == 2:
        return ax.add_patch(Polygon(np.zeros((2, 2)), closed=True, **style))
    space: Any = ax
    return space.add_collection3d(Poly3DCollection([np.zeros((3, 3))], **style))


def _move(artist: Any, shape: Any, k: int | None = None) -> None:
    if isinstance(artist, Drawing):
        artist.show(shape, k or 0)
        return
    points = np.atleast_2d(shape if k is None else shape[k])
    if isinstance(artist, Polygon):
        artist.set_xy(points)
    elif isinstance(artist, Poly3DCollection):
        artist.set_verts([points])
    elif points.shape[1] == 3:
        artist.set_data_3d(*points.T)
    else:
        artist.set_data(*points.T)
