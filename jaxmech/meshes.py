"""Triangle meshes of simple solids, as vertices [m] and faces that are seen counter-clockwise.

Sizes are 1 where the name of a function does not say otherwise; `jaxmech.geometry.solid` scales and
places a mesh.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

_SIDES = 32  # of a circle
_UP = np.array([0.0, 0.0, 1.0])


class Triangles(NamedTuple):
    """Vertices (V, 3), and the indices of the vertices of triangles, (F, 3)."""

    vertices: Any
    faces: Any

    def moved(self, origin: Any = (0.0, 0.0, 0.0), axes: Any = None) -> "Triangles":
        """The mesh with its axes along the columns of a matrix (3, 3), from a new origin."""
        matrix = np.eye(3) if axes is None else np.asarray(axes, float)
        faces = self.faces[:, ::-1] if np.linalg.det(matrix) < 0 else self.faces
        return Triangles(self.vertices @ matrix.T + np.asarray(origin, float), faces)


def joined(*meshes: Triangles) -> Triangles:
    """Several meshes as one."""
    firsts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + first for mesh, first in zip(meshes, firsts[:-1], strict=True)]
    return Triangles(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces))


@cache
def box() -> Triangles:
    """A cube around the origin."""
    return prism(np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]))


@cache
def cylinder(sides: int = _SIDES) -> Triangles:
    """A cylinder of radius 1 and height 1 about z, around the origin."""
    return prism(directions_in_plane(sides))


@cache
def cone(sides: int = _SIDES) -> Triangles:
    """A cone about z, from a disc of radius 1 at the origin to a point at z = 1."""
    rim = np.pad(directions_in_plane(sides), ((0, 0), (0, 1)))
    k = np.arange(sides)
    ends = [np.stack([k, (k + 1) % sides, 0 * k + sides], 1)]
    ends += [np.stack([(k + 1) % sides, k, 0 * k + sides + 1], 1)]
    return Triangles(np.concatenate([rim, _UP[None], 0 * _UP[None]]), np.concatenate(ends))


@cache
def sphere(around: int = 24, rings: int = 12) -> Triangles:
    """A sphere of radius 1, whose vertices are also the directions of `hull`."""
    latitude = np.pi * np.arange(rings + 1) / rings
    turn = directions_in_plane(around)
    grid = np.concatenate([
        np.sin(latitude)[:, None, None] * turn[None],
        np.broadcast_to(np.cos(latitude)[:, None, None], (rings + 1, around, 1)),
    ], axis=2)  # fmt: skip
    i, j = np.meshgrid(np.arange(rings), np.arange(around), indexing="ij")
    a, b = i * around + j, i * around + (j + 1) % around
    upper = np.stack([a, a + around, b], -1)[1:]
    lower = np.stack([b, a + around, b + around], -1)[:-1]
    return Triangles(
        grid.reshape(-1, 3), np.concatenate([upper.reshape(-1, 3), lower.reshape(-1, 3)])
    )


def directions_in_plane(count: int) -> np.ndarray:
    """Unit vectors all around, (count, 2)."""
    angle = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def prism_faces(count: int) -> np.ndarray:
    """The faces between two rings of `count` points, upper first, which end in two more points."""
    k = np.arange(count)
    following = (k + 1) % count
    top, bottom = np.full(count, 2 * count), np.full(count, 2 * count + 1)
    return np.concatenate([
        np.stack([k, following, top], 1),
        np.stack([following + count, k + count, bottom], 1),
        np.stack([k, k + count, following], 1),
        np.stack([following, k + count, following + count], 1),
    ])  # fmt: skip


def prism(ring: np.ndarray, height: float = 1.0) -> Triangles:
    """A convex outline (k, 2), counter-clockwise, extruded along z from -height/2 to height/2."""
    middle = ring.mean(axis=0, keepdims=True)
    flat = [np.pad(points, ((0, 0), (0, 1))) for points in (ring, ring, middle, middle)]
    level = np.repeat([0.5, -0.5, 0.5, -0.5], [len(points) for points in flat])
    vertices = np.concatenate(flat) + height * level[:, None] * _UP
    return Triangles(vertices, prism_faces(len(ring)))


def extruded(outline: np.ndarray, height: float = 1.0) -> Triangles:
    """Any simple outline (k, 2), extruded along z from -height/2 to height/2."""
    ring = outline if _area(outline) > 0 else outline[::-1]
    count, k = len(ring), np.arange(len(ring))
    cap = _ears(ring)
    following = (k + 1) % count
    sides = [np.stack([k, k + count, following], 1)]
    sides += [np.stack([following, k + count, following + count], 1)]
    flat = np.pad(np.concatenate([ring, ring]), ((0, 0), (0, 1)))
    vertices = flat + height * np.repeat([0.5, -0.5], count)[:, None] * _UP
    return Triangles(vertices, np.concatenate([cap, cap[:, ::-1] + count, *sides]))


def _area(ring: np.ndarray) -> float:
    x, y = ring.T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def _ears(ring: np.ndarray) -> np.ndarray:
    """Triangles of a counter-clockwise outline, by cutting off one ear after another."""
    left, faces = [*range(len(ring))], []
    while len(left) > 3:
        ear = next((i for i in range(len(left)) if _is_ear(ring, left, i)), 0)
        faces.append([left[ear - 1], left[ear], left[(ear + 1) % len(left)]])
        del left[ear]
    return np.array([*faces, left])


def _is_ear(ring: np.ndarray, left: Sequence[int], i: int) -> bool:
    a, b, c = (ring[left[(i + k) % len(left)]] for k in (-1, 0, 1))
    if _area(np.stack([a, b, c])) <= 0:
        return False
    others = ring[[k for j, k in enumerate(left) if (j - i + 1) % len(left) > 2]]
    corners = np.stack([a, b, c])
    to = np.roll(corners, -1, axis=0) - corners
    away = others[:, None] - corners[None]
    inside = to[None, :, 0] * away[..., 1] - to[None, :, 1] * away[..., 0] >= 0
    return not inside.all(axis=1).any()


def tube(path: np.ndarray, radius: float, sides: int = 8) -> Triangles:
    """A tube along a path (k, 3), with closed ends."""
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    first = np.cross(along, np.roll(np.eye(3)[np.abs(along).argmin(axis=1)], 0, axis=1))
    for i in range(1, len(path)):  # carried along without a twist
        first[i] = first[i - 1] - (first[i - 1] @ along[i]) * along[i]
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    second = np.cross(along, first)
    turn = directions_in_plane(sides)
    rings = path[:, None] + radius * (
        turn[None, :, :1] * first[:, None] + turn[None, :, 1:] * second[:, None]
    )
    along_path, j = np.meshgrid(np.arange(len(path) - 1), np.arange(sides), indexing="ij")
    a, b = along_path * sides + j, along_path * sides + (j + 1) % sides
    walls = [np.stack([a, b, a + sides], -1), np.stack([b, b + sides, a + sides], -1)]
    k = np.arange(1, sides - 1)
    start, end = np.stack([0 * k, k + 1, k], 1), np.stack([0 * k, k, k + 1], 1)
    last = (len(path) - 1) * sides
    faces = [*(wall.reshape(-1, 3) for wall in walls), start, end + last]
    return Triangles(rings.reshape(-1, 3), np.concatenate(faces))


@cache
def coil(turns: int = 8, wire: float = 0.12) -> Triangles:
    """A spring along x from 0 to 1, of radius 1, with straight ends."""
    angle = np.linspace(0.0, 2 * np.pi * turns, 14 * turns + 1)
    x = 0.1 + 0.8 * angle / angle[-1]
    around = np.stack([x, np.sin(angle), np.cos(angle)], axis=1)
    ends = np.array([[0.0, 0.0, 0.0], [0.1, 0.0, 0.0], [0.9, 0.0, 0.0], [1.0, 0.0, 0.0]])
    path = np.concatenate([ends[:2], around, ends[2:]])
    # As it will be stretched along x, its cross-section there is smaller.
    return Triangles(*tube(path * [8.0, 1.0, 1.0], wire, 6)).moved(
        axes=np.diag([1 / 8.0, 1.0, 1.0])
    )


@cache
def spiral(turns: float = 2.5, wire: float = 0.05) -> Triangles:
    """A torsion spring of radius 1 about z, from its hub to its outer end on x."""
    angle = np.linspace(2 * np.pi * turns, 0.0, round(24 * turns) + 1)
    radius = np.linspace(0.25, 1.0, len(angle))
    path = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], axis=1)
    return tube(path, wire, 6)


@cache
def dashpot() -> Triangles:
    """A damper along x from 0 to 1: a cylinder of radius 1 and a thin rod."""
    along_x = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    case = cylinder(20).moved((0.35, 0.0, 0.0), along_x @ np.diag([1.0, 1.0, 0.5]))
    rod = cylinder(10).moved((0.5, 0.0, 0.0), along_x @ np.diag([0.3, 0.3, 1.0]))
    return joined(case, rod)


@cache
def wheel(spokes: int = 8) -> Triangles:
    """A wheel of radius 1 and width 1 about z, with a tyre, spokes and a hub."""
    parts = [ring(0.84, 1.0, 1.0), cylinder(20).moved(axes=np.diag([0.16, 0.16, 1.2]))]
    for c, s in directions_in_plane(spokes):
        turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        parts.append(box().moved((0.5 * c, 0.5 * s, 0.0), turn @ np.diag([0.74, 0.07, 0.5])))
    return joined(*parts)


@cache
def support() -> Triangles:
    """A bracket in the plane of x and y, from the origin down to hatched ground at y = -3.3."""
    turn, corners = directions_in_plane(48), np.array([[0.0, 0.0], [-1.4, -2.4], [1.4, -2.4]])
    bracket = prism(corners[(turn @ corners.T).argmax(axis=1)] + 0.75 * turn)
    plate = box().moved((0.0, -3.3, 0.0), np.diag([5.6, 0.35, 1.0]))
    slant = np.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    hatches = [
        box().moved((x, -3.85, 0.0), slant @ np.diag([1.3, 0.16, 0.8]))
        for x in np.linspace(-2.4, 2.0, 6)
    ]
    return joined(bracket, plate, *hatches)


@cache
def foot() -> Triangles:
    """A block from the origin along z, to a plate at z = 2."""
    block = box().moved((0.0, 0.0, 0.9), np.diag([2.4, 2.4, 1.8]))
    return joined(block, box().moved((0.0, 0.0, 2.0), np.diag([5.0, 5.0, 0.5])))


@cache
def gear(teeth: int, *, internal: bool = False) -> Triangles:
    """A gear wheel of pitch radius 1 and width 1 about z, with the middle of a tooth along x."""
    module, sides = 2.0 / teeth, 4 * teeth
    profile = 1.0 + module * np.tile([0.9, -1.1, -1.1, 0.9], teeth)
    middle = directions_in_plane(2 * sides)[1]  # half a side, between the two tops of a tooth
    turn = np.array([[middle[0], -middle[1], 0.0], [middle[1], middle[0], 0.0], [0.0, 0.0, 1.0]])
    if internal:
        return ring(np.roll(profile, 2), 1.0 + 3.5 * module, 1.0, sides).moved(axes=turn)
    hub = cylinder(20).moved(axes=np.diag([0.22, 0.22, 1.3]))
    return joined(ring(0.12, profile, 1.0, sides).moved(axes=turn), hub)


@cache
def rack(teeth: int) -> Triangles:
    """A bar of width 1 along x, with teeth towards y whose module is 1 and pitch line y = 0.

    The number of teeth is odd, and the middle of one of them is at x = 0.
    """
    tooth = np.array([[-0.5, -1.1], [-0.36, -1.1], [-0.14, 0.9], [0.14, 0.9], [0.36, -1.1]])
    offsets = np.arange(teeth) - teeth // 2
    profile = tooth[None] + np.stack([offsets, 0 * offsets], axis=1)[:, None]
    ends = np.array([[0.5, -1.1], [0.5, -5.0], [-0.5, -5.0]]) * [teeth, 1.0]
    return extruded(np.concatenate([profile.reshape(-1, 2), ends]) * [np.pi, 1.0])


def ring(inner: Any, outer: Any, height: float, sides: int = 40) -> Triangles:
    """A flat ring about z, around the origin; radii may be one for each of its sides."""
    turn = directions_in_plane(sides)
    profile = [(outer, 0.5), (inner, 0.5), (inner, -0.5), (outer, -0.5)]
    rows = [
        np.pad(np.reshape(r, (-1, 1)) * turn, ((0, 0), (0, 1))) + z * height * _UP
        for r, z in profile
    ]
    k = np.arange(sides)
    following = (k + 1) % sides
    faces = []
    for i in range(4):
        a, b = i * sides, (i + 1) % 4 * sides
        faces += [np.stack([k + a, following + a, k + b], 1)]
        faces += [np.stack([following + a, following + b, k + b], 1)]
    return Triangles(np.concatenate(rows), np.concatenate(faces))
