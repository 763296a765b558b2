"""The shapes by which a mechanism is drawn, from its parts alone.

A body is drawn by its `Visual`s. Without any it is a link: the hull of its centre of mass and of
the points where joints and forces act on it, with a thickness that suits the mechanism; a body
without such points is a disc or box with its inertia. Bodies in the plane have a depth of their
own, so that links at a joint lie on top of each other. `connections` draws joints and forces.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import DARK, Solid, hull, scaled
from jaxmech.parts import Frame, Gravity, Joint, Mechanism, Reader
from jaxmech.plot.connections import Drawing, Shapes, Sketch, drawn_bodies, marks_of, shapes_of

_WIDTH = 0.045  # half the width of a link, relative to the longest one
_SHORT = 0.3  # half the width of a short link, relative to its length
_BARE = 1e-3  # size relative to the radius of gyration below which a body has no extension


def shapes_of_mechanism(mechanism: Mechanism, q: Array, t: Array, params: Any) -> Shapes:
    """The shapes of bodies, and of the joints and forces between them, by name."""
    kinematics, bodies = mechanism.kinematics, mechanism.bodies
    connections: tuple[Any, ...] = (*mechanism.joints, *mechanism.forces)
    parts = [x for x in connections if hasattr(x, "bodies")]
    d, frames = bodies[0].dimension, kinematics.frames(bodies, q, t, params)
    points: dict[str, list[Any]] = {body.name: [] for body in bodies}
    covered: set[str] = set()
    for part in parts:
        for k, local in marks_of(part):
            of_body = points.get(part.bodies[k].name, [])
            of_body += [local] if local not in of_body else []
        covered |= {part.bodies[k].name for k in drawn_bodies(part)}
    links = {
        body.name: _Link(body, frame, points[body.name], Reader(f"body {body.name!r}", t, params))
        for body, frame in zip(bodies, frames, strict=True)
    }
    longest = jnp.max(jnp.stack([jnp.asarray(link.length) for link in links.values()]))
    sketch = Sketch(_WIDTH * longest, _levels(bodies, parts), down_of(mechanism, t, params))
    shapes: Shapes = {}
    for name, link in links.items():
        shapes |= link.shapes(sketch, is_covered=name in covered)
    scenery, read = mechanism.scenery, Reader("the scenery", t, params)
    at_rest = (np.zeros(d), np.eye(d), np.zeros(() if d == 2 else 4))
    for k, visual in enumerate(scenery):
        placed = visual.solid(Frame(*at_rest), np.zeros(d), read, sketch.height, -sketch.height)
        shapes[f"ground.{k}"] = placed
    names = set(points)
    for part in parts:
        name = part.name if isinstance(part, Joint) else part.part
        while name in names:  # a joint may have no name, or that of a body
            name += ".joint"
        names.add(name)
        pair, read = kinematics.frames(part.bodies, q, t, params), Reader(part.part, t, params)
        point = _junction(parts, part, pair, t, params)
        shapes |= shapes_of(Drawing(name, part, pair, read, sketch, point))
    centers = {f"{name}.center": link.center for name, link in links.items() if link.is_rigid}
    return {**shapes, **centers}


def down_of(mechanism: Mechanism, t: Any, params: Any) -> Any:
    """The unit vector along which gravity pulls, (d,); downwards if there is none."""
    gravity = next((force for force in mechanism.forces if isinstance(force, Gravity)), None)
    d = mechanism.bodies[0].dimension
    if gravity is None or gravity.down is None:
        return -np.eye(d)[-1]
    u = Reader("gravity", t, params).vector(gravity.down, d)
    return u / jnp.sqrt(u @ u)


def _junction(
    parts: Sequence[Any], part: Any, frames: Sequence[Frame], t: Array, params: Any
) -> Array:
    """The point of a joint, or of the joint between the bodies of a part; else their origin."""
    names = [body.name for body in part.bodies]
    for joint in (part, *parts):
        if isinstance(joint, Joint) and getattr(joint, "at_b", None) is not None:
            pair = [body.name for body in joint.bodies[:2]]
            if joint is part or {*pair} == {*names}:
                frame = frames[names.index(pair[1])]
                return jnp.asarray(joint.point_on_b(frame, Reader(joint.part, t, params)))
    return jnp.asarray(frames[-1].origin)


def _levels(bodies: Sequence[Any], parts: Sequence[Any]) -> dict[str, int]:
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


class _Link:
    """A body as a link: its points in its own frame, and what they span."""

    def __init__(self, body: Any, frame: Frame, points: Sequence[Any], read: Reader) -> None:
        self.body, self.frame, self.read = body, frame, read
        self.is_rigid = body.rotates
        d = body.dimension
        mass, static, inertia = body.inertia(read)
        self.local = c = jnp.asarray(static) / jnp.where(mass == 0, 1.0, mass)
        self.center = jnp.asarray(frame.point(self.local))
        # The inertia about the centre of mass, and its radius; in space that of half the moments.
        shift = c @ c if d == 2 else c @ c * np.eye(3) - c[:, None] * c[None]
        self.inertia = jnp.asarray(inertia) - mass * shift
        moment = self.inertia if d == 2 else jnp.trace(self.inertia) / 2
        self.mass = jnp.where(mass == 0, 1.0, mass)
        self.gyration = jnp.sqrt(jnp.maximum(moment, 0.0) / self.mass)
        ends = [jnp.asarray(read.vector(point, d)) for point in points]
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
            ball, lift = meshes.sphere(), (0.0, 0.0, level if d == 2 else 0.0)
            vertices = scaled(ball.vertices, [1.8 * sketch.width] * 3, lift)
            return {name: Solid(self.frame.origin, self.frame.axes, vertices, ball.faces)}
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
        moments, axes = jnp.linalg.eigh(self.inertia)
        squares = 1.5 * (moments.sum() - 2 * moments) / self.mass
        half = jnp.sqrt(jnp.maximum(squares, 0.0))
        signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(8, 3)
        return self.local[None] + 0.8 * (signs * half[None]) @ axes.T
