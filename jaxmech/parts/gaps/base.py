"""`Gap`: gaps between bodies under one name, and their conversion to unilateral constraints."""

import abc
import math
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames
from jaxmech.parts.joint_equations import Position
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinds import Kind
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, Value, number
from jaxmech.system import Unilateral
from jaxmech.utils.text import capital


def _restitution(part: str, argument: str, value: Any, size: int) -> Value:
    e = number(part, argument, value)
    if isinstance(e, float) and not 0 <= e <= 1:
        raise ValueError(
            f"{capital(part)} must have a `restitution` from 0, for bodies that stay together, to "
            f"1, for an elastic impact, but has {e}; correct it."
        )
    return e


def _rest_speed(part: str, argument: str, value: Any, size: int) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(
            f"{capital(part)} must have a `rest_speed` from 0 on, but has {value}; leave it "
            "out for a millionth of the speeds of the motion."
        )
    checked: float | None = value
    return checked


Restitution = Annotated[Any, Kind("Restitution", _restitution)]
RestSpeed = Annotated[float | None, Kind("RestSpeed", _rest_speed)]


class Gap(Joint, abc.ABC):
    """A part with gaps, computed from the frames of bodies or from coordinates of joints.

    Its multipliers push, or pull in a rope.

    Attributes:
        restitution: the restitution of its impacts.
        rest_speed: the speed of a rebound below which a gap stays closed; None for the default.
        friction: the coefficient of friction, or the static and the kinetic one.
    """

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
    def coordinate_name(self) -> str | None:
        """The name of the coordinate of a joint on which the gaps depend alone; None otherwise."""
        return None

    def of_coordinate(self, x: Array, read: Reader) -> Array:
        """The gaps at a value of this coordinate, (k,)."""
        raise NotImplementedError

    def slip(self, frames: Frames, read: Reader) -> Array:
        """The ways along which bodies slide where the gaps are closed, (k,)."""
        raise NotImplementedError

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a constraint on the coordinates of a mechanism."""
        friction, slip = self.friction, None
        if friction is not None:
            slip = SlipLevel(self, kinematics)
            friction = OfParams(self.part, friction if isinstance(friction, tuple) else (friction,))
        return Unilateral(
            self.level(kinematics),
            restitution=value_of_params(self.part, self.restitution),
            rest_speed=self.rest_speed,
            friction=friction,
            slip=slip,
            name=self.name,
        )

    def level(self, kinematics: AbstractKinematics) -> "GapLevel":
        """The gaps as a function of the coordinates of a mechanism."""
        known, name = kinematics.coordinates, self.coordinate_name
        return GapLevel(self, kinematics, known.index(name) if name in known else None)


@dataclass(frozen=True)
class GapLevel:
    """The gaps of a part as a function of all coordinates."""

    joint: Gap
    kinematics: AbstractKinematics
    index: int | None  # of the coordinate on which they depend alone

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The gaps, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        read = Reader(self.joint.part, t, params)
        if self.index is not None:
            return self.joint.of_coordinate(q[self.index], read)
        return self.joint.residual(self.kinematics.frames(self.joint.bodies, q, t, params), read)


@dataclass(frozen=True)
class SlipLevel:
    """The ways along which the bodies of a part slide, as a function of all coordinates."""

    joint: Gap
    kinematics: AbstractKinematics

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The ways, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        frames = self.kinematics.frames(self.joint.bodies, q, t, params)
        return self.joint.slip(frames, Reader(self.joint.part, t, params))


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
