"""`Joint`: equations between named bodies under one name, and how they become constraints."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.constraints import Holonomic, Nonholonomic
from jaxmech.parts.body import AbstractBody, Frame, Moving
from jaxmech.parts.ground import Ground
from jaxmech.parts.position_equations import AbstractPosition
from jaxmech.parts.values import Reader, Vector, are_numbers, capital, direction, vector
from jaxmech.parts.velocity_equations import AbstractVelocity


@dataclass(frozen=True)
class Place:
    """A body, and where its coordinates stand among all of them.

    Attributes:
        body: the body.
        first: place of its first coordinate.
    """

    body: AbstractBody
    first: int

    def own(self, x: Array) -> Array:
        """What belongs to the body, of coordinates, velocities or generalized forces."""
        return x[self.first : self.first + len(self.body.letters)]

    def frame(self, q: Array) -> Frame:
        """Where the body is."""
        return self.body.frame(self.own(q))

    def moving(self, q: Array, v: Array) -> Moving:
        """Where it is and how it moves."""
        return self.body.moving(self.own(q), self.own(v))


Places = tuple[Place, ...]


@dataclass(frozen=True)
class Joint:
    """What ties bodies to each other; made by `revolute` and its like.

    Attributes:
        kind: what sort of joint it is.
        name: of the joint and of its constraint. A joint with equations on positions and on
            velocities has two, `name.contact` and `name.slip`.
        bodies: the bodies, a before b.
        positions: equations on where they are.
        velocities: equations on how they move.
    """

    kind: str
    name: str
    bodies: tuple[AbstractBody, ...]
    positions: tuple[AbstractPosition, ...] = ()
    velocities: tuple[AbstractVelocity, ...] = ()

    def constraints(self, places: Places) -> Iterator[Holonomic | Nonholonomic]:
        """Its equations, for bodies at these places."""
        part, both = called(self.kind, self.name), self.positions and self.velocities
        if self.positions:
            name = f"{self.name}.contact" if both else self.name
            yield Holonomic(_Positions(part, self.positions, places), name=name)
        if self.velocities:
            name = f"{self.name}.slip" if both else self.name
            yield Nonholonomic(_Velocities(part, self.velocities, places), name=name)


@dataclass(frozen=True)
class _Positions:
    part: str
    equations: tuple[AbstractPosition, ...]
    places: Places

    def __call__(self, q: Any, t: Any, params: Any) -> Array:
        q, read = jnp.asarray(q), Reader(self.part, jnp.asarray(t), params)
        frames = tuple(place.frame(q) for place in self.places)
        return jnp.concatenate([e.residual(frames, read) for e in self.equations])


@dataclass(frozen=True)
class _Velocities:
    part: str
    equations: tuple[AbstractVelocity, ...]
    places: Places

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> Array:
        q, v, read = jnp.asarray(q), jnp.asarray(v), Reader(self.part, jnp.asarray(t), params)
        moving = tuple(place.moving(q, v) for place in self.places)
        return jnp.concatenate([e.residual(moving, read) for e in self.equations])


def called(kind: str, name: str) -> str:
    """What messages call a part.

    Example:
        >>> called("revolute joint", "A")
        "revolute joint 'A'"
    """
    return f"{kind} {name!r}"


def partners(
    part: str, bodies: tuple[Any, ...], *, sizes: tuple[int, ...] = (2, 3), turning: bool = False
) -> tuple[tuple[AbstractBody, ...], int]:
    """The bodies of a part, the ground as theirs is, and their dimension.

    Args:
        part: what messages call the part.
        bodies: the bodies as given.
        sizes: the dimensions that will do.
        turning: whether each body must have an attitude.

    Raises:
        TypeError: something is no body.
        ValueError: a body stands twice, has another dimension than the rest or than the part
            needs, or has no attitude where one is needed.

    Example:
        >>> from jaxmech.parts.ground import ground, point_mass
        >>> bob = point_mass("bob", mass=1.0)
        >>> partners("distance 'rod'", (ground, bob))[1]
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
    found = {body.dimension for body in bodies} - {0}
    if len(found) != 1 or not found <= set(sizes):
        kinds = {0: "is the ground", 2: "is planar", 3: "is spatial"}
        said = ", ".join(f"{body.name!r} {kinds[body.dimension]}" for body in bodies)
        needs = " or ".join({2: "planar", 3: "spatial"}[size] for size in sizes)
        raise ValueError(
            f"{start} must be between {needs} bodies, all of one kind, but {said}; "
            "make the bodies alike or take another joint."
        )
    for body in bodies:
        if turning and not body.rotates:
            raise ValueError(
                f"{start} must be between bodies with an attitude, but {body.name!r} is a point; "
                "make it a planar_body or a spatial_body."
            )
    size = found.pop()
    grounded = (replace(b, size=size) if isinstance(b, Ground) else b for b in bodies)
    return tuple(grounded), size


def point(part: str, argument: str, body: AbstractBody, values: Vector, size: int) -> Vector:
    """A point on a body as a part can keep it; a point mass has only its own.

    Raises:
        ValueError: the shape is wrong, or a point mass is asked for another point.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> point("joint 'A'", "at_a", ground, (0, "h"), 2)
        (0.0, 'h')
    """
    kept = vector(part, argument, values, size)
    if not body.rotates and not (are_numbers(kept) and not any(kept)):
        raise ValueError(
            f"{capital(part)} must have zeros in `{argument}`, since {body.name!r} "
            f"is a point mass, but has {values!r}."
        )
    return kept


def axes_of(part: str, axis: Vector | None, axis_b: Vector | None) -> tuple[Vector, Vector]:
    """The directions of an axis in space on both bodies; the same components by default.

    Raises:
        ValueError: there is none, or all its components are zero.

    Example:
        >>> axes_of("joint 'A'", (0, 0, 2), None)
        ((0.0, 0.0, 1.0), (0.0, 0.0, 1.0))
    """
    if axis is None:
        raise ValueError(
            f"{capital(part)} must have an `axis` in space; "
            "write the direction on the first body, such as axis=(0, 0, 1)."
        )
    kept = direction(part, "axis", axis, 3)
    return kept, kept if axis_b is None else direction(part, "axis_b", axis_b, 3)
