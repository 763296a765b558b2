"""The elements of forces in joints, by their laws.

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

from jaxmech.parts.body import Load, Moving
from jaxmech.parts.forces.elements import AbstractLoad
from jaxmech.parts.joints.freedoms import AbstractFreedom
from jaxmech.parts.values import Reader, Value


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
