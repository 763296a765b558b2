"""`Gap`: gaps between bodies under one name, and their conversion to unilateral constraints."""

import abc
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames, Moving
from jaxmech.parts.joint_equations import Position, Velocity
from jaxmech.parts.joints.base import Joint, JointEquations
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, Value
from jaxmech.system import Unilateral


class Gap(Joint, abc.ABC):
    """A part with gaps, computed from the frames of bodies or from coordinates of joints.

    Its multipliers push, or pull in a rope.

    Attributes:
        restitution: the restitution of its impacts.
        rest_speed: the speed of a rebound below which a gap stays closed; None for the default.
        friction: the coefficient of friction, or the static and the kinetic one.
    """

    may_be_implied = False

    restitution: Value = 0.0
    rest_speed: float | None = None
    friction: Value | tuple[Value, Value] | None = None

    @property
    def positions(self) -> tuple[Position, ...]:
        """The gaps, in place of equations."""
        return (self.residual,)

    @abc.abstractmethod
    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gaps, (k,)."""

    @property
    def velocities(self) -> tuple[Velocity, ...]:
        """The slip of a gap with friction."""
        return () if self.friction is None else (self.slip,)

    def slip(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity with which bodies slide where the gap is closed, (1,), in space (2,)."""
        raise NotImplementedError

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a constraint on the coordinates of a mechanism."""
        friction, slip = self.friction, None
        if friction is not None:
            slip = JointEquations(self, kinematics, of_velocities=True)
            friction = OfParams(self.part, friction if isinstance(friction, tuple) else (friction,))
        return Unilateral(
            self.level(kinematics),
            restitution=value_of_params(self.part, self.restitution),
            rest_speed=self.rest_speed,
            friction=friction,
            slip=slip,
            name=self.name,
        )

    def level(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a function `level(q, t, params)` of the coordinates of a mechanism."""
        return JointEquations(self, kinematics)


@dataclass(frozen=True)
class OfParams:
    """Values as functions of params: one number, or for a friction the static and kinetic one."""

    part: str
    values: Value

    def __call__(self, params: Any) -> Any:
        """The number (), or a pair of the first and the last."""
        read = Reader(self.part, jnp.zeros(()), params)
        if not isinstance(self.values, tuple):
            return jnp.asarray(read.number(self.values))
        numbers = [jnp.asarray(read.number(value)) for value in self.values]
        return numbers[0], numbers[-1]


def value_of_params(part: str, value: Value) -> Any:
    """A number, or a function of params."""
    return value if isinstance(value, float) else OfParams(part, value)
