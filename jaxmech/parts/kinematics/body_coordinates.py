"""The coordinates of each body by itself, so that every joint is a constraint."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Moving, Start
from jaxmech.parts.kinematics.base import AbstractKinematics, Bodies, Inertial, Norm
from jaxmech.parts.values import Reader


@dataclass(frozen=True)
class BodyCoordinates(AbstractKinematics):
    """The coordinates of the bodies in order, `crank.x` and so on."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names such as `crank.x`."""
        return tuple(f"{body.name}.{letter}" for body in self.bodies for letter in body.letters)

    @property
    def norms(self) -> tuple[Norm, ...]:
        """The quaternions of bodies in space."""
        return tuple(
            Norm(body.name, self._first(body) + 3) for body in self.bodies if body.has_norm
        )

    def _first(self, body: AbstractBody) -> int:
        preceding = self.bodies[: [candidate.name for candidate in self.bodies].index(body.name)]
        return sum(len(candidate.letters) for candidate in preceding)

    def entries(self, body: AbstractBody, x: Array) -> Array:
        """The entries of a body in coordinates, velocities or generalized forces."""
        if isinstance(body, Ground):
            return x[:0]
        first = self._first(body)
        return x[first : first + len(body.letters)]

    def frames(self, bodies: Bodies, q: Array, t: Array, params: Any) -> tuple[Frame, ...]:
        """The frames at the coordinates of each body."""
        return tuple(body.frame(self.entries(body, q)) for body in bodies)

    def moving(
        self, bodies: Bodies, q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Moving, ...]:
        """The frames at the coordinates of each body, with its velocities."""
        return tuple(body.moving(self.entries(body, q), self.entries(body, v)) for body in bodies)

    def inertial(self, q: Array, v: Array, t: Array, params: Any) -> Iterator[Inertial]:
        """The kinetic energies in the velocities of each body."""
        for body in self.bodies:
            coordinates, rates = self.entries(body, q), self.entries(body, v)
            kinetic = body.kinetic(coordinates, rates, Reader(f"body {body.name!r}", t, params))
            yield Inertial(body, kinetic, body.frame(coordinates))

    def generalized(
        self, loads: Mapping[str, Load], q: Array, v: Array, t: Array, params: Any
    ) -> Array:
        """The loads, each in the coordinates of its body."""
        parts = [
            body.generalized(self.entries(body, q), loads[body.name])
            if body.name in loads
            else jnp.zeros_like(self.entries(body, q))
            for body in self.bodies
        ]
        return jnp.concatenate(parts)

    def guess(self, starts: Mapping[str, Start], t: Array, params: Any) -> tuple[Array, Array]:
        """The coordinates of each body at its start."""
        names = [body.name for body in self.bodies]
        for name in (*starts, *names):
            if name not in names or name not in starts:
                raise ValueError(
                    f"Argument `starts` must have one start for each of {', '.join(names)}, but "
                    f"{'has one for' if name in starts else 'has none for'} {name!r}."
                )
        pairs = [body.start(starts[body.name]) for body in self.bodies]
        q, v = (jnp.concatenate(x) for x in zip(*pairs, strict=True))
        return q, v
