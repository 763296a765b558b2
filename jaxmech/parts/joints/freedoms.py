"""The freedoms of joints in which forces and stops act: an angle about an axis, a way along one.

They are computed from the frames of both bodies, so that they do not depend on whether the joint is
a constraint or has coordinates. Forces and torques act on b along the axis on a, and their
opposites on a.
"""

import abc
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Frame, Load, Moving, shifted
from jaxmech.parts.directions import pointing, separation, turn_about
from jaxmech.parts.values import Reader, Vector, unit
from jaxmech.parts.vectors import conjugate, product
from jaxmech.utils.arrays import AnyArray


@dataclass(frozen=True)
class AbstractFreedom(abc.ABC):
    """A freedom of a joint: its coordinate and rate, and the load of a force in it."""

    @abc.abstractmethod
    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The coordinate."""

    @abc.abstractmethod
    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        """The coordinate and its rate."""

    @abc.abstractmethod
    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """The loads on both bodies."""


@dataclass(frozen=True)
class Turning(AbstractFreedom):
    """The angle of a hinge; in space between -pi and pi.

    `zero` is the attitude of b relative to a at an angle of zero, as in `Revolute`.
    """

    axes: tuple[Vector, Vector] | None
    zero: Any = None

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The angle of b relative to a."""
        a, b = frames
        if self.axes is None:
            return jnp.asarray(b.attitude - a.attitude)
        if self.zero is None:
            cosine, sine = turn_about((a, b), *self.axes, read)
        else:
            e = product(conjugate(a.attitude), b.attitude)
            e = product(e, conjugate(unit(read, self.zero, 4)))
            half = unit(read, self.axes[0], 3) @ e[1:]
            cosine, sine = e[0] ** 2 - half**2, 2 * e[0] * half
        return jnp.arctan2(sine, cosine)

    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        """The angle of b relative to a, and the spin about the axis."""
        a, b = motions
        angle = self.position((a.frame, b.frame), read)
        if self.axes is None:
            return angle, jnp.asarray(b.spin - a.spin)
        return angle, pointing(a.frame, self.axes[0], read) @ (b.spin - a.spin)

    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """A torque about the axis."""
        a, _ = motions
        no_force = jnp.zeros_like(a.velocity)
        torque = effort if self.axes is None else effort * pointing(a.frame, self.axes[0], read)
        return (no_force, -torque), (no_force, torque)


@dataclass(frozen=True)
class Sliding(AbstractFreedom):
    """The position along an axis on a."""

    at_a: Vector
    at_b: Vector
    axis: Vector

    def position(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The component along the axis of the way from the point on a to that on b."""
        d = separation(frames, self.at_a, self.at_b, read)
        return jnp.asarray(pointing(frames[0], self.axis, read) @ d)

    def coordinate(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Array, Array]:
        """The component along the axis of the way from the point on a to that on b."""
        a, b = motions
        u, end = pointing(a.frame, self.axis, read), self._end(b.frame, read)
        x = self.position((a.frame, b.frame), read)
        return x, u @ (b.velocity_at(end) - a.velocity_at(end))

    def loads(self, motions: tuple[Moving, ...], effort: Any, read: Reader) -> tuple[Load, ...]:
        """A force along the axis at the point on b."""
        a, b = motions
        force, no_torque = effort * pointing(a.frame, self.axis, read), jnp.zeros_like(a.spin)
        end = self._end(b.frame, read)
        return shifted((-force, no_torque), end, a.frame), shifted((force, no_torque), end, b.frame)

    def _end(self, frame: Frame, read: Reader) -> AnyArray:
        return frame.point(read.vector(self.at_b, frame.origin.shape[0]))
