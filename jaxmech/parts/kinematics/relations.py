"""Where a body is relative to another, and where it is in space."""

from typing import NamedTuple

from jaxtyping import Array

from jaxmech.parts.body import Frame
from jaxmech.parts.vectors import apply, conjugate, cross, matmul, product, quarter_turn
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.repeated import repeated

Point = tuple[AnyArray, AnyArray]  # a point and its velocity, (d,) each


class Relation(NamedTuple):
    """The position, attitude and velocity of b relative to a, as the motion of a joint gives them.

    Attributes:
        axes: matrix from components along the axes of b to those along the axes of a, (d, d).
        attitude: angle, (), or quaternion, (4,), of b relative to a.
        at_a: the joint along the axes of a, and its velocity on a, (d,) each.
        at_b: the joint along the axes of b, and its velocity on b, (d,) each.
        spin: angular velocity of b relative to a along the axes of b, () or (3,).
    """

    axes: AnyArray
    attitude: AnyArray
    at_a: Point
    at_b: Point
    spin: AnyArray

    @property
    def reverse(self) -> "Relation":
        """The position, attitude and velocity of a relative to b."""
        is_planar = self.axes.shape == (2, 2)
        attitude = -self.attitude if is_planar else conjugate(self.attitude)
        spin = -self.spin if is_planar else -apply(self.axes, self.spin)
        return Relation(self.axes.T, attitude, self.at_b, self.at_a, spin)


class Located(NamedTuple):
    """A frame with its velocity, (d,), and spin, () or (3,), along its own axes."""

    frame: Frame
    velocity: AnyArray
    spin: AnyArray

    @repeated
    def following(self, relation: Relation) -> "Located":
        """The frame at the other end of a joint."""
        (at_a, rate_a), (at_b, rate_b) = relation.at_a, relation.at_b
        axes = matmul(self.frame.axes, relation.axes)
        if axes.shape == (2, 2):
            attitude = self.frame.attitude + relation.attitude
            spin = self.spin + relation.spin
            along_a, along_b = self.spin * quarter_turn(at_a), spin * quarter_turn(at_b)
        else:
            attitude = product(self.frame.attitude, relation.attitude)
            spin = apply(relation.axes.T, self.spin) + relation.spin
            along_a, along_b = cross(self.spin, at_a), cross(spin, at_b)
        joint = apply(relation.axes.T, self.velocity + along_a + rate_a)
        origin = self.frame.origin + self.frame.direction(at_a) - apply(axes, at_b)
        return Located(Frame(origin, axes, attitude), joint - along_b - rate_b, spin)


def relation_between(
    a: Located, b: Located, at_a: Point, at_b: Point
) -> tuple[Relation, tuple[Array, Array]]:
    """The relation of two frames, and the way from a point on a to one on b with its velocity.

    The points are given with their velocities on the bodies. Way and velocity are those seen from
    a, along its axes.
    """
    axes = matmul(a.frame.axes.T, b.frame.axes)
    offset = a.frame.components(b.frame.point(at_b[0]) - a.frame.point(at_a[0]))
    if len(axes) == 2:
        attitude, spin = b.frame.attitude - a.frame.attitude, b.spin - a.spin
        of_a, of_b = a.spin * quarter_turn(at_a[0] + offset), b.spin * quarter_turn(at_b[0])
    else:
        attitude = product(conjugate(a.frame.attitude), b.frame.attitude)
        spin = b.spin - apply(axes.T, a.spin)
        of_a, of_b = cross(a.spin, at_a[0] + offset), cross(b.spin, at_b[0])
    rate = apply(axes, b.velocity + of_b + at_b[1]) - (a.velocity + of_a + at_a[1])
    return Relation(axes, attitude, at_a, at_b, spin), (offset, rate)
