"""Moving lines and dots as solids: links, plates, bobs and pins, and the supports they hang on.

A geometry of points says nothing about thickness, so this file chooses one that suits the picture.
Shapes of a body that has solids of its own stay as they are.
"""

from collections.abc import Iterator

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


class _Links:
    """What the solids of a set of shapes have in common."""

    def __init__(self, shapes: Shapes) -> None:
        """Choose a thickness."""
        with_solids = {name.partition(".")[0] for name, x in shapes.items() if isinstance(x, Solid)}
        self.bare = {n: x for n, x in shapes.items() if n.partition(".")[0] not in with_solids}
        self.moving = moving(shapes) if self.bare else {}
        low, high = bounds(self.moving or shapes)
        self.size = float((high - low).max()) or 1.0
        moved = {n: x for n, x in self.bare.items() if n in self.moving and not is_dot(x)}
        self.plates = {n for n, x in moved.items() if _is_closed(x) and _is_rigid(x)}
        self.lines = {
            n: x
            for n, x in moved.items()
            if n in self.plates or (x.shape[2] <= THICK and not _is_closed(x))
        }
        sides = [np.linalg.norm(np.diff(_first(x), axis=1), axis=2) for x in self.lines.values()]
        lengths = np.concatenate([np.zeros(0), *map(np.ravel, sides)])
        lengths = lengths[lengths > 0]
        usual = float(np.median(lengths)) if lengths.size else self.size / 3
        self.width = float(np.clip(_WIDTH * usual, _LEAST * self.size, _MOST * self.size))
        self.height = 1.1 * self.width

    def depth(self, layer: int) -> float:
        """The depth of a link in the plane [m]."""
        return 1.25 * self.height * (layer % _LAYERS)

    def on_lines(self, dot: np.ndarray) -> dict[str, list[int]]:
        """The lines that a dot is on, with the indices of its points on them."""
        indices = {}
        for name, x in self.lines.items():
            gaps = np.linalg.norm(x - dot[:, :, None], axis=3)
            known = np.isfinite(gaps).all(axis=2)
            largest = gaps[known].max(axis=0, initial=0.0)
            if known.any() and (largest < _NEAR * self.size).any():
                indices[name] = np.flatnonzero(largest < _NEAR * self.size).tolist()
        return indices


def links_of(shapes: Shapes) -> Shapes:
    """The shapes, with moving lines and dots as solids.

    The solid of a dot `mass` is called `mass.solid`; the dot itself remains, for its trail.
    """
    links = _Links(shapes)
    layer = 0
    solids: Shapes = {}
    for name, x in shapes.items():
        if name in links.plates:
            solids[name] = _plate(x, links, layer)
            layer += 1
        elif name in links.lines:
            for k in range(x.shape[2] - 1):
                solids[f"{name}.{k + 1}"] = _rod(x[:, :, k], x[:, :, k + 1], links, layer)
                layer += 1
        elif name in links.bare and is_dot(x):
            solids |= dict(_joint(name, x, links))
        else:
            solids[name] = x
    return solids


def _is_closed(x: np.ndarray) -> bool:
    return is_outline(x.reshape(-1, *x.shape[2:]))


def _is_rigid(x: np.ndarray) -> bool:
    """Whether the points of lines (N, K, k, d) keep their distances from the first ones."""
    lengths = np.linalg.norm(x[:, :, :, None] - x[:, :, None, :3], axis=4)
    first = _first(lengths)
    return not (np.abs(lengths - first[:, None]) > _RIGID * first.max()).any()


def _first(x: np.ndarray) -> np.ndarray:
    """The first finite values over time of (N, K, ...), zero where there are none."""
    known = np.isfinite(x).reshape(*x.shape[:2], -1).all(axis=2)
    return np.nan_to_num(x[np.arange(len(x)), known.argmax(axis=1)])


def _rod(start: np.ndarray, end: np.ndarray, links: _Links, layer: int) -> Solid:
    """A link with round ends, or if its length changes, a bar."""
    along = end - start
    length = np.linalg.norm(along, axis=2, keepdims=True)
    first = _first(length[..., 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        u = along / length
    change = np.abs(length - first[:, None, None])
    is_elastic = bool((change > _RIGID * first.max()).any())
    if is_elastic:
        mesh = meshes.box().moved((0.5, 0.0, 0.0), np.diag([1.0, 1.6 * links.width, links.height]))
        vertices = np.broadcast_to(mesh.vertices, (len(start), *mesh.vertices.shape))
    else:
        mesh = hull(np.zeros((2, start.shape[2])), links.width)
        ends = np.zeros((len(start), 2, start.shape[2]))
        ends[:, 1, 0] = first
        vertices = np.stack([np.asarray(hull(points, links.width).vertices) for points in ends])
    axes = _frames(u)
    if is_elastic:
        axes[..., 0] *= length
    return Solid(start, axes, _lifted(vertices, links, layer, start, is_elastic), mesh.faces)


def _lifted(
    vertices: np.ndarray, links: _Links, layer: int, origin: np.ndarray, is_scaled: bool
) -> np.ndarray:
    """The vertices of a link at its depth, if it is in the plane."""
    if origin.shape[-1] == 3:
        return vertices
    height = 1.0 if is_scaled else links.height
    z = height * vertices[..., 2:] + links.depth(layer)
    return np.concatenate([vertices[..., :2], z], axis=-1)


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


def _plate(x: np.ndarray, links: _Links, layer: int) -> Solid:
    """A body with a rigid outline."""
    corners, d = x[:, :, :-1], x.shape[3]
    first = corners[:, :, 1] - corners[:, :, 0]
    u = first / np.linalg.norm(first, axis=2, keepdims=True)
    if d == 2:
        axes = _frames(u)
    else:
        third = corners.shape[2] // 3
        n = np.cross(u, corners[:, :, max(third, 2)] - corners[:, :, 0])
        n /= np.linalg.norm(n, axis=2, keepdims=True)
        axes = np.stack([u, np.cross(n, u), n], axis=-1)
    local = _first(np.einsum("nkci,nkij->nkcj", corners - corners[:, :, :1], axes))[..., :2]
    made = [_slab(points, links) for points in local]
    vertices = np.stack([np.asarray(mesh.vertices) for mesh in made])
    height = links.height if d == 2 else 2 * links.width
    vertices = vertices * [1.0, 1.0, height] + [0.0, 0.0, links.depth(layer) if d == 2 else 0.0]
    return Solid(corners[:, :, 0], axes, vertices, made[0].faces)


def _slab(ring: np.ndarray, links: _Links) -> Triangles:
    """An outline (k, 2) as a plate of height 1; a convex one with round corners."""
    side = np.roll(ring, -1, axis=0) - ring
    following = np.roll(side, -1, axis=0)
    turns = side[:, 0] * following[:, 1] - side[:, 1] * following[:, 0]
    is_convex = (turns > 0).all() or (turns < 0).all()
    return hull(ring, links.width) if is_convex else meshes.extruded(ring)


def _joint(name: str, dot: np.ndarray, links: _Links) -> Iterator[tuple[str, object]]:
    """A dot as a bob, as a pin between several links, or as a support at rest."""
    held = links.on_lines(dot)
    if name in links.moving:
        is_pin = len(held) > 1 or not links.plates.isdisjoint(held)
        yield name, dot
        yield f"{name}.solid", _pin(dot, links) if is_pin else _ball(dot, _BOB, links)
    elif held:
        yield f"{name}.ground", _support(dot, held, links)
        yield f"{name}.pin", _pin(dot, links)
    else:
        yield name, dot


def _at(dot: np.ndarray, mesh: Triangles, axes: np.ndarray, color: object) -> Solid:
    """A mesh that follows a dot (N, K, d)."""
    axes = np.broadcast_to(axes, (*dot.shape, dot.shape[2]))
    vertices = np.broadcast_to(mesh.vertices, (len(dot), *mesh.vertices.shape))
    return Solid(dot, axes, vertices, mesh.faces, np.asarray(color, float))


def _ball(dot: np.ndarray, radius: float, links: _Links, color: object = BY_BODY) -> Solid:
    mesh = meshes.sphere().moved(axes=radius * links.width * np.eye(3))
    if dot.shape[2] == 2:  # in the middle of the layers
        mesh = mesh.moved((0.0, 0.0, links.depth(1)))
    return _at(dot, mesh, np.eye(dot.shape[2]), color)


def _pin(dot: np.ndarray, links: _Links) -> Solid:
    if dot.shape[2] == 3:
        return _ball(dot, 1.3, links, DARK)
    radius, top = _PIN * links.width, links.depth(_LAYERS - 1) + 2 * links.height
    tall = np.diag([radius, radius, top + links.height])
    middle = (0.0, 0.0, (top - links.height) / 2)
    return _at(dot, meshes.cylinder(24).moved(middle, tall), np.eye(2), DARK)


def _support(dot: np.ndarray, held: dict[str, list[int]], links: _Links) -> Solid:
    """What holds a pivot: above the links that hang on it, otherwise below."""
    heights = []
    for name in held:
        away = links.lines[name] - dot[:, :, None]
        known = away[np.isfinite(away).all(axis=(2, 3))]
        heights.append(known[..., -1].mean(axis=0).min() / np.linalg.norm(known, axis=2).max())
    hangs = min(heights) < _HANGING
    up = -1.0 if hangs else 1.0
    size = links.width
    if dot.shape[2] == 3:
        axes = np.diag([1.0, up, -up]) * size
        return _at(dot, meshes.foot().moved(axes=axes), np.eye(3), GROUND)
    mesh = meshes.support().moved((0.0, 0.0, -1.25 * links.height), size * np.eye(3))
    return _at(dot, mesh, np.diag([up, up]), GROUND)
