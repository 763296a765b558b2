"""Joints in the plane and in space: hinge, slider, weld.

    joint         equations and freedoms     in space    made of
                  in the plane
    revolute      2, 1                       5, 1        Coincide, Parallel
    prismatic     2, 1                       5, 1        Across, Turned
    weld          3, 0                       6, 0        Coincide, Turned

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`equations.py`).
"""

from typing import Any

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joint_base import Joint, axes_of, called, partners, point
from jaxmech.parts.position_equations import Across, Coincide, Parallel, Turned
from jaxmech.parts.values import Vector, capital, direction, number

SAME = (1.0, 0.0, 0.0, 0.0)  # the quaternion of no turn


def revolute(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector | None = None,
    axis_b: Vector | None = None,
) -> Joint:
    """A hinge: a point of a is a point of b, and in space they share an axis.

    Its multipliers are the force [N] on b along the axes of the ground, in space followed by two
    torques [N m] across the axis.

    Args:
        name: of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        axis: direction of the axis on a; in space only.
        axis_b: direction of the axis on b, by default the same components as `axis`.

    Raises:
        ValueError: bodies, points or axes do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> from jaxmech.parts.rigid_bodies import planar_body
        >>> crank = planar_body("crank", mass=1.0, inertia=0.1)
        >>> revolute("O", ground, (0, 0), crank, ("l", 0)).kind
        'revolute joint'
    """
    part = called("revolute joint", name)
    (a, b), size = partners(part, (a, b))
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    if size == 2:
        if axis is not None or axis_b is not None:
            raise ValueError(
                f"{capital(part)} must have no `axis` in the plane, where all axes are at "
                "right angles to it; leave it out."
            )
        return Joint("revolute joint", name, (a, b), (Coincide(*at),))
    partners(part, (a, b), turning=True)
    axes = axes_of(part, axis, axis_b)
    return Joint("revolute joint", name, (a, b), (Coincide(*at), Parallel(*axes)))


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
    """A slider: a point of b stays on a line of a, and b does not turn in a.

    Its multipliers are the force [N] across the line, one in the plane, two in space, followed by
    the torque [N m], one or three, in space along the axes of b.

    Args:
        name: of the joint.
        a: first body, or `ground`.
        at_a: a point of the line on a [m].
        b: second body.
        at_b: the point on b [m].
        axis: direction of the line on a.
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.

    Raises:
        ValueError: bodies, points or axes do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> from jaxmech.parts.rigid_bodies import planar_body
        >>> piston = planar_body("piston", mass=1.0, inertia=0.1)
        >>> prismatic("guide", ground, (0, 0), piston, (0, 0), axis=(1, 0)).kind
        'prismatic joint'
    """
    part = called("prismatic joint", name)
    (a, b), size = partners(part, (a, b), turning=True)
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    line = Across(at[0], direction(part, "axis", axis, size), at[1])
    return Joint("prismatic joint", name, (a, b), (line, _turned(part, turn, size)))


def weld(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    turn: Any = None,
) -> Joint:
    """Two bodies in one piece.

    Its multipliers are the force [N] on b along the axes of the ground and the torque [N m], in
    space three along the axes of b.

    Args:
        name: of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        turn: constant attitude of b relative to a, an angle [rad] or a quaternion; by default none.

    Raises:
        ValueError: bodies or points do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> from jaxmech.parts.rigid_bodies import planar_body
        >>> beam = planar_body("beam", mass=1.0, inertia=0.1)
        >>> weld("wall", ground, (0, 0), beam, (-1, 0), turn=0.1).kind
        'weld'
    """
    part = called("weld", name)
    (a, b), size = partners(part, (a, b), turning=True)
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    return Joint("weld", name, (a, b), (Coincide(*at), _turned(part, turn, size)))


def _turned(part: str, turn: Any, size: int) -> Turned:
    if size == 2:
        return Turned(number(part, "turn", 0.0 if turn is None else turn))
    return Turned(SAME if turn is None else direction(part, "turn", turn, 4))
