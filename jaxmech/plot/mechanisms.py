"""The shapes by which a mechanism is drawn, from its parts alone.

A body is drawn by its `Visual`s. Without any it is a link: the hull of its centre of mass and of
the points where joints and forces act on it, with a thickness that suits the mechanism; a body
without such points is a disc or box with its inertia. Bodies in the plane have a depth of their
own, so that links at a joint lie on top of each other. Joints and forces are drawn by a table from
kinds to solids, in half widths of a link.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import (
    BY_BODY,
    DARK,
    GROUND,
    SPRING,
    Solid,
    between,
    circle,
    hull,
    line,
    scaled,
)
from jaxmech.meshes import Triangles
from jaxmech.parts import Frame, Joint, Mechanism, Reader, gravity, vectors

STEEL, DAMPER, TYRE = (0.5, 0.53, 0.57), (0.35, 0.38, 0.42), (0.25, 0.25, 0.27)

_FAR = 1e3  # half the length of a straight ground [m]; a picture shows the visible part
_TEETH, _MOST_TEETH = 16, 120  # of the smallest gear of a pair, and of any
_BELT = 96  # points of a belt

Shapes = dict[str, Any]
_WIDTH = 0.045  # half the width of a link, relative to the longest one
_SHORT = 0.3  # half the width of a short link, relative to its length
_BARE = 1e-3  # size relative to the radius of gyration below which a body has no extension


@dataclass(frozen=True)
class Sketch:
    """What the drawings of a mechanism have in common.

    Attributes:
        width: half the width of a link [m].
        levels: the depth of each body in the plane, in layers; the ground is behind all of them.
        down: unit vector along which gravity pulls.
    """

    width: Array
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
    """A joint or force to draw.

    Attributes:
        name: the name with which those of its shapes begin.
        part: the joint or force, whose fields have its points, axes and sizes.
        frames: the frames of its bodies.
        read: reader of its values.
        sketch: what all drawings of the mechanism have in common.
        point: the joint on the second body; for a force that of the joint between its bodies.
    """

    name: str
    part: Any
    frames: Sequence[Frame]
    read: Reader
    sketch: Sketch
    point: Array

    @property
    def size(self) -> int:
        """2 in the plane, 3 in space."""
        return len(self.frames[0].origin)

    @property
    def width(self) -> Array:
        return self.sketch.width

    @property
    def ends(self) -> tuple[Array, Array]:
        """The points on both bodies."""
        return self.on(0, self.part.at_a), self.on(1, self.part.at_b)

    @property
    def is_on_ground(self) -> bool:
        return self.part.bodies[0].name == "ground"

    def on(self, k: int, local: Any) -> Array:
        """A point of a body, along the axes of the ground."""
        return jnp.asarray(self.frames[k].point(self.read.vector(local, self.size)))

    def depth(self, k: int) -> Array:
        """The depth of a body in the plane [m]."""
        return self.sketch.depth(self.part.bodies[k].name)

    def has_visual(self, k: int) -> bool:
        return bool(getattr(self.part.bodies[k], "visual", ()))

    def pointing(self, k: int, axis: Any) -> Array:
        """A direction on a body as a unit vector along the axes of the ground."""
        return self.axes(k, axis)[:, 0 if self.size == 2 else -1]

    def axes(self, k: int, axis: Any) -> Array:
        """Axes (d, d) on a body; the given one is the last in space, the first in the plane."""
        u = jnp.asarray(self.read.vector(axis, self.size))
        u = u / jnp.sqrt(u @ u)
        columns = *self.frames[k].normals(u), self.frames[k].direction(u)
        return jnp.stack(columns[::-1] if self.size == 2 else columns, axis=1)

    def solid(
        self, mesh: Triangles, axes: Any, scale: Sequence[float], color: Any = STEEL, *,
        at: Any = None, depth: Any = 0.0,
    ) -> Solid:  # fmt: skip
        """A mesh, by default at the joint, with a scale in half widths of a link."""
        vertices = scaled(mesh.vertices, [x * self.width for x in scale], (0.0, 0.0, depth))
        return Solid(self.point if at is None else at, axes, vertices, mesh.faces, color)

    def bead(self, end: Any) -> Solid:
        """A small ball on the last body."""
        return self.solid(meshes.sphere(), self.frames[-1].axes, (1.0,) * 3, at=jnp.asarray(end))

    def base(self) -> Shapes:
        """What holds a joint to the ground, if its first body is the ground."""
        if not self.is_on_ground or self.has_visual(1):
            return {}
        down, depth = jnp.asarray(self.sketch.down), 0.0 * self.width
        if self.size == 3:
            mesh, axes = meshes.foot(), jnp.stack([*self.frames[0].normals(down), down], axis=1)
        else:
            mesh, depth = meshes.support(), self.sketch.depth("ground")
            axes = jnp.stack([jnp.stack([-down[1], down[0]]), -down], axis=1)
        return {f"{self.name}.ground": self.solid(mesh, axes, (1.0,) * 3, GROUND, depth=depth)}

    def rail(self) -> Shapes:
        """A bar along an axis on a, over all positions that the joint reaches."""
        axes, start = self.axes(0, self.part.axis), self.on(0, self.part.at_a)
        reach = axes[:, 0 if self.size == 2 else -1] @ (self.point - start)
        if self.size == 3:  # the reach is along x
            axes = axes[:, jnp.array([2, 0, 1])]
        bar, thick, past = meshes.box().moved((0.5, 0.0, 0.0)), 0.9 * self.width, 3 * self.width
        depth = self.sketch.depth("ground") if self.size == 2 else 0.0
        vertices = scaled(bar.vertices, (1 + 2 * past, thick, thick), (-past, 0.0, depth))
        color = GROUND if self.is_on_ground else STEEL
        return {f"{self.name}.rail": Solid(start, axes, vertices, bar.faces, color, reach)}

    def ground_line(self, at_a: Any, normal: Any) -> Shapes:
        """The straight ground in the plane, across a normal."""
        if self.size == 3 or not self.is_on_ground:
            return {}
        origin, along = self.on(0, at_a), self.axes(0, normal)[:, 1]
        return {f"{self.name}.ground": line(origin + _FAR * along, origin - _FAR * along)}

    def wheel(self, k: int, center: Array, radius: Any, axle: Any, color: Any = BY_BODY) -> Solid:
        """A wheel with spokes."""
        mesh, r = meshes.wheel(), jnp.abs(self.read.number(radius))
        if self.size == 2:
            axes, height, depth = self.frames[k].axes, self.sketch.height, self.depth(k)
        else:
            axes, height, depth = self.axes(k, axle), 0.18 * r, jnp.zeros(())
        vertices = scaled(mesh.vertices, (r, r, height), (0.0, 0.0, depth))
        return Solid(center, axes, vertices, mesh.faces, color)


def _ball(x: Drawing) -> Shapes:
    return {x.name: x.solid(meshes.sphere(), x.frames[1].axes, (1.5,) * 3), **x.base()}


def _universal(x: Drawing) -> Shapes:
    """A ball with two arms."""
    shapes = {x.name: x.solid(meshes.sphere(), x.frames[1].axes, (1.0,) * 3, DARK)}
    for k, (end, axis) in enumerate({"a": x.part.axis_a, "b": x.part.axis_b}.items()):
        shapes[f"{x.name}.arm_{end}"] = x.solid(
            meshes.cylinder(16), x.axes(k, axis), (0.45, 0.45, 4.0)
        )
    return shapes | x.base()


def _revolute(x: Drawing) -> Shapes:
    """A pin, in space in a collar."""
    mesh, shapes = meshes.cylinder(24), x.base()
    if x.size == 3:
        axes = x.axes(1, x.part.axis_b)
        shapes[x.name] = x.solid(mesh, axes, (0.75, 0.75, 3.0))
        if not (x.has_visual(0) or x.has_visual(1)):
            shapes[f"{x.name}.collar"] = x.solid(mesh, axes, (1.3, 1.3, 1.7), DARK)
        return shapes
    names = sorted((b.name for b in x.part.bodies), key=lambda n: x.sketch.levels.get(n, -1))
    low, high = map(x.sketch.depth, names)
    size = 0.5 * x.width, 0.5 * x.width, high - low + 1.3 * x.sketch.height
    vertices = scaled(mesh.vertices, size, (0.0, 0.0, (high + low) / 2))
    return {x.name: Solid(x.point, x.frames[1].axes, vertices, mesh.faces, DARK), **shapes}


def _prismatic(x: Drawing) -> Shapes:
    """A block on a rail."""
    size = (3.6, 2.4, 1.0) if x.size == 2 else (2.4, 2.4, 3.6)
    depth = x.depth(1) if x.size == 2 else 0.0
    block = x.solid(meshes.box(), x.axes(0, x.part.axis), size, BY_BODY, depth=depth)
    return {f"{x.part.bodies[1].name}.block": block, **x.rail()}


def _sleeve(x: Drawing) -> Shapes:
    """A sleeve on a rail."""
    axes = x.axes(1, x.part.axis_b)
    return {x.name: x.solid(meshes.cylinder(24), axes, (1.5, 1.5, 3.6), DARK), **x.rail()}


def _planar(x: Drawing) -> Shapes:
    """A ball on a plate."""
    axes, at = x.axes(0, x.part.normal), x.on(0, x.part.at_a)
    plate = x.solid(meshes.box(), axes, (14.0, 14.0, 0.3), GROUND, at=at)
    ball = x.solid(meshes.sphere(), x.frames[1].axes, (1.0,) * 3)
    return {x.name: ball, f"{x.name}.plate": plate}


def _bead(x: Drawing) -> Shapes:
    return {x.name: x.bead(x.on(-1, x.part.at_b))}


def _guided_bead(x: Drawing) -> Shapes:
    """A bead, and the line from the point on a to it."""
    return {f"{x.name}.guide": line(*x.ends), **_bead(x)}


def _other(x: Drawing) -> Shapes:
    """A bead where a joint of the user is, on its way along a; nothing for a force."""
    if not hasattr(x.part, "point_on_b") or getattr(x.part, "at_b", None) is None:
        return {}
    return _guided_bead(x) if getattr(x.part, "slides", False) else _bead(x)


def _rolling(x: Drawing) -> Shapes:
    """A wheel on its ground, or a sphere with three circles on it."""
    part, shapes = x.part, x.ground_line(x.part.at_a, x.part.normal)
    if x.has_visual(1):
        return shapes
    axle, key, center = getattr(part, "axle", None), f"{x.name}.wheel", x.on(1, part.at_b)
    if x.size == 2 or axle is not None:
        color = BY_BODY if axle is None else TYRE
        return {**shapes, key: x.wheel(1, center, part.radius, axle, color)}
    axes, r, mesh = x.frames[1].axes, x.read.number(part.radius), meshes.sphere()
    circles = [circle(center, r, line(axes[:, i], axes[:, i - 1])) for i in range(3)]
    shapes |= {f"{x.name}.circle{i + 1}": ring for i, ring in enumerate(circles)}
    return {**shapes, key: Solid(center, axes, 0.99 * r * mesh.vertices, mesh.faces)}


def _knife_edge(x: Drawing) -> Shapes:
    end, reach = x.on(1, x.part.at_b), 5 * x.width * x.pointing(1, x.part.along)
    return {f"{x.name}.blade": line(end - reach, end + reach)}


def _contact(x: Drawing) -> Shapes:
    """The foot on a plane, and in the plane the line, if a is the ground."""
    if x.part.normal is None:
        return {}
    has_foot = x.part.bodies[1].rotates and not x.has_visual(1)
    return {**(_bead(x) if has_foot else {}), **x.ground_line(x.part.at_a, x.part.normal)}


def _stop(x: Drawing) -> Shapes:
    """A peg for each stop of a slide, and of a hinge in the plane where its body turns to it."""
    freedom, ends = x.part.freedom, {"lower": x.part.lower, "upper": x.part.upper}
    places = {name: x.read.number(end) for name, end in ends.items() if end is not None}
    if hasattr(freedom, "axis"):
        start, along = x.on(0, freedom.at_a), x.pointing(0, freedom.axis)
        places = {name: start + end * along for name, end in places.items()}
    elif x.size == 3:
        return {}
    else:
        angle, center = freedom.position(x.frames, x.read), x.part.bodies[1].properties.center
        arm = (x.frames[1].origin if center is None else x.on(1, center)) - x.point
        turns = {name: vectors.plane_rotation(end - angle) for name, end in places.items()}
        places = {name: x.point + turn @ arm for name, turn in turns.items()}
    return {f"{x.name}.{name}": x.bead(place) for name, place in places.items()}


def _rope(x: Drawing) -> Shapes:
    return {x.name: line(*x.part.course(x.frames, x.read))}


def _gears(x: Drawing) -> Shapes:
    """Two gear wheels whose teeth mesh, or two pulleys with their belt."""
    part, is_belt = x.part, x.part.kind == "belt"
    radii = part.radius_a, part.radius_b
    has_teeth = not is_belt and all(isinstance(r, float) for r in radii)
    centers = [jnp.asarray(frame.origin) for frame in x.frames[:2]]
    shapes: Shapes = {}
    for k, (radius, axis) in enumerate(zip(radii, (part.axis_a, part.axis_b), strict=True)):
        if x.has_visual(k):
            continue
        wheel = x.wheel(k, centers[k], radius, axis)
        if has_teeth:
            teeth = min(round(_TEETH * abs(radius) / min(map(abs, radii))), _MOST_TEETH)
            away = centers[1 - k] - centers[k]
            # Of an external pair the other wheel is where they touch, of an internal one away.
            away = -away if radius > 0 > radii[1 - k] else away
            wheel = _with_teeth(wheel, radius, teeth, away, np.pi / teeth if k else 0.0)
        shapes[f"{part.bodies[k].name}.{x.name}"] = wheel  # in the colour of its body
    if is_belt:
        across = x.frames[0].axes if part.axis_a is None else x.axes(0, part.axis_a)
        shapes[f"{x.name}.belt"] = _belt(centers, [x.read.number(r) for r in radii], across)
    return shapes


def _with_teeth(wheel: Solid, radius: float, teeth: int, contact: Array, shift: float) -> Solid:
    """A wheel as a gear with a tooth at an angle from the direction of its contact."""
    mesh = meshes.gear(teeth, internal=radius < 0)
    away = wheel.axes.T @ contact
    turn = jnp.arctan2(away[1], away[0]) + shift
    c, s = jnp.cos(turn), jnp.sin(turn)
    flat = mesh.vertices[:, :2] @ jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])])
    width = jnp.ptp(wheel.vertices[:, 2])
    middle = (wheel.vertices[:, 2].max() + wheel.vertices[:, 2].min()) / 2
    height = mesh.vertices[:, 2] * width / 1.3 + middle
    vertices = jnp.concatenate([abs(radius) * flat, height[:, None]], axis=1)
    return wheel._replace(vertices=vertices, faces=mesh.faces)


def _belt(centers: Sequence[Array], radii: Sequence[Any], axes: Any) -> Array:
    """A line around two pulleys, whose last part is that of its first, so that it stays open."""
    u = meshes.directions_in_plane(_BELT) @ jnp.asarray(axes)[:, :2].T
    reach = jnp.stack([u @ c + r for c, r in zip(centers, radii, strict=True)])
    ends = jnp.stack([c[None] + r * u for c, r in zip(centers, radii, strict=True)])
    ring = jnp.where((reach[0] > reach[1])[:, None], ends[0], ends[1])
    return jnp.concatenate([ring, ring[:2]])


def _rack(x: Drawing) -> Shapes:
    """A pinion, and the bar that it moves; with teeth if its radius is a number."""
    part, (pinion, bar, _) = x.part, x.frames
    axes, depth = x.axes(2, part.axis), x.depth(1)
    if part.axis_a is not None:
        u, z = x.pointing(2, part.axis), x.pointing(0, part.axis_a)
        axes, depth = jnp.stack([u, jnp.cross(z, u), z], axis=1), jnp.zeros(())
    r = x.read.number(part.radius)
    center = jnp.asarray(pinion.origin)
    wheel = x.wheel(0, center, part.radius, part.axis_a)
    width = jnp.ptp(wheel.vertices[:, 2])
    way = axes[:, 0] @ (jnp.asarray(bar.origin) - center)
    module = 2 * r / _TEETH
    mesh = meshes.rack(_TEETH + 1)  # a tooth is where the pinion has a gap
    if isinstance(part.radius, float):
        wheel = _with_teeth(wheel, part.radius, _TEETH, -axes[:, 1], np.pi / _TEETH)
    else:
        mesh = meshes.box().moved((0.0, -2.5, 0.0), np.diag([np.pi * _TEETH, 5.0, 1.0]))
    vertices = scaled(mesh.vertices, (module, module, width), (-way, 0.0, depth))
    origin = center - r * axes[:, 1] + way * axes[:, 0]
    shapes = {f"{part.bodies[1].name}.{x.name}": Solid(origin, axes, vertices, mesh.faces)}
    if not x.has_visual(0):
        shapes[f"{part.bodies[0].name}.{x.name}"] = wheel
    return shapes


def _torsion_spring(x: Drawing) -> Shapes:
    """A spiral about the axis, whose outer end turns with the second body."""
    axes, depth = jnp.asarray(x.frames[1].axes), 2.5 * x.sketch.height * len(x.sketch.levels)
    if x.size == 3:
        axes, depth = x.axes(1, x.part.axis_b), 2.5 * x.width
    return {x.name: x.solid(meshes.spiral(), axes, (3.5,) * 3, SPRING, depth=depth)}


def _stretched(mesh: Triangles, width: float, color: Any) -> Callable[[Drawing], Shapes]:
    """A mesh along x between the points on both bodies."""
    return lambda x: {x.name: between(mesh, *x.ends, width * x.width, color=color)}


# From between -1/2 and 1/2 about z to 0 and 1 along x.
_ROD = meshes.cylinder(16).moved((0.5, 0, 0), np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]))

SHAPES: dict[str, Callable[[Drawing], Shapes]] = {
    "revolute joint": _revolute,
    "prismatic joint": _prismatic,
    "weld": Drawing.base,
    "cylindrical joint": _sleeve,
    "screw": _sleeve,
    "planar joint": _planar,
    "spherical joint": _ball,
    "universal joint": _universal,
    "distance": _stretched(_ROD, 0.45, STEEL),
    "point on line": _guided_bead,
    "point on plane": lambda x: {},
    "given angle": lambda x: {},
    "given point": _bead,
    "given position": lambda x: x.ground_line(x.part.at_a, x.part.axis),
    "rolling disk": _rolling,
    "rolling sphere": _rolling,
    "rolling wheel": _rolling,
    "knife edge": _knife_edge,
    "gear": _gears,
    "belt": _gears,
    "rack": _rack,
    "contact": _contact,
    "stop": _stop,
    "rope": _rope,
    "dry friction": lambda x: {},
    "spring": _stretched(meshes.coil(), 1.4, SPRING),
    "damper": _stretched(meshes.dashpot(), 1.1, DAMPER),
    "torsion spring": _torsion_spring,
}
# The kinds whose points are not on the links that they connect, and those that draw bodies as
# wheels or blocks, with the indices of these bodies.
_UNMARKED = ("planar joint", "point on plane", "given position")
_DRAWN = {"prismatic joint": (1,), "gear": (0, 1), "belt": (0, 1), "rack": (0, 1)}


def _marks(part: Any) -> list[tuple[int, Any]]:
    """The points at which it acts on bodies, each with the index of the body."""
    if part.kind in _UNMARKED or part.kind.startswith("rolling"):
        return []
    if part.kind == "contact":
        return [] if part.normal is None else [(1, part.at_b)]
    b = getattr(part, "at_b", None) or getattr(part, "at", None)
    points = [(0, getattr(part, "at_a", None)), (-1, b)]
    return [(k, point) for k, point in points if point is not None]


def shapes_of_mechanism(mechanism: Mechanism, q: Array, t: Array, params: Any) -> Shapes:
    """The shapes of bodies, and of the joints and forces between them, by name."""
    kinematics, bodies = mechanism.kinematics, mechanism.bodies
    connections: tuple[Any, ...] = (*mechanism.joints, *mechanism.forces)
    parts = [x for x in connections if hasattr(x, "bodies")]
    d, frames = bodies[0].dimension, kinematics.frames(bodies, q, t, params)
    points: dict[str, list[Any]] = {body.name: [] for body in bodies}
    covered: set[str] = set()
    for part in parts:
        for k, local in _marks(part):
            of_body = points.get(part.bodies[k].name, [])
            of_body += [local] if local not in of_body else []
        drawn = (1,) if part.kind.startswith("rolling") else _DRAWN.get(part.kind, ())
        covered |= {part.bodies[k].name for k in drawn}
    links = {
        body.name: _Link(body, frame, points[body.name], Reader(body.part, t, params))
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
        draw = SHAPES.get(part.kind, _other)
        shapes |= draw(Drawing(name, part, pair, read, sketch, point))
    centers = {f"{name}.center": link.center for name, link in links.items() if link.is_rigid}
    return {**shapes, **centers}


def down_of(mechanism: Mechanism, t: Any, params: Any) -> Any:
    """The unit vector along which gravity pulls, (d,); downwards if there is none."""
    weight = next((force for force in mechanism.forces if isinstance(force, gravity)), None)
    d = mechanism.bodies[0].dimension
    if weight is None or weight.down is None:
        return -np.eye(d)[-1]
    u = Reader("gravity", t, params).vector(weight.down, d)
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
            # The other end of a bar from this one, as long as a uniform bar of this inertia.
            away = self.local - ends[0]
            distance = jnp.sqrt(away @ away)
            beyond = jnp.minimum(np.sqrt(3) * self.gyration, distance)
            length = jnp.where(distance == 0, 1.0, distance)
            ends.append(jnp.asarray(self.local) + away * beyond / length)
        self.points = jnp.stack([jnp.asarray(self.local, self.center.dtype), *ends])
        reach = jnp.max(
            jnp.linalg.norm(self.points - self.points.mean(axis=0, keepdims=True), axis=1)
        )
        self.is_bare = reach <= _BARE * self.gyration
        self.length = jnp.where(self.is_bare, 2 * self.gyration, 2 * reach)

    def shapes(self, sketch: Sketch, *, is_covered: bool) -> Shapes:
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
        radius, points = jnp.minimum(sketch.width, _SHORT * self.length), self.points
        disc = np.sqrt(2) * self.gyration
        if d == 2:
            radius = jnp.where(self.is_bare, disc, radius)
        elif self.count < 2:  # the box, with axes of its own, that has the inertia of the body
            moments, axes = jnp.linalg.eigh(self.inertia)
            squares = 1.5 * (moments.sum() - 2 * moments) / self.mass
            half, signs = (
                jnp.sqrt(jnp.maximum(squares, 0.0)),
                np.array([*product((-1, 1), repeat=3)]),
            )
            corners = self.local[None] + 0.8 * (signs * half[None]) @ axes.T
            padded = points[np.minimum(np.arange(8), len(points) - 1)]
            points = jnp.where(self.is_bare, corners, padded)
        vertices, faces = hull(points, radius)
        if d == 2:
            vertices = scaled(vertices, (1.0, 1.0, height), (0.0, 0.0, level))
        shapes = {name: Solid(self.frame.origin, self.frame.axes, vertices, faces)}
        if d == 2 and self.count < 2:
            # A line on a disc shows how it turns; elsewhere it has no size.
            size, thickness = (jnp.where(self.is_bare, x, 0.0) for x in (disc, 0.2 * height))
            mesh, shift = meshes.box().moved((0.5, 0.0, 0.0)), (*self.local, level + 0.55 * height)
            bar = scaled(mesh.vertices, (size, 0.1 * size, thickness), shift)
            mark = Solid(self.frame.origin, self.frame.axes, bar, mesh.faces, DARK)
            shapes[f"{name}.radius"] = mark
        return shapes
