"""The elements of joints: equations between the frames of two bodies, a and b.

d is the vector from the point on a to the point on b, u a unit vector fixed to a, w one fixed to b,
n1 and n2 are the normals of u. Each residual is a length [m] or the sine of an angle, whose
multiplier is the force [N] or torque [N m] of a on b.

    Coincide          d = 0                        force along the axes of the ground, at the point
    Across            n1 . d = n2 . d = 0          force along n1, n2
    Level             u . d = height               force along u
    Apart             (d . d - l^2) / (2 l) = 0    force along d, positive: pushes apart
    OnSurface         f(d along the axes of a) = 0 multiplier times grad f is the force
    Parallel          n1 . w = n2 . w = 0          torque along w x n1, w x n2
    Perpendicular     u . w = 0                    torque along w x u
    RelativeAttitude  angle of b from a; in space  torque, in space along the axes of b
                      2 sin(angle / 2) times the axis
    RelativeAngle     sin(angle of b about u - given angle) = 0     torque along u

Coincide, Apart, Perpendicular and Across are the spherical, distance, dot-1 and dot-2 primitives of
Haug, "Computer Aided Kinematics and Dynamics of Mechanical Systems" (1989), chapter 9. None has a
square root that vanishes where the equation holds, since that would have no derivative there.

The residual of an equation on velocities is the velocity [m/s] of b relative to a at a point, in
one direction or two; its multiplier is the force [N] of a on b there. Those of rolling are in
`rolling.py`. A contact point belongs to neither body: it is a point of space, at which the
velocities of the two bodies are compared.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import Frames, Moving, across, along, pointing, separation, turn_about
from jaxmech.parts.values import Reader, Value, Vector, require_sign, unit
from jaxmech.parts.vectors import apply, conjugate, product
from jaxmech.utils.arrays import AnyArray


class AbstractEquation:
    """Equations on bodies."""

    def require(self, read: Reader) -> None:
        """Raise a ValueError for known sizes that nothing can have; by default none."""


@dataclass(frozen=True)
class AbstractPosition(AbstractEquation, abc.ABC):
    """Equations on the positions of bodies."""

    @abc.abstractmethod
    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual of the equations, (k,)."""


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
    """A direction on b is parallel to one on a."""

    axis_a: Vector
    axis_b: Vector

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
class RelativeAttitude(AbstractPosition):
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
class RelativeAngle(AbstractPosition):
    """b is at a given angle from a, about an axis that they share."""

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


@dataclass(frozen=True)
class AbstractVelocity(AbstractEquation, abc.ABC):
    """Equations on the velocities of bodies."""

    @abc.abstractmethod
    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual of the equations, (k,)."""


def slip(motions: tuple[Moving, ...], point: AnyArray) -> AnyArray:
    """The velocity of b relative to a at a point, (d,)."""
    a, b = motions
    return b.velocity_at(point) - a.velocity_at(point)


@dataclass(frozen=True)
class ScrewSpeed(AbstractVelocity):
    """b moves along an axis on a in proportion to its turns about it."""

    axis: Vector
    at_b: Vector
    lead: Value

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual u . v - lead / (2 pi) u . w, with v and w relative to a."""
        a, b = motions
        u = pointing(a.frame, self.axis, read)
        speed = u @ slip(motions, b.frame.point(read.vector(self.at_b, 3)))
        pitch = read.number(self.lead) / (2 * np.pi)
        return (speed - pitch * (u @ (b.spin - a.spin)))[None]
