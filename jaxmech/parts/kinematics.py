"""Where bodies are and how they move: relative to each other, and as functions of the coordinates.

`Relation` is what a joint gives, `AbstractKinematics` the interface of all coordinates.
"""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start
from jaxmech.parts.vectors import apply, conjugate
from jaxmech.utils.arrays import AnyArray

Bodies = Sequence[AbstractBody]


@dataclass(frozen=True)
class AbstractKinematics(abc.ABC):
    """The positions and velocities of bodies.

    Attributes:
        bodies: the bodies, in the order of the mechanism.
        links: a `Link` for each body, those before it first, with its coordinates.
    """

    bodies: tuple[AbstractBody, ...]
    links: tuple[Any, ...]

    has_tree: ClassVar[bool] = False  # whether joints move bodies along a tree

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates, such as `elbow.angle` and `crank.x`."""
        return tuple(f"{link.name}.{letter}" for link in self.links for letter in link.letters)

    @property
    def norms(self) -> tuple[tuple[str, int], ...]:
        """The quaternions among the coordinates: whose they are, and their first indices."""
        return tuple(
            (link.name, link.first + len(link.letters) - 4) for link in self.links if link.has_norm
        )

    def with_units(self, q: Array) -> Array:
        """The coordinates with quaternions of unit length."""
        parts, last = [], 0
        for _, first in self.norms:
            e = q[first : first + 4]
            parts += [q[last:first], e / jnp.sqrt(e @ e)]
            last = first + 4
        return jnp.concatenate([*parts, q[last:]])

    @abc.abstractmethod
    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        """The frames of some bodies, or of the ground."""

    @abc.abstractmethod
    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        """The frames of some bodies, or of the ground, with their velocities."""

    @abc.abstractmethod
    def inertial(
        self, q: Array, v: Array, t: Array, params: Any
    ) -> Iterator[tuple[AbstractBody, AnyArray, Frame]]:
        """All bodies with their kinetic energies [J] and frames."""

    @abc.abstractmethod
    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The generalized force (n,) of loads on bodies, by their names."""

    @abc.abstractmethod
    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates and velocities of given starts, by the names of bodies or joints."""


Point = tuple[AnyArray, AnyArray]  # a point and its velocity, (d,) each


class Relation(NamedTuple):
    """The position, attitude and velocity of b relative to a, as the motion of a joint gives them.

    Attributes:
        axes: matrix from components along the axes of b to those along the axes of a, (d, d).
        attitude: angle, (), or quaternion, (4,), of b relative to a.
        at_a: the joint along the axes of a, and its velocity on a, (d,) each.
        at_b: the joint along the axes of b, and its velocity on b, (d,) each.
        spin: angular velocity of b relative to a along the axes of b, () or (3,).
    """

    axes: AnyArray
    attitude: AnyArray
    at_a: Point
    at_b: Point
    spin: AnyArray

    @property
    def reverse(self) -> "Relation":
        is_planar = self.axes.shape == (2, 2)
        attitude = -self.attitude if is_planar else conjugate(self.attitude)
        spin = -self.spin if is_planar else -apply(self.axes, self.spin)
        return Relation(self.axes.T, attitude, self.at_b, self.at_a, spin)
