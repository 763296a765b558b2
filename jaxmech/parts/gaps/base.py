"""`Gap`: gaps between bodies under one name, and their conversion to unilateral constraints."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames
from jaxmech.parts.joint_equations import AbstractPosition
from jaxmech.parts.joints.base import EquationJoint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader, Value, number
from jaxmech.system import Unilateral
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class AbstractGap(AbstractPosition):
    """Gaps, which are computed from the frames of bodies or from coordinates of joints.

    Attributes:
        coordinates: the names of the coordinates of joints on which the gaps depend alone; empty if
            they depend on anything else.
    """

    @property
    def coordinates(self) -> tuple[str, ...]:
        """By default none."""
        return ()

    def of_coordinates(self, x: tuple[Array, ...], read: Reader) -> Array:
        """The gaps at the values of these coordinates, (k,)."""
        raise NotImplementedError

    def slip(self, frames: Frames, read: Reader) -> Array:
        """The ways along which bodies slide where the gaps are closed, (k,)."""
        raise NotImplementedError

    def require_frames(self, part: str) -> None:
        """Raise a ValueError if frames do not tell the gaps; by default they do."""


@dataclass(frozen=True)
class Gap(EquationJoint):
    """A part with gaps, as made by `stop` and the like; its multipliers push, or pull in a rope.

    Attributes:
        restitution: the restitution of its impacts.
        rest_speed: the speed of a rebound below which a gap stays closed; None for the default.
        friction: the coefficient of friction, or the static and the kinetic one.
    """

    restitution: Value = 0.0
    rest_speed: float | None = None
    friction: Value | tuple[Value, Value] | None = None

    def unilateral(self, kinematics: AbstractKinematics) -> Any:
        """The gaps as a constraint on the coordinates of a mechanism."""
        (element,) = self.positions
        assert isinstance(element, AbstractGap)
        friction, slip = self.friction, None
        if friction is not None:
            slip = SlipLevel(self, kinematics)
            friction = _Coefficients(
                self.part, friction if isinstance(friction, tuple) else (friction,)
            )
        return Unilateral(
            self.level(kinematics),
            restitution=value_of_params(self.part, self.restitution),
            rest_speed=self.rest_speed,
            friction=friction,
            slip=slip,
            name=self.name,
        )

    def slip(self, frames: Frames, read: Reader) -> Array:
        """The ways along which the bodies slide, (k,)."""
        (element,) = self.positions
        assert isinstance(element, AbstractGap)
        return element.slip(frames, read)

    def level(self, kinematics: AbstractKinematics) -> "GapLevel":
        """The gaps as a function of the coordinates of a mechanism."""
        (element,) = self.positions
        assert isinstance(element, AbstractGap)
        known = kinematics.coordinates
        if element.coordinates and set(element.coordinates) <= set(known):
            return GapLevel(self, kinematics, tuple(map(known.index, element.coordinates)))
        element.require_frames(self.part)
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
        (element,) = self.joint.positions
        assert isinstance(element, AbstractGap)
        return element.of_coordinates(tuple(q[k] for k in self.indices), read)


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


def impact_law(part: str, restitution: Value, rest_speed: float | None) -> dict[str, Any]:
    """The checked arguments of the impacts of a part."""
    e = number(part, "restitution", restitution)
    if isinstance(e, float) and not 0 <= e <= 1:
        raise ValueError(
            f"{capital(part)} must have a `restitution` from 0, for bodies that stay together, to "
            f"1, for an elastic impact, but has {e}; correct it."
        )
    if rest_speed is not None and not 0 <= rest_speed < math.inf:
        raise ValueError(
            f"{capital(part)} must have a `rest_speed` from 0 on, but has {rest_speed}; leave it "
            "out for a millionth of the speeds of the motion."
        )
    return {"restitution": e, "rest_speed": rest_speed}
