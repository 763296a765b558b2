"""The shapes of a mechanism: points [m] by name, as a function of its coordinates.

A geometry is a function `geometry(q, t, params)` that returns a dictionary of arrays, of which
each is a shape: (d,) a dot, for a mass or a joint, and (k, d) a line through k points, with d = 2
in the plane and 3 in space. A closed line is the outline of a body. Lines whose names are equal up
to a full stop share a colour. `animate` draws a geometry along a motion.

    def geometry(q, t, p):
        return {"rod": line(jnp.zeros(2), q), "mass": q}

The functions of this file make the shapes that most geometries consist of.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Geometry = Callable[[Any, Any, Any], Mapping[str, Any]]

Points = Float[Array, " k d"]


def line(*points: Any) -> Points:
    """A line through points, each of shape (d,).

    Example:
        >>> print(line([0.0, 0.0], [1.0, 2.0]))
        [[0. 0.]
         [1. 2.]]
    """
    return jnp.stack([1.0 * jnp.asarray(point) for point in points])


def outline(*points: Any) -> Points:
    """A line through points, each of shape (d,), and back to the first.

    Example:
        >>> outline([0.0, 0.0], [1.0, 0.0], [0.0, 1.0]).shape
        (4, 2)
    """
    return line(*points, points[0])


def circle(center: Any, radius: Any, axes: Any = None) -> Points:
    """The outline of a circle as a line.

    Args:
        center: center of the circle [m], shape (d,).
        radius: radius [m], a scalar.
        axes: two orthogonal unit vectors in its plane, shape (2, d); by default those of the plane.

    Example:
        >>> print(circle([1.0, 0.0], 2.0)[0])
        [3. 0.]
    """
    angle = np.linspace(0, 2 * np.pi, 49)
    angle[-1] = 0.0  # closes the line exactly
    e1, e2 = jnp.eye(2) if axes is None else jnp.asarray(axes)
    turn = jnp.cos(angle)[:, None] * e1[None] + jnp.sin(angle)[:, None] * e2[None]
    return jnp.asarray(center)[None] + radius * turn


def coil(start: Any, end: Any, *, width: Any = None) -> Points:
    """A spring between two points: a zigzag in the plane, a helix in space.

    Args:
        start: first end [m], shape (d,).
        end: second end [m], shape (d,).
        width: full width [m]; by default a tenth of the distance.

    Example:
        >>> coil([0.0, 0.0, 0.0], [0.0, 0.0, 1.0]).shape
        (51, 3)
    """
    a, axis = 1.0 * jnp.asarray(start), jnp.asarray(end) - jnp.asarray(start)
    squared = axis @ axis
    length = jnp.sqrt(jnp.where(squared > 0, squared, 1.0))
    across = _normals(axis / length)
    turns = np.arange(51) / 4 - 1.25  # ten turns between straight ends
    inside = (turns >= 0) & (turns <= 10)
    sides = np.stack([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)])[: len(across)]
    offset = 0.5 * (0.1 * length if width is None else width) * (sides * inside)
    along = jnp.linspace(0, 1, 51)[:, None] * axis[None]
    return a[None] + along + jnp.einsum("ik,id->kd", offset, across)


def box(center: Any, axes: Any, sizes: Any) -> dict[str, Points]:
    """The six faces of a box in space, as outlines by name.

    Args:
        center: center of the box [m], shape (3,).
        axes: directions of the edges as columns, shape (3, 3).
        sizes: lengths of the edges [m], shape (3,).

    Example:
        >>> sorted(box([0.0, 0.0, 0.0], jnp.eye(3), [1.0, 2.0, 3.0]))
        ['face.-1', 'face.-2', 'face.-3', 'face.1', 'face.2', 'face.3']
    """
    half = 0.5 * jnp.asarray(sizes)[None] * jnp.asarray(axes)
    corners = ((1, 1), (1, -1), (-1, -1), (-1, 1))
    faces = {}
    for k in range(3):
        u, v, w = half[:, k], half[:, (k + 1) % 3], half[:, (k + 2) % 3]
        for side in (1, -1):
            points = [jnp.asarray(center) + side * u + i * v + j * w for i, j in corners]
            faces[f"face.{side * (k + 1)}"] = outline(*points)
    return faces


def _normals(u: Array) -> Array:
    """Unit vectors perpendicular to a direction as rows: one in the plane, two in space."""
    if u.shape == (2,):
        return jnp.stack([-u[1], u[0]])[None]
    least = jnp.eye(3)[jnp.argmin(jnp.abs(u))]
    first = jnp.cross(u, least)
    size = first @ first
    first = first / jnp.sqrt(jnp.where(size > 0, size, 1.0))
    return jnp.stack([first, jnp.cross(u, first)])
