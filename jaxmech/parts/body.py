"""What every body can say: where it is, how it moves, its energy, and forces on its coordinates.

A body has a reference point, the origin of the axes that are fixed to it. Points on a body and
directions on it are given along these axes; everything else is along the axes of the ground.
"""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import Numbers, apply, cross, turned


class Frame(NamedTuple):
    """Where a body is, d = 2 in the plane and 3 in space.

    Attributes:
        origin: its reference point, shape (d,).
        axes: turns components along the axes of the body into those of the ground, shape (d, d).
        attitude: the angle, shape (), or the quaternion, shape (4,).

    Example:
        >>> Frame(jnp.ones(2), jnp.eye(2), jnp.zeros(())).point(jnp.array([0.5, 0.0]))
        Array([1.5, 1. ], dtype=float64)
    """

    origin: Numbers
    axes: Numbers
    attitude: Numbers

    def point(self, local: Numbers) -> Numbers:
        """Where a point of the body is, (d,)."""
        if isinstance(local, np.ndarray) and not local.any():
            return self.origin
        return self.origin + apply(self.axes, local)

    def direction(self, local: Numbers) -> Numbers:
        """A direction on the body along the axes of the ground, (d,)."""
        return apply(self.axes, local)

    def components(self, direction: Numbers) -> Numbers:
        """A direction along the axes of the ground along those of the body, (d,)."""
        return apply(self.axes.T, direction)


class Moving(NamedTuple):
    """Where a body is and how it moves.

    Attributes:
        frame: where it is.
        velocity: of the reference point, shape (d,).
        spin: angular velocity, shape () in the plane and (3,) in space.

    Example:
        >>> frame = Frame(jnp.zeros(2), jnp.eye(2), jnp.zeros(()))
        >>> wheel = Moving(frame, jnp.array([3.0, 0.0]), jnp.array(-6.0))
        >>> print(wheel.velocity_at(jnp.array([0.0, -0.5])) + 0)
        [0. 0.]
    """

    frame: Frame
    velocity: Numbers
    spin: Numbers

    def velocity_at(self, point: Numbers) -> Numbers:
        """Velocity of the point of the body that is there now, (d,)."""
        arm = point - self.frame.origin
        if arm.shape == (2,):
            return self.velocity + self.spin * turned(arm)
        return self.velocity + cross(self.spin, arm)


class Start(NamedTuple):
    """Where a body is at the start and how it moves, for `Mechanism.guess`.

    Attributes:
        position: of the reference point [m], shape (d,).
        attitude: angle [rad] in the plane, quaternion (4,), scalar part first, in space; by
            default that of the ground. A quaternion is made a unit.
        velocity: of the reference point [m/s], shape (d,); by default at rest.
        spin: angular velocity [rad/s], a number or shape (3,) along the axes of the ground.

    Example:
        >>> Start((0.5, 0.0), attitude=0.1)
        Start(position=(0.5, 0.0), attitude=0.1, velocity=None, spin=None)
    """

    position: Any
    attitude: Any = None
    velocity: Any = None
    spin: Any = None


Load = tuple[Numbers, Numbers]  # force (d,) [N] and torque about the reference point [N m]


@dataclass(frozen=True)
class AbstractBody(abc.ABC):
    """A body with a name and coordinates of its own.

    Attributes:
        name: of the body; its coordinates are `name.x` and so on.
    """

    name: str

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """2 in the plane, 3 in space, 0 for the ground, which is both."""

    @property
    @abc.abstractmethod
    def letters(self) -> tuple[str, ...]:
        """The coordinates without the name of the body."""

    @property
    def rotates(self) -> bool:
        """Whether it has an attitude."""
        return True

    @property
    def has_norm(self) -> bool:
        """Whether its attitude is a quaternion, which must stay a unit."""
        return "e0" in self.letters

    @abc.abstractmethod
    def moving(self, q: Array, v: Array) -> Moving:
        """Where it is and how it moves, from its own coordinates and their velocities."""

    @abc.abstractmethod
    def frame(self, q: Array) -> Frame:
        """Where it is."""

    @abc.abstractmethod
    def kinetic(self, q: Array, v: Array, read: Reader) -> Array:
        """Kinetic energy [J]."""

    @abc.abstractmethod
    def moment(self, q: Array, read: Reader) -> Array:
        """Mass times the position of the centre of mass [kg m], (d,)."""

    @abc.abstractmethod
    def generalized(self, q: Array, load: Load) -> Array:
        """The generalized force of a force at, and a torque about, the reference point."""

    @abc.abstractmethod
    def load(self, q: Array, generalized: Array) -> Load:
        """The force and the torque that a generalized force stands for."""

    @abc.abstractmethod
    def start(self, start: Start) -> tuple[Array, Array]:
        """Its own coordinates and velocities at the start."""


def shifted(load: Load, point: Numbers, frame: Frame) -> Load:
    """A force at a point and a torque, with the force moved to the reference point.

    Example:
        >>> frame = Frame(jnp.zeros(2), jnp.eye(2), jnp.zeros(()))
        >>> force, torque = jnp.array([0.0, 2.0]), jnp.zeros(())
        >>> print(shifted((force, torque), jnp.array([3.0, 0.0]), frame)[1])
        6.0
    """
    force, torque = load
    arm = point - frame.origin
    if arm.shape == (2,):
        return force, torque + turned(arm) @ force
    return force, torque + cross(arm, force)


def entries(body: AbstractBody, what: str, value: Any, shape: tuple[int, ...]) -> Array:
    """What a `Start` says as an array of a shape, zeros where it says nothing."""
    if value is None:
        return jnp.zeros(shape)
    found = 1.0 * jnp.asarray(value)
    if found.shape != shape:
        raise ValueError(
            f"The start of body {body.name!r} must have `{what}` of shape {shape}, but it has "
            f"{found.shape}; for a batch use `jax.vmap`."
        )
    return found
