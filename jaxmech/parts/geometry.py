"""The shapes by which a mechanism is drawn, from its parts alone.

A body is drawn by its `Visual`s. Without any it is a link: the hull of its centre of mass and of
the points where joints and forces act on it, with a thickness that suits the mechanism; a body
without such points is a disc or box with its inertia. Bodies in the plane have a depth of their
own, so that links at a joint lie on top of each other. Joints and forces draw themselves, each by
its `shapes`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import DARK, Solid, hull, scaled
from jaxmech.parts.body import AbstractBody, Frame, Ground
from jaxmech.parts.drawing import Drawing, Sketch
from jaxmech.parts.forces.elements import AbstractForce, Gravity
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Reader, Vector
from jaxmech.parts.visuals import Visual

Shapes = dict[str, Any]

_WIDTH = 0.045  # half the width of a link, relative to the longest one
_SHORT = 0.3  # half the width of a short link, relative to its length
_BARE = 1e-3  # size relative to the radius of gyration below which a body has no extension


def shapes(
    kinematics: AbstractKinematics,
    connections: Iterable[Joint | AbstractForce | Gravity],
    scenery: Sequence[Visual],
    q: Array,
    t: Array,
    params: Any,
) -> Shapes:
    """The shapes of bodies, and of the joints and forces between them, by name."""
    connections = tuple(connections)
    parts = [part for part in connections if not isinstance(part, Gravity)]
    points, covered = _marks(kinematics, parts)
    frames = kinematics.frames(kinematics.bodies, q, t, params)
    links = {
        body.name: _Link(body, frame, points[body.name], Reader(f"body {body.name!r}", t, params))
        for body, frame in zip(kinematics.bodies, frames, strict=True)
    }
    longest = jnp.max(jnp.stack([jnp.asarray(link.length) for link in links.values()]))
    levels = _levels(kinematics.bodies, parts)
    gravity = next((part for part in connections if isinstance(part, Gravity)), None)
    d = kinematics.bodies[0].dimension
    sketch = Sketch(
        _WIDTH * longest, longest, levels, direction_of(gravity, d, Reader("gravity", t, params))
    )
    solids: Shapes = {}
    for name, link in links.items():
        solids |= link.shapes(sketch, is_covered=name in covered)
    ground = Ground(dimension=d).frame(jnp.zeros(0, q.dtype))
    read = Reader("the scenery", t, params)
    for k, visual in enumerate(scenery):
        solids[f"ground.{k}"] = visual.solid(
            ground, jnp.zeros(d), read, sketch.height, -sketch.height
        )
    for name, part in _named(kinematics, parts):
        pair = kinematics.frames(part.bodies, q, t, params)
        point = _junction(parts, part, pair, t, params)
        reader = Reader(part.part, t, params)
        solids |= part.shapes(Drawing(name, part.bodies, pair, reader, sketch, point))
    centers = {f"{n}.center": link.center for n, link in links.items() if link.is_rigid}
    return {**solids, **centers}


def joint_points(
    kinematics: AbstractKinematics, joints: Iterable[Any], q: Array, t: Array, params: Any
) -> dict[str, Array]:
    """The points of joints on their second bodies, where their loads act, by name."""
    points: Shapes = {}
    for joint in joints:
        if isinstance(joint, Joint) and joint.name:
            frame = kinematics.frames(joint.bodies[1:2], q, t, params)[0]
            points[joint.name] = joint.point_on_b(frame, Reader(joint.part, t, params))
    return points


def _junction(
    parts: Sequence[Any], part: Any, frames: Sequence[Frame], t: Array, params: Any
) -> Array:
    """The point of a joint, or of the joint between the bodies of a part; else their origin."""
    names = [body.name for body in part.bodies]
    for joint in (part, *parts):
        if isinstance(joint, Joint) and joint.has_point:
            pair = [body.name for body in joint.bodies[:2]]
            if joint is part or {*pair} == {*names}:
                frame = frames[names.index(pair[1])]
                return jnp.asarray(joint.point_on_b(frame, Reader(joint.part, t, params)))
    return jnp.asarray(frames[-1].origin)


def _named(
    kinematics: AbstractKinematics, parts: Iterable[Any]
) -> Iterable[tuple[str, Joint | AbstractForce]]:
    """The parts with different names: a joint may have no name, or that of a body."""
    names = {body.name for body in kinematics.bodies}
    for part in parts:
        name = part.name if isinstance(part, Joint) else part.part
        while name in names:
            name += ".joint"
        names.add(name)
        yield name, part


def _marks(
    kinematics: AbstractKinematics, parts: Iterable[Any]
) -> tuple[dict[str, list[Vector]], set[str]]:
    """The points where parts act on bodies, and the names of the bodies that parts draw."""
    points: dict[str, list[Vector]] = {body.name: [] for body in kinematics.bodies}
    covered: set[str] = set()
    for part in parts:
        for k, local in part.marks:
            of_body = points.get(part.bodies[k].name, [])
            of_body += [local] if local not in of_body else []
        covered |= {part.bodies[k].name for k in part.drawn_bodies}
    return points, covered


def _levels(bodies: Sequence[AbstractBody], parts: Iterable[Any]) -> dict[str, int]:
    """A depth for each body, different for those that are connected."""
    neighbours: dict[str, set[str]] = {body.name: set() for body in bodies}
    for part in parts:
        names = {body.name for body in part.bodies} & set(neighbours)
        for name in names if isinstance(part, Joint) else ():
            neighbours[name] |= names - {name}
    levels: dict[str, int] = {}
    for name, others in neighbours.items():
        taken = {levels[other] for other in others if other in levels}
        levels[name] = next(k for k in range(len(bodies)) if k not in taken)
    return levels


def direction_of(gravity: Gravity | None, d: int, read: Reader) -> Any:
    """The unit vector along which gravity pulls, (d,); downwards if there is none."""
    if gravity is None or gravity.down is None:
        return -np.eye(d)[-1]
    u = read.vector(gravity.down, d)
    return u / jnp.sqrt(u @ u)


class _Link:
    """A body as a link: its points in its own frame, and what they span."""

    def __init__(self, body: Any, frame: Frame, points: Sequence[Vector], read: Reader) -> None:
        self.body, self.frame, self.read = body, frame, read
        self.is_rigid = isinstance(body, AbstractRigidBody)
        d = body.dimension
        self.local = _center(body, read) if self.is_rigid else np.zeros(d)
        self.center = jnp.asarray(frame.point(self.local))
        ends = [jnp.asarray(read.vector(point, d)) for point in points]
        self.gyration = _gyration(body, read) if self.is_rigid else jnp.zeros(())
        self.count = len(ends)
        if self.count == 1 and self.is_rigid:
            ends.append(self._far_end(ends[0]))
        self.points = jnp.stack([jnp.asarray(self.local, self.center.dtype), *ends])
        reach = jnp.max(
            jnp.linalg.norm(self.points - self.points.mean(axis=0, keepdims=True), axis=1)
        )
        self.is_bare = reach <= _BARE * self.gyration
        self.length = jnp.where(self.is_bare, 2 * self.gyration, 2 * reach)

    def _far_end(self, mark: Array) -> Array:
        """The other end of a bar from a mark, as long as a uniform bar of this inertia."""
        away = self.local - mark
        distance = jnp.sqrt(away @ away)
        beyond = jnp.minimum(np.sqrt(3) * self.gyration, distance)
        return jnp.asarray(self.local) + away * beyond / jnp.where(distance == 0, 1.0, distance)

    def shapes(self, sketch: Sketch, *, is_covered: bool) -> Shapes:
        """The solids of the body."""
        name, d = self.body.name, self.body.dimension
        height, level = sketch.height, sketch.depth(name)
        if not self.is_rigid:
            ball = scaled(
                meshes.sphere().vertices,
                [1.8 * sketch.width] * 3,
                (0.0, 0.0, level if d == 2 else 0.0),
            )
            return {name: Solid(self.frame.origin, self.frame.axes, ball, meshes.sphere().faces)}
        if self.body.visual:
            return {
                name if k == 0 else f"{name}.{k + 1}": visual.solid(
                    self.frame, self.local, self.read, height, level
                )
                for k, visual in enumerate(self.body.visual)
            }
        if is_covered and self.count < 2:
            return {}
        radius = jnp.minimum(sketch.width, _SHORT * self.length)
        if d == 2:
            return self._in_plane(radius, height, level)
        corners = self._corners() if self.count < 2 else self.points
        padded = jnp.concatenate(
            [self.points] + [self.points[:1]] * (len(corners) - len(self.points))
        )
        vertices, faces = hull(jnp.where(self.is_bare, corners, padded), radius)
        return {name: Solid(self.frame.origin, self.frame.axes, vertices, faces)}

    def _in_plane(self, radius: Array, height: Array, level: Array) -> Shapes:
        disc = np.sqrt(2) * self.gyration
        vertices, faces = hull(self.points, jnp.where(self.is_bare, disc, radius))
        flat = scaled(vertices, (1.0, 1.0, height), (0.0, 0.0, level))
        link = {self.body.name: Solid(self.frame.origin, self.frame.axes, flat, faces)}
        if self.count > 1:
            return link
        # A line on a disc shows how it turns; elsewhere it has no size.
        size = jnp.where(self.is_bare, disc, 0.0)
        bar = meshes.box().moved((0.5, 0.0, 0.0))
        shift = (*self.local, level + 0.55 * height)
        flat_bar = scaled(bar.vertices, (size, 0.1 * size, 0.2 * height), shift)
        flat_bar = jnp.where(self.is_bare, flat_bar, 0.0)
        mark = Solid(self.frame.origin, self.frame.axes, flat_bar, meshes.box().faces, DARK)
        return {**link, f"{self.body.name}.radius": mark}

    def _corners(self) -> Array:
        """The corners of the box, with axes of its own, that has the inertia of the body."""
        m, _ = self.body.properties.static(self.read, 3)
        c = self.local
        inertia = self.body.properties.spatial_inertia(self.read)
        inertia = inertia - m * (c @ c * np.eye(3) - c[:, None] * c[None])
        moments, axes = jnp.linalg.eigh(jnp.asarray(inertia))
        squares = 1.5 * (moments.sum() - 2 * moments) / jnp.where(m == 0, 1.0, m)
        half = jnp.sqrt(jnp.maximum(squares, 0.0))
        signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(8, 3)
        return jnp.asarray(c)[None] + 0.8 * (signs * half[None]) @ axes.T


def _center(body: AbstractRigidBody, read: Reader) -> Array:
    m, S = body.properties.static(read, body.dimension)
    return jnp.asarray(S) / jnp.where(m == 0, 1.0, m)


def _gyration(body: Any, read: Reader) -> Array:
    """The radius of gyration about the centre of mass [m]; in space that of half the moments."""
    m, _ = body.properties.static(read, body.dimension)
    c = _center(body, read)
    if body.dimension == 2:
        moment = body.properties.planar_inertia(read) - m * (c @ c)
    else:
        moment = jnp.trace(body.properties.spatial_inertia(read)) / 2 - m * (c @ c)
    radius: Array = jnp.sqrt(jnp.maximum(moment, 0.0) / jnp.where(m == 0, 1.0, m))
    return radius
