"""Joints between the attitudes or points of bodies: hinge, slider, weld, shaft, ball, Cardan joint.

    joint               equations and freedoms     made of
                        in the plane   in space
    revolute            2, 1           5, 1        Coincide, in space also Parallel
    prismatic           2, 1           5, 1        Across, Turned
    weld                3, 0           6, 0        Coincide, Turned
    cylindrical                        4, 2        Across, Parallel
    planar                             3, 3        Level, Parallel
    spherical                          3, 3        Coincide
    universal                          4, 2        Coincide, Perpendicular
    constant_velocity                  4, 2        Coincide, EqualSpeeds

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`position_equations.py`).

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or axes that do not fit; the message names the joint.
"""

from typing import Any

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joint_base import (
    Joint,
    axes_of,
    partners,
    pinned,
    require_no_axes,
    require_turned_into,
)
from jaxmech.parts.position_equations import (
    Across,
    Coincide,
    EqualSpeeds,
    Level,
    Parallel,
    Perpendicular,
    Turned,
)
from jaxmech.parts.values import Vector, direction, number


def revolute(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector | None = None,
    axis_b: Vector | None = None,
    turn: Any = None,
) -> Joint:
    """A hinge: a point of a coincides with a point of b, and in space they share an axis.

    Its multipliers are the force [N] on b along the axes of the ground, in space followed by two
    torques [N m] across the axis.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        axis: direction of the axis on a; in space only.
        axis_b: direction of the axis on b, by default the same components as `axis`.
        turn: in space, the attitude of b relative to a at the joint angle zero, a quaternion that
            turns `axis_b` into `axis`; by default the first normals of the axes coincide there. It
            only affects the coordinate of the joint.

    Example:
        >>> from jaxmech.parts import ground, planar_body
        >>> crank = planar_body("crank", mass=1.0, inertia=0.1)
        >>> revolute("O", ground, (0, 0), crank, ("l", 0)).kind
        'revolute joint'
    """
    kind = "revolute joint"
    part, bodies, size, points = pinned(kind, name, (a, b), (at_a, at_b))
    if size == 2:
        require_no_axes(part, axis=axis, axis_b=axis_b, turn=turn)
        return Joint(kind, name, bodies, (Coincide(*points),))
    partners(part, bodies, turning=True)
    axes = axes_of(part, axis, axis_b)
    if turn is not None:
        turn = direction(part, "turn", turn, 4)
        require_turned_into(part, axes, turn)
    return Joint(kind, name, bodies, (Coincide(*points), Parallel(*axes, turn)))


def prismatic(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector,
    turn: Any = None,
) -> Joint:
    """A slider: a point of b stays on a line of a, and b does not turn relative to a.

    Its multipliers are the components of the force [N] across the line, one in the plane and two in
    space, followed by those of the torque [N m], one in the plane and three in space, along the
    axes of b.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: a point of the line on a [m].
        b: second body.
        at_b: the point on b [m].
        axis: direction of the line on a.
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.

    Example:
        >>> from jaxmech.parts import ground, planar_body
        >>> piston = planar_body("piston", mass=1.0, inertia=0.1)
        >>> prismatic("guide", ground, (0, 0), piston, (0, 0), axis=(1, 0)).kind
        'prismatic joint'
    """
    kind = "prismatic joint"
    part, bodies, size, points = pinned(kind, name, (a, b), (at_a, at_b), turning=True)
    line = Across(points[0], direction(part, "axis", axis, size), points[1])
    return Joint(kind, name, bodies, (line, _turned(part, turn, size)))


def weld(
    name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector, *, turn: Any = None
) -> Joint:
    """A rigid connection of two bodies.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m], in
    space with three components along the axes of b.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.

    Example:
        >>> from jaxmech.parts import ground, planar_body
        >>> beam = planar_body("beam", mass=1.0, inertia=0.1)
        >>> weld("wall", ground, (0, 0), beam, (-1, 0), turn=0.1).kind
        'weld'
    """
    part, bodies, size, points = pinned("weld", name, (a, b), (at_a, at_b), turning=True)
    return Joint("weld", name, bodies, (Coincide(*points), _turned(part, turn, size)))


def _turned(part: str, turn: Any, size: int) -> Turned:
    if size == 2:
        return Turned(number(part, "turn", 0.0 if turn is None else turn))
    identity = (1.0, 0.0, 0.0, 0.0)
    return Turned(identity if turn is None else direction(part, "turn", turn, 4))


def cylindrical(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector,
    axis_b: Vector | None = None,
) -> Joint:
    """A shaft in a sleeve: b turns about a line of a and slides along it; in space.

    Its multipliers are two forces [N] and two torques [N m] across the axis.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: a point of the axis on a [m].
        b: second body.
        at_b: a point of the axis on b [m].
        axis: direction of the axis on a.
        axis_b: direction of the axis on b, by default the same components as `axis`.

    Example:
        >>> from jaxmech.parts import ground, spatial_body
        >>> shaft = spatial_body("shaft", mass=1.0, inertia=(0.1, 0.1, 0.1))
        >>> cylindrical("bush", ground, (0, 0, 0), shaft, (0, 0, 0), axis=(0, 0, 1)).kind
        'cylindrical joint'
    """
    kind = "cylindrical joint"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    axes = axes_of(part, axis, axis_b)
    return Joint(kind, name, bodies, (Across(points[0], axes[0], points[1]), Parallel(*axes)))


def planar(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector,
    normal_b: Vector | None = None,
) -> Joint:
    """A plate on a table: b moves in a plane of a, and turns about its normal; in space.

    Its multipliers are the force [N] along the normal and two torques [N m] across it.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: a point of the plane on a [m].
        b: second body.
        at_b: the point on b [m] that moves in the plane.
        normal: normal of the plane on a.
        normal_b: the same direction on b, by default the same components as `normal`.

    Example:
        >>> from jaxmech.parts import ground, spatial_body
        >>> plate, o = spatial_body("plate", mass=1.0, inertia=(0.1, 0.1, 0.2)), (0, 0, 0)
        >>> planar("table", ground, o, plate, o, normal=(0, 0, 1)).kind
        'planar joint'
    """
    kind = "planar joint"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    axes = axes_of(part, normal, normal_b)
    return Joint(kind, name, bodies, (Level(points[0], axes[0], points[1], 0.0), Parallel(*axes)))


def spherical(name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector) -> Joint:
    """A ball and socket: a point of a coincides with a point of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].

    Example:
        >>> from jaxmech.parts import ground, point_mass
        >>> bob = point_mass("bob", mass=1.0, dimension=3)
        >>> spherical("pin", ground, (0, 0, 0), bob, (0, 0, 0)).kind
        'spherical joint'
    """
    kind = "spherical joint"
    _, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,))
    return Joint(kind, name, bodies, (Coincide(*points),))


def universal(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis_a: Vector,
    axis_b: Vector,
) -> Joint:
    """A Cardan joint: a common point, and an arm of a perpendicular to an arm of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m] along
    the normal of both arms, axis_b x axis_a.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        axis_a: direction of the arm on a.
        axis_b: direction of the arm on b.

    Example:
        >>> from jaxmech.parts import ground, spatial_body
        >>> shaft, o = spatial_body("shaft", mass=1.0, inertia=(0.1, 0.1, 0.1)), (0, 0, 0)
        >>> universal("U", ground, o, shaft, o, axis_a=(1, 0, 0), axis_b=(0, 1, 0)).kind
        'universal joint'
    """
    kind = "universal joint"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    arms = (direction(part, "axis_a", axis_a, 3), direction(part, "axis_b", axis_b, 3))
    return Joint(kind, name, bodies, (Coincide(*points), Perpendicular(*arms)))


def constant_velocity(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector,
    axis_b: Vector | None = None,
) -> Joint:
    """A joint of two bent shafts that turn at the same speed (Rzeppa joint); in space.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m] that
    it transmits, times the cosine of half the angle between the shafts.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        axis: direction of the shaft on a.
        axis_b: direction of the shaft on b, by default the same components as `axis`.

    Example:
        >>> from jaxmech.parts import spatial_body
        >>> one, two = (spatial_body(n, mass=1.0, inertia=(0.1, 0.1, 0.1)) for n in ("one", "two"))
        >>> constant_velocity("cv", one, (0, 0, 0), two, (0, 0, 0), axis=(1, 0, 0)).kind
        'constant-velocity joint'
    """
    kind = "constant-velocity joint"
    part, bodies, _, points = pinned(kind, name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    return Joint(kind, name, bodies, (Coincide(*points), EqualSpeeds(*axes_of(part, axis, axis_b))))
