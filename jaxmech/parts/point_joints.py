"""Joints that tie a point to a point, line or plane, and motions prescribed in time.

    tie                equations        freedoms         multiplier
                       plane, space     plane, space
    distance           1, 1             2, 5             force along the rod [N], positive: pushes
    point_on_line      1, 2             2, 4             force across the line [N]
    point_on_plane     -, 1             -, 5             force along the normal [N]
    given_angle        1, 1             2, 5             torque [N m] about the axis
    given_position     1, 1             2, 5             force [N] along the axis

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`joint_equations.py`).

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from dataclasses import KW_ONLY, dataclass

from jaxmech.parts.joint_equations import (
    Position,
    apart,
    level,
    on_line,
    relative_angle,
    relative_attitude,
)
from jaxmech.parts.joints.base import Joint, PairJoint
from jaxmech.parts.kinds import Axis, Body, Direction, Number, Positive, same_as


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
        """The points have their distance."""
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
        """The point on b is on the line."""
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
        """The point on b is at its height."""
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
        """b is at its angle."""
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
        """The point on b is at its position."""
        return (level(self.at_a, self.axis, self.at_b, self.position),)


distance, point_on_line, point_on_plane = Distance, PointOnLine, PointOnPlane
given_angle, given_position = GivenAngle, GivenPosition
