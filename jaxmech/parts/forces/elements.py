"""The elements of forces: potentials, which enter the Lagrangian, and loads, which do not.

Terms enter the Lagrangian too, as functions of coordinates by their names.
"""

import abc
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech import meshes
from jaxmech.geometry import SPRING, Solid, between, scaled
from jaxmech.parts.body import (
    AbstractBody,
    Frame,
    Load,
    Moving,
    pointing,
    separation,
    shifted,
    turn_about,
)
from jaxmech.parts.drawing import (
    DAMPER,
    BetweenPoints,
    Drawable,
    Drawing,
    Shapes,
    directions_across,
)
from jaxmech.parts.joints.checks import pinned
from jaxmech.parts.kinds import Number, Point, check_fields
from jaxmech.parts.values import (
    Reader,
    Value,
    Vector,
    are_numbers,
    unit,
    vector_with_rate,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.text import capital


class Coordinates(NamedTuple):
    """The coordinates q (n,) of a mechanism and their rates v (n,), by their names."""

    names: tuple[str, ...]
    q: Array
    v: Array

    def entries(self, part: str, names: Sequence[str]) -> tuple[Array, Array]:
        """Some coordinates and their rates, (k,) each."""
        for name in names:
            if name not in self.names:
                raise ValueError(
                    f"{capital(part)} must be on coordinates of the mechanism "
                    f"({', '.join(self.names)}), but is on {name!r}; correct the name."
                )
        indices = np.array([self.names.index(name) for name in names])
        return self.q[indices], self.v[indices]


@dataclass(frozen=True)
class AbstractForce(Drawable, abc.ABC):
    """A named force on bodies, a before b; `part` is its name in messages."""

    part: str
    bodies: tuple[AbstractBody, ...]


@dataclass(frozen=True)
class AbstractPotential(AbstractForce):
    """A force with a potential energy."""

    @abc.abstractmethod
    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential energy [J]."""


@dataclass(frozen=True)
class AbstractLoad(AbstractForce):
    """A force without a potential energy."""

    @abc.abstractmethod
    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force and torque at the reference point of each body."""


@dataclass(frozen=True)
class AbstractPairForce(BetweenPoints, AbstractForce):
    """A force between a point of a and a point of b.

    Args:
        name: name of the force.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
    """

    part: str = field(init=False)
    bodies: tuple[AbstractBody, ...] = field(init=False)
    name: InitVar[str]
    a: InitVar[AbstractBody]
    at_a: Point
    b: InitVar[AbstractBody]
    at_b: Point

    kind: ClassVar[str]  # as named in messages
    turning: ClassVar[bool] = False  # whether both bodies need an attitude

    def __post_init__(self, name: str, a: AbstractBody, b: AbstractBody) -> None:
        points = self.at_a, self.at_b
        pair = pinned(self.kind, name, (a, b), points, turning=self.turning)
        part, bodies, size, (at_a, at_b) = pair
        check_fields(self, part, size, part=part, bodies=bodies, at_a=at_a, at_b=at_b)


@dataclass(frozen=True)
class AbstractTerm(abc.ABC):
    """A named term of the Lagrangian in coordinates; `part` is its name in messages."""

    part: str
    coordinates: tuple[str, ...]

    @abc.abstractmethod
    def lagrangian(self, coordinates: Coordinates, read: Reader) -> Array:
        """The kinetic minus the potential energy [J]."""


@dataclass(frozen=True)
class Rotors(AbstractTerm):
    """The kinetic energies a v^2 / 2 of rotors that turn with coordinates."""

    inertias: Vector

    def lagrangian(self, coordinates: Coordinates, read: Reader) -> Array:
        """The sum of the kinetic energies."""
        v = coordinates.entries(self.part, self.coordinates)[1]
        return 0.5 * (read.vector(self.inertias, len(self.coordinates)) * v) @ v


@dataclass(frozen=True)
class CoordinateSprings(AbstractTerm):
    """The potentials k (q - rest)^2 / 2 of springs on coordinates."""

    stiffness: Vector
    rest: Vector

    def lagrangian(self, coordinates: Coordinates, read: Reader) -> Array:
        """The negative sum of the potentials."""
        size = len(self.coordinates)
        stretch = coordinates.entries(self.part, self.coordinates)[0] - read.vector(self.rest, size)
        return -0.5 * (read.vector(self.stiffness, size) * stretch) @ stretch


@dataclass(frozen=True)
class Gravity:
    """The weight of all bodies; `down` is None for -y in the plane and -z in space."""

    acceleration: Value
    down: Vector | None

    def energy(self, moment: AnyArray, read: Reader) -> AnyArray:
        """The potential energy [J] from mass times the position of the centre of mass."""
        g = read.number(self.acceleration)
        if self.down is None:
            return g * moment[-1]
        return -g * (unit(read, self.down, moment.shape[0]) @ moment)


@dataclass(frozen=True)
class Support(AbstractPotential):
    """The potential of a force that carries a part of the weight of a body."""

    mass: Value
    center: Vector  # of mass on the body
    acceleration: Vector  # that of gravity times the part that is carried

    @property
    def follows_weight(self) -> bool:
        """Whether the force changes with the weight, because parameters give both."""
        return not (isinstance(self.mass, float) and are_numbers(self.center))

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential, which is zero at the origin of the ground."""
        center = frames[0].point(read.vector(self.center, 3))
        return read.number(self.mass) * (read.vector(self.acceleration, 3) @ center)


@dataclass(frozen=True)
class Spring(AbstractPairForce, AbstractPotential):
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

    def shapes(self, drawing: Drawing) -> Shapes:
        """A coil."""
        ends = drawing.on(0, self.at_a), drawing.on(1, self.at_b)
        return {drawing.name: between(meshes.coil(), *ends, 1.4 * drawing.width, color=SPRING)}


@dataclass(frozen=True)
class TorsionSpring(AbstractPotential):
    """The potential k (angle of b relative to a - rest)^2 / 2; in space between -pi and pi."""

    stiffness: Value
    rest: Value
    axes: tuple[Vector, Vector] | None

    def energy(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The potential; in the plane the angle is that of the coordinates, with full turns."""
        a, b = frames
        if self.axes is None:
            angle = b.attitude - a.attitude
        else:
            cosine, sine = turn_about(frames, *self.axes, read)
            angle = jnp.arctan2(sine, cosine)
        return 0.5 * read.number(self.stiffness) * (angle - read.number(self.rest)) ** 2

    def shapes(self, drawing: Drawing) -> Shapes:
        """A spiral about the axis, whose outer end turns with the second body."""
        frame, sketch, read = drawing.frames[1], drawing.sketch, drawing.read
        size, mesh = 3.5 * sketch.width, meshes.spiral()
        if self.axes is None:
            axes, depth = jnp.asarray(frame.axes), 2.5 * sketch.height * max(1, len(sketch.levels))
        else:
            z = jnp.asarray(pointing(frame, self.axes[1], read))
            normals = directions_across(frame, self.axes[1], read)
            axes, depth = jnp.concatenate([normals, z[:, None]], axis=1), 2.5 * sketch.width
        vertices = scaled(mesh.vertices, (size, size, size), (0.0, 0.0, depth))
        return {drawing.name: Solid(drawing.point, axes, vertices, mesh.faces, SPRING)}


@dataclass(frozen=True)
class Damper(AbstractPairForce, AbstractLoad):
    """A damper between two points, which must never meet.

    Args:
        damping: damping coefficient [N s/m].
    """

    _: KW_ONLY
    damping: Number

    kind = "damper"

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force -c d (d . d') / (d . d) on b at its point, and the opposite on a."""
        a, b = motions
        p, p_rate = point_with_velocity(a, self.at_a, read)
        r, r_rate = point_with_velocity(b, self.at_b, read)
        d, rate = r - p, r_rate - p_rate
        force = -read.number(self.damping) * (d @ rate) / (d @ d) * d
        no_torque = jnp.zeros_like(a.spin)
        return shifted((-force, no_torque), p, a.frame), shifted((force, no_torque), r, b.frame)

    def shapes(self, drawing: Drawing) -> Shapes:
        """A dashpot."""
        ends = drawing.on(0, self.at_a), drawing.on(1, self.at_b)
        return {drawing.name: between(meshes.dashpot(), *ends, 1.1 * drawing.width, color=DAMPER)}


def point_with_velocity(motion: Moving, local: Vector, read: Reader) -> tuple[AnyArray, AnyArray]:
    """A point given on a body, and its velocity, including that along the body over time."""
    frame = motion.frame
    local, rate = vector_with_rate(read, local, frame.origin.shape[0])
    point = frame.point(local)
    velocity = motion.velocity_at(point)
    return point, velocity if isinstance(rate, np.ndarray) else velocity + frame.direction(rate)


@dataclass(frozen=True)
class Torque(AbstractLoad):
    """A given torque on b, minus c times the spin of b relative to a, and the opposite on a."""

    torque: Value
    damping: Value
    axis: Vector | None

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The torque about the normal of the plane, or about an axis on a."""
        a, b = motions
        spin = b.spin - a.spin
        drive, damping = read.number(self.torque), read.number(self.damping)
        if self.axis is None:
            torque = drive - damping * spin
        else:
            u = pointing(a.frame, self.axis, read)
            torque = (drive - damping * (u @ spin)) * u
        no_force = jnp.zeros_like(a.velocity)
        return (no_force, -torque), (no_force, torque)


@dataclass(frozen=True)
class Applied(AbstractLoad):
    """A given force at a point of b, along the axes of a."""

    at_b: Vector
    force: Vector

    @property
    def marks(self) -> tuple[tuple[int, Vector], ...]:
        """The point on b."""
        return ((-1, self.at_b),)

    def loads(self, motions: tuple[Moving, ...], read: Reader) -> tuple[Load, ...]:
        """The force on b; there is no opposite force on a, since it is external."""
        a, b = motions[0], motions[-1]
        size = b.velocity.shape[0]
        force = a.frame.direction(read.vector(self.force, size))
        point = b.frame.point(read.vector(self.at_b, size))
        load = shifted((force, jnp.zeros_like(b.spin)), point, b.frame)
        if len(motions) == 1:
            return (load,)
        return (jnp.zeros_like(force), jnp.zeros_like(b.spin)), load
