"""The elements of joints: equations between the frames of two bodies, a and b.

d is the vector from the point on a to the point on b, u a unit vector fixed to a, w one fixed to b,
n1 and n2 are the normals of u. Each residual is a length [m] or the sine of an angle, whose
multiplier is the force [N] or torque [N m] of a on b.

    Coincide        d = 0                          force along the axes of the ground, at the point
    Across          n1 . d = n2 . d = 0            force along n1, n2
    Level           u . d = height                 force along u
    Apart           (d . d - l^2) / (2 l) = 0      force along d, positive: pushes apart
    OnSurface       f(d along the axes of a) = 0   multiplier times grad f is the force
    Parallel        n1 . w = n2 . w = 0            torque along w x n1, w x n2
    Perpendicular   u . w = 0                      torque along w x u
    EqualSpeeds     2 u . vec(e) = 0               torque along u, times cos(bend / 2)
    Turned          angle of b from a; in space    torque, in space along the axes of b
                    2 sin(angle / 2) times the axis
    TurnedAbout     sin(angle of b about u - given angle) = 0     torque along u
    RackMesh        r angle_a - u . x_b = phase    force of the pinion on the rack, reversed
    Mesh            ra angle_a + rb angle_b = phase               force of one tooth on the other

Coincide, Apart, Perpendicular and Across are the spherical, distance, dot-1 and dot-2 primitives of
Haug, "Computer Aided Kinematics and Dynamics of Mechanical Systems" (1989), chapter 9. None has a
square root that vanishes where the equation holds, since that would have no derivative there.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frame
from jaxmech.parts.values import Reader, Value, Vector, require_sign, unit
from jaxmech.parts.vectors import Numbers, apply, conjugate, normals, product, quaternion_onto

Frames = tuple[Frame, ...]


@dataclass(frozen=True)
class AbstractPosition(abc.ABC):
    """Equations on the positions of bodies."""

    @abc.abstractmethod
    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual of the equations, (k,)."""

    def require(self, read: Reader) -> None:  # noqa: B027
        """Raise a ValueError for known sizes and curves that nothing can have; by default none."""


def separation(frames: Frames, at_a: Vector, at_b: Vector, read: Reader) -> Numbers:
    """The vector from the point on a to the point on b, along the axes of the ground, (d,)."""
    a, b = frames
    size = a.origin.shape[0]
    return b.point(read.vector(at_b, size)) - a.point(read.vector(at_a, size))


def pointing(frame: Frame, local: Vector, read: Reader) -> Numbers:
    """A unit vector fixed to a body, along the axes of the ground, (d,)."""
    return frame.direction(unit(read, local, frame.origin.shape[0]))


def across(frame: Frame, axis: Vector, read: Reader) -> Numbers:
    """The normals of an axis of a body, along the axes of the body, (1, 2) or (2, 3)."""
    return normals(unit(read, axis, frame.origin.shape[0]))


def along(frame: Frame, axis: Vector, direction: Numbers, read: Reader) -> Numbers:
    """The component of a direction along an axis of a body."""
    return unit(read, axis, frame.origin.shape[0]) @ frame.components(direction)


@dataclass(frozen=True)
class Coincide(AbstractPosition):
    """Two points coincide."""

    at_a: Vector
    at_b: Vector

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual d."""
        return separation(frames, self.at_a, self.at_b, read)


@dataclass(frozen=True)
class Across(AbstractPosition):
    """A point of b lies on a line of a."""

    at_a: Vector
    axis: Vector
    at_b: Vector

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual n1 . d, and in space n2 . d."""
        d = separation(frames, self.at_a, self.at_b, read)
        return apply(across(frames[0], self.axis, read), frames[0].components(d))


@dataclass(frozen=True)
class Level(AbstractPosition):
    """A point of b is at a given height over a line or plane of a."""

    at_a: Vector
    normal: Vector
    at_b: Vector
    height: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual u . d - height."""
        d = separation(frames, self.at_a, self.at_b, read)
        return (along(frames[0], self.normal, d, read) - read.number(self.height))[None]


@dataclass(frozen=True)
class Apart(AbstractPosition):
    """Two points keep their distance."""

    at_a: Vector
    at_b: Vector
    length: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual (d . d - l^2) / (2 l)."""
        d, length = separation(frames, self.at_a, self.at_b, read), read.number(self.length)
        return ((d @ d - length**2) / (2 * length))[None]

    def require(self, read: Reader) -> None:
        """Raise unless the length is positive."""
        require_sign(read.part, "length", read.number(self.length))


@dataclass(frozen=True)
class OnSurface(AbstractPosition):
    """A point of b lies on a surface of a, or in the plane on a curve."""

    surface: Callable[..., Any]
    at_b: Vector

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual f(x, t, params) at x along the axes of a."""
        a, b = frames
        x = a.components(b.point(read.vector(self.at_b, b.origin.shape[0])) - a.origin)
        return read.array(lambda t, params: self.surface(x, t, params), ())[None]


@dataclass(frozen=True)
class Parallel(AbstractPosition):
    """A direction on b is parallel to one on a.

    `zero` is the attitude of b relative to a at an angle of zero about them, a quaternion; None
    where their first normals coincide. The equations do not depend on it.
    """

    axis_a: Vector
    axis_b: Vector
    zero: Any = None

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual n1 . w, n2 . w."""
        w = pointing(frames[1], self.axis_b, read)
        return apply(across(frames[0], self.axis_a, read), frames[0].components(w))


@dataclass(frozen=True)
class Perpendicular(AbstractPosition):
    """A direction on b is perpendicular to one on a."""

    axis_a: Vector
    axis_b: Vector

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual u . w."""
        w = pointing(frames[1], self.axis_b, read)
        return along(frames[0], self.axis_a, w, read)[None]


@dataclass(frozen=True)
class EqualSpeeds(AbstractPosition):
    """The rotation from a straight shaft to a bent one has its axis across the shaft.

    Then b turns about its shaft as fast as a about its own, and both are mirror images in the plane
    that halves the angle between the shafts.
    """

    axis_a: Vector
    axis_b: Vector

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual 2 u . vec(e), with e the turn of b from where the shafts are straight."""
        u, w = unit(read, self.axis_a, 3), unit(read, self.axis_b, 3)
        e = product(conjugate(frames[0].attitude), frames[1].attitude)
        if self.axis_a != self.axis_b:
            e = product(e, product(quaternion_onto(w), conjugate(quaternion_onto(u))))
        return (2 * (u @ e[1:]))[None]


@dataclass(frozen=True)
class Turned(AbstractPosition):
    """b has a given attitude relative to a."""

    turn: Any

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual, the angle between them; in space 2 sin(angle / 2) times its axis."""
        a, b = frames
        if a.attitude.ndim == 0:
            return (b.attitude - a.attitude - read.number(self.turn))[None]
        e = product(conjugate(a.attitude), b.attitude)
        miss = product(conjugate(unit(read, self.turn, 4)), e)
        # Of half the angle, since its sine is not zero at half a turn; of the unit quaternion, so
        # that the rows of A are never taken for those which make M definite along e.
        return jnp.where(miss[0] < 0, -2, 2) * miss[1:] / jnp.sqrt(miss @ miss)


@dataclass(frozen=True)
class TurnedAbout(AbstractPosition):
    """b is turned by a given angle about an axis shared with a."""

    axis_a: Vector
    axis_b: Vector
    angle: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual, the sine of the difference; beyond a quarter turn +-2 minus the sine."""
        cosine, sine = turn_about(frames, self.axis_a, self.axis_b, read)
        c, s = jnp.cos(read.number(self.angle)), jnp.sin(read.number(self.angle))
        miss = sine * c - cosine * s
        back = jnp.where(miss < 0, -2, 2) - miss  # no second zero, at half a turn
        return jnp.where(cosine * c + sine * s < 0, back, miss)[None]


def turn_about(frames: Frames, axis_a: Vector, axis_b: Vector, read: Reader) -> tuple[Array, Array]:
    """Cosine and sine of the angle from the first normal of a's axis to that of b's."""
    a, b = frames
    w = b.direction(across(b, axis_b, read)[0])
    cosine, sine = apply(across(a, axis_a, read), a.components(w))
    return cosine, sine


@dataclass(frozen=True)
class RackMesh(AbstractPosition):
    """A pinion a and a rack b in the plane, on a carrier as third body."""

    radius: Value
    axis: Vector
    phase: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual r angle - u . x - phase, with angle and position relative to the carrier."""
        a, b, carrier = frames
        x = carrier.components(b.origin - carrier.origin)
        turned = read.number(self.radius) * (a.attitude - carrier.attitude)
        return (turned - unit(read, self.axis, 2) @ x - read.number(self.phase))[None]


@dataclass(frozen=True)
class Mesh(AbstractPosition):
    """Two wheels in the plane, on a carrier as third body."""

    radius_a: Value
    radius_b: Value
    phase: Value
    sense: float = 1.0  # -1 for wheels that turn in the same sense, by a belt

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual ra angle_a + rb angle_b - phase, with angles relative to the carrier."""
        a, b, carrier = (frame.attitude for frame in frames)
        ra, rb = read.number(self.radius_a), self.sense * read.number(self.radius_b)
        return (ra * (a - carrier) + rb * (b - carrier) - read.number(self.phase))[None]
