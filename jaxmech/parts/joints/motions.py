"""The motions that joints are made of: a translation of b along a, then a rotation of b.

    translation   coordinates   equations, where the joint closes a loop
    Pin                         coincide
    Slide         position      on_line
    Glide         x, y          level
    Thread        (the angle)   on_line, and one on velocities

    rotation      coordinates   equations
    Rigid                       relative_attitude
    Hinge         angle         parallel, in the plane none
    Ball          e0 ... e3     none
    Cross         two angles    perpendicular

The joint is a point of a that coincides with a point of b; a translation moves it along a. Angles
are those of b relative to a, by the right-hand rule about the axis on a, and zero where the first
normals of the axes on a and b coincide, as in `given_angle`; where both axes have the same
components, the attitudes of both bodies are then the same.

`Slide` and `Hinge` are also freedoms, in which forces and stops act. They are computed from the
frames of both bodies, so that they do not depend on whether the joint is a constraint or has
coordinates. Forces and torques act on b along the axis on a, and their opposites on a.
"""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import Frame, Load, Moving, pointing, separation, shifted, turn_about
from jaxmech.parts.inertia import rounded
from jaxmech.parts.joints.base import (
    Position,
    Velocity,
    coincide,
    level,
    on_line,
    parallel,
    perpendicular,
    relative_attitude,
    slip,
)
from jaxmech.parts.kinematics import Point, Relation
from jaxmech.parts.values import Reader, Value, Vector, unit
from jaxmech.parts.vectors import (
    apply,
    conjugate,
    cross,
    matmul,
    normals,
    plane_rotation,
    product,
    quaternion_onto,
    rotation,
    rotation_about,
    spin_in_body,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated

Axes = tuple[Vector, Vector]  # the components of an axis on a and on b
Attitude = tuple[AnyArray, AnyArray, AnyArray]  # axes, attitude and spin, as those of a `Relation`
Numbers = tuple[list[Any], list[Any]]  # coordinates and their rates


class AbstractFreedom(abc.ABC):
    """A freedom of a joint: its coordinate and rate, and the load of a force in it."""

    @abc.abstractmethod
    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The coordinate."""

    @abc.abstractmethod
    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        """The coordinate and its rate."""

    @abc.abstractmethod
    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """The loads on both bodies."""


class AbstractMotion:
    """A translation or a rotation, with its coordinates and its equations."""

    letters: ClassVar[tuple[str, ...]] = ()  # of the coordinates, without the prefix of the joint

    @property
    def positions(self) -> tuple[Position, ...]:
        """The equations on positions that hold where it closes a loop."""
        return ()

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The equations on velocities that hold where it closes a loop."""
        return ()


@dataclass(frozen=True)
class Pin(AbstractMotion):
    """The point on b is that on a; other translations move the latter along a."""

    at_a: Vector
    at_b: Vector

    @property
    def positions(self) -> tuple[Position, ...]:
        return (coincide(self.at_a, self.at_b),)

    def moved(self, joint: Point, q: Array, v: Array, read: Reader) -> Point:
        """The joint on a and its velocity, moved by the first coordinates."""
        return joint

    def coordinates(self, offset: Array, speed: Array, read: Reader) -> Numbers:
        """The coordinates and rates nearest to a way of the joint on b, and the velocity of it."""
        return [], []


@dataclass(frozen=True)
class Slide(Pin, AbstractFreedom):
    """The position along an axis on a."""

    axis: Vector

    letters = ("position",)

    @property
    def positions(self) -> tuple[Position, ...]:
        return (on_line(self.at_a, self.axis, self.at_b),)

    def moved(self, joint: Point, q: Array, v: Array, read: Reader) -> Point:
        return _slid(joint, unit(read, self.axis, len(joint[0])), q[0], v[0])

    def coordinates(self, offset: Array, speed: Array, read: Reader) -> Numbers:
        u = unit(read, self.axis, len(offset))
        return [u @ offset], [u @ speed]

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The component along the axis of the way from the point on a to that on b."""
        d = separation(frames, self.at_a, self.at_b, read)
        return jnp.asarray(pointing(frames[0], self.axis, read) @ d)

    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        a, b = motions
        u, end = pointing(a.frame, self.axis, read), self._end(b.frame, read)
        x = self.position((a.frame, b.frame), read)
        return x, u @ (b.velocity_at(end) - a.velocity_at(end))

    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """A force along the axis at the point on b."""
        a, b = motions
        force, no_torque = effort * pointing(a.frame, self.axis, read), jnp.zeros_like(a.spin)
        end = self._end(b.frame, read)
        return shifted((-force, no_torque), end, a.frame), shifted((force, no_torque), end, b.frame)

    def _end(self, frame: Frame, read: Reader) -> AnyArray:
        return frame.point(read.vector(self.at_b, frame.origin.shape[0]))


@dataclass(frozen=True)
class Glide(Pin):
    """The position in a plane of a, along the `normals` of its normal; in space."""

    normal: Vector

    letters = ("x", "y")

    @property
    def positions(self) -> tuple[Position, ...]:
        return (level(self.at_a, self.normal, self.at_b, 0.0),)

    def moved(self, joint: Point, q: Array, v: Array, read: Reader) -> Point:
        for k, u in enumerate(normals(unit(read, self.normal, 3))):
            joint = _slid(joint, u, q[k], v[k])
        return joint

    def coordinates(self, offset: Array, speed: Array, read: Reader) -> Numbers:
        first, second = normals(unit(read, self.normal, 3))
        return [first @ offset, second @ offset], [first @ speed, second @ speed]


@dataclass(frozen=True)
class Thread(Pin):
    """A way along an axis on a in proportion to the turns about it; in space."""

    axis: Vector
    lead: Value

    @property
    def positions(self) -> tuple[Position, ...]:
        return (on_line(self.at_a, self.axis, self.at_b),)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return (self._advance,)

    def _advance(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual u . v - lead / (2 pi) u . w, with v and w relative to a."""
        a, b = motions
        u = pointing(a.frame, self.axis, read)
        speed = u @ slip(motions, b.frame.point(read.vector(self.at_b, 3)))
        pitch = read.number(self.lead) / (2 * np.pi)
        return (speed - pitch * (u @ (b.spin - a.spin)))[None]

    def moved(self, joint: Point, q: Array, v: Array, read: Reader) -> Point:
        """The joint on a, moved along the axis by the angle, which is the first coordinate."""
        pitch = read.number(self.lead) / (2 * np.pi)
        return _slid(joint, unit(read, self.axis, 3), pitch * q[0], pitch * v[0])


@repeated
def _slid(joint: Point, u: AnyArray, s: Array, rate: Array) -> Point:
    return joint[0] + s * u, joint[1] + rate * u


class AbstractRotation(AbstractMotion, abc.ABC):
    """A rotation of b relative to a."""

    @abc.abstractmethod
    def attitude(self, q: Array, v: Array, k: int, read: Reader) -> Attitude:
        """The axes, attitude and spin of b relative to a, by the coordinates from the k-th on."""

    @abc.abstractmethod
    def coordinates(self, relation: Relation, read: Reader) -> Numbers:
        """The coordinates and rates nearest to a relation."""


@dataclass(frozen=True)
class Rigid(AbstractRotation):
    """A constant attitude of b relative to a, an angle in the plane or a quaternion."""

    turn: Any
    dimension: int

    @property
    def positions(self) -> tuple[Position, ...]:
        return (relative_attitude(self.turn),)

    def attitude(self, q: Array, v: Array, k: int, read: Reader) -> Attitude:
        zeros = np.zeros(3, read.dtype)
        if self.dimension == 2:
            angle = read.number(self.turn)
            return plane_rotation(angle), angle, zeros[0]
        e = unit(read, self.turn, 4)
        return rotation(e), e, zeros

    def coordinates(self, relation: Relation, read: Reader) -> Numbers:
        return [], []


@dataclass(frozen=True)
class Hinge(AbstractRotation, AbstractFreedom):
    """The angle about an axis that both bodies share; None in the plane.

    As a freedom it is between -pi and pi in space. `zero` is the quaternion of b relative to a at
    an angle of zero; by default the first normals of both axes coincide there.
    """

    axes: Axes | None = None
    zero: Any = None

    letters = ("angle",)

    @property
    def positions(self) -> tuple[Position, ...]:
        return () if self.axes is None else (parallel(*self.axes),)

    def attitude(self, q: Array, v: Array, k: int, read: Reader) -> Attitude:
        if self.axes is None:
            return plane_rotation(q[k]), q[k], v[k]
        return _turn(*self._at_zero(self.axes, read), q[k], v[k])

    def coordinates(self, relation: Relation, read: Reader) -> Numbers:
        if self.axes is None:
            return [relation.attitude], [relation.spin]
        u, w, start = self._at_zero(self.axes, read)
        e = relation.attitude if start is None else product(relation.attitude, conjugate(start))
        angle = 2 * jnp.arctan2(u @ e[1:], e[0])
        return [jnp.arctan2(jnp.sin(angle), jnp.cos(angle))], [w @ relation.spin]

    def _at_zero(self, axes: Axes, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray | None]:
        """The axis on both bodies, and the quaternion of b at zero; None if it is one."""
        u, w = (unit(read, axis, 3) for axis in axes)
        if self.zero is not None:
            return u, w, unit(read, self.zero, 4)
        if axes[0] == axes[1]:
            return u, w, None
        return u, w, product(quaternion_onto(u), conjugate(quaternion_onto(w)))

    def to_third_axes(self, read: Reader) -> tuple[AnyArray, AnyArray]:
        """Rotations to axes whose third one is that of the hinge, on a at an angle of zero."""
        if self.axes is None:
            return np.eye(3, dtype=read.dtype), np.eye(3, dtype=read.dtype)
        u, w = (unit(read, axis, 3) for axis in self.axes)
        on_b = rounded(rotation(quaternion_onto(w)))
        if self.zero is not None:
            return matmul(rotation(unit(read, self.zero, 4)), on_b), on_b
        if self.axes[0] == self.axes[1]:
            return on_b, on_b
        return rounded(rotation(quaternion_onto(u))), on_b

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        a, b = frames
        if self.axes is None:
            return jnp.asarray(b.attitude - a.attitude)
        if self.zero is None:
            cosine, sine = turn_about((a, b), *self.axes, read)
        else:
            e = product(conjugate(a.attitude), b.attitude)
            e = product(e, conjugate(unit(read, self.zero, 4)))
            half = unit(read, self.axes[0], 3) @ e[1:]
            cosine, sine = e[0] ** 2 - half**2, 2 * e[0] * half
        return jnp.arctan2(sine, cosine)

    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        a, b = motions
        angle = self.position((a.frame, b.frame), read)
        if self.axes is None:
            return angle, jnp.asarray(b.spin - a.spin)
        return angle, pointing(a.frame, self.axes[0], read) @ (b.spin - a.spin)

    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        a, _ = motions
        no_force = jnp.zeros_like(a.velocity)
        torque = effort if self.axes is None else effort * pointing(a.frame, self.axes[0], read)
        return (no_force, -torque), (no_force, torque)


@repeated
def _turn(
    u: AnyArray, w: AnyArray, start: AnyArray | None, angle: Array, rate: Array
) -> tuple[AnyArray, AnyArray, AnyArray]:
    matrix, e = rotation_about(u, angle), _quaternion_about(u, angle)
    if start is None:
        return matrix, e, rate * w
    return matmul(matrix, rotation(start)), product(e, start), rate * w


def _quaternion_about(u: AnyArray, angle: Array) -> Array:
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * u])


@dataclass(frozen=True)
class Ball(AbstractRotation):
    """Any rotation, by the unit quaternion of b relative to a; alone or after a `Pin`."""

    letters = ("e0", "e1", "e2", "e3")

    def attitude(self, q: Array, v: Array, k: int, read: Reader) -> Attitude:
        axes, spin = _free_turn(q, v)
        return axes, q, spin

    def coordinates(self, relation: Relation, read: Reader) -> Numbers:
        """The quaternion and its rate, e (0, w) / 2 for w along the axes of b."""
        e = relation.attitude
        rate = product(e, jnp.concatenate([jnp.zeros(1), relation.spin])) / 2
        return [*e], [*rate]


@repeated
def _free_turn(e: Array, rate: Array) -> tuple[Array, Array]:
    return rotation(e), spin_in_body(e, rate)


@dataclass(frozen=True)
class Cross(AbstractRotation):
    """Turns about an arm of a and about an arm of b, which stay at right angles."""

    arm_a: Vector
    arm_b: Vector

    letters = ("angle_a", "angle_b")

    @property
    def positions(self) -> tuple[Position, ...]:
        return (perpendicular(self.arm_a, self.arm_b),)

    def _arms(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        """The arms on a and b, and the quaternion of b at angles of zero."""
        arms = unit(read, self.arm_a, 3), unit(read, self.arm_b, 3)
        # The arms of the cross are x on a and y on b: a cyclic turn takes each of them to z.
        cycles = np.array([[1, -1, -1, -1], [1, 1, 1, 1]], read.dtype) / 2
        e = [product(quaternion_onto(u), c) for u, c in zip(arms, cycles, strict=True)]
        return *arms, product(e[0], conjugate(e[1]))

    def attitude(self, q: Array, v: Array, k: int, read: Reader) -> Attitude:
        attitude: Attitude = _double_turn(*self._arms(read), q, v)
        return attitude

    def coordinates(self, relation: Relation, read: Reader) -> Numbers:
        arm_a, arm_b, zero = self._arms(read)
        axes = rotation(zero)
        on_a, on_b = apply(relation.axes, arm_b), apply(relation.axes.T, arm_a)
        angles = [_between(arm_a, apply(axes, arm_b), on_a)]
        angles.append(-_between(arm_b, apply(axes.T, arm_a), on_b))
        return angles, [on_b @ relation.spin, arm_b @ relation.spin]


@repeated
def _double_turn(
    arm_a: AnyArray, arm_b: AnyArray, zero: AnyArray, q: Array, v: Array
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The axes, attitude and spin of a turn about an arm of a and one about an arm of b."""
    turn_a, turn_b = _quaternion_about(arm_a, q[0]), _quaternion_about(arm_b, q[1])
    attitude = product(product(turn_a, zero), turn_b)
    axes = rotation(attitude)
    return axes, attitude, v[0] * apply(axes.T, arm_a) + v[1] * arm_b


def _between(axis: AnyArray, first: AnyArray, second: AnyArray) -> Array:
    """The angle about an axis from a direction across it to another one."""
    return jnp.arctan2(axis @ cross(first, second), first @ second)
