"""Where bodies are and how they move: relative to each other, and as functions of the coordinates.

`Relation` is what a joint gives, `AbstractKinematics` the interface of all coordinates.
"""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start
from jaxmech.parts.vectors import apply, conjugate, cross, matmul, product, quarter_turn
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated

Bodies = Sequence[AbstractBody]


class Inertial(NamedTuple):
    """A body with its kinetic energy [J], and the frame that it has."""

    body: AbstractBody
    kinetic: AnyArray
    frame: Frame


class Norm(NamedTuple):
    """Coordinates that are a quaternion, from the first of them, and whose they are."""

    name: str
    first: int


@dataclass(frozen=True)
class AbstractKinematics(abc.ABC):
    """The positions and velocities of bodies."""

    bodies: tuple[AbstractBody, ...]

    has_tree: ClassVar[bool] = False  # whether joints move bodies along a tree

    @property
    @abc.abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""

    @property
    @abc.abstractmethod
    def norms(self) -> tuple[Norm, ...]:
        """The quaternions among the coordinates."""

    def with_units(self, q: Array) -> Array:
        """The coordinates with quaternions of unit length."""
        parts, last = [], 0
        for norm in self.norms:
            e = q[norm.first : norm.first + 4]
            parts += [q[last : norm.first], e / jnp.sqrt(e @ e)]
            last = norm.first + 4
        return jnp.concatenate([*parts, q[last:]])

    @abc.abstractmethod
    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        """The frames of some bodies, or of the ground."""

    @abc.abstractmethod
    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        """The frames of some bodies, or of the ground, with their velocities."""

    @abc.abstractmethod
    def inertial(self, q: Array, v: Array, t: Array, params: Any) -> Iterator[Inertial]:
        """All bodies with their kinetic energies."""

    @abc.abstractmethod
    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The generalized force (n,) of loads on bodies, by their names."""

    @abc.abstractmethod
    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates and velocities of given starts, by the names of bodies or joints."""


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
