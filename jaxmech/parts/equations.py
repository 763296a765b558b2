"""The functions of the system of a mechanism: its Lagrangian, its forces and unit quaternions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import Load
from jaxmech.parts.forces.elements import (
    AbstractLoad,
    AbstractPotential,
    AbstractTerm,
    Coordinates,
    Gravity,
)
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.values import Reader


@dataclass(frozen=True)
class EnergyDifference:
    """Kinetic minus potential energy [J] of bodies, their weights, other potentials and terms."""

    kinematics: AbstractKinematics
    gravities: tuple[Gravity, ...]
    potentials: tuple[AbstractPotential, ...]
    terms: tuple[AbstractTerm, ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """Kinetic minus potential energy, a scalar."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        total = jnp.zeros((), q.dtype)
        for body, kinetic, frame in self.kinematics.inertial(q, v, t, params):
            total = total + kinetic
            for weight in self.gravities:
                moment = body.moment(frame, Reader(f"body {body.name!r}", t, params))
                total = total - weight.energy(moment, Reader("gravity", t, params))
        for force in self.potentials:
            frames = self.kinematics.frames(force.bodies, q, t, params)
            total = total - force.energy(frames, Reader(force.part, t, params))
        at = Coordinates(self.kinematics.coordinates, q, v)
        for term in self.terms:
            total = total + term.lagrangian(at, Reader(term.part, t, params))
        return total


@dataclass(frozen=True)
class AppliedForces:
    """The generalized force (n,) of loads, and of functions `force(q, v, t, params)`."""

    kinematics: AbstractKinematics
    loads: tuple[AbstractLoad, ...]
    others: tuple[Callable[..., Any], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The sum of all forces, (n,)."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        sums: dict[str, Load] = {}
        for force in self.loads:
            moving = self.kinematics.moving(force.bodies, q, v, t, params)
            loads = force.loads(moving, Reader(force.part, t, params))
            for body, load in zip(force.bodies, loads, strict=True):
                if body.letters:
                    before = sums.get(body.name)
                    sums[body.name] = load if before is None else _together(before, load)
        total = self.kinematics.generalized(sums, q, v, t, params)
        for other in self.others:
            force = other(q, v, t, params)
            if jnp.shape(force) != total.shape:
                raise ValueError(
                    f"Argument `forces` must hold functions that return shape {total.shape} (one "
                    f"number per coordinate), but one returned {jnp.shape(force)}."
                )
            total = total + force
        return total


def _together(first: Load, second: Load) -> Load:
    """The sum of two loads on a body."""
    return first[0] + second[0], first[1] + second[1]


@dataclass(frozen=True)
class UnitNorm:
    """The constraint (e . e - 1) / 2 = 0 on a quaternion, from the first of its coordinates."""

    first: int

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The residual, a scalar."""
        e = jnp.asarray(q)[self.first : self.first + 4]
        return (e @ e - 1) / 2
