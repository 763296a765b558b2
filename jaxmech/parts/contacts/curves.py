"""The elements of contacts of curves in the plane.

A curve is a profile, from a point of its body. Each residual is a gap [m] or the velocity of b
relative to a at the contact [m/s], whose multiplier is a force [N] of a on b.

    RollerGap    distance of a point of b from a curve of a = radius     force along the normal
    FaceGap      lowest point of a curve on a line                       force along the normal
    CurvesGap    distance of two curves along their normal               force along the normal
    CurveSlip    no slip in either contact                               friction along the tangent

The gap of a roller is that along the normal in the nearest point of the curve. No gap changes with
the parameters of the curves to first order, so that A is that of fixed points.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.geometry import circle, line
from jaxmech.parts.body import Frame, Frames, Moving, pointing
from jaxmech.parts.contacts.base import (
    AbstractContact,
    around,
    point_of,
    require_convex,
    require_curve,
    right_normal,
    seen_by,
)
from jaxmech.parts.contacts.profiles import PLACES, Profile, lowest, touching
from jaxmech.parts.drawing import Drawing, Shapes
from jaxmech.parts.joint_equations import AbstractVelocity, slip
from jaxmech.parts.values import Reader, Value, Vector, require_sign
from jaxmech.parts.vectors import apply, matmul, quarter_turn
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital

_OUTLINE = np.linspace(0, 2 * np.pi, 2 * PLACES + 1)
_FAR = 1e3  # half the length of a line on the ground [m]; a picture shows the visible part


def nearest_to(profile: Profile, x: Array, read: Reader) -> Array:
    """The s of the point of a profile that is nearest to x."""

    def height(s: Array, context: tuple[Any, ...]) -> Array:
        x, t, params = context
        offset = x - point_of(profile, s, seen_by(read, t, params))
        return offset @ offset / 2

    return lowest(height, (x, read.t, read.params))


def lowest_along(profile: Profile, n: Array, read: Reader) -> Array:
    """The s of the point of a profile that is lowest along a direction."""

    def height(s: Array, context: tuple[Any, ...]) -> Array:
        n, t, params = context
        return n @ point_of(profile, s, seen_by(read, t, params))

    return lowest(height, (n, read.t, read.params))


@dataclass(frozen=True)
class RollerGap(AbstractContact):
    """A circle about a point of b touches a curve of a, on its right side."""

    profile: Profile
    at_a: Vector
    at_b: Vector
    radius: Value

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The index of the body with the curve."""
        return (0,)

    @property
    def marks(self) -> tuple[tuple[int, Vector], ...]:
        """The centre of the roller."""
        return ((-1, self.at_b),)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual (x - c) . n - radius, with the centre x of the roller."""
        a, b = frames
        center = b.point(read.vector(self.at_b, 2))
        x = jnp.asarray(a.components(center - a.point(read.vector(self.at_a, 2))))
        s = nearest_to(self.profile, x, read)
        point, _, n = right_normal(self.profile, s, read)
        return (n @ (x - point) - read.number(self.radius))[None]

    def require(self, read: Reader) -> None:
        """Raise unless the curve is smooth and nowhere more concave than the roller."""
        require_sign(read.part, "radius", read.number(self.radius), zero=True)
        jet = require_curve(self.profile, read)
        radius = read.number(self.radius)
        if jet is None or not is_known(radius):
            return
        _, curvatures = jet
        least = curvatures.min()
        if 1 + float(radius) * least <= 0:
            raise ValueError(
                f"{capital(read.part)} must have a `radius` below the least radius of curvature "
                f"of hollows of its profile, {-1 / least:.4g}, but has {float(radius):.4g}; make "
                "the roller smaller. A follower is to the right of the curve: outside if its "
                "points are counter-clockwise, inside if clockwise."
            )

    def shapes(self, drawing: Drawing) -> Shapes:
        """The curve, and the roller with its contact."""
        name, read, (a, b) = drawing.name, drawing.read, drawing.frames
        center = jnp.asarray(b.point(read.vector(self.at_b, 2)))
        x = jnp.asarray(a.components(center - a.point(read.vector(self.at_a, 2))))
        foot = point_of(self.profile, nearest_to(self.profile, x, read), read)
        return {
            f"{name}.profile": outline_of(self.profile, a, self.at_a, read),
            f"{name}.wheel": circle(center, read.number(self.radius)),
            name: a.point(read.vector(self.at_a, 2) + foot),
        }


@dataclass(frozen=True)
class FaceGap(AbstractContact):
    """A line of one body touches a convex curve of the other; `face` is the index of the former."""

    profile: Profile
    at_a: Vector
    at_b: Vector
    normal: Vector
    face: int

    @property
    def drawn_bodies(self) -> tuple[int, ...]:
        """The index of the body with the curve."""
        return (self.curve,)

    @property
    def curve(self) -> int:
        """The index of the body with the curve."""
        return 1 - self.face

    def touching(self, frames: Frames, read: Reader) -> tuple[AnyArray, AnyArray]:
        """The point of the curve that is lowest over the line, in space, and the normal."""
        flat, curved = frames[self.face], frames[self.curve]
        n = pointing(flat, self.normal, read)
        along = jnp.asarray(curved.components(n))
        s = lowest_along(self.profile, along, read)
        origin = read.vector((self.at_a, self.at_b)[self.curve], 2)
        return curved.point(origin + point_of(self.profile, s, read)), n

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The height of the lowest point of the curve over the line."""
        point, n = self.touching(frames, read)
        on_line = read.vector((self.at_a, self.at_b)[self.face], 2)
        return (n @ (point - frames[self.face].point(on_line)))[None]

    def require(self, read: Reader) -> None:
        """Raise unless the curve is smooth and convex."""
        remedy = "since a straight line touches it", "use `cam` with a roller, or another curve"
        require_convex(self.profile, read, "profile", *remedy)

    def shapes(self, drawing: Drawing) -> Shapes:
        """The curve, the line and the contact."""
        name, frames, read = drawing.name, drawing.frames, drawing.read
        point, n = self.touching(frames, read)
        flat, along = frames[self.face], quarter_turn(n)
        curve = outline_of(
            self.profile, frames[self.curve], (self.at_a, self.at_b)[self.curve], read
        )
        foot = flat.point(read.vector((self.at_a, self.at_b)[self.face], 2))
        if self.face == 0:
            ends = {f"{name}.ground": line(foot - _FAR * along, foot + _FAR * along)}
        else:
            size = jnp.max(jnp.abs(curve - curve.mean(axis=0, keepdims=True)))
            ends = {f"{name}.face": line(foot - size * along, foot + size * along)}
        return {f"{name}.profile": curve, **ends, name: jnp.asarray(point)}


def outline_of(profile: Profile, frame: Frame, at: Vector, read: Reader) -> Array:
    """The points of a profile on a body, in space, (k, 2)."""
    origin = read.vector(at, 2)
    points = around(profile, read, _OUTLINE)
    local = jnp.asarray(origin)[None] + points
    return jnp.asarray(frame.origin)[None] + (local[:, None, :] * frame.axes[None]).sum(2)


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
class CurveSlip(AbstractVelocity):
    """A curve does not slip on a line, or on another curve."""

    gap: FaceGap | CurvesGap

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b relative to a at the contact, along the normal turned to the left."""
        point, n = self.gap.touching(tuple(m.frame for m in motions), read)
        return (quarter_turn(n) @ slip(motions, point))[None]
