"""Moving lines and dots as solids: links, bobs and pins, and the supports they hang on.

A geometry of points says nothing about thickness, so this file chooses one that suits the picture.
Shapes of a body that has solids of its own stay as they are, and so do outlines and curves.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxmech import meshes
from jaxmech.geometry import BY_BODY, DARK, GROUND, Solid, hull
from jaxmech.meshes import Triangles
from jaxmech.plot.paths import THICK, Shapes, bounds, is_dot, is_outline, moving

_WIDTH = 0.035  # half the width of a link, relative to the usual length of a link
_LEAST, _MOST = 0.005, 0.025  # the same, relative to the size of the picture
_BOB, _PIN = 2.8, 0.5  # radii relative to half the width of a link
_RIGID = 1e-4  # relative change of a length from which a link is elastic
_NEAR = 1e-6  # distance of points that coincide, relative to the size of the picture
_LAYERS = 3  # of links in the plane, one above the other
_HANGING = -0.3  # mean height of the links below a support that is above them, in their lengths


def links_of(shapes: Shapes) -> Shapes:
    """The shapes, with moving lines and dots as solids.

    The solid of a dot `mass` is called `mass.solid`; the dot itself remains, for its trail.
    """
    with_solids = {name.partition(".")[0] for name, x in shapes.items() if isinstance(x, Solid)}
    bare = {name for name in shapes if name.partition(".")[0] not in with_solids}
    if not bare:
        return shapes
    in_motion = moving(shapes)
    lines = {name: x for name, x in in_motion.items() if name in bare and _is_rod(x)}
    links = _Links.of(in_motion or shapes, lines)
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

    @classmethod
    def of(cls, shapes: Shapes, lines: Shapes) -> "_Links":
        """Choose a thickness."""
        low, high = bounds(shapes)
        size = float((high - low).max()) or 1.0
        sides = [np.linalg.norm(np.diff(_first(x), axis=1), axis=2) for x in lines.values()]
        lengths = np.concatenate([np.zeros(0), *map(np.ravel, sides)])
        lengths = lengths[lengths > 0]
        usual = float(np.median(lengths)) if lengths.size else size / 3
        return cls(lines, size, float(np.clip(_WIDTH * usual, _LEAST * size, _MOST * size)))

    @property
    def height(self) -> float:
        """The thickness of a link in the plane."""
        return 1.1 * self.width

    def depth(self, layer: int) -> float:
        """The depth of a link in the plane [m]."""
        return 1.25 * self.height * (layer % _LAYERS)

    def rod(self, start: np.ndarray, end: np.ndarray, layer: int) -> Solid:
        """A link with round ends, or if its length changes, a bar."""
        along, d = end - start, start.shape[2]
        length = np.linalg.norm(along, axis=2, keepdims=True)
        first = _first(length[..., 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            axes = _frames(along / length)
        if (np.abs(length - first[:, None, None]) > _RIGID * first.max()).any():
            sizes = np.diag([1.0, 1.6 * self.width, self.height])
            mesh = meshes.box().moved((0.5, 0.0, 0.0), sizes)
            vertices = np.broadcast_to(mesh.vertices, (len(start), *mesh.vertices.shape))
            axes[..., 0] *= length
        else:
            ends = np.zeros((len(start), 2, d))
            ends[:, 1, 0] = first
            made = [hull(points, self.width) for points in ends]
            mesh, vertices = made[0], np.stack([np.asarray(vertices) for vertices, _ in made])
            vertices = vertices * [1.0, 1.0, self.height if d == 2 else 1.0]
        lift = self.depth(layer) if d == 2 else 0.0
        return Solid(start, axes, vertices + np.array([0.0, 0.0, lift]), mesh[1])

    def joint(self, name: str, dot: np.ndarray, *, moves: bool) -> Iterator[tuple[str, object]]:
        """A dot as a bob, as a pin between several links, or as a support at rest."""
        held = {n: x for n, x in self.lines.items() if self._is_on(x, dot)}
        if moves:
            yield name, dot
            yield f"{name}.solid", self._pin(dot) if len(held) > 1 else self._ball(dot, _BOB)
        elif held:
            yield f"{name}.ground", self._support(dot, held)
            yield f"{name}.pin", self._pin(dot)
        else:
            yield name, dot

    def _is_on(self, line: np.ndarray, dot: np.ndarray) -> bool:
        """Whether a dot is always a point of a line."""
        gaps = np.linalg.norm(line - dot[:, :, None], axis=3)
        known = np.isfinite(gaps).all(axis=2)
        return bool(known.any() and (gaps[known].max(axis=0) < _NEAR * self.size).any())

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


def _is_rod(x: np.ndarray) -> bool:
    return not (isinstance(x, Solid) or is_dot(x) or x.shape[2] > THICK) and not is_outline(
        x.reshape(-1, *x.shape[2:])
    )


def _first(x: np.ndarray) -> np.ndarray:
    """The first finite values over time of (N, K, ...), zero where there are none."""
    known = np.isfinite(x).reshape(*x.shape[:2], -1).all(axis=2)
    return np.nan_to_num(x[np.arange(len(x)), known.argmax(axis=1)])


def _frames(u: np.ndarray) -> np.ndarray:
    """Axes as columns (N, K, d, d), the first along u; in space they turn as little as possible."""
    if u.shape[2] == 2:
        return np.stack([u, np.stack([-u[..., 1], u[..., 0]], axis=-1)], axis=-1)
    across = np.zeros_like(u)
    n = np.eye(3)[np.abs(np.nan_to_num(u[:, 0])).argmin(axis=1)]
    for k in range(u.shape[1]):
        m = n - (n * u[:, k]).sum(1, keepdims=True) * u[:, k]
        across[:, k] = m / np.linalg.norm(m, axis=1, keepdims=True)
        n = np.where(np.isfinite(across[:, k]), across[:, k], n)
    return np.stack([u, across, np.cross(u, across)], axis=-1)


def _at(dot: np.ndarray, mesh: Triangles, axes: np.ndarray, color: object) -> Solid:
    """A mesh that follows a dot (N, K, d)."""
    axes = np.broadcast_to(axes, (*dot.shape, dot.shape[2]))
    vertices = np.broadcast_to(mesh.vertices, (len(dot), *mesh.vertices.shape))
    return Solid(dot, axes, vertices, mesh.faces, np.asarray(color, float))
