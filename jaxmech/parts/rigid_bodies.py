"""Rigid bodies in the plane and in space, with their mass properties.

    body          coordinates                          angular velocity
    planar_body   x, y [m], angle [rad]                angle'
    spatial_body  x, y, z [m], e0, e1, e2, e3          2 vec(e' conj(e))

x, y, z are those of the reference point P. Positions and angular velocities are along the axes of
the ground, and vec(e) is (e1, e2, e3). The quaternion e turns components along the axes of the body
into those of the ground. Its unit length is a constraint that comes with the body, and M is
singular along e: stretching e costs no energy.

With c from P to the centre of mass, along the axes of the body,

    S = m c                                 static moment [kg m]
    I = I_C + m (c . c - c c^T)             inertia about P [kg m^2], in the plane I_C + m c . c
    K = m v_P . v_P / 2 + v_P . (w x S) + w . I w / 2

This is the form with the matrices m, S_P, I_P of "Properties of the Lagrangian approach to
classical mechanics", section 5.5.1, K = v_P . (m v_P + S_P w) / 2 + w . (S_P^T v_P + I_P w) / 2:
its S_P w is w x S, so that S_P = -[S]x = [S]x^T, where [S]x a = S x a.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start, entries
from jaxmech.parts.mass import Mass, mass_of
from jaxmech.parts.values import Reader, Value, Vector
from jaxmech.parts.vectors import (
    plane_rotation,
    quaternion_rate,
    rotation,
    spin_in_body,
    spin_in_space,
)
from jaxmech.parts.visuals import Visual, visuals_of
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known


@dataclass(frozen=True)
class AbstractRigidBody(AbstractBody):
    """A body with mass properties, and what it looks like; () for a link between its joints."""

    properties: Mass
    visual: tuple[Visual, ...] = field(default=(), repr=False, compare=False)

    def require(self, read: Reader) -> None:
        """Raise for a known mass or inertia that no body can have."""
        self.properties.require(self.dimension, read)

    def inertia(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        """The mass properties about the reference point."""
        return self.properties.about_reference(read, self.dimension)

    @property
    def is_central(self) -> bool:
        """Whether the reference point is the centre of mass."""
        return self.properties.is_central


@dataclass(frozen=True)
class PlanarBody(AbstractRigidBody):
    """A rigid body in the plane; made by `planar_body`."""

    dimension: ClassVar[int] = 2
    letters: ClassVar[tuple[str, ...]] = ("x", "y", "angle")

    def frame(self, q: Array) -> Frame:
        """The frame at (x, y), rotated by the angle."""
        return Frame(q[:2], plane_rotation(q[2]), q[2])

    def moving(self, q: Array, v: Array) -> Moving:
        """The frame with velocity (x', y') and spin angle'."""
        return Moving(self.frame(q), v[:2], v[2])

    def spin(self, q: Array, v: Array) -> AnyArray:
        """The spin angle'."""
        return v[2]

    def generalized(self, q: Array, load: Load) -> Array:
        """The force and the torque, which are the generalized force."""
        force, torque = load
        return jnp.stack([force[0], force[1], torque])

    def start(self, start: Start) -> tuple[Array, Array]:
        """The initial position and angle, with their rates."""
        r, u = (entries(self, start, field, (2,)) for field in ("position", "velocity"))
        angle, w = (entries(self, start, field, ()) for field in ("attitude", "spin"))
        return jnp.append(r, angle), jnp.append(u, w)


@dataclass(frozen=True)
class SpatialBody(AbstractRigidBody):
    """A rigid body in space; made by `spatial_body`."""

    dimension: ClassVar[int] = 3
    letters: ClassVar[tuple[str, ...]] = ("x", "y", "z", "e0", "e1", "e2", "e3")

    def frame(self, q: Array) -> Frame:
        """The frame at (x, y, z), rotated by the quaternion."""
        return Frame(q[:3], rotation(q[3:]), q[3:])

    def moving(self, q: Array, v: Array) -> Moving:
        """The frame with velocity (x', y', z') and spin 2 vec(e' conj(e))."""
        return Moving(self.frame(q), v[:3], spin_in_space(q[3:], v[3:]))

    def spin(self, q: Array, v: Array) -> AnyArray:
        """The spin 2 vec(conj(e) e')."""
        return spin_in_body(q[3:], v[3:])

    def generalized(self, q: Array, load: Load) -> Array:
        """The force, and 2 (0, torque) e, which does the work of the torque."""
        force, torque = load
        return jnp.concatenate([force, 4 * quaternion_rate(q[3:], torque)])

    def start(self, start: Start) -> tuple[Array, Array]:
        """The initial position and quaternion, and their rates with e' = (0, w) e / 2."""
        e = jnp.array([1.0, 0.0, 0.0, 0.0])
        if start.attitude is not None:
            e = entries(self, start, "attitude", (4,))
            if is_known(e) and not e.any():
                raise ValueError(
                    f"The start of body {self.name!r} must have a quaternion other than zero as "
                    "`attitude`; without rotation it is (1, 0, 0, 0)."
                )
            e = e / jnp.sqrt(e @ e)
        r, u, w = (entries(self, start, k, (3,)) for k in ("position", "velocity", "spin"))
        return jnp.concatenate([r, e]), jnp.concatenate([u, quaternion_rate(e, w)])


def planar_body(
    name: str,
    *,
    mass: Value,
    inertia: Value,
    center: Vector | None = None,
    static_moment: Vector | None = None,
    visual: Any = None,
) -> PlanarBody:
    """A rigid body in the plane, with the coordinates `name.x`, `name.y` [m], `name.angle` [rad].

    Every value is a number, the name of a parameter or a function of (t, params). The reference
    point is the centre of mass unless `center` or `static_moment` is given.

    Args:
        name: name of the body.
        mass: mass [kg].
        inertia: about the centre of mass, or the reference point with `static_moment` [kg m^2].
        center: the centre of mass on the body [m], two values.
        static_moment: mass times centre of mass [kg m], two values.
        visual: what it looks like, a `Visual` or several; by default a link between its joints.

    Raises:
        ValueError: if a shape or sign is wrong, or both `center` and `static_moment` are given.
        TypeError: if an argument is not a value.

    Example:
        >>> rod = planar_body("rod", mass="m", inertia=lambda t, p: p["m"] * p["l"] ** 2 / 12)
        >>> rod.letters
        ('x', 'y', 'angle')
    """
    properties = mass_of(name, 2, mass, inertia, center, static_moment)
    return PlanarBody(name, properties, visuals_of(name, visual))


def spatial_body(
    name: str,
    *,
    mass: Value,
    inertia: Any,
    center: Vector | None = None,
    static_moment: Vector | None = None,
    visual: Any = None,
) -> SpatialBody:
    """A rigid body in space, with the coordinates `name.x`, `.y`, `.z` [m] and `name.e0` ... `.e3`.

    Args:
        name: name of the body; its quaternion has the constraint `name.unit`.
        mass: mass [kg].
        inertia: [kg m^2] along the axes of the body, three principal moments or a (3, 3) matrix,
            about the centre of mass; with `static_moment` about the reference point.
        center: the centre of mass on the body [m], three values.
        static_moment: mass times centre of mass [kg m], three values.
        visual: what it looks like, a `Visual` or several; by default a link between its joints.

    Raises:
        ValueError: if a shape or sign is wrong, a principal moment about the centre of mass exceeds
            the sum of the other two, or both `center` and `static_moment` are given.
        TypeError: if an argument is not a value.

    Example:
        >>> spatial_body("top", mass=2.0, inertia=(0.1, 0.1, 0.15), center=(0, 0, "l")).dimension
        3
    """
    properties = mass_of(name, 3, mass, inertia, center, static_moment)
    return SpatialBody(name, properties, visuals_of(name, visual))
