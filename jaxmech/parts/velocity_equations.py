"""The elements of joints on velocities.

A residual is the velocity [m/s] of b relative to a at a point, in one direction or two; its
multiplier is the force [N] of a on b there. The elements are beside the joints that have them, in
`rolling.py`, `gears.py`, `rack.py`, `joints/cylindrical.py` and `contacts`.

A contact point belongs to neither body: it is a point of space, at which the velocities of the two
bodies are compared.
"""

import abc
from dataclasses import dataclass

from jaxtyping import Array

from jaxmech.parts.body import Moving
from jaxmech.parts.drawing import Drawable
from jaxmech.parts.values import Reader
from jaxmech.utils.arrays import AnyArray


@dataclass(frozen=True)
class AbstractVelocity(Drawable, abc.ABC):
    """Equations on the velocities of bodies."""

    @abc.abstractmethod
    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual of the equations, (k,)."""

    def require(self, read: Reader) -> None:
        """Raise a ValueError for known sizes that nothing can have; by default none."""


def slip(motions: tuple[Moving, ...], point: AnyArray) -> AnyArray:
    """The velocity of b relative to a at a point, (d,)."""
    a, b = motions
    return b.velocity_at(point) - a.velocity_at(point)
