"""The elements of an ellipsoid on a plane, by its support function.

With the normal n of the plane along the axes of the ellipsoid, and its semi-axes as a diagonal
matrix D, its centre is at the height h = |D n| over the plane that touches it, and the contact is
at -D D n / h from the centre.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.geometry import circle, line
from jaxmech.parts.body import Frame, Moving
from jaxmech.parts.contacts.base import AbstractContact
from jaxmech.parts.position_equations import Frames, across, along, pointing, separation
from jaxmech.parts.values import Reader, Vector, require_sign
from jaxmech.parts.vectors import Numbers, apply
from jaxmech.parts.velocity_equations import AbstractVelocity, slip


@dataclass(frozen=True)
class EllipsoidGap(AbstractContact):
    """An ellipsoid of b, with the axes of b, touches a plane of a."""

    at_a: Vector
    normal: Vector
    at_b: Vector
    semiaxes: Vector

    @property
    def round_bodies(self) -> tuple[int, ...]:
        """The index of the body with the ellipsoid."""
        return (1,)

    def support(self, frames: Frames, read: Reader) -> tuple[Numbers, Array]:
        """The height of the centre over the plane, and the way from there to the contact."""
        sizes = read.vector(self.semiaxes, 3)
        n = frames[1].components(pointing(frames[0], self.normal, read))
        n = n / jnp.sqrt(n @ n)  # of a quaternion that is not yet a unit
        height = jnp.sqrt((sizes * n) @ (sizes * n))
        return height, frames[1].direction(-sizes * sizes * n / height)

    def residual(self, frames: Frames, read: Reader) -> Array:
        """The height of the lowest point over the plane."""
        height, _ = self.support(frames, read)
        d = separation(frames, self.at_a, self.at_b, read)
        return (along(frames[0], self.normal, d, read) - height)[None]

    def require(self, read: Reader) -> None:
        """Raise unless the semi-axes are positive."""
        require_sign(read.part, "semiaxes", read.vector(self.semiaxes, 3))

    def shapes(self, name: str, frames: Frames, read: Reader) -> dict[str, Array]:
        """Three ellipses."""
        b: Frame = frames[1]
        center, sizes = b.point(read.vector(self.at_b, 3)), read.vector(self.semiaxes, 3)
        e = [sizes[k] * b.axes[:, k] for k in range(3)]
        pairs = ((0, 1), (1, 2), (2, 0))
        return {
            f"{name}.ellipse{k + 1}": circle(center, 1.0, line(e[i], e[j]))
            for k, (i, j) in enumerate(pairs)
        }


@dataclass(frozen=True)
class EllipsoidSlip(AbstractVelocity):
    """The ellipsoid does not slip; it may spin about the normal."""

    gap: EllipsoidGap

    def residual(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The velocity of b relative to a at the contact, along n1 and n2 of the plane."""
        a, b = motions[0].frame, motions[1].frame
        _, arm = self.gap.support((a, b), read)
        velocity = slip(motions, b.point(read.vector(self.gap.at_b, 3)) + arm)
        return apply(across(a, self.gap.normal, read), a.components(velocity))
