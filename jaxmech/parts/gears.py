"""Gears, belts and racks: joints that couple the motions of two bodies on a carrier.

    joint   equation in the plane                  in space, on velocities
    gear    ra angle_a + rb angle_b = phase        ra spin_a + rb spin_b = 0
    belt    ra angle_a - rb angle_b = phase        ra spin_a - rb spin_b = 0
    rack    r angle_a - x_b = phase                r spin_a - speed_b = 0

In space there is no phase. The multiplier is the force of a tooth on the other body, or of the
belt [N].

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import Solid, scaled
from jaxmech.parts.body import AbstractBody, Frames, Moving, ground, pointing
from jaxmech.parts.drawing import Drawing, Shapes, directions_across
from jaxmech.parts.joint_equations import AbstractPosition, AbstractVelocity
from jaxmech.parts.joints.base import EquationJoint
from jaxmech.parts.joints.checks import part_name, partners
from jaxmech.parts.kinds import require_no_axes
from jaxmech.parts.values import Reader, Value, Vector, direction, number, positive, unit
from jaxmech.parts.vectors import quarter_turn
from jaxmech.utils.text import capital

TEETH, _MOST_TEETH = 16, 120  # in a picture, of the smallest gear of a pair, and of any
_BELT = 96  # points of a belt in a picture


def gear(
    name: str,
    a: AbstractBody,
    radius_a: Value,
    b: AbstractBody,
    radius_b: Value,
    *,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
    axis_b: Vector | None = None,
) -> EquationJoint:
    """Two gear wheels on a carrier: ra angle_a + rb angle_b = phase, relative to the carrier.

    The bearings are separate joints. A negative radius means an internal gear. In space the
    equation is on velocities, without a phase.

    Args:
        name: name of the joint.
        a: first wheel.
        radius_a: pitch radius of the first wheel [m].
        b: second wheel.
        radius_b: pitch radius of the second wheel [m].
        carrier: the body that holds the bearings.
        phase: the value of ra angle_a + rb angle_b [m]; in the plane only.
        axis_a: in space, the axis of the first wheel, on that wheel.
        axis_b: in space, the axis of the second wheel, on that wheel. Parallel axes must point in
            the same direction, as in the plane.
    """
    return _wheels(
        "gear", name, (a, b, carrier), (radius_a, radius_b), phase, (axis_a, axis_b), 1.0
    )


def belt(
    name: str,
    a: AbstractBody,
    radius_a: Value,
    b: AbstractBody,
    radius_b: Value,
    *,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
    axis_b: Vector | None = None,
) -> EquationJoint:
    """Two pulleys with a belt that does not slip, or sprockets with a chain, on a carrier.

    Both turn in the same sense: ra angle_a - rb angle_b = phase, relative to the carrier. For a
    crossed belt use `gear`.

    Args:
        name: name of the joint.
        a: first pulley.
        radius_a: radius of the first pulley [m].
        b: second pulley.
        radius_b: radius of the second pulley [m].
        carrier: the body that holds the bearings.
        phase: the value of ra angle_a - rb angle_b [m]; in the plane only.
        axis_a: in space, the axis of the first pulley, on that pulley.
        axis_b: in space, the axis of the second pulley, on that pulley.
    """
    return _wheels(
        "belt", name, (a, b, carrier), (radius_a, radius_b), phase, (axis_a, axis_b), -1.0
    )


def _wheels(
    kind: str, name: str, wheels: tuple[AbstractBody, AbstractBody, AbstractBody],
    radii: tuple[Value, Value], phase: Value, axes: tuple[Vector | None, Vector | None],
    sense: float,
) -> EquationJoint:  # fmt: skip
    part, (radius_a, radius_b), (axis_a, axis_b) = part_name(kind, name), radii, axes
    bodies, size = partners(part, wheels, turning=True)
    ra, rb = _radius(part, "radius_a", radius_a), _radius(part, "radius_b", radius_b)
    if sense < 0:
        ra, rb = positive(part, "radius_a", ra), positive(part, "radius_b", rb)
    if size == 2:
        require_no_axes(part, axis_a=axis_a, axis_b=axis_b)
        mesh = Mesh(ra, rb, number(part, "phase", phase), sense)
        return EquationJoint(kind, name, bodies, (mesh,))
    require_no_phase(part, phase)
    if axis_a is None or axis_b is None:
        raise ValueError(
            f"{capital(part)} must have `axis_a` and `axis_b` in space; write the direction of the "
            "axis of each wheel."
        )
    ua, ub = direction(part, "axis_a", axis_a, 3), direction(part, "axis_b", axis_b, 3)
    return EquationJoint(kind, name, bodies, velocities=(GearSpeed(ua, ra, ub, rb, sense),))


def _radius(part: str, argument: str, radius: Value) -> Value:
    """Check a radius, which is negative for an internal gear."""
    checked = number(part, argument, radius)
    if checked == 0.0:
        raise ValueError(f"{capital(part)} must have a `{argument}` other than zero; correct it.")
    return checked


def require_no_phase(part: str, phase: Value) -> None:
    """Raise for a phase in space."""
    if phase != 0:
        raise ValueError(
            f"{capital(part)} must have no `phase` in space, where its equation is one on "
            "velocities; leave it out."
        )


@dataclass(frozen=True)
class Mesh(AbstractPosition):
    """Two wheels in the plane, on a carrier as third body."""

    radius_a: Value
    radius_b: Value
    phase: Value
    sense: float = 1.0  # -1 for wheels that turn in the same sense, by a belt

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """Both wheels."""
        return 0, 1

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual ra angle_a + rb angle_b - phase, with angles relative to the carrier."""
        a, b, carrier = (frame.attitude for frame in frames)
        ra, rb = read.number(self.radius_a), self.sense * read.number(self.radius_b)
        return (ra * (a - carrier) + rb * (b - carrier) - read.number(self.phase))[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both wheels, with teeth or a belt."""
        return _pair(drawing, ((self.radius_a, None), (self.radius_b, None)), self.sense)


@dataclass(frozen=True)
class GearSpeed(AbstractVelocity):
    """Two wheels in space, on a carrier as third body."""

    axis_a: Vector
    radius_a: Value
    axis_b: Vector
    radius_b: Value
    sense: float = 1.0  # -1 for wheels that turn in the same sense, by a belt

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """Both wheels."""
        return 0, 1

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual ra (w_a - w) . axis_a + rb (w_b - w) . axis_b."""
        a, b, carrier = motions
        spin_a = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        spin_b = (b.spin - carrier.spin) @ pointing(b.frame, self.axis_b, read)
        return (
            read.number(self.radius_a) * spin_a + self.sense * read.number(self.radius_b) * spin_b
        )[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both wheels, with teeth or a belt."""
        wheels = (self.radius_a, self.axis_a), (self.radius_b, self.axis_b)
        return _pair(drawing, wheels, self.sense)


def _pair(drawing: Drawing, wheels: Sequence[tuple[Value, Vector | None]], sense: float) -> Shapes:
    """Two gear wheels whose teeth mesh, or two pulleys with their belt."""
    radii, name, read = [radius for radius, _ in wheels], drawing.name, drawing.read
    smallest = min((abs(r) for r in radii if isinstance(r, float)), default=0.0)
    has_teeth = sense > 0 and all(isinstance(r, float) for r in radii)
    centers = [jnp.asarray(frame.origin) for frame in drawing.frames[:2]]
    shapes: Shapes = {}
    for k, (radius, axis) in enumerate(wheels):
        if drawing.has_visual(k):
            continue
        label = f"{name}.{k + 1}"
        wheel = drawing.wheel(label, k, None, radius, axis)[f"{label}.wheel"]
        if has_teeth and isinstance(radius, float):
            teeth = min(round(TEETH * abs(radius) / smallest), _MOST_TEETH)
            away = centers[1 - k] - centers[k]
            # Of an external pair the other wheel is where they touch, of an internal one away.
            inward = radius < 0 or (radii[1 - k] < 0)
            away = -away if inward and radius > 0 else away
            wheel = with_teeth(wheel, radius, teeth, away, np.pi / teeth if k else 0.0)
        shapes[f"{drawing.bodies[k].name}.{name}"] = wheel  # in the colour of its body
    if sense < 0:
        frame, axis = drawing.frames[0], wheels[0][1]
        across = frame.axes if axis is None else directions_across(frame, axis, read)
        shapes[f"{name}.belt"] = _belt(centers, [read.number(r) for r in radii], across)
    return shapes


def with_teeth(wheel: Solid, radius: float, teeth: int, contact: Array, shift: float) -> Solid:
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


def rack(
    name: str,
    a: AbstractBody,
    radius: Value,
    b: AbstractBody,
    *,
    axis: Vector,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
) -> EquationJoint:
    """A rack that a pinion moves along an axis of their carrier.

    A turn by a positive angle moves the rack along `axis`. The bearing of the pinion and the guide
    of the rack are separate joints.

    Args:
        name: name of the joint.
        a: the pinion.
        radius: pitch radius of the pinion [m].
        b: the rack.
        axis: direction of the motion of the rack on the carrier.
        carrier: the body that holds the bearing.
        phase: the value of r angle - x [m]; in the plane only.
        axis_a: in space, the axis of the pinion, on the pinion.
    """
    part = part_name("rack", name)
    bodies, size = partners(part, (a, b, carrier), turning=True)
    r, u = positive(part, "radius", radius), direction(part, "axis", axis, size)
    if size == 2:
        require_no_axes(part, axis_a=axis_a)
        return EquationJoint("rack", name, bodies, (RackMesh(r, u, number(part, "phase", phase)),))
    require_no_phase(part, phase)
    if axis_a is None:
        raise ValueError(
            f"{capital(part)} must have `axis_a` in space; write the direction of the axis of the "
            "pinion."
        )
    speed = RackSpeed(direction(part, "axis_a", axis_a, 3), r, u)
    return EquationJoint("rack", name, bodies, velocities=(speed,))


@dataclass(frozen=True)
class RackMesh(AbstractPosition):
    """A pinion a and a rack b in the plane, on a carrier as third body."""

    radius: Value
    axis: Vector
    phase: Value

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The pinion and the rack."""
        return 0, 1

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual r angle - u . x - phase, with angle and position relative to the carrier."""
        a, b, carrier = frames
        x = carrier.components(b.origin - carrier.origin)
        turn = read.number(self.radius) * (a.attitude - carrier.attitude)
        return (turn - unit(read, self.axis, 2) @ x - read.number(self.phase))[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both with teeth."""
        return _pinion_and_rack(drawing, self.radius, self.axis, None)


@dataclass(frozen=True)
class RackSpeed(AbstractVelocity):
    """A pinion a and a rack b in space, on a carrier as third body."""

    axis_a: Vector
    radius: Value
    axis: Vector

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The pinion and the rack."""
        return 0, 1

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual r (w_a - w) . axis_a - u . v_b, with v_b relative to the carrier."""
        a, b, carrier = motions
        u = pointing(carrier.frame, self.axis, read)
        spin = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        speed = u @ (b.velocity - carrier.velocity_at(b.frame.origin))
        return (read.number(self.radius) * spin - speed)[None]

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both with teeth."""
        return _pinion_and_rack(drawing, self.radius, self.axis, self.axis_a)


def _pinion_and_rack(drawing: Drawing, radius: Value, axis: Vector, axle: Vector | None) -> Shapes:
    """A pinion, and the bar that it moves; with teeth if its radius is a number."""
    (pinion, bar, carrier), read, name = drawing.frames, drawing.read, drawing.name
    u = jnp.asarray(pointing(carrier, axis, read))
    if axle is None:
        axes, depth = jnp.stack([u, jnp.asarray(quarter_turn(u))], axis=1), drawing.depth(1)
    else:
        z = jnp.asarray(pointing(pinion, axle, read))
        axes, depth = jnp.stack([u, jnp.cross(z, u), z], axis=1), jnp.zeros(())
    r, label = read.number(radius), f"{name}.1"
    wheel = drawing.wheel(label, 0, None, radius, axle)[f"{label}.wheel"]
    width, center = jnp.ptp(wheel.vertices[:, 2]), jnp.asarray(pinion.origin)
    way = u @ (jnp.asarray(bar.origin) - center)
    module = 2 * r / TEETH
    mesh, shift = meshes.rack(TEETH + 1), -way  # a tooth is where the pinion has a gap
    if isinstance(radius, float):
        wheel = with_teeth(wheel, radius, TEETH, -axes[:, 1], np.pi / TEETH)
    else:
        mesh = meshes.box().moved((0.0, -2.5, 0.0), np.diag([np.pi * TEETH, 5.0, 1.0]))
    vertices = scaled(mesh.vertices, (module, module, width), (shift, 0.0, depth))
    origin = center - r * axes[:, 1] + way * u
    shapes = {f"{drawing.bodies[1].name}.{name}": Solid(origin, axes, vertices, mesh.faces)}
    if not drawing.has_visual(0):
        shapes[f"{drawing.bodies[0].name}.{name}"] = wheel
    return shapes
