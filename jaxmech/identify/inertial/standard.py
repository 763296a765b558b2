"""The inertial parameters of the bodies of a mechanism, in which its equations are linear.

    planar body     I, mx, my, m
    spatial body    Ixx, Iyy, Izz, Ixy, Ixz, Iyz, mx, my, mz, m
    point mass      m
    rotor           rotor

with the mass m [kg], the static moment (mx, my, mz) [kg m], mass times centre of mass, and the
entries of the matrix of inertia [kg m^2], along the axes of the body and about its pivot: the point
of the joint by which it hangs on the body before, or its reference point where there is none.
A body that weighs nothing, such as one between two joints, has no parameters.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts import (
    AbstractBody,
    AbstractKinematics,
    EnergyDifference,
    Gravity,
    Inertia,
    JointCoordinates,
    Mechanism,
    Moving,
    Reader,
    Rotors,
    Support,
    Turn,
    connection_of,
    in_space,
)
from jaxmech.system import Params, System

# The entries of a matrix of inertia in the order of the names.
_ROWS, _COLUMNS = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
_LETTERS = {
    (2, True): ("I", "mx", "my", "m"),
    (3, True): ("Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz", "mx", "my", "mz", "m"),
    (2, False): ("m",),
    (3, False): ("m",),
}


class Heavy(NamedTuple):
    """A body, and its pivot along its axes, d numbers; hashable."""

    body: AbstractBody
    pivot: tuple[float, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return _LETTERS[self.body.dimension, self.body.rotates]

    def values(self, read: Reader) -> Array:
        """The parameters, (k,)."""
        mass, static, moments = self.body.inertia(read)
        if not self.body.rotates:
            return jnp.reshape(mass, (1,))
        flat = self.body.dimension == 2
        whole = jnp.zeros((3, 3)).at[2, 2].set(moments) if flat else moments
        unturned = Turn(np.eye(3), np.eye(3))
        about = Inertia(mass, in_space(static), whole).moved(
            unturned, -in_space(np.array(self.pivot))
        )
        inertia = about.moments[2:, 2] if flat else about.moments[_ROWS, _COLUMNS]
        static = about.static[: self.body.dimension]
        return jnp.concatenate([inertia, static, jnp.reshape(mass, (1,))])

    @property
    def columns(self) -> np.ndarray:
        """The indices of its parameters among the ten of a body in space, (k,)."""
        whole = _LETTERS[3, True]
        return np.array([whole.index("Izz" if x == "I" else x) for x in self.letters])

    def twist(self, moving: Moving) -> Array:
        """The velocity of the pivot and the spin, along the axes of the ground, (2, 3)."""
        v = moving.velocity_at(moving.frame.point(np.array(self.pivot)))
        return jnp.stack([jnp.asarray(in_space(x)) for x in (v, moving.spin)])


@dataclass(frozen=True)
class StandardParameters:
    """The s inertial parameters of a mechanism, those of bodies near the ground first; hashable."""

    kinematics: AbstractKinematics
    bodies: tuple[Heavy, ...]
    gravities: tuple[Gravity, ...]
    supports: tuple[Support, ...]  # that carry a part of the weight, whatever it is
    rotors: tuple[Rotors, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names such as `forearm.mx` and `elbow.angle.rotor`."""
        of_bodies = [f"{heavy.body.name}.{x}" for heavy in self.bodies for x in heavy.letters]
        return (*of_bodies, *(f"{x}.rotor" for one in self.rotors for x in one.coordinates))

    @property
    def powers(self) -> np.ndarray:
        """The power of a length in the unit of each parameter, 0 to 2, (s,)."""
        powers = {"m": 0, "mx": 1, "my": 1, "mz": 1}
        of_bodies = [powers.get(x, 2) for heavy in self.bodies for x in heavy.letters]
        turning = ["angle" in x.rpartition(".")[2] for one in self.rotors for x in one.coordinates]
        return np.array([*of_bodies, *(2 * is_angle for is_angle in turning)], int)

    def values(self, params: Params, t: Any = 0.0) -> Array:
        """The parameters (s,) as functions of those of the mechanism."""
        t = jnp.asarray(t, float)
        parts = [x.values(Reader(f"body {x.body.name!r}", t, params)) for x in self.bodies]
        for one in self.rotors:
            inertias = Reader(one.part, t, params).vector(one.inertias, len(one.coordinates))
            parts.append(jnp.asarray(inertias))
        return jnp.concatenate([jnp.zeros(0), *parts])

    def carried(self, body: AbstractBody, params: Params, t: Any = 0.0) -> Any:
        """The part of the acceleration of gravity that supports take from a body, (3,)."""
        parts = [x for x in self.supports if x.bodies == (body,)]
        read = [Reader(x.part, t, params).vector(x.acceleration, 3) for x in parts]
        return sum(read, np.zeros(3))

    def moving(self, q: Array, v: Array, t: Array, params: Params) -> list[tuple[Heavy, Moving]]:
        """The bodies with their motions."""
        motions = self.kinematics.moving([x.body for x in self.bodies], q, v, t, params)
        return list(zip(self.bodies, motions, strict=True))


def standard_parameters(subject: Mechanism | System, params: Params) -> StandardParameters | None:
    """The inertial parameters of a mechanism or its system; None for a system without bodies."""
    system = subject.system if isinstance(subject, Mechanism) else subject
    energy = system.plain.lagrangian
    if not isinstance(energy, EnergyDifference):
        return None
    heavy = [one for one in _pivoted(energy.kinematics, params) if _is_heavy(one.body, params)]
    rotors = tuple(term for term in energy.elements.terms if isinstance(term, Rotors))
    potentials = energy.elements.potentials
    carrying = tuple(x for x in potentials if isinstance(x, Support) and x.follows_weight)
    return StandardParameters(energy.kinematics, tuple(heavy), energy.gravities, carrying, rotors)


def _pivoted(kinematics: AbstractKinematics, params: Params) -> list[Heavy]:
    """The bodies with their pivots, those before others first."""
    if not isinstance(kinematics, JointCoordinates):
        return [Heavy(body, (0.0,) * body.dimension) for body in kinematics.bodies]
    heavy = []
    for link in kinematics.links:
        point = connection_of(link, Reader(link.part, jnp.zeros(()), params), False).seat().point
        heavy.append(Heavy(link.body, tuple(np.asarray(point).tolist()[: link.body.dimension])))
    return heavy


def _is_heavy(body: AbstractBody, params: Params) -> bool:
    numbers = body.inertia(Reader(f"body {body.name!r}", np.zeros(()), params))
    return any(np.any(np.asarray(x) != 0) for x in numbers)
