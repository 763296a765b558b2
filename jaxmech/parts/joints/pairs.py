"""The joints that can have coordinates, by their motions: hinge, slider, weld, sleeve, ball, ..."""

import abc
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.joints.base import PairJoint, Position, Velocity
from jaxmech.parts.joints.motions import (
    AbstractFreedom,
    AbstractRotation,
    Ball,
    Cross,
    Glide,
    Hinge,
    Pin,
    Rigid,
    Slide,
    Thread,
)
from jaxmech.parts.kinds import Attitude, Axis, Direction, Number, Turn, partners, same_as
from jaxmech.parts.kinematics import Point, Relation
from jaxmech.parts.values import Reader, are_numbers, vector_with_rate
from jaxmech.parts.vectors import rotation, spin_in_body
from jaxmech.utils.text import capital


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
        return tuple(equation for motion in self.motions for equation in motion.positions)

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        return tuple(equation for motion in self.motions for equation in motion.velocities)

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        return {x.letters[0]: x for x in self.motions if isinstance(x, AbstractFreedom)}

    @property
    def slides(self) -> bool:
        """Whether the joint moves along a."""
        return type(self.motions[0]) is not Pin

    @property
    def has_norm(self) -> bool:
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


def _functions(value: Any) -> Iterator[Callable[..., Any]]:
    if callable(value):
        yield value
    elif isinstance(value, tuple):
        for component in value:
            yield from _functions(component)


Motions = tuple[Pin, AbstractRotation]


@dataclass(frozen=True)
class Revolute(CoordinateJoint):
    """A hinge: a point of a coincides with a point of b, and in space they share an axis.

    Its multipliers are the force [N] on b along the axes of the ground, in space followed by two
    torques [N m] across the axis.

    Args:
        axis: direction of the axis on a; in space only.
        axis_b: direction of the axis on b, by default the same components as `axis`.
        turn: in space, the attitude of b relative to a at the joint angle zero, a quaternion that
            turns `axis_b` into `axis`; by default the first normals of the axes coincide there. It
            only affects the coordinate of the joint.
    """

    _: KW_ONLY
    axis: Axis = None
    axis_b: Axis = same_as("axis")
    turn: Turn = None

    kind = "revolute joint"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.axis is None:
            return
        partners(self.part, self.bodies, turning=True)
        if not all(map(are_numbers, (self.axis, self.axis_b, self.turn))):
            return
        on_a, on_b = np.array(self.axis), np.array(self.axis_b)
        if not np.allclose(rotation(np.array(self.turn)) @ on_b, on_a, atol=1e-6):
            raise ValueError(
                f"{capital(self.part)} must have a `turn` that turns `axis_b` {self.axis_b} into "
                f"`axis` {self.axis}, but {self.turn} does not; correct one of them."
            )

    @property
    def motions(self) -> Motions:
        axes = None if self.axis is None else (self.axis, self.axis_b)
        return Pin(self.at_a, self.at_b), Hinge(axes, self.turn)


@dataclass(frozen=True)
class Prismatic(CoordinateJoint):
    """A slider: a point of b stays on a line of a, and b does not turn relative to a.

    Its multipliers are the components of the force [N] across the line, one in the plane and two in
    space, followed by those of the torque [N m], one in the plane and three in space, along the
    axes of b.

    Args:
        axis: direction of the line on a.
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.
    """

    _: KW_ONLY
    axis: Direction
    turn: Attitude = None

    kind = "prismatic joint"
    turning = True

    @property
    def motions(self) -> Motions:
        return Slide(self.at_a, self.at_b, self.axis), Rigid(self.turn, self.dimension)


@dataclass(frozen=True)
class Weld(CoordinateJoint):
    """A rigid connection of two bodies.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m], in
    space with three components along the axes of b.

    Args:
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.
    """

    _: KW_ONLY
    turn: Attitude = None

    kind = "weld"
    turning = True

    @property
    def motions(self) -> Motions:
        return Pin(self.at_a, self.at_b), Rigid(self.turn, self.dimension)


@dataclass(frozen=True)
class Cylindrical(CoordinateJoint):
    """A shaft in a sleeve: b turns about a line of a and slides along it; in space.

    Its multipliers are two forces [N] and two torques [N m] across the axis.

    Args:
        axis: direction of the axis on a.
        axis_b: direction of the axis on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    axis: Direction
    axis_b: Direction = same_as("axis")

    kind = "cylindrical joint"
    dimensions = (3,)
    turning = True

    @property
    def motions(self) -> Motions:
        return Slide(self.at_a, self.at_b, self.axis), Hinge((self.axis, self.axis_b))


@dataclass(frozen=True)
class Screw(Cylindrical):
    """A nut or spindle: b turns about an axis of a and moves along it by its lead; in space.

    In the coordinates of joints it has an `angle`, at whose zero the points coincide; as a
    constraint it keeps the initial offset.

    Args:
        axis: direction of the axis on a.
        lead: displacement along the axis per full turn [m], positive for a right-handed screw.
        axis_b: direction of the axis on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    lead: Number

    kind = "screw"

    @property
    def motions(self) -> Motions:
        thread = Thread(self.at_a, self.at_b, self.axis, self.lead)
        return thread, Hinge((self.axis, self.axis_b))

    def coordinates(self, relation: Relation, joint: tuple[Array, Array], read: Reader) -> Any:
        """The angle with the full turns nearest to the way along the axis, and its rate."""
        (angle,), rates = super().coordinates(relation, joint, read)
        (way,), _ = Slide(self.at_a, self.at_b, self.axis).coordinates(*joint, read)
        turns = jnp.round((2 * np.pi * way / read.number(self.lead) - angle) / (2 * np.pi))
        return [angle + 2 * np.pi * turns], rates


@dataclass(frozen=True)
class Planar(CoordinateJoint):
    """A plate on a table: b moves in a plane of a, and turns about its normal; in space.

    Its multipliers are the force [N] along the normal and two torques [N m] across it.

    Args:
        normal: normal of the plane on a.
        normal_b: the same direction on b, by default the same components as `normal`.
    """

    _: KW_ONLY
    normal: Direction
    normal_b: Direction = same_as("normal")

    kind = "planar joint"
    dimensions = (3,)
    turning = True

    @property
    def motions(self) -> Motions:
        return Glide(self.at_a, self.at_b, self.normal), Hinge((self.normal, self.normal_b))


@dataclass(frozen=True)
class Spherical(CoordinateJoint):
    """A ball and socket: a point of a coincides with a point of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground. Its coordinates are the
    unit quaternion of b relative to a.
    """

    kind = "spherical joint"
    dimensions = (3,)

    @property
    def motions(self) -> Motions:
        return Pin(self.at_a, self.at_b), Ball()


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
    dimensions = (3,)
    turning = True

    @property
    def motions(self) -> Motions:
        return Pin(self.at_a, self.at_b), Cross(self.axis_a, self.axis_b)


revolute, prismatic, weld, planar = Revolute, Prismatic, Weld, Planar
cylindrical, screw, spherical = Cylindrical, Screw, Spherical
universal = Universal
