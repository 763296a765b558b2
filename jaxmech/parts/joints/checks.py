"""Checks of what joints and forces are made of: their bodies, points and axes."""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxmech.parts.body import AbstractBody, Ground
from jaxmech.parts.kinds import require_no_axes
from jaxmech.parts.values import Vector, are_numbers, direction, vector
from jaxmech.parts.vectors import rotation
from jaxmech.utils.text import capital


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
    """Check the bodies of a part; return them, the ground in their dimension, and the dimension."""
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


def require_turn_between(part: str, axes: tuple[Vector, Vector], turn: Vector) -> None:
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
