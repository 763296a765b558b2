"""Joints that are always constraints: ties of points, drives, rolling, knife edges and gears.

    joint            equations          freedoms         multiplier
                     plane, space       plane, space
    distance         1, 1               2, 5             force along the rod [N], positive: pushes
    point_on_line    1, 2               2, 4             force across the line [N]
    point_on_plane   -, 1               -, 5             force along the normal [N]
    given_angle      1, 1               2, 5             torque [N m] about the axis
    given_position   1, 1               2, 5             force [N] along the axis

    joint            equations on       equations on        multipliers
                     positions          velocities
    rolling_disk     1 (plane)          1                   normal force, friction [N]
    rolling_sphere   1 (space)          2                   normal force, friction [N]
    rolling_wheel    1 (space)          2                   load, traction, lateral force [N]
    knife_edge                          1 (plane)           lateral force [N]

    joint            equation in the plane              in space, on velocities
    gear             ra angle_a + rb angle_b = phase    ra spin_a + rb spin_b = 0
    belt             ra angle_a - rb angle_b = phase    ra spin_a - rb spin_b = 0
    rack             r angle_a - x_b = phase            r spin_a - speed_b = 0

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b or
at the contact; in gears that of a tooth on the other body, or of the belt [N]. A rolling contact
has two constraints, `name.contact` on positions and `name.slip` on velocities.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import (
    AbstractBody,
    Frame,
    Frames,
    Moving,
    across,
    ground,
    pointing,
    separation,
)
from jaxmech.parts.joints.base import (
    Joint,
    PairJoint,
    Position,
    Velocity,
    apart,
    level,
    on_line,
    relative_angle,
    relative_attitude,
    round_slip,
    slip,
)
from jaxmech.parts.kinds import (
    Axis,
    Body,
    Direction,
    NonZero,
    Number,
    Phase,
    Point,
    Positive,
    same_as,
)
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import apply, cross
from jaxmech.utils.arrays import AnyArray


@dataclass(frozen=True)
class Distance(PairJoint):
    """A massless rod with a ball joint at each end: two points keep their distance.

    Args:
        length: length of the rod [m], positive; for points that coincide use `revolute` or
            `spherical`.
    """

    _: KW_ONLY
    length: Positive

    kind = "distance"

    @property
    def positions(self) -> tuple[Position, ...]:
        return (apart(self.at_a, self.at_b, self.length),)


@dataclass(frozen=True)
class PointOnLine(PairJoint):
    """A pin in a slot: a point of b stays on a line of a.

    Args:
        axis: direction of the line on a.
    """

    _: KW_ONLY
    axis: Direction

    kind = "point on line"

    @property
    def positions(self) -> tuple[Position, ...]:
        return (on_line(self.at_a, self.axis, self.at_b),)


@dataclass(frozen=True)
class PointOnPlane(PairJoint):
    """A point of b stays at a given height over a plane of a; in space.

    Args:
        normal: normal of the plane on a.
        height: height over the plane [m], by default 0.
    """

    _: KW_ONLY
    normal: Direction
    height: Number = 0.0

    kind = "point on plane"
    dimensions = (3,)

    @property
    def positions(self) -> tuple[Position, ...]:
        return (level(self.at_a, self.normal, self.at_b, self.height),)


@dataclass(frozen=True)
class GivenAngle(Joint):
    """A body turns relative to another by a prescribed angle: a drive in a hinge.

    Args:
        name: name of the drive.
        a: first body, or `ground`.
        b: second body.
        angle: angle of b relative to a [rad], a function of (t, params).
        axis: in space, the axis on a that both bodies share, as in their hinge. The angle is then
            that between fixed normals of the axis on both bodies; zero where a and b are parallel.
        axis_b: the axis on b, by default the same components as `axis`.
    """

    name: str
    a: Body
    b: Body
    angle: Number
    _: KW_ONLY
    axis: Axis = None
    axis_b: Axis = same_as("axis")

    kind = "given angle"
    turning = True

    @property
    def positions(self) -> tuple[Position, ...]:
        if self.axis is None:
            return (relative_attitude(self.angle),)
        return (relative_angle(self.axis, self.axis_b, self.angle),)


@dataclass(frozen=True)
class GivenPosition(PairJoint):
    """A point of b is at a prescribed position along an axis of a: a drive of a slide.

    Args:
        position: position along the axis [m] from the point on a, a function of (t, params).
        axis: direction of the axis on a.
    """

    position: Number
    _: KW_ONLY
    axis: Direction

    kind = "given position"

    @property
    def positions(self) -> tuple[Position, ...]:
        return (level(self.at_a, self.axis, self.at_b, self.position),)


@dataclass(frozen=True)
class RollingDisk(PairJoint):
    """A disk that rolls without slip on a line; in the plane.

    Args:
        normal: normal of the line, on a, towards the disk, whose centre is the point on b.
        radius: radius of the disk [m].
    """

    _: KW_ONLY
    normal: Direction
    radius: Positive

    kind = "rolling disk"
    dimensions = (2,)
    turning = True

    @property
    def positions(self) -> tuple[Position, ...]:
        return (level(self.at_a, self.normal, self.at_b, self.radius),)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return (round_slip(self.normal, self.at_b, self.radius),)


@dataclass(frozen=True)
class RollingSphere(RollingDisk):
    """A sphere that rolls without slip on a plane and may spin about its normal; in space.

    Args:
        normal: normal of the plane, on a, towards the sphere, whose centre is the point on b.
        radius: radius of the sphere [m].
    """

    kind = "rolling sphere"
    dimensions = (3,)


@dataclass(frozen=True)
class RollingWheel(PairJoint):
    """A thin wheel that rolls without slip on a plane, upright or leaning; in space.

    Traction is the force along axle x normal, which is forward for an axle that points to the left;
    the lateral force is that along normal x (axle x normal).

    Args:
        normal: normal of the plane, on a, towards the wheel; never parallel to the axle.
        axle: direction of the axle on b, through the point on b, the centre.
        radius: radius of the wheel [m].
    """

    _: KW_ONLY
    normal: Direction
    axle: Direction
    radius: Positive

    kind = "rolling wheel"
    dimensions = (3,)
    turning = True

    @property
    def positions(self) -> tuple[Position, ...]:
        return (self._height,)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return (self._slip,)

    def _track(self, a: Frame, b: Frame, read: Reader) -> tuple[AnyArray, AnyArray]:
        """The unit normal n of the plane, and axle x n, whose length is the sine between them."""
        n = pointing(a, self.normal, read)
        return n, cross(pointing(b, self.axle, read), n)

    def _height(self, frames: Frames, read: Reader) -> Array:
        """The height of the lowest point, n . d - radius times the sine."""
        n, along = self._track(frames[0], frames[1], read)
        d = separation(frames, self.at_a, self.at_b, read)
        return (n @ d - read.number(self.radius) * jnp.sqrt(along @ along))[None]

    def _slip(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity at the contact along axle x normal, and along normal x (axle x normal)."""
        a, b = motions[0].frame, motions[1].frame
        n, along = self._track(a, b, read)
        along = along / jnp.sqrt(along @ along)
        upward = cross(along, pointing(b, self.axle, read))  # to the highest point of the wheel
        center = b.point(read.vector(self.at_b, 3))
        velocity = slip(motions, center - read.number(self.radius) * upward)
        return jnp.stack([along @ velocity, cross(n, along) @ velocity])


@dataclass(frozen=True)
class KnifeEdge(Joint):
    """A blade, or a wheel seen from above: a point of b moves only along a direction of b.

    It applies in the plane.

    Args:
        name: name of the joint.
        b: the body with the blade.
        at_b: the point on b [m].
        along: direction of the blade on b.
        on: the body on which it moves.
    """

    name: str
    b: Body
    at_b: Point
    _: KW_ONLY
    along: Direction
    on: Body = ground

    kind = "knife edge"
    dimensions = (2,)
    turning = True

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        return self.on, self.b

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return (self._lateral,)

    def _lateral(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        b = motions[1].frame
        velocity = slip(motions, b.point(read.vector(self.at_b, 2)))
        return apply(across(b, self.along, read), b.components(velocity))


class Transmission(Joint):
    """Two bodies on a carrier, with one equation: in the plane on positions, in space on speeds."""

    axis_a: Axis

    turning = True

    @property
    def positions(self) -> tuple[Position, ...]:
        return (self.mesh,) if self.axis_a is None else ()

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return () if self.axis_a is None else (self.speed,)

    def mesh(self, frames: Frames, read: Reader) -> Array:
        """The residual in the plane, with angles and positions relative to the carrier, (1,)."""
        raise NotImplementedError

    def speed(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual in space, with spins and velocities relative to the carrier, (1,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Gear(Transmission):
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

    name: str
    a: Body
    radius_a: NonZero
    b: Body
    radius_b: NonZero
    _: KW_ONLY
    carrier: Body = ground
    phase: Phase = 0.0
    axis_a: Axis = None
    axis_b: Axis = None

    kind = "gear"
    sense: ClassVar[float] = 1.0  # -1 for wheels that turn in the same sense

    def mesh(self, frames: Frames, read: Reader) -> Array:
        """The residual ra angle_a + rb angle_b - phase."""
        a, b, carrier = (frame.attitude for frame in frames)
        ra, rb = read.number(self.radius_a), self.sense * read.number(self.radius_b)
        return (ra * (a - carrier) + rb * (b - carrier) - read.number(self.phase))[None]

    def speed(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual ra (w_a - w) . axis_a + rb (w_b - w) . axis_b."""
        a, b, carrier = motions
        ra, rb = read.number(self.radius_a), read.number(self.radius_b)
        spin_a = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        spin_b = (b.spin - carrier.spin) @ pointing(b.frame, self.axis_b, read)
        return (ra * spin_a + self.sense * rb * spin_b)[None]


@dataclass(frozen=True)
class Belt(Gear):
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

    radius_a: Positive
    radius_b: Positive

    kind = "belt"
    sense = -1.0


@dataclass(frozen=True)
class Rack(Transmission):
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

    name: str
    a: Body
    radius: Positive
    b: Body
    _: KW_ONLY
    axis: Direction
    carrier: Body = ground
    phase: Phase = 0.0
    axis_a: Axis = None

    kind = "rack"

    def mesh(self, frames: Frames, read: Reader) -> Array:
        """The residual r angle - u . x - phase."""
        a, b, carrier = frames
        x = carrier.components(b.origin - carrier.origin)
        turn = read.number(self.radius) * (a.attitude - carrier.attitude)
        return (turn - unit(read, self.axis, 2) @ x - read.number(self.phase))[None]

    def speed(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual r (w_a - w) . axis_a - u . v_b."""
        a, b, carrier = motions
        u = pointing(carrier.frame, self.axis, read)
        spin = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        speed = u @ (b.velocity - carrier.velocity_at(b.frame.origin))
        return (read.number(self.radius) * spin - speed)[None]


distance, point_on_line, point_on_plane = Distance, PointOnLine, PointOnPlane
given_angle, given_position = GivenAngle, GivenPosition
rolling_disk, rolling_sphere, rolling_wheel = RollingDisk, RollingSphere, RollingWheel
knife_edge, gear, belt, rack = KnifeEdge, Gear, Belt, Rack
