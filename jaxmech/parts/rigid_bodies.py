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
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Load, Moving, Start, entries
from jaxmech.parts.solids import Visual, visuals_of
from jaxmech.parts.values import (
    Reader,
    Value,
    Vector,
    are_numbers,
    non_negative,
    number,
    require_sign,
    vector,
)
from jaxmech.parts.vectors import (
    plane_rotation,
    quaternion_rate,
    rotation,
    spin_in_body,
    spin_in_space,
)
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.checks import is_known
from jaxmech.utils.text import capital

ROUNDING = 0.01  # of the largest moment, that data of a body may be off


@dataclass(frozen=True)
class Mass:
    """Mass properties as given; `inertia` is about P only if there is no `center`."""

    mass: Value
    inertia: Any  # a number in the plane; in space three principal moments or a matrix
    center: Vector | None = None
    static_moment: Vector | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all values are numbers, so that they are known without parameters."""
        rows = self.inertia if isinstance(self.inertia, tuple) else (self.inertia,)
        points = [point for point in (self.center, self.static_moment) if point is not None]
        values = self.mass, *rows, *points
        return all(isinstance(value, float) or are_numbers(value) for value in values)

    def require(self, size: int, read: Reader) -> None:
        """Raise for a known mass or inertia that no body can have.

        The principal moments about the centre of mass satisfy A + B >= C, since each is an integral
        over two of the three squares x^2, y^2 and z^2.
        """
        mass, static, inertia = self.about_reference(read, size)
        if not is_known((mass, static, inertia)):
            return
        require_sign(read.part, "mass", mass, zero=True)
        mass, static, inertia = (np.asarray(x, float) for x in (mass, static, inertia))
        if not np.isfinite(static).all() or not np.isfinite(inertia).all():
            raise ValueError(
                f"{capital(read.part)} must have finite mass properties, but its static moment is "
                f"{static.tolist()} and its inertia {inertia.tolist()}; correct them."
            )
        center = static / mass if mass else np.zeros(size)
        if size == 3:
            moved = (center @ center) * np.eye(3) - np.outer(center, center)
            moments = np.linalg.eigvalsh(inertia - mass * moved)
            tolerance = ROUNDING * np.abs(moments).max()
            fault = "none negative" if moments[0] < -tolerance else ""
            if not fault and moments[0] + moments[1] < moments[2] - tolerance:
                fault = "none above the sum of the other two"
            if fault:
                listed = ", ".join(f"{moment:.4g}" for moment in moments)
                raise ValueError(
                    f"{capital(read.part)} must have an `inertia` whose principal moments about "
                    f"the centre of mass are those of a body, {fault}, but they are {listed} "
                    "kg m^2; correct the inertia, or the point that it is about."
                )
        elif inertia < (1 - ROUNDING) * mass * (center @ center):
            raise ValueError(
                f"{capital(read.part)} must have an `inertia` about the reference point of at "
                f"least the mass times the squared distance of its centre, "
                f"{mass * (center @ center):.4g} kg m^2, but has {inertia:.4g}; correct one of "
                "them."
            )

    @property
    def is_central(self) -> bool:
        return self.center is None and self.static_moment is None

    def about_reference(self, read: Reader, size: int) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Mass (), static moment (d,) and inertia about the reference point, () or (3, 3)."""
        m = read.number(self.mass)
        inertia = read.number(self.inertia) if size == 2 else _matrix(self.inertia, read)
        if self.static_moment is not None:
            return m, read.vector(self.static_moment, size), inertia
        if self.center is None:
            return m, np.zeros(size, m.dtype), inertia
        c = read.vector(self.center, size)
        shift = c @ c
        if size == 3:
            shift = shift * np.eye(3, dtype=inertia.dtype) - c[:, None] * c[None, :]
        return m, m * c, inertia + m * shift


def _matrix(inertia: Any, read: Reader) -> AnyArray:
    if isinstance(inertia, tuple) and any(isinstance(row, tuple) for row in inertia):
        rows = [read.vector(row, 3) for row in inertia]
        return np.stack(rows) if all(map(are_numbers, inertia)) else jnp.stack(rows)
    if isinstance(inertia, tuple):
        array = read.vector(inertia, 3)
    else:
        array = read.array(inertia, (3,), (3, 3))
    return array if array.ndim == 2 else array[:, None] * np.eye(3, dtype=array.dtype)


def mass_of(
    name: str,
    size: int,
    mass: Value,
    inertia: Any,
    center: Vector | None,
    static_moment: Vector | None,
) -> Mass:
    """The checked mass properties of a body."""
    part = f"body {name!r}"
    if center is not None and static_moment is not None:
        raise ValueError(
            f"{capital(part)} must have a `center`, with `inertia` about it, or a "
            "`static_moment`, with `inertia` about the reference point, but has both; drop one."
        )
    planar = size == 2
    properties = Mass(
        non_negative(part, "mass", mass),
        non_negative(part, "inertia", inertia) if planar else _spatial(part, inertia),
        None if center is None else vector(part, "center", center, size),
        None if static_moment is None else vector(part, "static_moment", static_moment, size),
    )
    if properties.is_plain:
        properties.require(size, Reader(part, np.zeros(()), {}))
    return properties


def _spatial(part: str, inertia: Any) -> Any:
    """Check an inertia: three principal moments, or a symmetric matrix of values."""
    if isinstance(inertia, str) or callable(inertia):
        return number(part, "inertia", inertia)
    if np.ndim(inertia) == 0 or len(inertia) != 3:
        raise ValueError(
            f"{capital(part)} must have three principal moments or a (3, 3) matrix as "
            f"`inertia`, but has {inertia!r}; for a body that cannot turn use `point_mass`."
        )
    if all(isinstance(row, str) or callable(row) or np.ndim(row) == 0 for row in inertia):
        return vector(part, "inertia", inertia, 3)
    rows = tuple(vector(part, "inertia", row, 3) for row in inertia)
    if all(map(are_numbers, rows)) and not np.allclose(rows, np.transpose(rows)):
        raise ValueError(
            f"{capital(part)} must have a symmetric matrix as `inertia`, but it is {rows!r}."
        )
    return rows


@dataclass(frozen=True)
class AbstractRigidBody(AbstractBody):
    """A body with mass properties, and what it looks like; () for a link between its joints."""

    properties: Mass
    visual: tuple[Visual, ...] = field(default=(), repr=False, compare=False)

    def require(self, read: Reader) -> None:
        self.properties.require(self.dimension, read)

    def inertia(self, read: Reader) -> tuple[AnyArray, AnyArray, AnyArray]:
        return self.properties.about_reference(read, self.dimension)

    @property
    def is_central(self) -> bool:
        return self.properties.is_central


@dataclass(frozen=True)
class PlanarBody(AbstractRigidBody):
    """A rigid body in the plane; made by `planar_body`."""

    dimension: ClassVar[int] = 2
    letters: ClassVar[tuple[str, ...]] = ("x", "y", "angle")

    def frame(self, q: Array) -> Frame:
        return Frame(q[:2], plane_rotation(q[2]), q[2])

    def moving(self, q: Array, v: Array) -> Moving:
        return Moving(self.frame(q), v[:2], v[2])

    def spin(self, q: Array, v: Array) -> AnyArray:
        return v[2]

    def generalized(self, q: Array, load: Load) -> Array:
        force, torque = load
        return jnp.stack([force[0], force[1], torque])

    def start(self, start: Start) -> tuple[Array, Array]:
        r, u = (entries(self, start, field, (2,)) for field in ("position", "velocity"))
        angle, w = (entries(self, start, field, ()) for field in ("attitude", "spin"))
        return jnp.append(r, angle), jnp.append(u, w)


@dataclass(frozen=True)
class SpatialBody(AbstractRigidBody):
    """A rigid body in space; made by `spatial_body`."""

    dimension: ClassVar[int] = 3
    letters: ClassVar[tuple[str, ...]] = ("x", "y", "z", "e0", "e1", "e2", "e3")

    def frame(self, q: Array) -> Frame:
        return Frame(q[:3], rotation(q[3:]), q[3:])

    def moving(self, q: Array, v: Array) -> Moving:
        return Moving(self.frame(q), v[:3], spin_in_space(q[3:], v[3:]))

    def spin(self, q: Array, v: Array) -> AnyArray:
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
                    f"The start of {self.part} must have a quaternion other than zero as "
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
