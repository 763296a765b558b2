"""Ropes through rings, over pulleys and round drums.

    rope       length - sum of straight parts - sum of arcs >= 0        tension along the rope

A ring is a circle of radius zero. Let the signed radius s of a circle be positive if the rope runs
counterclockwise round it, with the centre to its left. From one circle to the next, with the vector
D between their centres and the difference d of their signed radii, a straight part has

    length sqrt(D . D - d^2),    direction angle(D) - atan2(d, length)

Over a pulley between two straight parts the rope has the arc |s| times its turn. On a drum at an
end it has |s| times the angle between the direction in which it leaves and that on the drum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frames
from jaxmech.parts.gaps.base import Gap, Restitution, RestSpeed
from jaxmech.parts.kinds import Positive, check_kinds, part_name, partners, point
from jaxmech.parts.values import Reader, Value, Vector, direction, positive
from jaxmech.utils.text import capital

_ARC = 24  # pieces of an arc in a picture
_KNOWN = 0.9  # of half a turn to either side


@dataclass(frozen=True)
class Drum:
    """A drum on which a rope winds, or a pulley over which it runs; in the plane.

    At an end of a rope it is a drum that winds the rope up as its body turns. Between two other
    points it is a pulley without friction, on which the rope stays, with a turn there from a
    fifth of a turn backwards to seven tenths forwards. Farther round the gap of the rope is NaN,
    and a run that gets there fails.

    Args:
        body: the body whose turning winds up the rope, or `ground`.
        at: its centre on the body [m].
        radius: its radius [m].
        clockwise: whether the rope runs clockwise round it, on its way from the first to the last
            of its points; otherwise counterclockwise.
        towards: for a drum, a direction along the axes of the ground. The rope leaves the drum
            within 0.45 turns of it, farther round the gap of the rope is NaN and a run that gets
            there fails. Nothing is wound up if the rope leaves in this direction and the attitude
            of the body is zero.
        any_turn: for a drum, whether the rope may leave it in any direction, after any number of
            turns from `towards`, at one end of a rope that stays nearly taut: the turns are those
            for which the gap is nearest to zero. It is NaN beyond 0.45 circumferences, where a run
            fails, and whole circumferences of the length make no difference.
    """

    body: AbstractBody
    at: Vector
    radius: Value
    clockwise: bool = False
    towards: Vector | None = None
    any_turn: bool = False


class Circle(NamedTuple):
    """A ring, pulley or drum of a rope; rings have no radius."""

    body: int  # its index among those of the part
    at: Vector
    radius: Value | None
    sense: float  # 1 if the rope runs counterclockwise round it
    towards: Vector | None
    any_turn: bool = False


class Straight(NamedTuple):
    """A straight part of a rope: its length, and the angle of its direction with drums."""

    length: Array
    angle: Array


@dataclass(frozen=True)
class Rope(Gap):
    """A path from circle to circle is no longer than a rope; made by `rope`."""

    name: str
    bodies: tuple[AbstractBody, ...]
    circles: tuple[Circle, ...]
    length: Positive
    restitution: Restitution
    rest_speed: RestSpeed

    kind = "rope"

    def __post_init__(self) -> None:
        check_kinds(self, self.part, 0)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap, by which the rope is slack."""
        straights = self.straights(frames, read)
        used = sum(part.length for part in straights)
        for k, circle in enumerate(self.circles):
            if circle.radius is not None:
                used = used + read.number(circle.radius) * self.turn(k, straights, frames, read)
        gap = read.number(self.length) - used
        for circle in self.circles:
            if circle.any_turn:  # a turn more or less is a circumference
                radius = read.number(circle.radius)
                gap = radius * _near_zero(gap / radius)
        return gap[None]

    def centers(self, frames: Frames, read: Reader) -> list[Array]:
        """The centres along the axes of the ground, (d,) each."""
        size = frames[0].origin.shape[0]
        return [jnp.asarray(frames[c.body].point(read.vector(c.at, size))) for c in self.circles]

    def straights(self, frames: Frames, read: Reader) -> list[Straight]:
        """The straight parts of the rope, from circle to circle."""
        parts = []
        for (a, b), (center_a, center_b) in zip(
            pairwise(self.circles), pairwise(self.centers(frames, read)), strict=True
        ):
            way = center_b - center_a
            if a.radius is None and b.radius is None:
                length, bend = jnp.sqrt(way @ way), jnp.zeros(())
            else:
                d = _signed(b, read) - _signed(a, read)
                length = jnp.sqrt(way @ way - d**2)
                bend = jnp.arctan2(d * jnp.ones_like(length), length)
            parts.append(Straight(length, jnp.arctan2(way[1], way[0]) - bend))
        return parts

    def turn(self, k: int, straights: list[Straight], frames: Frames, read: Reader) -> Array:
        """The angle of the rope on a pulley, or on a drum that on which it is wound up."""
        circle = self.circles[k]
        if 0 < k < len(straights):
            turn = circle.sense * (straights[k].angle - straights[k - 1].angle)
            return jnp.pi / 2 + _near_zero(turn - jnp.pi / 2)
        is_first = k == 0
        away = straights[0].angle if is_first else straights[-1].angle + jnp.pi
        assert circle.towards is not None
        x, y = read.vector(circle.towards, 2)
        turned = away - jnp.arctan2(y, x)
        turned = (turned if circle.any_turn else _near_zero(turned)) - frames[circle.body].attitude
        return (circle.sense if is_first else -circle.sense) * turned

    def course(self, frames: Frames, read: Reader) -> list[Array]:
        """Points of a taut rope for a picture, along the axes of the ground."""
        centers, straights = self.centers(frames, read), self.straights(frames, read)
        points = []
        for k, (circle, center) in enumerate(zip(self.circles, centers, strict=True)):
            if circle.radius is None:
                points.append(center)
                continue
            share = jnp.linspace(0.0, 1.0, _ARC)
            full = circle.sense * 2 * jnp.pi
            if k == 0:
                angles = straights[0].angle - full * (1 - share)
            elif k == len(straights):
                angles = straights[-1].angle + full * share
            else:
                turn = circle.sense * self.turn(k, straights, frames, read)
                angles = straights[k - 1].angle + turn * share
            right = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
            points.extend(center[None] + _signed(circle, read) * right)
        return points


def _near_zero(angle: Array) -> Array:
    """The angle without full turns, NaN in the last tenth of half a turn from zero.

    Beyond half a turn it would jump, and the rope would be longer by a circumference.
    """
    off = jnp.mod(angle + jnp.pi, 2 * jnp.pi) - jnp.pi
    return jnp.where(jnp.abs(off) < _KNOWN * jnp.pi, off, jnp.nan)


def _signed(circle: Circle, read: Reader) -> Any:
    return 0.0 if circle.radius is None else circle.sense * read.number(circle.radius)


def rope(
    name: str,
    points: Sequence[Any],
    length: Value,
    *,
    restitution: Value = 0.0,
    rest_speed: float | None = None,
) -> Gap:
    """A rope that cannot be longer than its length; it pulls, and goes slack.

    It runs from the first point to the last, through a ring without friction at each point between
    them. In the plane a `Drum` may take the place of a point: at an end the rope winds on it,
    between two others it runs over it as over a pulley without mass. The multiplier is the tension
    [N].

    Args:
        name: name of the rope.
        points: two or more pairs of a body, or `ground`, and a point on it [m], or each a `Drum`.
        length: length of the rope [m]; with a drum the length without what is wound up, at the
            attitude zero of its body (see `Drum.towards`).
        restitution: rate after the jerk of a rope that becomes taut per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which the rope stays taut [m/s], by default a millionth
            of the speeds of the motion.

    Example:
        Two masses on a rope over a pulley (Atwood's machine):

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
    ends = [*points]
    if len(ends) < 2:
        raise ValueError(
            f"{capital(part)} must have two or more `points`, but has {len(ends)}; give its two "
            "ends, each as a pair of a body and a point on it."
        )
    for end in ends:
        if not isinstance(end, Drum) and (not isinstance(end, Sequence) or len(end) != 2):
            raise TypeError(
                f"{capital(part)} must have pairs of a body and a point on it as `points`, or "
                f"each a `Drum`, but has {end!r}; write for example (ground, (0, 0))."
            )
    pairs = [(end.body, end.at) if isinstance(end, Drum) else end for end in ends]
    names = list(dict.fromkeys(getattr(body, "name", body) for body, _ in pairs))
    by_name: dict[Any, Any] = {getattr(body, "name", body): body for body, _ in pairs}
    if len(by_name) == 1:
        raise ValueError(f"{capital(part)} must be between different bodies, but has {names[0]!r}.")
    bodies, size = partners(part, tuple(by_name.values()))
    circles = []
    for k, (end, (body, at)) in enumerate(zip(ends, pairs, strict=True)):
        entry = names.index(body.name)
        center = point(part, "points", bodies[entry], at, size)
        if isinstance(end, Drum):
            radius, towards = _checked(part, end, k in (0, len(ends) - 1), size)
            sense = -1.0 if end.clockwise else 1.0
            circles.append(Circle(entry, center, radius, sense, towards, end.any_turn))
        else:
            circles.append(Circle(entry, center, None, 1.0, None))
    if sum(circle.any_turn for circle in circles) > 1:
        raise ValueError(
            f"{capital(part)} must have one drum with `any_turn` at most, since both would take "
            "turns from its length; leave it out of one."
        )
    return Rope(name, bodies, tuple(circles), length, restitution, rest_speed)


def _checked(part: str, drum: Drum, is_end: bool, size: int) -> tuple[Value, Vector | None]:
    """The checked radius and direction of a drum."""
    start = f"{capital(part)} must have its drum on {drum.body.name!r}"
    if size != 2 or not drum.body.rotates:
        raise ValueError(
            f"{start} in the plane and on a body with an attitude; elsewhere give a point, for a "
            "small ring."
        )
    if is_end and drum.towards is None:
        raise ValueError(
            f"{start} with `towards` at an end of the rope; write the direction in which the rope "
            "leaves it at the start, such as (0, -1)."
        )
    if not is_end and (drum.towards is not None or drum.any_turn):
        raise ValueError(
            f"{start} without `towards` and `any_turn` where the rope only passes; leave them out."
        )
    towards = None if drum.towards is None else direction(part, "towards", drum.towards, 2)
    return positive(part, "radius", drum.radius), towards
