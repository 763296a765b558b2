"""How parts are drawn: what a drawing knows, and the shapes that several parts share.

Joints, their equations and forces are `Drawable`: each draws itself, in sizes of half the width of
a link, so that all parts of a mechanism match.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import BY_BODY, GROUND, Solid, circle, line, scaled
from jaxmech.meshes import Triangles
from jaxmech.parts.body import AbstractBody, Frame, Frames, Ground, across, pointing
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Reader, Vector
from jaxmech.parts.vectors import normals, quarter_turn

STEEL, DAMPER, TYRE = (0.5, 0.53, 0.57), (0.35, 0.38, 0.42), (0.25, 0.25, 0.27)

_FAR = 1e3  # half the length of a straight ground [m]; a picture shows the visible part

Shapes = dict[str, Any]


@dataclass(frozen=True)
class Sketch:
    """What the drawings of a mechanism have in common.

    Attributes:
        width: half the width of a link [m].
        size: length of the longest link [m].
        levels: the depth of each body in the plane, in layers; the ground is behind all of them.
        down: unit vector along which gravity pulls.
    """

    width: Array
    size: Array
    levels: Mapping[str, int]
    down: Any

    @property
    def height(self) -> Array:
        """The thickness of a body in the plane [m]."""
        return 1.1 * self.width

    def depth(self, body: str) -> Array:
        """The depth of the middle of a body in the plane [m]."""
        return 1.25 * self.height * self.levels.get(body, -1)


@dataclass(frozen=True)
class Drawing:
    """A part of a mechanism to draw.

    Attributes:
        name: the name of the part, with which those of its shapes begin.
        bodies: the bodies of the part.
        frames: their frames.
        read: reader of the values of the part.
        sketch: what all drawings of the mechanism have in common.
        point: the joint on the second body; for a force that of the joint between its bodies.
    """

    name: str
    bodies: tuple[AbstractBody, ...]
    frames: Frames
    read: Reader
    sketch: Sketch
    point: Array

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return len(self.frames[0].origin)

    @property
    def width(self) -> Array:
        """Half the width of a link [m]."""
        return self.sketch.width

    def on(self, k: int, local: Vector) -> Array:
        """A point of a body, along the axes of the ground."""
        return jnp.asarray(self.frames[k].point(self.read.vector(local, self.dimension)))

    def depth(self, k: int) -> Array:
        """The depth of a body in the plane [m]."""
        return self.sketch.depth(self.bodies[k].name)

    def has_visual(self, k: int) -> bool:
        """Whether a body has a look of its own."""
        body = self.bodies[k]
        return isinstance(body, AbstractRigidBody) and bool(body.visual)

    def axes(self, k: int, axis: Vector) -> Array:
        """Axes (d, d) on a body; the given one is the last in space, the first in the plane."""
        u = pointing(self.frames[k], axis, self.read)
        if self.dimension == 2:
            return jnp.stack([jnp.asarray(u), jnp.asarray(quarter_turn(u))], axis=1)
        frame = self.frames[k]
        n = jnp.asarray(frame.axes) @ normals(frame.components(u)).T
        return jnp.concatenate([n, jnp.asarray(u)[:, None]], axis=1)

    def solid(
        self, mesh: Triangles, axes: Any, scale: Sequence[float], color: Any = STEEL, at: Any = None
    ) -> Solid:
        """A mesh, by default at the joint, with a scale in half widths of a link."""
        vertices = scaled(mesh.vertices, [x * self.width for x in scale])
        return Solid(self.point if at is None else at, axes, vertices, mesh.faces, color)

    def bead(self, end: Any) -> Solid:
        """A small ball on the last body."""
        ball = meshes.sphere().vertices * self.width
        return Solid(jnp.asarray(end), self.frames[-1].axes, ball, meshes.sphere().faces, STEEL)

    def base(self) -> Shapes:
        """What holds a joint to the ground, if its first body is the ground."""
        if not isinstance(self.bodies[0], Ground) or self.has_visual(1):
            return {}
        down = jnp.asarray(self.sketch.down)
        if self.dimension == 2:
            axes = jnp.stack([-jnp.asarray(quarter_turn(-down)), -down], axis=1)
            solid = self.solid(meshes.support(), axes, (1.0, 1.0, 1.0), GROUND)
            shift = (0.0, 0.0, self.sketch.depth("ground"))
            vertices = scaled(solid.vertices, (1.0,) * 3, shift)
            return {f"{self.name}.ground": solid._replace(vertices=vertices)}
        axes = jnp.concatenate([jnp.asarray(normals(down)).T, down[:, None]], axis=1)
        return {f"{self.name}.ground": self.solid(meshes.foot(), axes, (1.0, 1.0, 1.0), GROUND)}

    def rail(self, start: Any, axes: Array, reach: Array) -> Solid:
        """A bar along an axis, over all positions that the joint reaches."""
        if self.dimension == 3:  # the reach is along x
            axes = axes[:, jnp.array([2, 0, 1])]
        bar, width = meshes.box().moved((0.5, 0.0, 0.0)).vertices, self.width
        past = np.where(bar[:, 0] > 0.5, 3.0, np.where(bar[:, 0] < 0.5, -3.0, 0.0))
        depth = self.sketch.depth("ground") if self.dimension == 2 else 0.0 * width
        x, y = bar[:, 0] + past * width, 0.9 * width * bar[:, 1]
        vertices = jnp.stack([x, y, 0.9 * width * bar[:, 2] + depth], axis=1)
        color = GROUND if isinstance(self.bodies[0], Ground) else STEEL
        return Solid(start, axes, vertices, meshes.box().faces, color, reach)

    def ground_line(self, at_a: Vector, normal: Vector) -> Shapes:
        """The straight ground in the plane, across a normal."""
        if self.dimension == 3 or not isinstance(self.bodies[0], Ground):
            return {}
        frame = self.frames[0]
        origin, n = self.on(0, at_a), pointing(frame, normal, self.read)
        ends = origin + _FAR * quarter_turn(n), origin - _FAR * quarter_turn(n)
        return {f"{self.name}.ground": line(*ends)}

    def wheel(
        self, label: str, k: int, at: Vector | None, radius: Any, axle: Vector | None,
        color: Any = BY_BODY,
    ) -> Shapes:  # fmt: skip
        """A wheel with spokes; in space, without an axle, a sphere with three circles on it."""
        frame, d, mesh = self.frames[k], self.dimension, meshes.wheel()
        center, r = self.on(k, (0.0,) * d if at is None else at), jnp.abs(self.read.number(radius))
        key = f"{label}.wheel"
        if d == 2:
            sizes = (r, r, self.sketch.height)
            vertices = scaled(mesh.vertices, sizes, (0.0, 0.0, self.depth(k)))
            return {key: Solid(center, frame.axes, vertices, mesh.faces, color)}
        if axle is None:
            ball = 0.99 * r * meshes.sphere().vertices
            pairs = [line(frame.axes[:, i], frame.axes[:, i - 1]) for i in range(3)]
            circles = {
                f"{label}.circle{i + 1}": circle(center, r, pair) for i, pair in enumerate(pairs)
            }
            return {key: Solid(center, frame.axes, ball, meshes.sphere().faces), **circles}
        u = jnp.asarray(pointing(frame, axle, self.read))
        axes = jnp.concatenate([directions_across(frame, axle, self.read), u[:, None]], axis=1)
        vertices = scaled(mesh.vertices, (r, r, 0.18 * r))
        return {key: Solid(center, axes, vertices, mesh.faces, color)}


class Drawable:
    """A part, or an equation of a joint, that draws itself; by default as nothing."""

    @property
    def marks(self) -> tuple[tuple[int, Vector], ...]:
        """The points on bodies that it acts on, each with the index of the body."""
        return ()

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The indices of the bodies for which it draws a wheel, a curve or a block."""
        return ()

    def shapes(self, drawing: Drawing) -> Shapes:
        """The shapes by name."""
        return {}


class BetweenPoints(Drawable):
    """A part between a point of its first body and one of its second."""

    at_a: Vector
    at_b: Vector

    @property
    def marks(self) -> tuple[tuple[int, Vector], ...]:
        """Both points."""
        return (0, self.at_a), (1, self.at_b)


def directions_across(frame: Frame, axis: Vector, read: Reader) -> Array:
    """Two directions across an axis on a body, as columns."""
    return jnp.stack([jnp.asarray(frame.direction(n)) for n in across(frame, axis, read)], axis=1)


def along_x(mesh: Triangles) -> Triangles:
    """A mesh about z between -1/2 and 1/2 as one along x from 0 to 1."""
    return mesh.moved((0.5, 0.0, 0.0), np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]))
