"""`PairJoint`: a joint between a point of one body and a point of another."""

from dataclasses import InitVar, dataclass, field
from typing import ClassVar

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.joints.checks import partners, point
from jaxmech.parts.kinds import Point, check_fields


@dataclass(frozen=True)
class PairJoint(Joint):
    """A joint between a point of a and a point of b.

    Args:
        name: name of the joint, and of its constraint.
        a: first body, or `ground`.
        at_a: the joint on a [m].
        b: second body.
        at_b: the joint on b [m].
    """

    name: str
    a: InitVar[AbstractBody]
    at_a: Point
    b: InitVar[AbstractBody]
    at_b: Point
    bodies: tuple[AbstractBody, ...] = field(init=False)

    dimensions: ClassVar[tuple[int, ...]] = (2, 3)  # in which it exists
    turning: ClassVar[bool] = False  # whether both bodies need an attitude

    def __post_init__(self, a: AbstractBody, b: AbstractBody) -> None:
        part = self.part
        bodies, size = partners(part, (a, b), sizes=self.dimensions, turning=self.turning)
        at_a = point(part, "at_a", bodies[0], self.at_a, size)
        at_b = point(part, "at_b", bodies[1], self.at_b, size)
        check_fields(self, part, size, bodies=bodies, at_a=at_a, at_b=at_b)

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.bodies[1].dimension
