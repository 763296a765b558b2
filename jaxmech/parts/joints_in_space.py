"""Joints in space alone: ball and socket, Cardan joint, shaft in a sleeve.

    joint         equations    freedoms    made of
    cylindrical   4            2           Across, Parallel
    spherical     3            3           Coincide
    universal     4            2           Coincide, Perpendicular

Freedoms are those of b relative to a. Forces and torques are those of a on b, at the point of b
(`equations.py`).
"""

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joint_base import Joint, axes_of, called, partners, point
from jaxmech.parts.position_equations import Across, Coincide, Parallel, Perpendicular
from jaxmech.parts.values import Vector, direction


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
        name: of the joint.
        a: first body, or `ground`.
        at_a: a point of the axis on a [m].
        b: second body.
        at_b: a point of the axis on b [m].
        axis: direction of the axis on a.
        axis_b: direction of the axis on b, by default the same components as `axis`.

    Raises:
        ValueError: bodies, points or axes do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> from jaxmech.parts.rigid_bodies import spatial_body
        >>> shaft = spatial_body("shaft", mass=1.0, inertia=(0.1, 0.1, 0.1))
        >>> cylindrical("bush", ground, (0, 0, 0), shaft, (0, 0, 0), axis=(0, 0, 1)).kind
        'cylindrical joint'
    """
    part = called("cylindrical joint", name)
    (a, b), size = partners(part, (a, b), sizes=(3,), turning=True)
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    axes = axes_of(part, axis, axis_b)
    line = Across(at[0], axes[0], at[1])
    return Joint("cylindrical joint", name, (a, b), (line, Parallel(*axes)))


def spherical(name: str, a: AbstractBody, at_a: Vector, b: AbstractBody, at_b: Vector) -> Joint:
    """A ball and socket: a point of a is a point of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground.

    Args:
        name: of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].

    Raises:
        ValueError: bodies or points do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground, point_mass
        >>> bob = point_mass("bob", mass=1.0, dimension=3)
        >>> spherical("pin", ground, (0, 0, 0), bob, (0, 0, 0)).kind
        'spherical joint'
    """
    part = called("spherical joint", name)
    (a, b), size = partners(part, (a, b), sizes=(3,))
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    return Joint("spherical joint", name, (a, b), (Coincide(*at),))


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
    """A Cardan joint: a point in common, and an arm of a at right angles to an arm of b; in space.

    Its multipliers are the force [N] on b along the axes of the ground, and the torque [N m] along
    the normal of both arms, axis_b x axis_a.

    Args:
        name: of the joint.
        a: first body, or `ground`.
        at_a: the point on a [m].
        b: second body.
        at_b: the point on b [m].
        axis_a: direction of the arm on a.
        axis_b: direction of the arm on b.

    Raises:
        ValueError: bodies, points or axes do not fit; the message names the joint.
        TypeError: something is no body or no value.

    Example:
        >>> from jaxmech.parts.ground import ground
        >>> from jaxmech.parts.rigid_bodies import spatial_body
        >>> shaft, o = spatial_body("shaft", mass=1.0, inertia=(0.1, 0.1, 0.1)), (0, 0, 0)
        >>> universal("U", ground, o, shaft, o, axis_a=(1, 0, 0), axis_b=(0, 1, 0)).kind
        'universal joint'
    """
    part = called("universal joint", name)
    (a, b), size = partners(part, (a, b), sizes=(3,), turning=True)
    at = point(part, "at_a", a, at_a, size), point(part, "at_b", b, at_b, size)
    arms = Perpendicular(
        direction(part, "axis_a", axis_a, size), direction(part, "axis_b", axis_b, size)
    )
    return Joint("universal joint", name, (a, b), (Coincide(*at), arms))
