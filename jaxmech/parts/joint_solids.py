"""How joints and forces are drawn: a table by kind of joint, another by class of element.

Sizes are in terms of half the width of a link, so that all parts of a mechanism match.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    line,
    scaled,
)
from jaxmech.meshes import Triangles
from jaxmech.parts.body import AbstractBody, Frame, Ground
from jaxmech.parts.contacts.base import AbstractContact
from jaxmech.parts.contacts.curves import RollerGap
from jaxmech.parts.forces.elements import AbstractForce, Applied, Damper, Spring, TorsionSpring
from jaxmech.parts.gaps.between_points import OverPlane
from jaxmech.parts.gaps.ropes import WithinLength, course
from jaxmech.parts.joint_base import Joint
from jaxmech.parts.position_equations import (
    Across,
    Apart,
    Coincide,
    Level,
    Mesh,
    OnSurface,
    Parallel,
    Perpendicular,
    RackMesh,
    across,
    pointing,
)
from jaxmech.parts.rigid_bodies import AbstractRigidBody
from jaxmech.parts.values import Reader, Value, Vector
from jaxmech.parts.vectors import normals, turned
from jaxmech.parts.velocity_equations import Edge, GearSpeed, RackSpeed, RoundSlip, WheelSlip

STEEL, DAMPER, TYRE = (0.5, 0.53, 0.57), (0.35, 0.38, 0.42), (0.25, 0.25, 0.27)

_TEETH, _MOST_TEETH = 16, 120  # of the smallest gear of a pair, and of any
_BELT = 96  # points of a belt
_FAR = 1e3  # half the length of a straight ground [m]; a picture shows the visible part

Shapes = dict[str, Any]
Frames = tuple[Frame, ...]


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
class _Drawn:
    """A joint to draw: its name, its two frames, and the point on its second body."""

    name: str
    joint: Joint
    frames: Frames
    read: Reader
    sketch: Sketch

    @property
    def d(self) -> int:
        return len(self.frames[0].origin)

    @property
    def point(self) -> Array:
        return jnp.asarray(self.joint.point_on_b(self.frames[1], self.read))

    def local(self, element: type) -> Any:
        return next(e for e in self.joint.positions if isinstance(e, element))

    def axes(self, k: int, axis: Vector) -> Array:
        """Axes (d, d) on a body; the given one is the last in space, the first in the plane."""
        u = pointing(self.frames[k], axis, self.read)
        if self.d == 2:
            return jnp.stack([jnp.asarray(u), jnp.asarray(turned(u))], axis=1)
        frame = self.frames[k]
        n = jnp.asarray(frame.axes) @ normals(frame.components(u)).T
        return jnp.concatenate([n, jnp.asarray(u)[:, None]], axis=1)

    def solid(
        self, mesh: Triangles, axes: Any, scale: Sequence[float], color: Any = STEEL, at: Any = None
    ) -> Solid:
        """A mesh at the point, with a scale in half widths of a link."""
        vertices = scaled(mesh.vertices, [x * self.sketch.width for x in scale])
        origin = self.point if at is None else at
        return Solid(origin, axes, vertices, mesh.faces, color)

    def base(self) -> Shapes:
        """What holds a joint to the ground, if one of its bodies is the ground."""
        a, b = self.joint.bodies[:2]
        if not isinstance(a, Ground) or _has_visual(b):
            return {}
        down = jnp.asarray(self.sketch.down)
        if self.d == 2:
            axes = jnp.stack([-jnp.asarray(turned(-down)), -down], axis=1)
            solid = self.solid(meshes.support(), axes, (1.0, 1.0, 1.0), GROUND)
            shift = (0.0, 0.0, self.sketch.depth("ground"))
            return {
                f"{self.name}.ground": solid._replace(
                    vertices=scaled(solid.vertices, (1.0,) * 3, shift)
                )
            }
        axes = jnp.concatenate([jnp.asarray(normals(down)).T, down[:, None]], axis=1)
        return {f"{self.name}.ground": self.solid(meshes.foot(), axes, (1.0, 1.0, 1.0), GROUND)}


def _has_visual(body: AbstractBody) -> bool:
    return isinstance(body, AbstractRigidBody) and bool(body.visual)


def _pin(j: _Drawn) -> Shapes:
    if j.d == 3:
        axis = j.local(Parallel).axis_b
        pin = j.solid(meshes.cylinder(24), j.axes(1, axis), (0.75, 0.75, 3.0))
        collar = j.solid(meshes.cylinder(24), j.axes(1, axis), (1.3, 1.3, 1.7), DARK)
        if any(map(_has_visual, j.joint.bodies)):
            return {j.name: pin, **j.base()}
        return {j.name: pin, f"{j.name}.collar": collar, **j.base()}
    names = sorted((body.name for body in j.joint.bodies), key=lambda x: j.sketch.levels.get(x, -1))
    low, high = map(j.sketch.depth, names)
    pin = j.solid(meshes.cylinder(24), j.frames[1].axes, (0.5, 0.5, 0.0), DARK)
    tall = (high - low + 1.3 * j.sketch.height) * meshes.cylinder(24).vertices[:, 2]
    lifted = pin.vertices.at[:, 2].set(tall + (high + low) / 2)
    return {j.name: pin._replace(vertices=lifted), **j.base()}


def _ball(j: _Drawn) -> Shapes:
    return {j.name: j.solid(meshes.sphere(), j.frames[1].axes, (1.5,) * 3), **j.base()}


def _cross(j: _Drawn) -> Shapes:
    arms = j.local(Perpendicular)
    a, b = (
        j.solid(meshes.cylinder(16), j.axes(k, axis), (0.45, 0.45, 4.0))
        for k, axis in ((0, arms.axis_a), (1, arms.axis_b))
    )
    hub = j.solid(meshes.sphere(), j.frames[1].axes, (1.0,) * 3, DARK)
    return {j.name: hub, f"{j.name}.arm_a": a, f"{j.name}.arm_b": b, **j.base()}


def _slider(j: _Drawn) -> Shapes:
    along = j.local(Across)
    start = j.frames[0].point(j.read.vector(along.at_a, j.d))
    axes = j.axes(0, along.axis)
    reach = axes[:, 0 if j.d == 2 else -1] @ (j.point - start)
    block = (3.6, 2.4, 1.0) if j.d == 2 else (2.4, 2.4, 3.6)
    body = j.solid(meshes.box(), axes, block, BY_BODY)
    if j.d == 2:
        depth = (0.0, 0.0, j.sketch.depth(j.joint.bodies[1].name))
        body = body._replace(vertices=scaled(body.vertices, (1.0,) * 3, depth))
    return {f"{j.joint.bodies[1].name}.block": body, f"{j.name}.rail": _rail(j, start, axes, reach)}


def _rail(j: _Drawn, start: Any, axes: Array, reach: Array) -> Solid:
    """A bar along an axis, over all places that the joint reaches."""
    width, d = j.sketch.width, j.d
    if d == 3:  # the reach is along x
        axes = axes[:, jnp.array([2, 0, 1])]
    bar = meshes.box().moved((0.5, 0.0, 0.0)).vertices
    past = np.where(bar[:, 0] > 0.5, 3.0, np.where(bar[:, 0] < 0.5, -3.0, 0.0))
    depth = j.sketch.depth("ground") if d == 2 else 0.0 * width
    vertices = jnp.stack(
        [bar[:, 0] + past * width, 0.9 * width * bar[:, 1], 0.9 * width * bar[:, 2] + depth], axis=1
    )
    color = GROUND if isinstance(j.joint.bodies[0], Ground) else STEEL
    return Solid(start, axes, vertices, meshes.box().faces, color, reach)


def _shaft(j: _Drawn) -> Shapes:
    along = j.local(Across)
    axes = j.axes(1, j.local(Parallel).axis_b)
    start = j.frames[0].point(j.read.vector(along.at_a, 3))
    rail_axes = j.axes(0, along.axis)
    rail = _rail(j, start, rail_axes, rail_axes[:, 2] @ (j.point - start))
    sleeve = j.solid(meshes.cylinder(24), axes, (1.5, 1.5, 3.6), DARK)
    return {j.name: sleeve, f"{j.name}.rail": rail}


def _screw(j: _Drawn) -> Shapes:
    shapes = _shaft(j)
    start, size = shapes[f"{j.name}.rail"], j.sketch.width
    mesh, place = meshes.coil(12, 0.2), (-4.5 * size, 0.0, 0.0)
    thread = scaled(mesh.vertices, (9 * size, size, size), place)
    axes = j.axes(0, j.local(Across).axis)[:, jnp.array([2, 0, 1])]
    coil = Solid(j.point, axes, thread, mesh.faces, STEEL)
    return {**shapes, f"{j.name}.thread": coil, f"{j.name}.rail": start}


def _plate(j: _Drawn) -> Shapes:
    level = j.local(Level)
    at = j.frames[0].point(j.read.vector(level.at_a, 3))
    axes = j.axes(0, level.normal)
    plate = j.solid(meshes.box(), axes, (14.0, 14.0, 0.3), GROUND, at)
    return {
        j.name: j.solid(meshes.sphere(), j.frames[1].axes, (1.0,) * 3),
        f"{j.name}.plate": plate,
    }


def _weld(j: _Drawn) -> Shapes:
    if not isinstance(j.joint.bodies[0], Ground):
        return {}
    return j.base()


_BY_KIND: dict[str, Callable[[_Drawn], Shapes]] = {
    "revolute joint": _pin,
    "prismatic joint": _slider,
    "weld": _weld,
    "cylindrical joint": _shaft,
    "planar joint": _plate,
    "spherical joint": _ball,
    "universal joint": _cross,
    "constant-velocity joint": _ball,
    "screw": _screw,
}


def drawn(
    name: str, part: Joint | AbstractForce, frames: Frames, read: Reader, sketch: Sketch, at: Array
) -> Shapes:
    """The shapes of a joint or force, by name; `at` is the point where its bodies are joined."""
    if isinstance(part, Joint) and part.kind in _BY_KIND:
        return _BY_KIND[part.kind](_Drawn(name, part, frames, read, sketch))
    if isinstance(part, TorsionSpring):
        return _torsion_spring(name, part, frames, read, sketch, at)
    shapes: Shapes = {}
    for element in elements(part):
        shapes |= _element(name, element, part.bodies, frames, read, sketch)
    return shapes


def elements(part: Joint | AbstractForce) -> Sequence[Any]:
    """The equations of a joint, or a force itself."""
    return (*part.positions, *part.velocities) if isinstance(part, Joint) else (part,)


def marks(element: Any) -> list[tuple[int, Vector]]:
    """The points on bodies that an element acts on, each with the index of the body."""
    if isinstance(element, Coincide | Apart | Across | Spring | Damper):
        return [(0, element.at_a), (1, element.at_b)]
    if isinstance(element, OnSurface | Edge | Applied | RollerGap):
        return [(-1, element.at_b)]
    return []


def is_slider(part: Joint | AbstractForce) -> bool:
    """Whether a part draws a block for its second body."""
    return isinstance(part, Joint) and part.kind == "prismatic joint"


def round_bodies(element: Any) -> tuple[int, ...]:
    """The indices of the bodies that an element makes round."""
    if isinstance(element, RoundSlip | WheelSlip):
        return (1,)
    if isinstance(element, AbstractContact):
        return element.round_bodies
    return (0, 1) if isinstance(element, Mesh | GearSpeed | RackMesh | RackSpeed) else ()


def _element(
    name: str, element: Any, bodies: Sequence[Any], frames: Frames, read: Reader, sketch: Sketch
) -> Shapes:
    size = frames[0].origin.shape[0]
    ends = [frames[k].point(read.vector(local, size)) for k, local in marks(element)]
    width = sketch.width
    match element:
        case Coincide() | OnSurface():
            ball = meshes.sphere().vertices * width
            return {
                name: Solid(
                    jnp.asarray(ends[-1]), frames[-1].axes, ball, meshes.sphere().faces, STEEL
                )
            }
        case Apart():
            return {
                name: between(
                    _along_x(meshes.cylinder(16)), ends[0], ends[1], 0.45 * width, color=STEEL
                )
            }
        case Damper():
            return {name: between(meshes.dashpot(), ends[0], ends[1], 1.1 * width, color=DAMPER)}
        case Spring():
            return {name: between(meshes.coil(), ends[0], ends[1], 1.4 * width, color=SPRING)}
        case Across():
            ball = meshes.sphere().vertices * width
            bead = Solid(jnp.asarray(ends[-1]), frames[-1].axes, ball, meshes.sphere().faces, STEEL)
            return {f"{name}.guide": line(*ends), name: bead}
        case AbstractContact():
            return element.shapes(name, frames, read)
        case Level(at_a, normal) | OverPlane(at_a, normal) if size == 2 and isinstance(
            bodies[0], Ground
        ):
            origin, n = frames[0].point(read.vector(at_a, 2)), pointing(frames[0], normal, read)
            return {f"{name}.ground": line(origin + _FAR * turned(n), origin - _FAR * turned(n))}
        case WithinLength():
            return {name: line(*course(element, frames, read))}
        case Edge(_, along):
            u = pointing(frames[1], along, read)
            return {f"{name}.blade": line(ends[0] - 5 * width * u, ends[0] + 5 * width * u)}
        case _:
            return _wheels(name, element, bodies, frames, read, sketch)


def _along_x(mesh: Triangles) -> Triangles:
    """A mesh about z between -1/2 and 1/2 as one along x from 0 to 1."""
    return mesh.moved((0.5, 0.0, 0.0), np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]))


def _wheels(
    name: str, element: Any, bodies: Sequence[Any], frames: Frames, read: Reader, sketch: Sketch
) -> Shapes:
    wheels: tuple[tuple[str, int, Any, Any, Any], ...]
    match element:
        case RoundSlip(_, at_b, radius):
            wheels = ((name, 1, at_b, radius, None),)
        case WheelSlip(_, at_b, axle, radius):
            wheels = ((name, 1, at_b, radius, axle),)
        case Mesh(ra, rb, _, sense):
            return _gears(name, ((ra, None), (rb, None)), sense, bodies, frames, read, sketch)
        case RackMesh() | RackSpeed():
            return _rack(name, element, bodies, frames, read, sketch)
        case GearSpeed(axis_a, ra, axis_b, rb, sense):
            return _gears(name, ((ra, axis_a), (rb, axis_b)), sense, bodies, frames, read, sketch)
        case _:
            return {}
    shapes: Shapes = {}
    for label, k, at, radius, axle in wheels:
        if not _has_visual(bodies[k]):
            color = TYRE if isinstance(element, WheelSlip) else BY_BODY
            depth = sketch.depth(bodies[k].name)
            shapes |= _wheel(label, frames[k], at, radius, axle, read, sketch.height, depth, color)
    return shapes


def _gears(
    name: str, wheels: Sequence[tuple[Value, Vector | None]], sense: float, bodies: Sequence[Any],
    frames: Frames, read: Reader, sketch: Sketch,
) -> Shapes:  # fmt: skip
    """Two gear wheels whose teeth mesh, or two pulleys with their belt."""
    radii = [radius for radius, _ in wheels]
    smallest = min((abs(r) for r in radii if isinstance(r, float)), default=0.0)
    has_teeth = sense > 0 and all(isinstance(r, float) for r in radii)
    centers = [jnp.asarray(frame.origin) for frame in frames[:2]]
    shapes: Shapes = {}
    for k, (radius, axis) in enumerate(wheels):
        if _has_visual(bodies[k]):
            continue
        depth = sketch.depth(bodies[k].name)
        label = f"{name}.{k + 1}"
        made = _wheel(label, frames[k], None, radius, axis, read, sketch.height, depth, BY_BODY)
        wheel = made[f"{label}.wheel"]
        if has_teeth and isinstance(radius, float):
            teeth = min(round(_TEETH * abs(radius) / smallest), _MOST_TEETH)
            away = centers[1 - k] - centers[k]
            # Of an external pair the other wheel is where they touch, of an internal one away.
            inward = radius < 0 or (radii[1 - k] < 0)
            away = -away if inward and radius > 0 else away
            wheel = _with_teeth(wheel, radius, teeth, away, np.pi / teeth if k else 0.0)
        shapes[f"{bodies[k].name}.{name}"] = wheel  # in the colour of its body
    if sense < 0:
        across = frames[0].axes if wheels[0][1] is None else _across(frames[0], wheels[0][1], read)
        shapes[f"{name}.belt"] = _belt(centers, [read.number(r) for r in radii], across)
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


def _rack(
    name: str, element: RackMesh | RackSpeed, bodies: Sequence[Any], frames: Frames, read: Reader,
    sketch: Sketch,
) -> Shapes:  # fmt: skip
    """A pinion, and the bar that it moves; with teeth if its radius is a number."""
    pinion, bar, carrier = frames
    axle = element.axis_a if isinstance(element, RackSpeed) else None
    u = jnp.asarray(pointing(carrier, element.axis, read))
    if axle is None:
        axes = jnp.stack([u, jnp.asarray(turned(u))], axis=1)
        depth = sketch.depth(bodies[1].name)
    else:
        z = jnp.asarray(pointing(pinion, axle, read))
        axes, depth = jnp.stack([u, jnp.cross(z, u), z], axis=1), jnp.zeros(())
    radius = element.radius
    r = read.number(radius)
    label, level = f"{name}.1", sketch.depth(bodies[0].name)
    made = _wheel(label, pinion, None, radius, axle, read, sketch.height, level, BY_BODY)
    wheel = made[f"{label}.wheel"]
    width = jnp.ptp(wheel.vertices[:, 2])
    center = jnp.asarray(pinion.origin)
    place = u @ (jnp.asarray(bar.origin) - center)
    module = 2 * r / _TEETH
    mesh, shift = meshes.rack(_TEETH + 1), -place  # a tooth is where the pinion has a gap
    if isinstance(radius, float):
        wheel = _with_teeth(wheel, radius, _TEETH, -axes[:, 1], np.pi / _TEETH)
    else:
        mesh = meshes.box().moved((0.0, -2.5, 0.0), np.diag([np.pi * _TEETH, 5.0, 1.0]))
    vertices = scaled(mesh.vertices, (module, module, width), (shift, 0.0, depth))
    origin = center - r * axes[:, 1] + place * u
    shapes = {f"{bodies[1].name}.{name}": Solid(origin, axes, vertices, mesh.faces)}
    if not _has_visual(bodies[0]):
        shapes[f"{bodies[0].name}.{name}"] = wheel
    return shapes


def _torsion_spring(
    name: str, element: TorsionSpring, frames: Frames, read: Reader, sketch: Sketch, at: Array
) -> Shapes:
    """A spiral about the axis of the spring, whose outer end turns with the second body."""
    frame = frames[1]
    size = 3.5 * sketch.width
    mesh = meshes.spiral()
    if element.axes is None:
        axes, depth = jnp.asarray(frame.axes), 2.5 * sketch.height * max(1, len(sketch.levels))
    else:
        z = jnp.asarray(pointing(frame, element.axes[1], read))
        axes = jnp.concatenate([_across(frame, element.axes[1], read), z[:, None]], axis=1)
        depth = 2.5 * sketch.width
    vertices = scaled(mesh.vertices, (size, size, size), (0.0, 0.0, depth))
    return {name: Solid(at, axes, vertices, mesh.faces, SPRING)}


def _across(frame: Frame, axis: Vector, read: Reader) -> Array:
    """Two directions across an axis on a body, as columns."""
    return jnp.stack([jnp.asarray(frame.direction(n)) for n in across(frame, axis, read)], axis=1)


def _belt(centers: Sequence[Array], radii: Sequence[Any], axes: Any) -> Array:
    """A line around two pulleys, whose last part is that of its first, so that it stays open."""
    u = meshes.directions_in_plane(_BELT) @ jnp.asarray(axes)[:, :2].T
    reach = jnp.stack([u @ c + r for c, r in zip(centers, radii, strict=True)])
    ends = jnp.stack([c[None] + r * u for c, r in zip(centers, radii, strict=True)])
    ring = jnp.where((reach[0] > reach[1])[:, None], ends[0], ends[1])
    return jnp.concatenate([ring, ring[:2]])


def _wheel(
    name: str, frame: Frame, at: Vector | None, radius: Any, axle: Vector | None, read: Reader,
    height: Array, depth: Array, color: Any,
) -> Shapes:  # fmt: skip
    """A wheel with spokes; in space, without an axle, a sphere with three circles on it."""
    size = frame.origin.shape[0]
    center = frame.point(read.vector((0.0,) * size if at is None else at, size))
    r = jnp.abs(read.number(radius))
    mesh = meshes.wheel()
    if size == 2:
        vertices = scaled(mesh.vertices, (r, r, height), (0.0, 0.0, depth))
        return {
            f"{name}.wheel": Solid(jnp.asarray(center), frame.axes, vertices, mesh.faces, color)
        }
    if axle is None:
        ball = 0.99 * r * meshes.sphere().vertices
        circles = {
            f"{name}.circle{i + 1}": circle(center, r, line(frame.axes[:, i], frame.axes[:, i - 1]))
            for i in range(3)
        }
        sphere = Solid(jnp.asarray(center), frame.axes, ball, meshes.sphere().faces)
        return {f"{name}.wheel": sphere, **circles}
    n1, n2 = (jnp.asarray(frame.direction(n)) for n in across(frame, axle, read))
    axes = jnp.stack([n1, n2, jnp.asarray(pointing(frame, axle, read))], axis=1)
    vertices = scaled(mesh.vertices, (r, r, 0.18 * r))
    return {f"{name}.wheel": Solid(jnp.asarray(center), axes, vertices, mesh.faces, color)}
