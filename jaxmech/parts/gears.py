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

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from jaxtyping import Array

from jaxmech.parts.body import Frames, Moving, ground, pointing
from jaxmech.parts.joint_equations import Position, Velocity
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinds import Axis, Body, Direction, NonZero, Phase, Positive
from jaxmech.parts.values import Reader, unit


class Transmission(Joint):
    """Two bodies on a carrier, with one equation: in the plane on positions, in space on speeds."""

    axis_a: Axis

    turning = True

    @property
    def positions(self) -> tuple[Position, ...]:
        """In the plane, the equation on positions."""
        return (self.mesh,) if self.axis_a is None else ()

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """In space, the equation on speeds."""
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


gear, belt, rack = Gear, Belt, Rack
