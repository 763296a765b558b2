"""Contacts of points and balls, and ropes.

    contact    u . d - rb >= 0            force along u: a plane of a, a point or a ball of b
               |d| - (ra + rb) >= 0       force along d: two balls, in the plane two discs
    rope       length - sum |d_i| >= 0    tension, from the first point to the last

d is the way from the point on a to the point on b, and u the normal of the plane on a.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or numbers that do not fit; the message names the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.gaps.base import AbstractGap, Gap, impact_law
from jaxmech.parts.joint_base import part_name, partners, pinned, point
from jaxmech.parts.position_equations import Frames, along, separation
from jaxmech.parts.values import Reader, Value, Vector, direction, non_negative, positive
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class OverPlane(AbstractGap):
    """A ball of b is above a plane of a."""

    at_a: Vector
    normal: Vector
    at_b: Vector
    radius: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap u . d - radius."""
        d = separation(frames, self.at_a, self.at_b, read)
        return (along(frames[0], self.normal, d, read) - read.number(self.radius))[None]


@dataclass(frozen=True)
class OutOfBall(AbstractGap):
    """Two balls are apart."""

    at_a: Vector
    at_b: Vector
    radii: tuple[Value, Value]

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap |d| - (ra + rb)."""
        d, (ra, rb) = separation(frames, self.at_a, self.at_b, read), map(read.number, self.radii)
        return (jnp.sqrt(d @ d) - (ra + rb))[None]


@dataclass(frozen=True)
class WithinLength(AbstractGap):
    """A chain of points is no longer than a rope through them."""

    points: tuple[tuple[int, Vector], ...]  # the body of each, and the point on it
    length: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap, by which the rope is slack."""
        ends = rope_points(self, frames, read)
        ways = [b - a for a, b in pairwise(ends)]
        return (read.number(self.length) - sum(jnp.sqrt(d @ d) for d in ways))[None]


def rope_points(rope: WithinLength, frames: Frames, read: Reader) -> list[Array]:
    """The points of a rope along the axes of the ground, (d,) each."""
    size = frames[0].origin.shape[0]
    return [jnp.asarray(frames[k].point(read.vector(at, size))) for k, at in rope.points]


def contact(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector | None = None,
    radius_a: Value = 0.0,
    radius_b: Value = 0.0,
    restitution: Value = 0.0,
    rest_speed: float | None = None,
) -> Gap:
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

    Example:
        A ball that is dropped from one metre bounces, and lies still at last:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech.parts import Mechanism, gravity, ground, point_mass
        >>> ball = point_mass("ball", mass=0.1)
        >>> floor = contact("floor", ground, (0, 0), ball, (0, 0), normal=(0, 1), radius_b=0.05,
        ...                 restitution=0.5)
        >>> drop = Mechanism([ball], [floor], [gravity(9.81)])
        >>> sol = jm.simulate(drop, [0.0, 1.0], [0.0, 0.0], jnp.linspace(0, 2, 21))
        >>> print(sol.q[-1], jm.observe(drop, sol).multipliers["floor"][-1])
        [0.   0.05] [0.981]
    """
    part, bodies, size, points = pinned("contact", name, (a, b), (at_a, at_b))
    rb = non_negative(part, "radius_b", radius_b)
    law = impact_law(part, restitution, rest_speed)
    element: AbstractGap
    if normal is None:
        radii = non_negative(part, "radius_a", radius_a), rb
        if radii == (0.0, 0.0):
            raise ValueError(
                f"{capital(part)} must have a `normal`, for a plane on {a.name!r}, or a "
                "`radius_a` or `radius_b`, for balls; give one of them."
            )
        element = OutOfBall(*points, radii)
    else:
        if radius_a != 0.0:
            raise ValueError(
                f"{capital(part)} must have a plane or a ball on {a.name!r}, but has a `normal` "
                "and a `radius_a`; leave one of them out."
            )
        element = OverPlane(points[0], direction(part, "normal", normal, size), points[1], rb)
    return Gap("contact", name, bodies, (element,), **law)


def rope(
    name: str,
    points: Sequence[Any],
    length: Value,
    *,
    restitution: Value = 0.0,
    rest_speed: float | None = None,
) -> Gap:
    """A rope that cannot be longer than its length; it pulls, and goes slack.

    It runs from the first point to the last, through a ring or over a small pulley without mass and
    friction at each point between them. The multiplier is its tension [N].

    Args:
        name: name of the rope.
        points: two or more pairs of a body, or `ground`, and a point on it [m].
        length: length of the rope [m].
        restitution: rate after the jerk of a rope that becomes taut per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which the rope stays taut [m/s], by default a millionth
            of the speeds of the motion.

    Example:
        Two masses on a rope over a pulley (Atwood's machine), of which one hits the pulley's
        support if the rope does not go slack:

        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> from jaxmech.parts import Mechanism, gravity, ground, point_mass
        >>> a, b = point_mass("a", mass=1.0), point_mass("b", mass=3.0)
        >>> ends = [(a, (0, 0)), (ground, (0, 0)), (b, (0, 0))]
        >>> atwood = Mechanism([a, b], [rope("rope", ends, 2.0)], [gravity(9.81)])
        >>> sol = jm.simulate(atwood, [0, -1.5, 0, -0.5], [0.0] * 4, jnp.linspace(0, 0.5, 6))
        >>> print(sol.v[-1].round(4), jm.observe(atwood, sol).multipliers["rope"][0])
        [ 0.      2.4525  0.     -2.4525] [14.715]
    """
    part = part_name("rope", name)
    pairs = [*points]
    if len(pairs) < 2:
        raise ValueError(
            f"{capital(part)} must have two or more `points`, but has {len(pairs)}; give its two "
            "ends, each as a pair of a body and a point on it."
        )
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise TypeError(
                f"{capital(part)} must have pairs of a body and a point on it as `points`, but has "
                f"{pair!r}; write for example (ground, (0, 0))."
            )
    names = list(dict.fromkeys(getattr(body, "name", body) for body, _ in pairs))
    by_name: dict[Any, Any] = {getattr(body, "name", body): body for body, _ in pairs}
    moving = tuple(by_name.values())
    if len(moving) == 1:
        raise ValueError(f"{capital(part)} must be between different bodies, but has {names[0]!r}.")
    bodies, size = partners(part, moving)
    checked = tuple(
        (names.index(body.name), point(part, "points", bodies[names.index(body.name)], at, size))
        for body, at in pairs
    )
    element = WithinLength(checked, positive(part, "length", length))
    return Gap("rope", name, bodies, (element,), **impact_law(part, restitution, rest_speed))
