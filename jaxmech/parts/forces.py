"""Gravity, springs, dampers, torques and applied forces.

    force            acts on                             enters as
    gravity          all bodies                          potential
    spring           a point of a and a point of b       potential
    torsion_spring   a and b                             potential
    damper           a point of a and a point of b       force
    force_law        a point of a and a point of b       force
    torsion_damper   a and b                             force
    torque           a and b                             force
    applied_force    a point of a body                   force
    rotor            a coordinate                        kinetic energy
    joint_spring     a coordinate                        potential

Potentials enter the Lagrangian, and loads do not. The energy of a mechanism with potentials alone
is conserved, and audited in every simulation.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the force.
"""

import abc
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import (
    AbstractBody,
    Frame,
    Load,
    Moving,
    ground,
    pointing,
    separation,
    shifted,
    turn_about,
)
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinds import (
    Axis,
    Body,
    Components,
    Moment,
    Number,
    Pair,
    Part,
    require_on,
    same_as,
)
from jaxmech.parts.values import (
    Reader,
    Value,
    Vector,
    direction,
    non_negative,
    number,
    unit,
    vector_with_rate,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import require_function
from jaxmech.utils.text import capital


class AbstractForce(Part, abc.ABC):
    """A named force on bodies, a before b."""


class AbstractPotential(AbstractForce):
    """A force with a potential energy."""

    @abc.abstractmethod
    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential energy [J]."""


class AbstractLoad(AbstractForce):
    """A force without a potential energy."""

    @abc.abstractmethod
    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force and torque at the reference point of each body."""


@dataclass(frozen=True)
class AbstractTurn(AbstractForce):
    """A torque between a and b, in space about an axis.

    Args:
        name: name of the torque.
        a: first body, or `ground`.
        b: second body.
    """

    name: str
    a: Body
    b: Body

    turning = True


@dataclass(frozen=True)
class AbstractTerm(abc.ABC):
    """A named term of the Lagrangian in k coordinates; `part` is its name in messages."""

    part: str
    coordinates: tuple[str, ...]

    def entries(self, names: tuple[str, ...], q: Array, v: Array) -> tuple[Array, Array]:
        """Its coordinates and their rates, (k,) each, of all those of a mechanism."""
        for name in self.coordinates:
            if name not in names:
                raise ValueError(
                    f"{capital(self.part)} must be on coordinates of the mechanism "
                    f"({', '.join(names)}), but is on {name!r}; correct the name."
                )
        indices = np.array([names.index(name) for name in self.coordinates])
        return q[indices], v[indices]

    @abc.abstractmethod
    def lagrangian(self, q: Array, v: Array, read: Reader) -> Array:
        """The kinetic minus the potential energy [J] at its coordinates and their rates."""


@dataclass(frozen=True)
class Rotors(AbstractTerm):
    """The kinetic energies a v^2 / 2 of rotors that turn with coordinates."""

    inertias: Vector

    def lagrangian(self, q: Array, v: Array, read: Reader) -> Array:
        return 0.5 * (read.vector(self.inertias, v.size) * v) @ v


@dataclass(frozen=True)
class CoordinateSprings(AbstractTerm):
    """The potentials k (q - rest)^2 / 2 of springs on coordinates."""

    stiffness: Vector
    rest: Vector

    def lagrangian(self, q: Array, v: Array, read: Reader) -> Array:
        stretch = q - read.vector(self.rest, q.size)
        return -0.5 * (read.vector(self.stiffness, q.size) * stretch) @ stretch


@dataclass(frozen=True)
class Gravity:
    """The weight of all bodies of a mechanism, along -y in the plane and -z in space.

    Args:
        acceleration: acceleration of gravity [m/s^2].
        down: another direction of gravity, of any length.

    Example:
        >>> from jaxmech.parts import gravity
        >>> gravity("g")
        Gravity(acceleration='g', down=None)
    """

    acceleration: Value = 9.81
    _: KW_ONLY
    down: Vector | None = None

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "acceleration", number("gravity", "acceleration", self.acceleration)
        )
        if (down := self.down) is not None:
            size = np.size(down) if np.ndim(down) == 1 else 3  # of a name, as it is read
            object.__setattr__(self, "down", direction("gravity", "down", down, size))

    def energy(self, moment: AnyArray, read: Reader) -> AnyArray:
        """The potential energy [J] from mass times the position of the centre of mass."""
        g = read.number(self.acceleration)
        if self.down is None:
            return g * moment[-1]
        return -g * (unit(read, self.down, moment.shape[0]) @ moment)


@dataclass(frozen=True)
class Support(AbstractPotential):
    """The potential of a force that carries a part of the weight of a body."""

    kind = "support"

    name: str
    body: Body
    mass: Value
    center: Vector  # of mass on the body
    acceleration: Vector  # that of gravity times the part that is carried

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential, which is zero at the origin of the ground."""
        center = frames[0].point(read.vector(self.center, 3))
        return read.number(self.mass) * (read.vector(self.acceleration, 3) @ center)


@dataclass(frozen=True)
class Spring(Pair, AbstractPotential):
    """A spring between two points: the potential k (|d| - length)^2 / 2 for the way d between them.

    Args:
        stiffness: spring constant [N/m].
        length: natural length [m]. Unless it is the number 0, the points must never meet.
    """

    _: KW_ONLY
    stiffness: Number
    length: Number

    kind = "spring"

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential; without a square root if the length is 0, so that the ends may meet."""
        d = separation(frames, self.at_a, self.at_b, read)
        k = read.number(self.stiffness)
        if self.length == 0.0:
            return 0.5 * k * (d @ d)
        return 0.5 * k * (jnp.sqrt(d @ d) - read.number(self.length)) ** 2


@dataclass(frozen=True)
class TorsionSpring(AbstractTurn, AbstractPotential):
    """A torsion spring between two bodies that share an axis.

    The potential is k (angle of b relative to a - rest)^2 / 2.

    Args:
        stiffness: torsional stiffness [N m/rad].
        rest: angle of b relative to a at which there is no torque [rad].
        axis: in space, the shared axis on a; the angle is as in `given_angle`, between -pi and pi.
        axis_b: the axis on b, by default the same components as `axis`.
    """

    _: KW_ONLY
    stiffness: Number
    rest: Number = 0.0
    axis: Axis = None
    axis_b: Axis = same_as("axis")

    kind = "torsion spring"

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential; in the plane the angle is that of the coordinates, with full turns."""
        a, b = frames
        if self.axis is None:
            angle = b.attitude - a.attitude
        else:
            cosine, sine = turn_about(frames, self.axis, self.axis_b, read)
            angle = jnp.arctan2(sine, cosine)
        return 0.5 * read.number(self.stiffness) * (angle - read.number(self.rest)) ** 2


def point_with_velocity(motion: Moving, local: Vector, read: Reader) -> tuple[AnyArray, AnyArray]:
    """A point given on a body, and its velocity, including that along the body over time."""
    frame = motion.frame
    local, rate = vector_with_rate(read, local, frame.origin.shape[0])
    point = frame.point(local)
    velocity = motion.velocity_at(point)
    return point, velocity if isinstance(rate, np.ndarray) else velocity + frame.direction(rate)


class AbstractPull(Pair, AbstractLoad):
    """A force along the way between two points, which must never meet."""

    @abc.abstractmethod
    def force(self, d: AnyArray, rate: AnyArray, read: Reader) -> AnyArray:
        """The force on b, from the way d from the point on a to that on b, and its rate."""

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        a, b = motions
        p, p_rate = point_with_velocity(a, self.at_a, read)
        r, r_rate = point_with_velocity(b, self.at_b, read)
        force, no_torque = self.force(r - p, r_rate - p_rate, read), jnp.zeros_like(a.spin)
        return shifted((-force, no_torque), p, a.frame), shifted((force, no_torque), r, b.frame)


@dataclass(frozen=True)
class Damper(AbstractPull):
    """A damper between two points, which must never meet.

    Args:
        damping: damping coefficient [N s/m].
    """

    _: KW_ONLY
    damping: Number

    kind = "damper"

    def force(self, d: AnyArray, rate: AnyArray, read: Reader) -> AnyArray:
        return -read.number(self.damping) * (d @ rate) / (d @ d) * d


@dataclass(frozen=True)
class ForceLaw(AbstractPull):
    """A force between two points by any law, such as a nonlinear spring or a table.

    It has no potential, so the energy of the mechanism is not audited. The points must never meet.

    Args:
        law: `law(length, rate, t, params)`, a scalar: the force [N], positive where it pushes the
            points apart, at their distance [m] and its rate [m/s].
    """

    law: Callable[..., Any]

    kind = "force law"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_function("law", self.law, "length, rate, t, params")

    def force(self, d: AnyArray, rate: AnyArray, read: Reader) -> AnyArray:
        length = jnp.sqrt(d @ d)
        speed = d @ rate / length
        size = read.array(lambda t, params: self.law(length, speed, t, params), ())
        return size / length * d


@dataclass(frozen=True)
class Applied(AbstractLoad):
    """An external force at a point of a body, and a torque on it.

    Args:
        name: name of the force.
        body: the body on which it acts.
        at: the point on the body [m].
        force: components [N], two or three values; None for none.
        torque: a value in the plane, three in space [N m]; by default none.
        follows: whether the components are along the axes of the body instead of the ground.
    """

    name: str
    body: Body
    at: Components
    force: Components | None
    _: KW_ONLY
    torque: Moment | None = None
    follows: bool = False

    kind = "applied force"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_on(self.part, "at", self.body, self.at)
        if self.torque is not None and not self.body.rotates:
            raise ValueError(f"{capital(self.part)} must have no `torque` on a point mass.")

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        """The body, after the ground unless the force follows the body."""
        start = () if self.follows else (replace(ground, dimension=self.body.dimension),)
        return *start, self.body

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The load on b; there is no opposite on a, since it is external."""
        a, b = motions[0], motions[-1]
        size = b.velocity.shape[0]
        force, torque = jnp.zeros_like(b.velocity), jnp.zeros_like(b.spin)
        if self.force is not None:
            force = a.frame.direction(read.vector(self.force, size))
        if self.torque is not None and size == 2:
            torque = read.number(self.torque)
        elif self.torque is not None:
            torque = a.frame.direction(read.vector(self.torque, 3))
        load = shifted((force, torque), b.frame.point(read.vector(self.at, size)), b.frame)
        return (load,) if len(motions) == 1 else ((jnp.zeros_like(force), 0 * load[1]), load)


class AbstractTorque(AbstractTurn, AbstractLoad):
    """A torque on b and its opposite on a, about the normal of the plane or an axis on a."""

    axis: Any

    @abc.abstractmethod
    def torque(self, spin: AnyArray, read: Reader) -> AnyArray:
        """The torque on b about the axis, from the spin of b relative to a about it."""

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        a, b = motions
        spin = b.spin - a.spin
        if self.axis is None:
            torque = self.torque(spin, read)
        else:
            u = pointing(a.frame, self.axis, read)
            torque = self.torque(u @ spin, read) * u
        no_force = jnp.zeros_like(a.velocity)
        return (no_force, -torque), (no_force, torque)


@dataclass(frozen=True)
class Torque(AbstractTorque):
    """A torque on b and the opposite torque on a, such as that of a motor.

    Args:
        value: the torque on b [N m].
        axis: in space, the direction of the torque on a.
    """

    value: Number
    _: KW_ONLY
    axis: Axis = None

    kind = "torque"

    def torque(self, spin: AnyArray, read: Reader) -> AnyArray:
        return read.number(self.value)


@dataclass(frozen=True)
class TorsionDamper(AbstractTorque):
    """A damper on the angular velocity of b relative to a.

    Args:
        damping: damping coefficient [N m s/rad].
        axis: in space, the axis of the damper on a.
    """

    _: KW_ONLY
    damping: Number
    axis: Axis = None

    kind = "torsion damper"

    def torque(self, spin: AnyArray, read: Reader) -> AnyArray:
        return -read.number(self.damping) * spin


def rotor(name: str, coordinate: str | Joint, inertia: Value) -> Rotors:
    """A rotor that turns with a coordinate, such as that of a motor: the energy a v^2 / 2.

    Args:
        name: name of the rotor.
        coordinate: name of the coordinate, such as "elbow.angle", or a joint that has only one.
        inertia: a [kg m^2], the moment of inertia times the square of the gear ratio; for a
            coordinate in metres a mass [kg].
    """
    part = f"rotor {name!r}"
    return Rotors(part, (_name(part, coordinate),), (non_negative(part, "inertia", inertia),))


def joint_spring(
    name: str, coordinate: str | Joint, *, stiffness: Value, rest: Value = 0.0
) -> CoordinateSprings:
    """A spring on a coordinate: the potential k (q - rest)^2 / 2, for angles of any size.

    Args:
        name: name of the spring.
        coordinate: name of the coordinate, such as "elbow.angle", or a joint that has only one.
        stiffness: stiffness k [N m/rad], for a coordinate in metres [N/m].
        rest: the coordinate at which there is no force [rad] or [m].
    """
    part = f"spring {name!r}"
    k, rest_value = number(part, "stiffness", stiffness), number(part, "rest", rest)
    return CoordinateSprings(part, (_name(part, coordinate),), (k,), (rest_value,))


def _name(part: str, coordinate: str | Joint) -> str:
    """The name of a coordinate, or of the only one of a joint."""
    if isinstance(coordinate, str):
        return coordinate
    names = [f"{coordinate.name}.{letter}" for letter in getattr(coordinate, "letters", ())]
    if len(names) != 1:
        raise ValueError(
            f"Argument `coordinate` of {part} must be the name of a coordinate, or a joint with "
            f"one; {coordinate.name!r} has {', '.join(names) or 'none'}."
        )
    return names[0]


gravity = Gravity
spring, damper = Spring, Damper
torsion_spring, torsion_damper, torque = TorsionSpring, TorsionDamper, Torque
applied_force, force_law = Applied, ForceLaw
