"""`Gap`: gaps between bodies under one name, and their conversion to unilateral constraints."""

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.joints.base import EquationJoint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.position_equations import AbstractPosition
from jaxmech.parts.values import Reader, Value, number
from jaxmech.unilateral import Unilateral
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

    def require_frames(self, part: str) -> None:
        """Raise a ValueError if frames do not tell the gaps; by default they do."""


@dataclass(frozen=True)
class Gap(EquationJoint):
    """A part with gaps, as made by `stop` and the like; its multipliers push, or pull in a rope.

    Attributes:
        restitution: the restitution of its impacts.
        rest_speed: the speed of a rebound below which a gap stays closed; None for the default.
    """

    restitution: Value = 0.0
    rest_speed: float | None = None

    def unilateral(self, kinematics: AbstractKinematics) -> Unilateral:
        """The gaps as a constraint on the coordinates of a mechanism."""
        (element,) = self.positions
        assert isinstance(element, AbstractGap)
        known = kinematics.coordinates
        indices: tuple[int, ...] = ()
        if element.coordinates and set(element.coordinates) <= set(known):
            indices = tuple(known.index(name) for name in element.coordinates)
        else:
            element.require_frames(self.part)
        level = GapLevel(self, kinematics, indices)
        e = self.restitution
        return Unilateral(
            level,
            restitution=e if isinstance(e, float) else _Restitution(self.part, e),
            rest_speed=self.rest_speed,
            name=self.name,
        )


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
class _Restitution:
    """A restitution that is the name of a parameter, or a function."""

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
