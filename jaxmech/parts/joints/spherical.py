"""Joints about a common point: the ball, the Cardan joint and the joint of equal speeds."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import DARK
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.inertia import Inertia
from jaxmech.parts.joint_equations import (
    AbstractPosition,
    Coincide,
    EqualSpeeds,
    Perpendicular,
)
from jaxmech.parts.joints.coordinates import CoordinateJoint, quaternion_about
from jaxmech.parts.joints.pair import PairJoint
from jaxmech.parts.kinds import Direction, same_as
from jaxmech.parts.kinematics.base import Relation
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import (
    apply,
    conjugate,
    cross,
    product,
    quaternion_onto,
    rotation,
    spin_in_body,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated


def _ball(drawing: Drawing) -> Shapes:
    ball = drawing.solid(meshes.sphere(), drawing.frames[1].axes, (1.5,) * 3)
    return {drawing.name: ball, **drawing.base()}


def _mass_moves_with_a(inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
    return inertia._replace(mass=zero.mass), zero._replace(mass=inertia.mass)


@dataclass(frozen=True)
class Spherical(CoordinateJoint):
    """A ball and socket: a point of a coincides with a point of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground. Its coordinates are the
    unit quaternion of b relative to a.
    """

    kind = "spherical joint"
    letters = ("e0", "e1", "e2", "e3")
    dimensions = (3,)

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """Both points coincide."""
        return (Coincide(self.at_a, self.at_b),)

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b turned by the quaternion."""
        axes, spin = _free_turn(q, v)
        return Relation(axes, q, *self.points(read), spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The quaternion and its rate, e (0, w) / 2 for w along the axes of b."""
        e = relation.attitude
        rate = product(e, jnp.concatenate([jnp.zeros(1), relation.spin])) / 2
        return [*e], [*rate]

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """The mass moves with a."""
        return _mass_moves_with_a(inertia, zero)

    def shapes(self, drawing: Drawing) -> Shapes:
        """A ball."""
        return _ball(drawing)


@dataclass(frozen=True)
class Universal(CoordinateJoint):
    """A Cardan joint: a common point, and an arm of a perpendicular to an arm of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m] along
    the normal of both arms, axis_b x axis_a.

    Args:
        axis_a: direction of the arm on a.
        axis_b: direction of the arm on b.
    """

    _: KW_ONLY
    axis_a: Direction
    axis_b: Direction

    kind = "universal joint"
    letters = ("angle_a", "angle_b")
    dimensions = (3,)
    turning = True

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """Both points coincide, and the arms are at right angles."""
        return Coincide(self.at_a, self.at_b), Perpendicular(self.axis_a, self.axis_b)

    def _arms(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        """The arms on a and b, and the quaternion of b at angles of zero."""
        arms = unit(read, self.axis_a, 3), unit(read, self.axis_b, 3)
        # The arms of the cross are x on a and y on b: a cyclic turn takes each of them to z.
        cycles = np.array([[1, -1, -1, -1], [1, 1, 1, 1]], read.dtype) / 2
        e = [product(quaternion_onto(u), c) for u, c in zip(arms, cycles, strict=True)]
        return *arms, product(e[0], conjugate(e[1]))

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b turned about both arms."""
        axes, attitude, spin = _double_turn(*self._arms(read), q, v)
        return Relation(axes, attitude, *self.points(read), spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angles about the arms and their rates."""
        arm_a, arm_b, zero = self._arms(read)
        axes = rotation(zero)
        on_a, on_b = apply(relation.axes, arm_b), apply(relation.axes.T, arm_a)
        angles = [_between(arm_a, apply(axes, arm_b), on_a)]
        angles.append(-_between(arm_b, apply(axes.T, arm_a), on_b))
        return angles, [on_b @ relation.spin, arm_b @ relation.spin]

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """The mass moves with a."""
        return _mass_moves_with_a(inertia, zero)

    def shapes(self, drawing: Drawing) -> Shapes:
        """A cross with its hub."""
        arms = [
            drawing.solid(meshes.cylinder(16), drawing.axes(k, arm), (0.45, 0.45, 4.0))
            for k, arm in enumerate((self.axis_a, self.axis_b))
        ]
        hub = drawing.solid(meshes.sphere(), drawing.frames[1].axes, (1.0,) * 3, DARK)
        name = drawing.name
        return {name: hub, f"{name}.arm_a": arms[0], f"{name}.arm_b": arms[1], **drawing.base()}


@repeated
def _free_turn(e: Array, rate: Array) -> tuple[Array, Array]:
    """The axes and the spin of a turn by a quaternion."""
    return rotation(e), spin_in_body(e, rate)


@repeated
def _double_turn(
    arm_a: AnyArray, arm_b: AnyArray, zero: AnyArray, q: Array, v: Array
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The axes, attitude and spin of a turn about an arm of a and one about an arm of b."""
    turn_a, turn_b = quaternion_about(arm_a, q[0]), quaternion_about(arm_b, q[1])
    attitude = product(product(turn_a, zero), turn_b)
    axes = rotation(attitude)
    return axes, attitude, v[0] * apply(axes.T, arm_a) + v[1] * arm_b


def _between(axis: AnyArray, first: AnyArray, second: AnyArray) -> Array:
    """The angle about an axis from a direction across it to another one."""
    return jnp.arctan2(axis @ cross(first, second), first @ second)


@dataclass(frozen=True)
class ConstantVelocity(PairJoint):
    """A joint of two bent shafts that turn at the same speed (Rzeppa joint); in space.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m] that
    it transmits, times the cosine of half the angle between the shafts. It has no coordinates.

    Args:
        axis: direction of the shaft on a.
        axis_b: direction of the shaft on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    axis: Direction
    axis_b: Direction = same_as("axis")

    kind = "constant-velocity joint"
    dimensions = (3,)
    turning = True

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """Both points coincide, and the shafts turn at the same speed."""
        return Coincide(self.at_a, self.at_b), EqualSpeeds(self.axis, self.axis_b)

    def shapes(self, drawing: Drawing) -> Shapes:
        """A ball."""
        return _ball(drawing)


spherical, universal, constant_velocity = Spherical, Universal, ConstantVelocity
