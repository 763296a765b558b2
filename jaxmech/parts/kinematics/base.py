"""`AbstractKinematics`: where bodies are and how they move, as functions of the coordinates."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start
from jaxmech.utils.arrays import AnyArray

Bodies = Sequence[AbstractBody]


class Inertial(NamedTuple):
    """A body with its kinetic energy [J], and the frame that it has."""

    body: AbstractBody
    kinetic: AnyArray
    frame: Frame


class Norm(NamedTuple):
    """Coordinates that are a quaternion, from the first of them, and whose they are."""

    name: str
    first: int


@dataclass(frozen=True)
class AbstractKinematics(abc.ABC):
    """The positions and velocities of bodies."""

    bodies: tuple[AbstractBody, ...]

    has_tree: ClassVar[bool] = False  # whether joints move bodies along a tree

    @property
    @abc.abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates."""

    @property
    @abc.abstractmethod
    def norms(self) -> tuple[Norm, ...]:
        """The quaternions among the coordinates."""

    def with_units(self, q: Array) -> Array:
        """The coordinates with quaternions of unit length."""
        parts, last = [], 0
        for norm in self.norms:
            e = q[norm.first : norm.first + 4]
            parts += [q[last : norm.first], e / jnp.sqrt(e @ e)]
            last = norm.first + 4
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
    def inertial(self, q: Array, v: Array, t: Array, params: Any) -> Iterator[Inertial]:
        """All bodies with their kinetic energies."""

    @abc.abstractmethod
    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The generalized force (n,) of loads on bodies, by their names."""

    @abc.abstractmethod
    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates and velocities of given starts, by the names of bodies or joints."""
