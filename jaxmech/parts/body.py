"""Bodies: their interface, and those without an attitude, the ground and point masses.

A body has a reference point, the origin of the axes that are fixed to it. Points on a body and
directions on it are given along these axes; everything else is along the axes of the ground.

A point mass has the coordinates x, y and in space z [m], and the kinetic energy m v . v / 2.

`separation` to `turn_about` are vectors between points and directions that are fixed to bodies.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.values import Reader, Value, Vector, non_negative, require_sign, unit
from jaxmech.parts.vectors import apply, cross, moment, normals, quarter_turn
from jaxmech.utils.arrays import AnyArray


class Frame(NamedTuple):
    """Position and attitude of a body, with d = 2 in the plane and 3 in space.

    Attributes:
        origin: the reference point, shape (d,).
        axes: matrix from components along the body's axes to those of the ground, shape (d, d).
        attitude: the angle, shape (), or the quaternion, shape (4,).
    """

    origin: AnyArray
    axes: AnyArray
    attitude: AnyArray

    def point(self, local: AnyArray) -> AnyArray:
        """The position of a point of the body, (d,)."""
        if isinstance(local, np.ndarray) and not local.any():
            return self.origin  # saves a rotation in every equation
        return self.origin + apply(self.axes, local)

    def direction(self, local: AnyArray) -> AnyArray:
        """A direction on the body, along the axes of the ground, (d,)."""
        return apply(self.axes, local)

    def normals(self, local: AnyArray) -> list[AnyArray]:
        """The `normals` of a unit vector on the body, along the axes of the ground, (d,) each."""
        return [self.direction(normal) for normal in normals(local)]

    def components(self, direction: AnyArray) -> AnyArray:
        """The components of a direction in the ground along the axes of the body, (d,)."""
        return apply(self.axes.T, direction)


class Moving(NamedTuple):
    """A frame with the velocity of its reference point, (d,), and its spin, () or (3,)."""

    frame: Frame
    velocity: AnyArray
    spin: AnyArray

    def velocity_at(self, point: AnyArray) -> AnyArray:
        """The velocity of the body at a point of space, (d,)."""
        arm = point - self.frame.origin
        if arm.shape == (2,):
            return self.velocity + self.spin * quarter_turn(arm)
        return self.velocity + cross(self.spin, arm)


class Start(NamedTuple):
    """The initial position, attitude and velocities of a body, for `Mechanism.guess`.

    Attributes:
        position: position of the reference point [m], shape (d,).
        attitude: angle [rad] in the plane, quaternion (4,), scalar part first, in space; by
            default that of the ground. Quaternions are normalized.
        velocity: velocity of the reference point [m/s], shape (d,); by default at rest.
        spin: angular velocity [rad/s], a number or shape (3,) along the axes of the ground.
    """

    position: Any
    attitude: Any = None
    velocity: Any = None
    spin: Any = None


Load = tuple[AnyArray, AnyArray]  # force (d,) [N] and torque about the reference point [N m]


@dataclass(frozen=True)
class AbstractBody(abc.ABC):
    """A body with a name and its own coordinates, which are called `name.x` and so on.

    The ground has a frame alone, no energy and no forces.
    """

    name: str

    @property
    def part(self) -> str:
        """The name in messages."""
        return f"body {self.name!r}"

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """The dimension: 2 in the plane, 3 in space, 0 for a ground that may be in either."""

    @property
    @abc.abstractmethod
    def letters(self) -> tuple[str, ...]:
        """The names of the coordinates without the prefix of the body."""

    @property
    def rotates(self) -> bool:
        """Whether the body has an attitude."""
        return True

    @property
    def has_norm(self) -> bool:
        """Whether the attitude is a quaternion, which must have unit norm."""
        return "e0" in self.letters

    @abc.abstractmethod
    def frame(self, q: Array) -> Frame:
        """The position and attitude, from the coordinates of the body."""

    @abc.abstractmethod
    def moving(self, q: Array, v: Array) -> Moving:
        """The position, attitude and velocities of the body."""

    @abc.abstractmethod
    def spin(self, q: Array, v: Array) -> AnyArray:
        """The spin along the axes of the body, from its coordinates and their rates."""

    @property
    def is_central(self) -> bool:
        """Whether the reference point is the centre of mass."""
        return True

    def kinetic(
        self, velocity: AnyArray, spin: AnyArray, read: Reader, frame: Frame | None = None
    ) -> AnyArray:
        """The kinetic energy [J], m v . v / 2, v . (w x S) and w . I w / 2.

        Velocity and spin are along the axes of the body; with its frame the velocity is along the
        axes of the ground.
        """
        m, S, inertia = self.inertia(read)
        energy = 0.5 * m * (velocity @ velocity)
        if not self.rotates:
            return energy
        is_planar = self.dimension == 2
        turning = inertia * spin**2 if is_planar else spin @ apply(inertia, spin)
        energy = energy + 0.5 * turning
        if self.is_central:
            return energy
        if is_planar:
            arm = S if frame is None else frame.direction(S)
            return energy + spin * (velocity @ quarter_turn(arm))
        momentum = cross(spin, S)
        return energy + velocity @ (momentum if frame is None else frame.direction(momentum))

    def inertia(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Mass (), static moment (d,) and inertia about the reference point, () or (3, 3)."""
        raise NotImplementedError

    def moment(self, frame: Frame, read: Reader) -> AnyArray:
        """The mass times the position of the centre of mass [kg m], m r + R S, (d,)."""
        m, S, _ = self.inertia(read)
        at_reference = m * frame.origin
        return at_reference if self.is_central else at_reference + frame.direction(S)

    def generalized(self, q: Array, load: Load) -> Array:
        """The generalized force of a force at the reference point and a torque about it."""
        raise NotImplementedError

    def start(self, start: Start) -> tuple[Array, Array]:
        """The initial coordinates and velocities of the body."""
        raise NotImplementedError

    def require(self, read: Reader) -> None:  # noqa: B027
        """Raise a ValueError for a known mass or inertia that nothing can have."""


def shifted(load: Load, point: AnyArray, frame: Frame) -> Load:
    """Move a force from a point to the reference point, with the corresponding torque."""
    force, torque = load
    return force, torque + moment(point - frame.origin, force)


def sum_of_loads(first: Load, second: Load) -> Load:
    """The sum of two loads on a body."""
    return first[0] + second[0], first[1] + second[1]


def entries(body: AbstractBody, start: Start, field: str, shape: tuple[int, ...]) -> Array:
    """One field of a `Start` as an array of a shape, zeros by default."""
    value = getattr(start, field)
    if value is None:
        return jnp.zeros(shape)
    array = 1.0 * jnp.asarray(value)
    if array.shape != shape:
        raise ValueError(
            f"The start of {body.part} must have `{field}` of shape {shape}, but it has "
            f"{array.shape}; for a batch use `jax.vmap`."
        )
    return array


@dataclass(frozen=True)
class Ground(AbstractBody):
    """The body at rest, in the dimension of its partners; 0 where that is not known."""

    name: str = "ground"
    dimension: int = 0

    @property
    def letters(self) -> tuple[str, ...]:
        return ()

    def frame(self, q: Array) -> Frame:
        """The frame at the origin; in numpy, so that lanes fold it."""
        d, dtype = self.dimension, q.dtype
        attitude = np.zeros((), dtype) if d == 2 else np.eye(4, dtype=dtype)[0]
        return Frame(np.zeros(d, dtype), np.eye(d, dtype=dtype), attitude)

    def moving(self, q: Array, v: Array) -> Moving:
        return Moving(self.frame(q), np.zeros(self.dimension, q.dtype), self.spin(q, v))

    def spin(self, q: Array, v: Array) -> AnyArray:
        return np.zeros(() if self.dimension == 2 else (3,), q.dtype)


@dataclass(frozen=True)
class PointMass(AbstractBody):
    """A point with mass, in the plane or in space; made by `point_mass`."""

    mass: Value
    dimension: int = 2

    @property
    def letters(self) -> tuple[str, ...]:
        return ("x", "y", "z")[: self.dimension]

    @property
    def rotates(self) -> bool:
        return False

    def frame(self, q: Array) -> Frame:
        return Ground(dimension=self.dimension).frame(q)._replace(origin=q)

    def moving(self, q: Array, v: Array) -> Moving:
        return Moving(self.frame(q), v, self.spin(q, v))

    def spin(self, q: Array, v: Array) -> AnyArray:
        return Ground(dimension=self.dimension).spin(q, v)

    def inertia(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        mass, shape = read.number(self.mass), () if self.dimension == 2 else (3, 3)
        return mass, np.zeros(self.dimension, mass.dtype), np.zeros(shape, mass.dtype)

    def generalized(self, q: Array, load: Load) -> Array:
        """The force; a torque has no effect on a point."""
        return load[0]

    def start(self, start: Start) -> tuple[Array, Array]:
        if start.attitude is not None or start.spin is not None:
            raise ValueError(
                f"The start of {self.part} must have neither `attitude` nor `spin`, since "
                "it is a point mass; leave them out."
            )
        shape = (self.dimension,)
        position = entries(self, start, "position", shape)
        return position, entries(self, start, "velocity", shape)

    def require(self, read: Reader) -> None:
        require_sign(read.part, "mass", read.number(self.mass), zero=True)


ground = Ground()


def point_mass(name: str, *, mass: Value, dimension: int = 2) -> PointMass:
    """A point with mass.

    Args:
        name: name of the point; its coordinates are `name.x`, `name.y` and in space `name.z` [m].
        mass: mass [kg]; a number, the name of a parameter or a function of (t, params).
        dimension: 2 in the plane, 3 in space.

    Raises:
        ValueError: if the dimension is neither 2 nor 3, or the mass is negative.

    Example:
        >>> point_mass("bob", mass="m", dimension=3).letters
        ('x', 'y', 'z')
    """
    if dimension not in (2, 3):
        raise ValueError(
            f"Body {name!r} must have `dimension` 2 (plane) or 3 (space), but has {dimension!r}."
        )
    return PointMass(name, non_negative(f"body {name!r}", "mass", mass), dimension)


Frames = tuple[Frame, ...]


def separation(frames: Frames, at_a: Vector, at_b: Vector, read: Reader) -> AnyArray:
    """The vector from the point on a to the point on b, along the axes of the ground, (d,)."""
    a, b = frames
    size = a.origin.shape[0]
    return b.point(read.vector(at_b, size)) - a.point(read.vector(at_a, size))


def pointing(frame: Frame, local: Vector, read: Reader) -> AnyArray:
    """A unit vector fixed to a body, along the axes of the ground, (d,)."""
    return frame.direction(unit(read, local, frame.origin.shape[0]))


def across(frame: Frame, axis: Vector, read: Reader) -> AnyArray:
    """The normals of an axis of a body, along the axes of the body, (1, 2) or (2, 3)."""
    return normals(unit(read, axis, frame.origin.shape[0]))


def along(frame: Frame, axis: Vector, direction: AnyArray, read: Reader) -> AnyArray:
    """The component of a direction along an axis of a body."""
    return unit(read, axis, frame.origin.shape[0]) @ frame.components(direction)


def turn_about(frames: Frames, axis_a: Vector, axis_b: Vector, read: Reader) -> tuple[Array, Array]:
    """Cosine and sine of the angle from the first normal of a's axis to that of b's."""
    a, b = frames
    w = b.direction(across(b, axis_b, read)[0])
    cosine, sine = apply(across(a, axis_a, read), a.components(w))
    return cosine, sine
