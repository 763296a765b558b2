"""Rolling without slip, and knife edges.

    joint            equations on       equations on        multipliers
                     positions          velocities
    rolling_disk     1 (plane)          1                   normal force, friction [N]
    rolling_sphere   1 (space)          2                   normal force, friction [N]
    rolling_wheel    1 (space)          2                   load, traction, lateral force [N]
    knife_edge                          1 (plane)           lateral force [N]

A rolling contact has two constraints, `name.contact` on positions and `name.slip` on velocities.
Forces are those of a on b at the contact.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from dataclasses import KW_ONLY, dataclass

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
from jaxmech.parts.joint_equations import Position, Velocity, level, round_slip, slip
from jaxmech.parts.joints.base import Joint, PairJoint
from jaxmech.parts.kinds import Body, Direction, Point, Positive
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import apply, cross
from jaxmech.utils.arrays import AnyArray


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
        """The centre is a radius above the line or plane."""
        return (level(self.at_a, self.normal, self.at_b, self.radius),)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The point of contact does not slip."""
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
        """The lowest point of the rim is in the plane."""
        return (self._height,)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The point of contact does not slip."""
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
        """The body on which the blade moves, and that with the blade."""
        return self.on, self.b

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The point does not move across the blade."""
        return (self._lateral,)

    def _lateral(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity across the blade."""
        b = motions[1].frame
        velocity = slip(motions, b.point(read.vector(self.at_b, 2)))
        return apply(across(b, self.along, read), b.components(velocity))


rolling_disk, rolling_sphere, rolling_wheel = RollingDisk, RollingSphere, RollingWheel
knife_edge = KnifeEdge
