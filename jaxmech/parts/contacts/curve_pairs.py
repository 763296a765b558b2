"""The elements of contacts of two curves in the plane.

    CurvesGap      distance of the curves along their normal      force along the normal
    CurvesSlip     no slip in the contact                         friction along the tangent

A residual is a gap [m] or the velocity of b relative to a at the contact [m/s], whose multiplier is
a force [N] of a on b. The gap does not change with the points along the curves to first order, so
that A is that of fixed points.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Moving
from jaxmech.parts.contacts.base import (
    AbstractContact,
    point_of,
    require_convex,
    require_curve,
    right_normal,
    seen_by,
)
from jaxmech.parts.contacts.curves import outline_of
from jaxmech.parts.contacts.foot import touching
from jaxmech.parts.contacts.profiles import Profile
from jaxmech.parts.directions import Frames
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.values import Reader, Vector
from jaxmech.parts.vectors import apply, matmul, quarter_turn
from jaxmech.parts.velocity_equations import AbstractVelocity, slip
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class CurvesGap(AbstractContact):
    """A convex curve of b touches a curve of a, on its right side."""

    profile_a: Profile
    at_a: Vector
    profile_b: Profile
    at_b: Vector

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The indices of both bodies."""
        return (0, 1)

    def contact(self, frames: Frames, read: Reader) -> tuple[Array, Array, Array]:
        """The gap, the point of a that touches, and its normal towards b, along the axes of a."""
        a, b = frames
        shift = a.components(b.point(read.vector(self.at_b, 2)) - a.point(self._on_a(read)))
        pose = jnp.asarray(shift), jnp.asarray(matmul(a.axes.T, b.axes))

        def first(s: Array, context: tuple[Any, ...]) -> Array:
            _, t, params = context
            return point_of(self.profile_a, s, seen_by(read, t, params))

        def second(s: Array, context: tuple[Any, ...]) -> Array:
            (shift, axes), t, params = context
            return shift + apply(axes, point_of(self.profile_b, s, seen_by(read, t, params)))

        context = (pose, read.t, read.params)
        s = touching(first, second, context)
        point, _, n = right_normal(self.profile_a, s[0], read)
        return n @ (second(s[1], context) - point), point, n

    def touching(self, frames: Frames, read: Reader) -> tuple[AnyArray, AnyArray]:
        """The contact on a, in space, and the normal towards b."""
        _, point, n = self.contact(frames, read)
        return frames[0].point(self._on_a(read) + point), frames[0].direction(n)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The gap, negative where the curves overlap."""
        return self.contact(frames, read)[0][None]

    def require(self, read: Reader) -> None:
        """Raise unless both curves are smooth, and b is convex and fits into all hollows of a."""
        reason = "since its outside rolls", "let the hollow curve be `profile_a`"
        least_b = require_convex(self.profile_b, read, "profile_b", *reason)
        jet = require_curve(self.profile_a, read, "profile_a")
        if jet is None or least_b is None:
            return
        least_a = jet[1].min()
        if least_a + least_b <= 0:
            raise ValueError(
                f"{capital(read.part)} must have a `profile_b` whose radius of curvature is below "
                f"the least one of hollows of `profile_a`, {-1 / least_a:.4g}, but it reaches "
                f"{1 / least_b:.4g}; make the curve of b smaller. It is to the right of the curve "
                "of a: outside if its points are counter-clockwise, inside if clockwise."
            )

    def shapes(self, drawing: Drawing) -> Shapes:
        """Both curves and the contact."""
        name, frames, read = drawing.name, drawing.frames, drawing.read
        a, b = frames
        return {
            f"{name}.profile_a": outline_of(self.profile_a, a, self.at_a, read),
            f"{name}.profile_b": outline_of(self.profile_b, b, self.at_b, read),
            name: jnp.asarray(self.touching(frames, read)[0]),
        }

    def _on_a(self, read: Reader) -> AnyArray:
        return read.vector(self.at_a, 2)


@dataclass(frozen=True)
class CurvesSlip(AbstractVelocity):
    """A curve does not slip on a curve."""

    gap: CurvesGap

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b relative to a at the contact, along the normal turned to the left."""
        point, n = self.gap.touching(tuple(m.frame for m in motions), read)
        return (quarter_turn(n) @ slip(motions, point))[None]
