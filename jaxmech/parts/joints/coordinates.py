"""`CoordinateJoint`: a joint whose motions can be coordinates of a mechanism."""

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.inertia import Inertia
from jaxmech.parts.joint_equations import Position, Velocity
from jaxmech.parts.joints.base import PairJoint
from jaxmech.parts.joints.motions import AbstractFreedom, AbstractRotation, Hinge, Pin, Rigid
from jaxmech.parts.kinematics.base import Point, Relation
from jaxmech.parts.values import Reader, vector_with_rate
from jaxmech.parts.vectors import spin_in_body
from jaxmech.utils.arrays import AnyArray


@dataclass(frozen=True)
class CoordinateJoint(PairJoint):
    """A joint between two bodies that can move b by coordinates of its own.

    Subclass it for a joint of your own: `kind` is its name in messages, and everything else follows
    from its `motions`.
    """

    @property
    @abc.abstractmethod
    def motions(self) -> tuple[Pin, AbstractRotation]:
        """A translation and a rotation."""

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of the coordinates without the prefix of the joint."""
        return tuple(letter for motion in self.motions for letter in motion.letters)

    @property
    def positions(self) -> tuple[Position, ...]:
        """The equations of the translation, and those of the rotation."""
        return tuple(equation for motion in self.motions for equation in motion.positions)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The equations on velocities."""
        return tuple(equation for motion in self.motions for equation in motion.velocities)

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The motions with one coordinate."""
        return {x.letters[0]: x for x in self.motions if isinstance(x, AbstractFreedom)}

    @property
    def slides(self) -> bool:
        """Whether the joint moves along a."""
        return type(self.motions[0]) is not Pin

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
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(_functions(tuple(values)))

    def relation(self, q: Array, v: Array, read: Reader) -> Relation:
        """Where b is relative to a, for axes and turns that do not change with time."""
        translation, rotation = self.motions
        axes, attitude, spin = rotation.attitude(q, v, len(translation.letters), read)
        at_a, at_b = self.points(read)
        return Relation(axes, attitude, translation.moved(at_a, q, v, read), at_b, spin)

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The coordinates and rates that come nearest to a relation, two lists of numbers.

        `joint` is the joint on b, seen from a: its way from the joint on a, and the velocity of it.
        """
        translation, rotation = self.motions
        q, v = translation.coordinates(*joint, read)
        angles, rates = rotation.coordinates(relation, read)
        return q + angles, v + rates

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
        rotation = self.motions[1]
        if self.slides or not isinstance(rotation, Hinge):
            return None
        return rotation.to_third_axes(read)

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """What counts as inertia of b, and what as that of a, for values that do not change."""
        rotation = self.motions[1]
        if isinstance(rotation, Rigid):  # moments of inertia turn with a
            if not self.slides:
                return zero, inertia
            return inertia._replace(moments=zero.moments), zero._replace(moments=inertia.moments)
        if self.slides:
            return inertia, zero
        # The mass moves with a, and with a hinge also the static moment along its axis.
        inertia, shared = inertia._replace(mass=zero.mass), zero._replace(mass=inertia.mass)
        if isinstance(rotation, Hinge):
            along = np.eye(3, dtype=zero.mass.dtype)[2]
            shared = shared._replace(static=inertia.static * along)
            inertia = inertia._replace(static=inertia.static * (1 - along))
        return inertia, shared


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    if callable(value):
        yield value
    elif isinstance(value, tuple):
        for component in value:
            yield from _functions(component)
