"""`Gap`: gaps between bodies under one name, and their conversion to unilateral constraints."""

import abc
import math
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames
from jaxmech.parts.joint_equations import AbstractPosition
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


class Gap(Joint, AbstractPosition, abc.ABC):
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
    def positions(self) -> tuple[AbstractPosition, ...]:
        """The gaps, in place of equations."""
        return (self,)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of coordinates of joints on which the gaps depend alone; empty otherwise."""
        return ()

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The gaps at the values of these coordinates, (k,)."""
        raise NotImplementedError

    def slip(self, frames: Frames, read: Reader) -> Array:
        """The ways along which bodies slide where the gaps are closed, (k,)."""
        raise NotImplementedError

    def require_frames(self) -> None:
        """Raise a ValueError if frames do not tell the gaps; by default they do."""

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a constraint on the coordinates of a mechanism."""
        friction, slip = self.friction, None
        if friction is not None:
            slip = SlipLevel(self, kinematics)
            coefficients = friction if isinstance(friction, tuple) else (friction,)
            friction = _Coefficients(self.part, coefficients)
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
        known = kinematics.coordinates
        if self.arguments and set(self.arguments) <= set(known):
            return GapLevel(self, kinematics, tuple(map(known.index, self.arguments)))
        self.require_frames()
        return GapLevel(self, kinematics, ())


@dataclass(frozen=True)
class GapLevel:
    """The gaps of a part as a function of all coordinates."""

    joint: Gap
    kinematics: AbstractKinematics
    indices: tuple[int, ...]  # of the coordinates on which they depend alone

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The gaps, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        read = Reader(self.joint.part, t, params)
        if not self.indices:
            frames = self.kinematics.frames(self.joint.bodies, q, t, params)
            return self.joint.position_level(frames, read)
        return self.joint.of_coordinates(tuple(q[k] for k in self.indices), read)


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
class _Coefficients:
    """The static and the kinetic coefficient of a friction."""

    part: str
    values: tuple[Value, ...]

    def __call__(self, params: Any) -> tuple[Array, Array]:
        read = Reader(self.part, jnp.zeros(()), params)
        numbers = [jnp.asarray(read.number(value)) for value in self.values]
        return numbers[0], numbers[-1]


def value_of_params(part: str, value: Value) -> Any:
    """A number, or a function of params."""
    return value if isinstance(value, float) else _Number(part, value)


@dataclass(frozen=True)
class _Number:
    """A number that is the name of a parameter, or a function."""

    part: str
    value: Value

    def __call__(self, params: Any) -> Array:
        return jnp.asarray(Reader(self.part, jnp.zeros(()), params).number(self.value))
