"""Contacts of points, planes and balls.

    contact    u . d - rb >= 0            force along u: a plane of a, a point or a ball of b
               |d| - (ra + rb) >= 0       force along d: two balls, in the plane two discs

d is the way from the point on a to the point on b, and u the normal of the plane on a.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or numbers that do not fit; the message names the part.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frames, Moving, along, separation
from jaxmech.parts.gaps.base import Gap
from jaxmech.parts.joint_equations import round_slip, slip
from jaxmech.parts.joints.base import PairJoint
from jaxmech.parts.kinds import Direction, Kind, NonNegative, Number
from jaxmech.parts.values import Reader, Value, non_negative
from jaxmech.utils.text import capital


def _coefficients(
    part: str, argument: str, friction: Any, size: int
) -> Value | tuple[Value, Value] | None:
    if friction is None:
        return None
    if not isinstance(friction, tuple):
        return non_negative(part, "friction", friction)
    if len(friction) != 2:
        raise ValueError(
            f"{capital(part)} must have a coefficient of `friction`, or the static and the kinetic "
            f"one, but has {len(friction)} numbers."
        )
    static, kinetic = (non_negative(part, "friction", value) for value in friction)
    return static, kinetic


Friction = Annotated[Any, Kind("Friction", _coefficients)]


@dataclass(frozen=True)
class Contact(PairJoint, Gap):
    """Two bodies that touch and part: a plane and a point or ball, or two balls.

    With a `normal`, a has a plane through the point on it, on whose side b stays. Without one both
    are balls, in the plane discs, about their points. A body may have as many contacts as it has
    corners. The multiplier is the force with which they push each other apart [N].

    Args:
        name: name of the contact.
        a: first body, or `ground`.
        at_a: a point of the plane on a, or the centre of its ball [m].
        b: second body.
        at_b: the point or the centre of the ball on b [m].
        normal: normal of the plane, from a to b, along the axes of a.
        radius_a: radius of the ball of a [m]; without a `normal` only.
        radius_b: radius of the ball of b, 0 for a point [m].
        restitution: rate after an impact per rate before, from 0 to 1.
        rest_speed: speed of a rebound below which the bodies stay in contact [m/s], by default a
            millionth of the speeds of the motion.
        friction: coefficient of friction, or the static and the kinetic one; None for none, as
            between two balls in space. The force on b is observed under the name of the contact and
            " friction": in the plane to the right of the normal, in space along n1 and n2 of the
            plane, as that of a `rolling_sphere`.
    """

    _: KW_ONLY
    normal: Direction | None = None
    radius_a: NonNegative = 0.0
    radius_b: NonNegative = 0.0
    restitution: Number = 0.0
    rest_speed: float | None = None
    friction: Friction = None

    kind = "contact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normal is None and (self.radius_a, self.radius_b) == (0.0, 0.0):
            raise ValueError(
                f"{capital(self.part)} must have a `normal`, for a plane on {self.a.name!r}, or a "
                "`radius_a` or `radius_b`, for balls; give one of them."
            )
        if self.normal is not None and self.radius_a != 0.0:
            raise ValueError(
                f"{capital(self.part)} must have a plane or a ball on {self.a.name!r}, but has a "
                "`normal` and a `radius_a`; leave one of them out."
            )
        if self.normal is None and self.friction is not None and self.dimension == 3:
            raise ValueError(
                f"{capital(self.part)} must be without `friction` between two balls in space; "
                "leave it out, or give a plane by its `normal`."
            )

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap u . d - rb over a plane, |d| - (ra + rb) between balls."""
        d = separation(frames, self.at_a, self.at_b, read)
        if self.normal is not None:
            height = along(frames[0], self.normal, d, read)
            return (height - read.number(self.radius_b))[None]
        ra, rb = read.number(self.radius_a), read.number(self.radius_b)
        return (jnp.sqrt(d @ d) - (ra + rb))[None]

    def slip(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b at the contact, relative to a, across the normal."""
        if self.normal is not None:
            w = round_slip(self.normal, self.at_b, self.radius_b)(motions, read)
            return w if self.dimension == 3 else -w  # to the right of the normal
        a, b = (motion.frame for motion in motions)
        d = separation((a, b), self.at_a, self.at_b, read)
        n = d / jnp.sqrt(d @ d)
        w = slip(motions, a.point(read.vector(self.at_a, 2)) + read.number(self.radius_a) * n)
        return (n[1] * w[0] - n[0] * w[1])[None]


contact = Contact
