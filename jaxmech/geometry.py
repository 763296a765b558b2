"""The shapes of a mechanism: solids and points [m] by name, as a function of its coordinates.

A geometry is a function `geometry(q, t, params)` that returns a dictionary of shapes: a `Solid`, an
array (d,) for a dot, or an array (k, d) for a line through k points, with d = 2 in the plane and 3
in space. `animate` and `view` draw a geometry along a motion: lines that move as links, closed ones
as plates, dots as bobs, pins and supports (docs/gallery.md). Shapes whose names are equal up to a
full stop share a colour, and if one of them is a `Solid`, lines and dots stay what they are. Among
solids, a dot whose name ends in `.center` only leaves a trail.

    def geometry(q, t, p):
        return {"rod": line(jnp.zeros(2), q), "mass": q}

The functions of this file make the shapes that most geometries consist of.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech import meshes
from jaxmech.meshes import Triangles

BY_BODY = (np.nan,) * 3  # the colour of a solid that has that of its body
DARK, GROUND, SPRING = (0.2, 0.2, 0.22), (0.55, 0.55, 0.55), (0.84, 0.6, 0.1)
_AROUND = 48  # vertices of a hull in the plane

Geometry = Callable[[Any, Any, Any], Mapping[str, Any]]

Points = Float[Array, " k d"]


class Solid(NamedTuple):
    """A triangle mesh that moves with a frame.

    A vertex x is at `origin + axes @ x`; in the plane its third component is the depth, which is
    seen by `view`. A picture in the plane shows a solid from above.

    Attributes:
        origin: origin of the frame [m], shape (d,).
        axes: the frame, which may also be scaled and sheared, shape (d, d).
        vertices: vertices [m], shape (V, 3); they are taken from the start of a motion.
        faces: indices of the vertices of triangles, seen counter-clockwise, shape (F, 3).
        color: red, green and blue from 0 to 1, or NaN for the colour of the body.
        reach: for a rail: the position along x where its slider is [m]. The vertices with x = 0 are
            drawn at the smallest of all positions in a motion, those with x = 1 at the largest.
    """

    origin: Any
    axes: Any
    vertices: Any
    faces: Any
    color: Any = BY_BODY
    reach: Any = np.nan


def solid(mesh: Triangles, origin: Any, axes: Any, *, color: Any = BY_BODY) -> Solid:
    """A mesh of `jaxmech.meshes` in a frame.

    Args:
        mesh: the mesh.
        origin: origin of the frame [m], shape (d,).
        axes: axes of the frame as columns, shape (d, d); longer ones make the mesh larger.
        color: red, green and blue from 0 to 1; by default that of the body.
    """
    return Solid(jnp.asarray(origin), jnp.asarray(axes), *mesh, color)


def between(mesh: Triangles, start: Any, end: Any, width: Any, *, color: Any = BY_BODY) -> Solid:
    """A mesh along x from 0 to 1, such as `meshes.coil()`, stretched between two points.

    Args:
        mesh: the mesh, with a radius of 1.
        start: where x = 0 [m], shape (d,).
        end: where x = 1 [m], shape (d,).
        width: radius [m].
        color: as for `solid`.
    """
    a, along = 1.0 * jnp.asarray(start), jnp.asarray(end) - jnp.asarray(start)
    squared = along @ along
    across = _normals(along / jnp.sqrt(jnp.where(squared > 0, squared, 1.0)))
    axes = jnp.concatenate([along[None], width * across]).T
    if len(a) == 2:  # the depth is not scaled by the axes
        mesh = Triangles(scaled(mesh.vertices, (1.0, 1.0, width)), mesh.faces)
    return Solid(a, axes, *mesh, color)


def scaled(vertices: Any, factors: Any, shift: Any = (0.0, 0.0, 0.0)) -> Array:
    """Vertices (V, 3) times three factors, and then shifted."""
    factors, shift = (jnp.stack([*map(jnp.asarray, x)])[None] for x in (factors, shift))
    return jnp.asarray(vertices) * factors + shift


def hull(points: Any, radius: Any) -> Triangles:
    """The convex hull of spheres around points in space (k, 3), or circles in the plane (k, 2).

    Each vertex is the point farthest in one direction, moved outwards; so the faces are known
    without the points, which may depend on parameters. In the plane the hull has the height 1.
    """
    xp: Any = np if isinstance(points, np.ndarray) and isinstance(radius, float) else jnp
    points = 1.0 * xp.asarray(points)
    if points.shape[1] == 3:
        directions, faces = meshes.sphere()
        far = points[xp.argmax(directions @ points.T, axis=1)]
        return Triangles(far + radius * directions, faces)
    directions = meshes.directions_in_plane(_AROUND)
    ring = points[xp.argmax(directions @ points.T, axis=1)] + radius * directions
    middle = ring.mean(axis=0, keepdims=True)
    flat = xp.concatenate([ring, ring, middle, middle])
    level = np.repeat([0.5, -0.5, 0.5, -0.5], [_AROUND, _AROUND, 1, 1])
    return Triangles(xp.concatenate([flat, level[:, None]], axis=1), meshes.prism_faces(_AROUND))


def line(*points: Any) -> Points:
    """A line through points, each of shape (d,)."""
    return jnp.stack([1.0 * jnp.asarray(point) for point in points])


def outline(*points: Any) -> Points:
    """A line through points, each of shape (d,), and back to the first."""
    return line(*points, points[0])


def circle(center: Any, radius: Any, axes: Any = None) -> Points:
    """The outline of a circle as a line.

    Args:
        center: center of the circle [m], shape (d,).
        radius: radius [m], a scalar.
        axes: two orthogonal unit vectors in its plane, shape (2, d); by default those of the plane.
    """
    angle = np.linspace(0, 2 * np.pi, 49)
    angle[-1] = 0.0  # closes the line exactly
    e1, e2 = jnp.eye(2) if axes is None else jnp.asarray(axes)
    turn = jnp.cos(angle)[:, None] * e1[None] + jnp.sin(angle)[:, None] * e2[None]
    return jnp.asarray(center)[None] + radius * turn


def coil(start: Any, end: Any, *, width: Any = None, color: Any = SPRING) -> Solid:
    """A spring between two points.

    Args:
        start: first end [m], shape (d,).
        end: second end [m], shape (d,).
        width: full width [m]; by default a tenth of the distance.
        color: as for `solid`.
    """
    along = jnp.asarray(end) - jnp.asarray(start)
    width = 0.1 * jnp.sqrt(jnp.maximum(along @ along, 1e-300)) if width is None else width
    return between(meshes.coil(), start, end, 0.5 * width, color=color)


def _normals(u: Array) -> Array:
    """Unit vectors perpendicular to a direction as rows: one in the plane, two in space."""
    if u.shape == (2,):
        return jnp.stack([-u[1], u[0]])[None]
    least = jnp.eye(3)[jnp.argmin(jnp.abs(u))]
    first = jnp.cross(u, least)
    size = first @ first
    first = first / jnp.sqrt(jnp.where(size > 0, size, 1.0))
    return jnp.stack([first, jnp.cross(u, first)])
