"""Ropes from body to body, through rings: length - sum of straight parts >= 0, pulled along it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frames
from jaxmech.parts.gaps.base import Gap
from jaxmech.parts.kinds import Number, Positive, partners, point
from jaxmech.parts.values import Reader
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class Rope(Gap):
    """A rope that cannot be longer than its length; it pulls, and goes slack.

    It runs from the first point to the last, through a ring without friction at each point between
    them. The multiplier is the tension [N].

    Args:
        name: name of the rope.
        points: two or more pairs of a body, or `ground`, and a point on it [m].
        length: length of the rope [m].
        restitution: rate after the jerk of a rope that becomes taut per rate before, from 0 to 1.
        rest_speed: rate of a rebound below which the rope stays taut [m/s], by default a millionth
            of the speeds of the motion.
    """

    name: str
    points: Sequence[tuple[AbstractBody, Any]]
    length: Positive
    _: KW_ONLY
    restitution: Number = 0.0
    rest_speed: float | None = None

    kind = "rope"

    def __post_init__(self) -> None:
        super().__post_init__()
        start, ends = capital(self.part), [*self.points]
        if len(ends) < 2:
            raise ValueError(
                f"{start} must have two or more `points`, but has {len(ends)}; give its two ends, "
                "each as a pair of a body and a point on it."
            )
        for end in ends:
            if not isinstance(end, Sequence) or len(end) != 2:
                raise TypeError(
                    f"{start} must have pairs of a body and a point on it as `points`, but has "
                    f"{end!r}; write for example (ground, (0, 0))."
                )
        by_name: dict[Any, Any] = {getattr(body, "name", body): body for body, _ in ends}
        if len(by_name) == 1:
            only = next(iter(by_name))
            raise ValueError(f"{start} must be between different bodies, but has {only!r}.")
        bodies, size = partners(self.part, [*by_name.values()])
        by_name = {body.name: body for body in bodies}
        points = [(by_name[body.name], at) for body, at in ends]
        checked = tuple((x, point(self.part, "points", x, at, size)) for x, at in points)
        object.__setattr__(self, "points", checked)

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        """The bodies, in the order of their first points."""
        return tuple({body.name: body for body, _ in self.points}.values())

    def course(self, frames: Frames, read: Reader) -> list[Array]:
        """The points of a taut rope, along the axes of the ground."""
        by_name = {body.name: x for body, x in zip(self.bodies, frames, strict=True)}
        size = len(frames[0].origin)
        return [
            jnp.asarray(by_name[body.name].point(read.vector(at, size))) for body, at in self.points
        ]

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap, by which the rope is slack."""
        ways = (b - a for a, b in pairwise(self.course(frames, read)))
        return (read.number(self.length) - sum(jnp.sqrt(way @ way) for way in ways))[None]


rope = Rope
