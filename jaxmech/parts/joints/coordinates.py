"""`CoordinateJoint`: a joint whose freedoms can be coordinates of a mechanism.

The joint is a point of a that coincides with a point of b; a slide moves it along a. Angles are
those of b relative to a, by the right-hand rule about the axis on a, and zero where the first
normals of the axes on a and b coincide, as in `given_angle`; where both axes have the same
components, the attitudes of both bodies are then the same.
"""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.inertia import Inertia
from jaxmech.parts.joints.pair import PairJoint
from jaxmech.parts.kinematics.base import Point, Relation
from jaxmech.parts.values import Reader, Vector, unit, vector_with_rate
from jaxmech.parts.vectors import (
    conjugate,
    matmul,
    product,
    quaternion_onto,
    rotation,
    rotation_about,
    spin_in_body,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated

Axes = tuple[Vector, Vector]  # the components of an axis on a and on b


@dataclass(frozen=True)
class CoordinateJoint(PairJoint):
    """A joint between two bodies that can move b by coordinates of its own.

    Subclass it for a joint of your own: `kind` is its name in messages, `letters`, `relation` and
    `coordinates` say how it moves b, and `positions` which equations hold where it closes a loop.
    """

    letters: ClassVar[tuple[str, ...]]  # the names of coordinates without the prefix of the joint
    slides: ClassVar[bool] = False  # whether the joint moves along a

    @property
    def has_norm(self) -> bool:
        """Whether the coordinates are a quaternion, which must have unit norm."""
        return "e0" in self.letters

    @property
    def has_coordinates(self) -> bool:
        """Whether both bodies have an attitude, so that the joint can have coordinates."""
        return all(body.rotates for body in self.bodies)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The functions of time and parameters among points, axes and sizes."""
        named = ("name", "bodies")
        values = (getattr(self, field.name) for field in fields(self) if field.name not in named)
        return tuple(_functions(tuple(values)))

    @abc.abstractmethod
    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """Where b is relative to a, for axes and turns that do not change with time."""

    @abc.abstractmethod
    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The coordinates and rates that come nearest to a relation, two lists of numbers.

        `joint` is the joint on b, seen from a: its way from the joint on a, and the velocity of it.
        """

    def moving(self, q: Array, v: Array, read: Reader) -> Relation:
        """Where b is relative to a, for the coordinates of the joint and their rates."""
        if not self.functions:
            return self.relation(q, v, read)

        def pose(q: Array, t: Array) -> tuple[Any, Any, Any]:
            relation = self.relation(q, v, replace(read, t=t))
            return 1.0 * relation.attitude, relation.at_a[0], relation.at_b[0]

        t = 1.0 * read.t
        along = (v, jnp.ones_like(t))
        (attitude, at_a, at_b), rates = jax.jvp(pose, (1.0 * q, t), along)
        spin = rates[0] if attitude.ndim == 0 else spin_in_body(attitude, rates[0])
        relation = self.relation(q, v, read)
        return Relation(relation.axes, attitude, (at_a, rates[1]), (at_b, rates[2]), spin)

    def points(self, read: Reader) -> tuple[Point, Point]:
        """The joint on both bodies, each with its velocity there."""
        on_a = vector_with_rate(read, self.at_a, self.dimension)
        return on_a, vector_with_rate(read, self.at_b, self.dimension)

    def hinge_axes(self, read: Reader) -> tuple[AnyArray, AnyArray] | None:
        """Rotations (3, 3) on a and b from axes of which the joint only turns the third; or None.

        M and Q of a mechanism have fewer terms in such axes.
        """
        return None

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """What counts as inertia of b, and what as that of a, for values that do not change."""
        return inertia, zero


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    if callable(value):
        yield value
    elif isinstance(value, tuple):
        for component in value:
            yield from _functions(component)


@repeated
def slid(joint: Point, u: AnyArray, s: Array, rate: Array) -> Point:
    """A point and its velocity, moved along a direction."""
    return joint[0] + s * u, joint[1] + rate * u


def quaternion_about(u: AnyArray, angle: Array) -> Array:
    """The quaternion of a turn about a unit vector."""
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * u])


def turn_about_axis(
    axes: Axes, angle: Array, rate: Array, read: Reader, zero: Any = None
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The axes, attitude and spin of a turn about an axis that two bodies share.

    `zero` is the quaternion of b relative to a at an angle of zero; by default the first normals of
    both axes coincide there.
    """
    return _turn(*_at_zero(axes, zero, read), angle, rate)


@repeated
def _turn(
    u: AnyArray, w: AnyArray, start: AnyArray | None, angle: Array, rate: Array
) -> tuple[AnyArray, AnyArray, AnyArray]:
    matrix, e = rotation_about(u, angle), quaternion_about(u, angle)
    if start is None:
        return matrix, e, rate * w
    return matmul(matrix, rotation(start)), product(e, start), rate * w


def angle_about_axis(
    axes: Axes, relation: Relation, read: Reader, zero: Any = None
) -> tuple[Array, Array]:
    """The angle about the axis that two bodies share, and its rate."""
    u, w, start = _at_zero(axes, zero, read)
    e = relation.attitude if start is None else product(relation.attitude, conjugate(start))
    angle = 2 * jnp.arctan2(u @ e[1:], e[0])
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle)), w @ relation.spin


def _at_zero(axes: Axes, zero: Any, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray | None]:
    """The axis on both bodies, and the quaternion of b at an angle of zero; None if it is one."""
    u, w = (unit(read, axis, 3) for axis in axes)
    if zero is not None:
        return u, w, unit(read, zero, 4)
    if axes[0] == axes[1]:
        return u, w, None
    return u, w, product(quaternion_onto(u), conjugate(quaternion_onto(w)))
