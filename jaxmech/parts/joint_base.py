"""`Joint`: equations between named bodies under one name, and their conversion to constraints."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.constraints import Holonomic, Nonholonomic
from jaxmech.parts.body import AbstractBody, Frame, Ground, Moving
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.position_equations import AbstractPosition
from jaxmech.parts.values import Reader, Vector, are_numbers, direction, vector
from jaxmech.parts.vectors import Numbers, rotation
from jaxmech.parts.velocity_equations import AbstractVelocity
from jaxmech.properties import terms_of, without_implied
from jaxmech.utils.probing import cached_by_shapes
from jaxmech.utils.text import capital


@dataclass(frozen=True)
class Joint:
    """A connection between bodies, as made by `revolute` and the like.

    Attributes:
        kind: kind of joint, as named in messages.
        name: name of the joint and of its constraint. A joint with equations on positions and on
            velocities has two, `name.contact` and `name.slip`.
        bodies: the bodies, a before b.
        positions: equations on their positions.
        velocities: equations on their velocities.
    """

    kind: str
    name: str
    bodies: tuple[AbstractBody, ...]
    positions: tuple[AbstractPosition, ...] = ()
    velocities: tuple[AbstractVelocity, ...] = ()

    @property
    def part(self) -> str:
        """The name of the joint in messages."""
        return part_name(self.kind, self.name)

    def position_level(self, frames: tuple[Frame, ...], read: Reader) -> Array:
        """The residuals of the equations on positions, (k,)."""
        return jnp.concatenate([e.residual(frames, read) for e in self.positions])

    def velocity_level(self, motions: tuple[Moving, ...], read: Reader) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        return jnp.concatenate([e.residual(motions, read) for e in self.velocities])

    def point_on_b(self, frame: Frame, read: Reader) -> Numbers:
        """The joint on its second body, by default the reference point, along the ground's axes."""
        for equation in (*self.positions, *self.velocities):
            if hasattr(equation, "at_b"):
                return frame.point(read.vector(equation.at_b, len(frame.origin)))
        return frame.origin

    def constraints(self, kinematics: AbstractKinematics) -> Iterator[Holonomic | Nonholonomic]:
        """The equations as constraints on the coordinates of a mechanism."""
        has_two_levels = self.positions and self.velocities
        if self.positions:
            name = f"{self.name}.contact" if has_two_levels else self.name
            yield Holonomic(JointPositions(self, kinematics), name=name)
        if self.velocities:
            name = f"{self.name}.slip" if has_two_levels else self.name
            yield Nonholonomic(JointVelocities(self, kinematics), name=name)


@dataclass(frozen=True)
class JointPositions:
    """The residuals of a joint as a function of all coordinates."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on positions, (k,)."""
        q, t = jnp.asarray(q), jnp.asarray(t)
        values = self.level(q, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, q, _implied_positions(self, q, t, params))

    def level(self, q: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        frames = self.kinematics.frames(self.joint.bodies, q, t, params)
        return self.joint.position_level(frames, Reader(self.joint.part, t, params))


@dataclass(frozen=True)
class JointVelocities:
    """The same of its equations on velocities."""

    joint: Joint
    kinematics: AbstractKinematics

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        """The residuals of the equations on velocities, (k,)."""
        q, v, t = jnp.asarray(q), jnp.asarray(v), jnp.asarray(t)
        values = self.level(q, v, t, params)
        if not self.kinematics.has_tree:
            return values
        return without_implied(values, v, _implied_velocities(self, q, v, t, params))

    def level(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        """The residuals as they are, also those of equations that the tree implies."""
        motions = self.kinematics.moving(self.joint.bodies, q, v, t, params)
        return self.joint.velocity_level(motions, Reader(self.joint.part, t, params))


@cached_by_shapes
def _implied_positions(fn: JointPositions, q: Array, *context: Any) -> list[float | None]:
    def equations(q: Array, *context: Any) -> Array:
        return fn.level(fn.kinematics.with_units(q), *context)

    return terms_of(equations, (q,), context)


@cached_by_shapes
def _implied_velocities(
    fn: JointVelocities, q: Array, v: Array, *context: Any
) -> list[float | None]:
    def equations(v: Array, q: Array, *context: Any) -> Array:
        pair = jax.jvp(fn.kinematics.with_units, (q,), (v,))
        return fn.level(*pair, *context)

    return terms_of(equations, (v, q), context)


def pinned(
    kind: str,
    name: str,
    bodies: tuple[AbstractBody, AbstractBody],
    points: tuple[Vector, Vector],
    *,
    sizes: tuple[int, ...] = (2, 3),
    turning: bool = False,
) -> tuple[str, tuple[AbstractBody, ...], int, tuple[Vector, Vector]]:
    """The name of a part in messages, its checked bodies, their dimension and points on them."""
    part = part_name(kind, name)
    (a, b), size = partners(part, bodies, sizes=sizes, turning=turning)
    at_a, at_b = points
    checked_points = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    return part, (a, b), size, checked_points


def part_name(kind: str, name: str) -> str:
    """The name of a part in messages, such as "revolute joint 'A'"."""
    return f"{kind} {name!r}"


def partners(
    part: str, bodies: tuple[Any, ...], *, sizes: tuple[int, ...] = (2, 3), turning: bool = False
) -> tuple[tuple[AbstractBody, ...], int]:
    """Check the bodies of a part; return them, the ground in their dimension, and the dimension.

    Example:
        >>> from jaxmech.parts import ground, point_mass
        >>> partners("distance 'rod'", (ground, point_mass("bob", mass=1.0)))[1]
        2
    """
    start = capital(part)
    for body in bodies:
        if not isinstance(body, AbstractBody):
            raise TypeError(
                f"{start} must be between bodies, but has {body!r}; "
                "make one by planar_body, spatial_body or point_mass, or take `ground`."
            )
    names = [body.name for body in bodies]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{start} must be between different bodies, but has {' and '.join(map(repr, names))}."
        )
    dimensions = {body.dimension for body in bodies} - {0}
    if len(dimensions) != 1 or not dimensions <= set(sizes):
        kinds = {0: "is the ground", 2: "is planar", 3: "is spatial"}
        description = ", ".join(f"{body.name!r} {kinds[body.dimension]}" for body in bodies)
        needs = " or ".join({2: "planar", 3: "spatial"}[size] for size in sizes)
        raise ValueError(
            f"{start} must be between {needs} bodies, all of one kind, but {description}; "
            "make all bodies of one kind or use another joint."
        )
    for body in bodies:
        if turning and not body.rotates:
            raise ValueError(
                f"{start} must be between bodies with an attitude, but {body.name!r} is a point; "
                "make it a planar_body or a spatial_body."
            )
    size = dimensions.pop()
    grounded = (replace(b, dimension=size) if isinstance(b, Ground) else b for b in bodies)
    return tuple(grounded), size


def point(part: str, argument: str, body: AbstractBody, values: Vector, size: int) -> Vector:
    """Check the coordinates of a point on a body; they must be zero on a point mass."""
    components = vector(part, argument, values, size)
    if not body.rotates and not (are_numbers(components) and not any(components)):
        raise ValueError(
            f"{capital(part)} must have zeros in `{argument}`, since {body.name!r} "
            f"is a point mass, but has {values!r}."
        )
    return components


def require_no_axes(part: str, **axes: Vector | None) -> None:
    """Raise for an axis that is given in the plane."""
    for argument, axis in axes.items():
        if axis is not None:
            raise ValueError(
                f"{capital(part)} must have no `{argument}` in the plane, where all axes are at "
                "right angles to it; leave it out."
            )


def require_turned_into(part: str, axes: tuple[Vector, Vector], turn: Vector) -> None:
    """Raise if a quaternion does not turn the axis on b into the one on a, all plain numbers."""
    if not all(map(are_numbers, (*axes, turn))):
        return
    on_a, on_b = (np.array(axis) for axis in axes)
    if not np.allclose(rotation(np.array(turn)) @ on_b, on_a, atol=1e-6):
        raise ValueError(
            f"{capital(part)} must have a `turn` that turns `axis_b` {axes[1]} into `axis` "
            f"{axes[0]}, but {turn} does not; correct one of them."
        )


def axes_of(part: str, axis: Vector | None, axis_b: Vector | None) -> tuple[Vector, Vector]:
    """Check the directions of a shared axis in space on a and on b; `axis_b` defaults to `axis`."""
    if axis is None:
        raise ValueError(
            f"{capital(part)} must have an `axis` in space; "
            "write the direction on the first body, such as axis=(0, 0, 1)."
        )
    axis_a = direction(part, "axis", axis, 3)
    return axis_a, axis_a if axis_b is None else direction(part, "axis_b", axis_b, 3)


def turning_pair(
    kind: str, name: str, bodies: tuple[Any, Any], axis: Vector | None, axis_b: Vector | None = None
) -> tuple[str, tuple[AbstractBody, ...], tuple[Vector, Vector] | None]:
    """The checked name, bodies and axes of a part that turns; axes are None in the plane."""
    part = part_name(kind, name)
    checked, size = partners(part, bodies, turning=True)
    if size == 2:
        require_no_axes(part, axis=axis, axis_b=axis_b)
    return part, checked, None if size == 2 else axes_of(part, axis, axis_b)
