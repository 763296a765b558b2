"""Bodies without an attitude: the ground, which does not move, and point masses.

A point mass has the coordinates x, y and in space z [m], and the kinetic energy m v . v / 2.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start, entries
from jaxmech.parts.values import Reader, Value, number


@dataclass(frozen=True)
class Ground(AbstractBody):
    """What does not move; in the plane or in space as its partner is.

    Attributes:
        size: 2 in the plane, 3 in space, 0 where it is not known yet.
    """

    name: str = "ground"
    size: int = 0

    @property
    def dimension(self) -> int:
        """The size."""
        return self.size

    @property
    def letters(self) -> tuple[str, ...]:
        """None."""
        return ()

    def frame(self, q: Array) -> Frame:
        """At the origin."""
        attitude = np.zeros((), q.dtype) if self.size == 2 else np.eye(4, dtype=q.dtype)[0]
        return Frame(np.zeros(self.size, q.dtype), np.eye(self.size, dtype=q.dtype), attitude)

    def moving(self, q: Array, v: Array) -> Moving:
        """At rest."""
        spin = np.zeros(() if self.size == 2 else (3,), q.dtype)
        return Moving(self.frame(q), np.zeros(self.size, q.dtype), spin)

    def kinetic(self, q: Array, v: Array, read: Reader) -> Array:
        """None."""
        return jnp.zeros((), q.dtype)

    def moment(self, q: Array, read: Reader) -> Array:
        """None."""
        return jnp.zeros(self.size, q.dtype)

    def generalized(self, q: Array, load: Load) -> Array:
        """None: it takes every load."""
        return jnp.zeros(0, q.dtype)

    def load(self, q: Array, generalized: Array) -> Load:
        """None: it has no coordinates."""
        still = self.moving(q, q)
        return still.velocity, still.spin

    def start(self, start: Start) -> tuple[Array, Array]:
        """No coordinates."""
        return jnp.zeros(0), jnp.zeros(0)


@dataclass(frozen=True)
class PointMass(AbstractBody):
    """A point with mass, in the plane or in space; made by `point_mass`."""

    mass: Value
    size: int

    @property
    def dimension(self) -> int:
        """The size."""
        return self.size

    @property
    def letters(self) -> tuple[str, ...]:
        """x, y, z."""
        return ("x", "y", "z")[: self.size]

    @property
    def rotates(self) -> bool:
        """No."""
        return False

    def frame(self, q: Array) -> Frame:
        """At (x, y, z), along the axes of the ground."""
        return Ground(size=self.size).frame(q)._replace(origin=q)

    def moving(self, q: Array, v: Array) -> Moving:
        """With velocity (x', y', z')."""
        still = Ground(size=self.size).moving(q, v)
        return Moving(self.frame(q), v, still.spin)

    def kinetic(self, q: Array, v: Array, read: Reader) -> Array:
        """K = m v . v / 2."""
        return 0.5 * read.number(self.mass) * (v @ v)

    def moment(self, q: Array, read: Reader) -> Array:
        """M r."""
        return read.number(self.mass) * q

    def generalized(self, q: Array, load: Load) -> Array:
        """The force; a point takes no torque."""
        return load[0]

    def load(self, q: Array, generalized: Array) -> Load:
        """The force."""
        return generalized, Ground(size=self.size).moving(q, q).spin

    def start(self, start: Start) -> tuple[Array, Array]:
        """The position."""
        shape = (self.size,)
        own = entries(self, "position", start.position, shape)
        return own, entries(self, "velocity", start.velocity, shape)


ground = Ground()


def point_mass(name: str, *, mass: Value, dimension: int = 2) -> PointMass:
    """A point with mass.

    Args:
        name: of the point; its coordinates are `name.x`, `name.y` and in space `name.z` [m].
        mass: [kg]; a number, the name of a parameter or a function of (t, params).
        dimension: 2 in the plane, 3 in space.

    Raises:
        ValueError: the dimension is another one.

    Example:
        >>> point_mass("bob", mass="m", dimension=3).letters
        ('x', 'y', 'z')
    """
    if dimension not in (2, 3):
        raise ValueError(
            f"Body {name!r} must have `dimension` 2 (plane) or 3 (space), but has {dimension!r}."
        )
    return PointMass(name, number(f"body {name!r}", "mass", mass), dimension)
