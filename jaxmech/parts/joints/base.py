"""`Joint`: a connection of bodies under one name, its equations as constraints, and its freedoms.

Forces and stops act in the freedoms: an angle about an axis, a way along one. They are computed
from the frames of both bodies, so that they do not depend on whether the joint is a constraint or
has coordinates. Forces and torques act on b along the axis on a, and their opposites on a.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import (
    AbstractBody,
    Frame,
    Load,
    Moving,
    pointing,
    separation,
    shifted,
    turn_about,
)
from jaxmech.parts.drawing import Drawable, Drawing, Shapes
from jaxmech.parts.joint_equations import AbstractPosition, AbstractVelocity
from jaxmech.parts.joints.checks import part_name
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, Vector, unit
from jaxmech.parts.vectors import conjugate, product
from jaxmech.system import Holonomic, Nonholonomic, terms_of, without_implied
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.probing import cached_by_shapes


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Turning(AbstractFreedom):
    """The angle of a hinge; in space between -pi and pi.

    `zero` is the attitude of b relative to a at an angle of zero, as in `Revolute`.
    """

    axes: tuple[Vector, Vector] | None
    zero: Any = None

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The angle of b relative to a."""
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
        """The angle of b relative to a, and the spin about the axis."""
        a, b = motions
        angle = self.position((a.frame, b.frame), read)
        if self.axes is None:
            return angle, jnp.asarray(b.spin - a.spin)
        return angle, pointing(a.frame, self.axes[0], read) @ (b.spin - a.spin)

    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """A torque about the axis."""
        a, _ = motions
        no_force = jnp.zeros_like(a.velocity)
        torque = effort if self.axes is None else effort * pointing(a.frame, self.axes[0], read)
        return (no_force, -torque), (no_force, torque)


@dataclass(frozen=True)
class Sliding(AbstractFreedom):
    """The position along an axis on a."""

    at_a: Vector
    at_b: Vector
    axis: Vector

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The component along the axis of the way from the point on a to that on b."""
        d = separation(frames, self.at_a, self.at_b, read)
        return jnp.asarray(pointing(frames[0], self.axis, read) @ d)

    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        """The component along the axis of the way from the point on a to that on b."""
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


class Joint(Drawable):
    """A connection between bodies, with everything that is known about it.

    Subclasses have the equations on positions or on velocities that hold where the joint is a
    constraint. A `CoordinateJoint` can also move its second body by coordinates of its own.

    Attributes:
        kind: kind of joint, as named in messages.
        name: name of the joint and of its constraint. A joint with equations on positions and on
            velocities has two, `name.contact` and `name.slip`.
        bodies: the bodies, a before b.
    """

    kind: str
    name: str
    bodies: tuple[AbstractBody, ...]

    @property
    def part(self) -> str:
        """The name of the joint in messages."""
        return part_name(self.kind, self.name)

    @property
    def positions(self) -> tuple[AbstractPosition, ...]:
        """The equations on the positions of the bodies."""
        return ()

    @property
    def velocities(self) -> tuple[AbstractVelocity, ...]:
        """The equations on the velocities of the bodies."""
        return ()

    @property
    def freedoms(self) -> dict[str, AbstractFreedom]:
        """The freedoms in which forces and stops can act, by the names of their coordinates."""
        return {}

    def position_level(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The residuals of the equations on positions, (k,)."""
        return jnp.concatenate([e.residual(frames, read) for e in self.positions])

    def velocity_level(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        return jnp.concatenate([e.residual(motions, read) for e in self.velocities])

    @property
    def has_point(self) -> bool:
        """Whether the joint is at a point of its second body."""
        return any(hasattr(e, "at_b") for e in (*self.positions, *self.velocities))

    def point_on_b(self, frame: Frame, read: Reader) -> AnyArray:
        """The joint on its second body, by default the reference point, along the ground's axes."""
        for equation in (*self.positions, *self.velocities):
            if hasattr(equation, "at_b"):
                return frame.point(read.vector(equation.at_b, len(frame.origin)))
        return frame.origin

    def constraints(self, kinematics: AbstractKinematics) -> Iterator[Holonomic | Nonholonomic]:
        """The equations as constraints on the coordinates of a mechanism."""
        has_two_levels = self.positions and self.velocities
        if self.positions:
            name = f"{self.name}.contact" if has_two_levels else self.name
            yield Holonomic(JointPositions(self, kinematics), name=name)
        if self.velocities:
            name = f"{self.name}.slip" if has_two_levels else self.name
            yield Nonholonomic(JointVelocities(self, kinematics), name=name)

    @property
    def marks(self) -> tuple[tuple[int, Vector], ...]:
        """The points of all equations."""
        return tuple(mark for e in (*self.positions, *self.velocities) for mark in e.marks)

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The bodies that the equations draw."""
        return tuple(k for e in (*self.positions, *self.velocities) for k in e.drawn_bodies)

    def shapes(self, drawing: Drawing) -> Shapes:
        """The shapes of all equations."""
        shapes: Shapes = {}
        for equation in (*self.positions, *self.velocities):
            shapes |= equation.shapes(drawing)
        return shapes


@dataclass(frozen=True)
class EquationJoint(Joint):
    """A joint of given equations that is always a constraint, such as a pair of gears.

    Attributes:
        kind: kind of joint, as named in messages.
        name: name of the joint.
        bodies: the bodies, a before b.
        positions: equations on the positions of the bodies.
        velocities: equations on their velocities.
    """

    kind: str
    name: str
    bodies: tuple[AbstractBody, ...]
    positions: tuple[AbstractPosition, ...] = ()
    velocities: tuple[AbstractVelocity, ...] = ()


@dataclass(frozen=True)
class JointPositions:
    """The residuals of a joint as a function of all coordinates."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on positions, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        values = self.level(q, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, q, _implied_positions(self, q, t, params))

    def level(self, q: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        frames = self.kinematics.frames(self.joint.bodies, q, t, params)
        return self.joint.position_level(frames, Reader(self.joint.part, t, params))


@dataclass(frozen=True)
class JointVelocities:
    """The same of its equations on velocities."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        values = self.level(q, v, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, v, _implied_velocities(self, q, v, t, params))

    def level(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        motions = self.kinematics.moving(self.joint.bodies, q, v, t, params)
        return self.joint.velocity_level(motions, Reader(self.joint.part, t, params))


@cached_by_shapes
def _implied_positions(fn: JointPositions, q: Array, *context: Any) -> list[float | None]:
    def equations(q: Array, *context: Any) -> Array:
        return fn.level(fn.kinematics.with_units(q), *context)

    return terms_of(equations, (q,), context)


@cached_by_shapes
def _implied_velocities(
    fn: JointVelocities, q: Array, v: Array, *context: Any
) -> list[float | None]:
    def equations(v: Array, q: Array, *context: Any) -> Array:
        pair = jax.jvp(fn.kinematics.with_units, (q,), (v,))
        return fn.level(*pair, *context)

    return terms_of(equations, (v, q), context)
