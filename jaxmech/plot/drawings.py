"""Solids as artists of matplotlib: outlines seen from above in the plane, shaded faces in space."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

from jaxmech.geometry import Solid

_SUN = np.array([0.35, -0.5, 0.8])  # in space, towards the light
_SHADE, _GLOW = 0.45, 0.6  # brightness away from the light, and what it adds
_GHOST = 0.3  # opacity in a large group of trajectories
_DEPTHS = 0.4  # of the order in which solids in the plane are drawn


@dataclass(frozen=True, eq=False)
class MovingSolid:
    """A solid of one trajectory: its frame over time, its vertices and faces, and its colour."""

    origin: np.ndarray
    axes: np.ndarray
    vertices: np.ndarray
    faces: np.ndarray
    color: tuple[float, float, float]

    @classmethod
    def of(cls, solid: Solid, k: int, color: Any) -> "MovingSolid":
        """The solid of trajectory k."""
        shape = solid.vertices[k], solid.faces
        return cls(solid.origin[k], solid.axes[k], *shape, to_rgb(color))


class Outline(PathPatch):
    """A solid seen from above, moved by its transformation."""

    def __init__(self, body: MovingSolid, **style: Any) -> None:
        super().__init__(_silhouette(body.vertices, body.faces), **style)

    def show(self, body: MovingSolid, k: int) -> None:
        """Move the outline to time k."""
        (a, c), (b, d) = body.axes[k].T
        x, y = body.origin[k]
        self.set_visible(bool(np.isfinite([a, b, c, d, x, y]).all()))
        if self.get_visible():
            moved = Affine2D.from_values(a, c, b, d, x, y)
            self.set_transform(moved + self.axes.transData)  # type: ignore[union-attr]


class Faces(Poly3DCollection):  # type: ignore[misc]
    """The faces of all solids in space, from back to front, shaded by a light from above."""

    def __init__(self, bodies: Sequence[MovingSolid], **style: Any) -> None:
        super().__init__([np.zeros((3, 3))], **style)
        self._colors = np.repeat(
            [body.color for body in bodies], [len(body.faces) for body in bodies], axis=0
        )
        self._corners = np.zeros((0, 3, 3))

    def show(self, bodies: Sequence[MovingSolid], k: int) -> None:
        """Move the faces to time k."""
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


def drawings(ax: Axes, bodies: Sequence[MovingSolid], *, members: int) -> list[tuple[Drawing, Any]]:
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
