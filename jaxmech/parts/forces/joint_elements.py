"""The elements of forces in joints: the freedom in which they act, and their laws.

The force [N] or torque [N m] acts on b along the axis on a, and its opposite on a:

    JointLaw         any function of coordinate, rate, time and parameters
    Motor            g stall (command - g rate / no_load), with the ratio g of a gear
    PositionServo    stiffness (target - coordinate) + damping (target_rate - rate), limited
    JointFriction    -(coulomb + (static - coulomb) exp(-(rate / stribeck)^2)) tanh(rate / smooth)
                     - viscous rate

The friction is the Stribeck curve of Armstrong-Hélouvry, Dupont and Canudas de Wit, "A survey of
models, analysis tools and compensation methods for the control of machines with friction"
(Automatica 30, 1994), with a smooth step at rest.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frame, Load, Moving, shifted
from jaxmech.parts.forces.elements import AbstractLoad
from jaxmech.parts.position_equations import pointing, separation, turn_about
from jaxmech.parts.values import Reader, Value, Vector, unit
from jaxmech.parts.vectors import Numbers, conjugate, product


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

    `zero` is the attitude of b relative to a at an angle of zero, as in `Hinge`.
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

    def _end(self, frame: Frame, read: Reader) -> Numbers:
        return frame.point(read.vector(self.at_b, frame.origin.shape[0]))


@dataclass(frozen=True)
class AbstractJointForce(AbstractLoad):
    """A force in a freedom of a joint."""

    freedom: AbstractFreedom

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force or torque on b, and its opposite on a."""
        effort = self.effort(*self.freedom.coordinate(motions, read), read)
        return self.freedom.loads(motions, effort, read)

    @abc.abstractmethod
    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The force [N] or torque [N m] at a coordinate and its rate."""


@dataclass(frozen=True)
class JointLaw(AbstractJointForce):
    """A force by a function of the user."""

    law: Callable[..., Any]

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The value of the function."""
        return read.array(lambda t, params: self.law(x, rate, t, params), ())


@dataclass(frozen=True)
class Motor(AbstractJointForce):
    """A motor with a straight line of torque over speed."""

    stall: Value
    no_load: Value
    command: Value
    ratio: Value

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The effort g stall (command - g rate / no_load)."""
        stall, no_load, g = map(read.number, (self.stall, self.no_load, self.ratio))
        return g * stall * (read.number(self.command) - g * rate / no_load)


@dataclass(frozen=True)
class PositionServo(AbstractJointForce):
    """A position servo: a spring and a damper towards a target."""

    stiffness: Value
    damping: Value
    target: Value
    target_rate: Value
    limit: Value | None

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The effort, between -limit and limit if there is one."""
        miss = read.number(self.target) - x
        slip = read.number(self.target_rate) - rate
        effort = read.number(self.stiffness) * miss + read.number(self.damping) * slip
        if self.limit is None:
            return effort
        limit = read.number(self.limit)
        return jnp.clip(effort, -limit, limit)


@dataclass(frozen=True)
class JointFriction(AbstractJointForce):
    """Dry and viscous friction."""

    coulomb: Value
    viscous: Value
    static: Value | None
    stribeck: Value
    smooth: Value

    def effort(self, x: Array, rate: Array, read: Reader) -> Any:
        """The effort against the rate."""
        dry, smooth = read.number(self.coulomb), read.number(self.smooth)
        if self.static is not None:
            excess = read.number(self.static) - dry
            dry = dry + excess * jnp.exp(-((rate / read.number(self.stribeck)) ** 2))
        return -dry * jnp.tanh(rate / smooth) - read.number(self.viscous) * rate
