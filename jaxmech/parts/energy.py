"""The functions of a mechanism's `System`: its Lagrangian, its force, its unit quaternions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.force_elements import AbstractLoad, AbstractPotential, Gravity
from jaxmech.parts.joint_base import Place, Places
from jaxmech.parts.values import Reader


@dataclass(frozen=True)
class Lagrangian:
    """Kinetic minus potential energy of all parts.

    Attributes:
        places: the bodies.
        gravities: weights.
        potentials: other forces with a potential, each with the bodies that it acts on.
    """

    places: Places
    gravities: tuple[Gravity, ...]
    potentials: tuple[tuple[AbstractPotential, Places], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """L [J], a scalar."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        total = jnp.zeros((), q.dtype)
        for place in self.places:
            body, own = place.body, place.own(q)
            read = Reader(f"body {body.name!r}", t, params)
            total = total + body.kinetic(own, place.own(v), read)
            for weight in self.gravities:
                moment = body.moment(own, read)
                total = total - weight.energy(moment, Reader("gravity", t, params))
        for force, places in self.potentials:
            frames = tuple(place.frame(q) for place in places)
            total = total - force.energy(frames, Reader(force.part, t, params))
        return total


@dataclass(frozen=True)
class Forces:
    """The generalized force of everything that has no potential.

    Attributes:
        places: the bodies.
        loads: forces of parts, each with the bodies that it acts on.
        others: functions `force(q, v, t, params)` of shape (n,).
    """

    places: Places
    loads: tuple[tuple[AbstractLoad, Places], ...]
    others: tuple[Callable[..., Any], ...]

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The generalized force, (n,)."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        sums = {p.body.name: jnp.zeros_like(p.own(q)) for p in self.places}
        for force, places in self.loads:
            moving = tuple(place.moving(q, v) for place in places)
            loads = force.loads(moving, Reader(force.part, t, params))
            for place, load in zip(places, loads, strict=True):
                if place.body.letters:
                    own = place.body.generalized(place.own(q), load)
                    sums[place.body.name] = sums[place.body.name] + own
        total = jnp.concatenate([sums[place.body.name] for place in self.places])
        for other in self.others:
            total = total + other(q, v, t, params)
        return total


@dataclass(frozen=True)
class Norm:
    """(e . e - 1) / 2 of the quaternion of a body."""

    place: Place

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """What must vanish, a scalar."""
        e = self.place.own(jnp.asarray(q))[3:]
        return (e @ e - 1) / 2
