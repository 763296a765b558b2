"""Rigid bodies in the plane and in space.

    body          coordinates                          angular velocity
    planar_body   x, y [m], angle [rad]                angle'
    spatial_body  x, y, z [m], e0, e1, e2, e3          2 vec(e' conj(e))

x, y, z are those of the reference point; the kinetic energy about it stands in `mass.py`. Positions
and angular velocities are along the axes of the ground, and vec(e) is (e1, e2, e3). The quaternion
e turns components along the axes of the body into those of the ground. Its unit length is a
constraint that comes with the body, and M is singular along e: stretching e costs no energy.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start, entries
from jaxmech.parts.mass_properties import Mass, mass_of
from jaxmech.parts.values import Reader, Value, Vector
from jaxmech.parts.vectors import (
    apply,
    cross,
    plane_rotation,
    quaternion_rate,
    rotation,
    spin_in_body,
    spin_in_space,
    turned,
)


@dataclass(frozen=True)
class PlanarBody(AbstractBody):
    """A rigid body in the plane; made by `planar_body`."""

    properties: Mass

    @property
    def dimension(self) -> int:
        """2."""
        return 2

    @property
    def letters(self) -> tuple[str, ...]:
        """x, y, angle."""
        return ("x", "y", "angle")

    def frame(self, q: Array) -> Frame:
        """At (x, y), turned by the angle."""
        return Frame(q[:2], plane_rotation(q[2]), q[2])

    def moving(self, q: Array, v: Array) -> Moving:
        """With velocity (x', y') and spin angle'."""
        return Moving(self.frame(q), v[:2], v[2])

    def kinetic(self, q: Array, v: Array, read: Reader) -> Array:
        """K = m v . v / 2 + w v . (turned S) + I w^2 / 2."""
        m, S = self.properties.static(read, 2)
        inertia = self.properties.planar_inertia(read)
        energy = 0.5 * m * (v[:2] @ v[:2]) + 0.5 * inertia * v[2] ** 2
        if self.properties.is_central:
            return energy
        return energy + v[2] * (v[:2] @ turned(self.frame(q).direction(S)))

    def moment(self, q: Array, read: Reader) -> Array:
        """M r + R S."""
        m, S = self.properties.static(read, 2)
        at_reference = m * q[:2]
        if self.properties.is_central:
            return at_reference
        return at_reference + self.frame(q).direction(S)

    def generalized(self, q: Array, load: Load) -> Array:
        """The force and the torque themselves."""
        force, torque = load
        return jnp.stack([force[0], force[1], torque])

    def load(self, q: Array, generalized: Array) -> Load:
        """The generalized force itself."""
        return generalized[:2], generalized[2]

    def start(self, start: Start) -> tuple[Array, Array]:
        """Position and angle."""
        r, u = (entries(self, k, getattr(start, k), (2,)) for k in ("position", "velocity"))
        angle, w = (entries(self, k, getattr(start, k), ()) for k in ("attitude", "spin"))
        return jnp.append(r, angle), jnp.append(u, w)


@dataclass(frozen=True)
class SpatialBody(AbstractBody):
    """A rigid body in space; made by `spatial_body`."""

    properties: Mass

    @property
    def dimension(self) -> int:
        """3."""
        return 3

    @property
    def letters(self) -> tuple[str, ...]:
        """x, y, z and a quaternion."""
        return ("x", "y", "z", "e0", "e1", "e2", "e3")

    def frame(self, q: Array) -> Frame:
        """At (x, y, z), turned by the quaternion."""
        return Frame(q[:3], rotation(q[3:]), q[3:])

    def moving(self, q: Array, v: Array) -> Moving:
        """With velocity (x', y', z') and spin 2 vec(e' conj(e))."""
        return Moving(self.frame(q), v[:3], spin_in_space(q[3:], v[3:]))

    def kinetic(self, q: Array, v: Array, read: Reader) -> Array:
        """K = m v . v / 2 + v . (w x S) + w . I w / 2 with w along the axes of the body."""
        m, S = self.properties.static(read, 3)
        w = spin_in_body(q[3:], v[3:])
        inertia = self.properties.spatial_inertia(read)
        energy = 0.5 * m * (v[:3] @ v[:3]) + 0.5 * (w @ apply(inertia, w))
        if self.properties.is_central:
            return energy
        return energy + v[:3] @ self.frame(q).direction(cross(w, S))

    def moment(self, q: Array, read: Reader) -> Array:
        """M r + R S."""
        m, S = self.properties.static(read, 3)
        at_reference = m * q[:3]
        if self.properties.is_central:
            return at_reference
        return at_reference + self.frame(q).direction(S)

    def generalized(self, q: Array, load: Load) -> Array:
        """The force, and 2 (0, torque) e, which does the work of the torque."""
        force, torque = load
        return jnp.concatenate([force, 4 * quaternion_rate(q[3:], torque)])

    def load(self, q: Array, generalized: Array) -> Load:
        """The force, and vec(Q_e conj(e)) / 2; what stretches e is left out."""
        return generalized[:3], 0.25 * spin_in_space(q[3:], generalized[3:])

    def start(self, start: Start) -> tuple[Array, Array]:
        """Position and quaternion, e' = (0, w) e / 2."""
        attitude = (1.0, 0.0, 0.0, 0.0) if start.attitude is None else start.attitude
        e = entries(self, "attitude", attitude, (4,))
        e = e / jnp.sqrt(e @ e)
        r, u, w = (
            entries(self, k, getattr(start, k), (3,)) for k in ("position", "velocity", "spin")
        )
        return jnp.concatenate([r, e]), jnp.concatenate([u, quaternion_rate(e, w)])


def planar_body(
    name: str,
    *,
    mass: Value,
    inertia: Value,
    center: Vector | None = None,
    static_moment: Vector | None = None,
) -> PlanarBody:
    """A rigid body in the plane, with the coordinates `name.x`, `name.y` [m], `name.angle` [rad].

    Every value is a number, the name of a parameter or a function of (t, params). The reference
    point is the centre of mass unless `center` or `static_moment` says where that is.

    Args:
        name: of the body.
        mass: [kg].
        inertia: [kg m^2] about the centre of mass; with `static_moment` about the reference point.
        center: the centre of mass on the body [m], two values.
        static_moment: mass times centre of mass [kg m], two values.

    Raises:
        ValueError: a shape or sign is wrong, or both `center` and `static_moment` are given.
        TypeError: something is no value.

    Example:
        >>> rod = planar_body("rod", mass="m", inertia=lambda t, p: p["m"] * p["l"] ** 2 / 12)
        >>> rod.letters
        ('x', 'y', 'angle')
    """
    part = f"body {name!r}"
    return PlanarBody(name, mass_of(part, 2, mass, inertia, center, static_moment))


def spatial_body(
    name: str,
    *,
    mass: Value,
    inertia: Any,
    center: Vector | None = None,
    static_moment: Vector | None = None,
) -> SpatialBody:
    """A rigid body in space, with the coordinates `name.x`, `.y`, `.z` [m] and `name.e0` ... `.e3`.

    Args:
        name: of the body; its quaternion has the constraint `name.unit`.
        mass: [kg].
        inertia: [kg m^2] along the axes of the body, three principal moments or a (3, 3) matrix,
            about the centre of mass; with `static_moment` about the reference point.
        center: the centre of mass on the body [m], three values.
        static_moment: mass times centre of mass [kg m], three values.

    Raises:
        ValueError: a shape or sign is wrong, or both `center` and `static_moment` are given.
        TypeError: something is no value.

    Example:
        >>> spatial_body("top", mass=2.0, inertia=(0.1, 0.1, 0.3), center=(0, 0, "l")).dimension
        3
    """
    part = f"body {name!r}"
    return SpatialBody(name, mass_of(part, 3, mass, inertia, center, static_moment))
