"""The elements of joints on velocities: no slip at a contact or knife edge, gears in space.

A residual is the velocity [m/s] of b relative to a at a point, in one direction or two; its
multiplier is the force [N] of a on b there.

    Edge           across a direction fixed to b              lateral force
    RoundSlip      disk on a line, sphere on a plane          friction along the tangents of a
    WheelSlip      thin wheel on a plane                      friction along its track, and across
    RackSpeed      r spin_a - u . velocity of b               force of a tooth
    ScrewSpeed     u . velocity - lead / 2 pi u . spin        force along the axis
    GearSpeed      ra spin_a + rb spin_b about their axes     force of one tooth on the other

The contact point belongs to neither body: it is a point of space, at which the velocities of the
two bodies are compared.
"""

import abc
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import Frame, Moving
from jaxmech.parts.position_equations import AbstractPosition, Frames, across, pointing, separation
from jaxmech.parts.values import Reader, Value, Vector, require_sign
from jaxmech.parts.vectors import Numbers, apply, cross


@dataclass(frozen=True)
class AbstractVelocity(abc.ABC):
    """Equations on the velocities of bodies."""

    @abc.abstractmethod
    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual of the equations, (k,)."""

    def require(self, read: Reader) -> None:  # noqa: B027
        """Raise a ValueError for known sizes that nothing can have; by default none."""


def slip(motions: tuple[Moving, ...], point: Numbers) -> Numbers:
    """The velocity of b relative to a at a point, (d,)."""
    a, b = motions
    return b.velocity_at(point) - a.velocity_at(point)


@dataclass(frozen=True)
class Edge(AbstractVelocity):
    """A point of b moves only along a direction fixed to b; in the plane."""

    at_b: Vector
    along: Vector

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual, the lateral velocity."""
        b = motions[1].frame
        velocity = slip(motions, b.point(read.vector(self.at_b, 2)))
        return apply(across(b, self.along, read), b.components(velocity))


@dataclass(frozen=True)
class RoundSlip(AbstractVelocity):
    """A disk of b does not slip on a line of a, or a sphere of b on a plane of a."""

    normal: Vector
    at_b: Vector
    radius: Value

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual, the velocity at the contact along the line or along n1, n2 of the plane."""
        a, b = motions[0].frame, motions[1].frame
        n = pointing(a, self.normal, read)
        center = b.point(read.vector(self.at_b, n.shape[0]))
        velocity = slip(motions, center - read.number(self.radius) * n)
        return apply(across(a, self.normal, read), a.components(velocity))

    def require(self, read: Reader) -> None:
        """Raise unless the radius is positive."""
        require_sign(read.part, "radius", read.number(self.radius))


def track(
    a: Frame, b: Frame, normal: Vector, axle: Vector, read: Reader
) -> tuple[Numbers, Numbers]:
    """The unit normal n of the plane, and axle x n, whose length is the sine between them."""
    n = pointing(a, normal, read)
    return n, cross(pointing(b, axle, read), n)


@dataclass(frozen=True)
class WheelContact(AbstractPosition):
    """The lowest point of a wheel's rim lies on a plane: n . d = radius times the sine."""

    at_a: Vector
    normal: Vector
    at_b: Vector
    axle: Vector
    radius: Value

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The residual: height of the lowest point [m]; its multiplier is the wheel load [N]."""
        n, along = track(frames[0], frames[1], self.normal, self.axle, read)
        d = separation(frames, self.at_a, self.at_b, read)
        return (n @ d - read.number(self.radius) * jnp.sqrt(along @ along))[None]


@dataclass(frozen=True)
class WheelSlip(AbstractVelocity):
    """The lowest point of a wheel's rim does not slip."""

    normal: Vector
    at_b: Vector
    axle: Vector
    radius: Value

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity at the contact along axle x normal, and along normal x (axle x normal)."""
        a, b = motions[0].frame, motions[1].frame
        n, along = track(a, b, self.normal, self.axle, read)
        along = along / jnp.sqrt(along @ along)
        upward = cross(along, pointing(b, self.axle, read))  # to the highest point of the wheel
        center = b.point(read.vector(self.at_b, 3))
        velocity = slip(motions, center - read.number(self.radius) * upward)
        return jnp.stack([along @ velocity, cross(n, along) @ velocity])

    def require(self, read: Reader) -> None:
        """Raise unless the radius is positive."""
        require_sign(read.part, "radius", read.number(self.radius))


@dataclass(frozen=True)
class GearSpeed(AbstractVelocity):
    """Two wheels in space, on a carrier as third body."""

    axis_a: Vector
    radius_a: Value
    axis_b: Vector
    radius_b: Value
    sense: float = 1.0  # -1 for wheels that turn in the same sense, by a belt

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual ra (w_a - w) . axis_a + rb (w_b - w) . axis_b."""
        a, b, carrier = motions
        spin_a = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        spin_b = (b.spin - carrier.spin) @ pointing(b.frame, self.axis_b, read)
        return (
            read.number(self.radius_a) * spin_a + self.sense * read.number(self.radius_b) * spin_b
        )[None]


@dataclass(frozen=True)
class RackSpeed(AbstractVelocity):
    """A pinion a and a rack b in space, on a carrier as third body."""

    axis_a: Vector
    radius: Value
    axis: Vector

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residual r (w_a - w) . axis_a - u . v_b, with v_b relative to the carrier."""
        a, b, carrier = motions
        u = pointing(carrier.frame, self.axis, read)
        spin = (a.spin - carrier.spin) @ pointing(a.frame, self.axis_a, read)
        speed = u @ (b.velocity - carrier.velocity_at(b.frame.origin))
        return (read.number(self.radius) * spin - speed)[None]


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
