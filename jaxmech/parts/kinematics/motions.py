"""Relative motions of two bodies that a joint leaves free, in coordinates of the joint.

    motion     coordinates            joint in the plane   joint in space
    Hinge      angle [rad]            revolute             revolute
    Slide      position [m]           prismatic            prismatic
    Sleeve     position, angle                             cylindrical
    Helix      angle                                       screw
    Plane      x, y [m], angle                             planar
    Cardan     angle_a, angle_b                            universal
    Ball       e0, e1, e2, e3                              spherical
    Rigid      none                   weld                 weld

The joint is a point of a that coincides with a point of b; a slide moves it along a. Angles are
those of b relative to a, by the right-hand rule about the axis on a, and zero where the first
normals of the axes on a and b coincide, as in `given_angle`; where both axes have the same
components, b is not turned there. A hinge may state another attitude for an angle of zero. A ball
has the unit quaternion of b relative to a.
"""

import abc
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.kinematics.relations import Point, Relation
from jaxmech.parts.values import Reader, Value, Vector, unit, vector_with_rate
from jaxmech.parts.vectors import (
    Numbers,
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


@dataclass(frozen=True)
class AbstractMotion(abc.ABC):
    """The motion of b relative to a."""

    at_a: Vector
    at_b: Vector

    letters: ClassVar[tuple[str, ...]]  # the names of coordinates without the prefix of the joint
    slides: ClassVar[bool] = False  # whether the joint moves along a

    @property
    def has_norm(self) -> bool:
        """Whether the coordinates are a quaternion, which must have unit norm."""
        return False

    @abc.abstractmethod
    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """Where b is relative to a, for axes and turns that do not change with time."""

    def moving(self, q: Array, v: Array, read: Reader) -> Relation:
        """Where b is relative to a, for the coordinates of the joint and their rates."""
        values = (value for value in vars(self).values() if isinstance(value, tuple))
        if not any(map(callable, (*vars(self).values(), *(x for value in values for x in value)))):
            return self.relation(q, v, read)

        def place(q: Array, t: Array) -> tuple[Any, Any, Any]:
            relation = self.relation(q, v, replace(read, t=t))
            return 1.0 * relation.attitude, relation.at_a[0], relation.at_b[0]

        t = 1.0 * read.t
        along = (v, jnp.ones_like(t))
        (attitude, at_a, at_b), rates = jax.jvp(place, (1.0 * q, t), along)
        spin = rates[0] if attitude.ndim == 0 else spin_in_body(attitude, rates[0])
        relation = self.relation(q, v, read)
        return Relation(relation.axes, attitude, (at_a, rates[1]), (at_b, rates[2]), spin)

    @abc.abstractmethod
    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The coordinates and rates that come nearest to a relation, two lists of numbers.

        `joint` is the joint on b, seen from a: its way from the joint on a, and the velocity of it.
        """


def _points(motion: AbstractMotion, read: Reader, size: int) -> tuple[Point, Point]:
    """The joint on both bodies, each with its velocity there."""
    on_a = vector_with_rate(read, motion.at_a, size)
    return on_a, vector_with_rate(read, motion.at_b, size)


def _turn(u: Numbers, angle: Array) -> Array:
    """The quaternion of a turn about a unit vector."""
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * u])


def _zero(
    axes: tuple[Vector, Vector], zero: Any, read: Reader
) -> tuple[Numbers, Numbers, Numbers | None]:
    """The axis on both bodies, and the quaternion of b at an angle of zero; None if not turned."""
    u, w = (unit(read, axis, 3) for axis in axes)
    if zero is not None:
        return u, w, unit(read, zero, 4)
    if axes[0] == axes[1]:
        return u, w, None
    return u, w, product(quaternion_onto(u), conjugate(quaternion_onto(w)))


def _about(
    axes: tuple[Vector, Vector], angle: Array, rate: Array, read: Reader, zero: Any = None
) -> tuple[Numbers, Numbers, Numbers]:
    """The axes, attitude and spin of a turn about an axis that two bodies share."""
    u, w, start = _zero(axes, zero, read)
    matrix, e = rotation_about(u, angle), _turn(u, angle)
    if start is None:
        return matrix, e, rate * w
    return matmul(matrix, rotation(start)), product(e, start), rate * w


def _angle(
    axes: tuple[Vector, Vector], relation: Relation, read: Reader, zero: Any = None
) -> tuple[Array, Array]:
    """The angle about the axis that two bodies share, and its rate."""
    u, w, start = _zero(axes, zero, read)
    e = relation.attitude if start is None else product(relation.attitude, conjugate(start))
    angle = 2 * jnp.arctan2(u @ e[1:], e[0])
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle)), w @ relation.spin


def _between(axis: Numbers, first: Numbers, second: Numbers) -> Array:
    """The angle about an axis from a direction across it to another one."""
    return jnp.arctan2(axis @ cross(first, second), first @ second)


def _slid(joint: Point, u: Numbers, s: Array, rate: Array) -> Point:
    """A point and its velocity, moved along a direction."""
    return joint[0] + s * u, joint[1] + rate * u


@dataclass(frozen=True)
class Hinge(AbstractMotion):
    """A turn about an axis; `axes` are those on a and b in space, and None in the plane."""

    axes: tuple[Vector, Vector] | None
    zero: Any = None
    letters: ClassVar[tuple[str, ...]] = ("angle",)

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, turned about the axis."""
        if self.axes is None:
            return Relation(plane_rotation(q[0]), q[0], *_points(self, read, 2), v[0])
        axes, attitude, spin = _about(self.axes, q[0], v[0], read, self.zero)
        return Relation(axes, attitude, *_points(self, read, 3), spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angle about the axis and its rate."""
        if self.axes is None:
            return [relation.attitude], [relation.spin]
        angle, rate = _angle(self.axes, relation, read, self.zero)
        return [angle], [rate]


@dataclass(frozen=True)
class Slide(AbstractMotion):
    """A way along an axis on a; b keeps the attitude `turn` relative to a."""

    axis: Vector
    turn: Any
    size: int
    letters: ClassVar[tuple[str, ...]] = ("position",)
    slides: ClassVar[bool] = True

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b at its constant attitude."""
        fixed = Rigid(self.at_a, self.at_b, self.turn, self.size).relation(q, v, read)
        u = unit(read, self.axis, self.size)
        return fixed._replace(at_a=_slid(fixed.at_a, u, q[0], v[0]))

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The way along the axis and its rate."""
        u = unit(read, self.axis, self.size)
        return [u @ joint[0]], [u @ joint[1]]


@dataclass(frozen=True)
class Sleeve(AbstractMotion):
    """A way along an axis and a turn about it; in space."""

    axes: tuple[Vector, Vector]
    letters: ClassVar[tuple[str, ...]] = ("position", "angle")
    slides: ClassVar[bool] = True

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b turned about it."""
        axes, attitude, spin = _about(self.axes, q[1], v[1], read)
        on_a, on_b = _points(self, read, 3)
        u = unit(read, self.axes[0], 3)
        return Relation(axes, attitude, _slid(on_a, u, q[0], v[0]), on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The way along the axis and the angle about it, with their rates."""
        u = unit(read, self.axes[0], 3)
        angle, rate = _angle(self.axes, relation, read)
        return [u @ joint[0], angle], [u @ joint[1], rate]


@dataclass(frozen=True)
class Helix(AbstractMotion):
    """A turn about an axis with a way along it, a lead for each full turn; in space."""

    axes: tuple[Vector, Vector]
    lead: Value
    letters: ClassVar[tuple[str, ...]] = ("angle",)
    slides: ClassVar[bool] = True

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved along the axis, b turned about it."""
        axes, attitude, spin = _about(self.axes, q[0], v[0], read)
        on_a, on_b = _points(self, read, 3)
        pitch = read.number(self.lead) / (2 * np.pi)
        u = unit(read, self.axes[0], 3)
        return Relation(axes, attitude, _slid(on_a, u, pitch * q[0], pitch * v[0]), on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angle that is nearest to the way along the axis, and its rate."""
        u = unit(read, self.axes[0], 3)
        angle, rate = _angle(self.axes, relation, read)
        way = 2 * np.pi * (u @ joint[0]) / read.number(self.lead)
        return [angle + 2 * np.pi * jnp.round((way - angle) / (2 * np.pi))], [rate]


@dataclass(frozen=True)
class Plane(AbstractMotion):
    """A way along both normals of an axis on a, and a turn about the axis; in space."""

    axes: tuple[Vector, Vector]
    letters: ClassVar[tuple[str, ...]] = ("x", "y", "angle")
    slides: ClassVar[bool] = True

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on a moved in the plane, b turned about its normal."""
        axes, attitude, spin = _about(self.axes, q[2], v[2], read)
        on_a, on_b = _points(self, read, 3)
        for k, u in enumerate(normals(unit(read, self.axes[0], 3))):
            on_a = _slid(on_a, u, q[k], v[k])
        return Relation(axes, attitude, on_a, on_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The ways in the plane and the angle about its normal, with their rates."""
        first, second = normals(unit(read, self.axes[0], 3))
        angle, rate = _angle(self.axes, relation, read)
        offset, speed = joint
        return [first @ offset, second @ offset, angle], [first @ speed, second @ speed, rate]


@dataclass(frozen=True)
class Cardan(AbstractMotion):
    """A turn of a cross about an arm of a, and of b about the arm of the cross on b; in space."""

    arm_a: Vector
    arm_b: Vector
    letters: ClassVar[tuple[str, ...]] = ("angle_a", "angle_b")

    def _arms(self, read: Reader) -> tuple[Numbers, Numbers, Numbers]:
        """The arms on a and b, and the quaternion of b at angles of zero."""
        arms = unit(read, self.arm_a, 3), unit(read, self.arm_b, 3)
        # The arms of the cross are x on a and y on b: a cyclic turn takes each of them to z.
        cycles = np.array([[1, -1, -1, -1], [1, 1, 1, 1]], read.dtype) / 2
        e = [product(quaternion_onto(u), c) for u, c in zip(arms, cycles, strict=True)]
        return *arms, product(e[0], conjugate(e[1]))

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b turned about both arms."""
        arm_a, arm_b, zero = self._arms(read)
        attitude = product(product(_turn(arm_a, q[0]), zero), _turn(arm_b, q[1]))
        axes = rotation(attitude)
        spin = v[0] * apply(axes.T, arm_a) + v[1] * arm_b
        return Relation(axes, attitude, *_points(self, read, 3), spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angles about the arms and their rates."""
        arm_a, arm_b, zero = self._arms(read)
        axes = rotation(zero)
        on_a, on_b = apply(relation.axes, arm_b), apply(relation.axes.T, arm_a)
        angles = [_between(arm_a, apply(axes, arm_b), on_a)]
        angles.append(-_between(arm_b, apply(axes.T, arm_a), on_b))
        return angles, [on_b @ relation.spin, arm_b @ relation.spin]


@dataclass(frozen=True)
class Ball(AbstractMotion):
    """Any turn about the joint, by a unit quaternion; in space."""

    letters: ClassVar[tuple[str, ...]] = ("e0", "e1", "e2", "e3")

    @property
    def has_norm(self) -> bool:
        """True."""
        return True

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b turned by the quaternion."""
        return Relation(rotation(q), q, *_points(self, read, 3), spin_in_body(q, v))

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The quaternion and its rate, e (0, w) / 2 for w along the axes of b."""
        e = relation.attitude
        rate = product(e, jnp.concatenate([jnp.zeros(1), relation.spin])) / 2
        return [*e], [*rate]


@dataclass(frozen=True)
class Rigid(AbstractMotion):
    """No motion: b keeps the attitude `turn` relative to a."""

    turn: Any
    size: int
    letters: ClassVar[tuple[str, ...]] = ()

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """The joint on both bodies, b at its constant attitude."""
        zeros = np.zeros(3, read.dtype)
        if self.size == 2:
            angle = read.number(self.turn)
            return Relation(plane_rotation(angle), angle, *_points(self, read, 2), zeros[0])
        e = unit(read, self.turn, 4)
        return Relation(rotation(e), e, *_points(self, read, 3), zeros)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """None."""
        return [], []
