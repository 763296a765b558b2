"""Rolling without slip, and knife edges.

    joint            equations on       equations on        multipliers
                     positions          velocities
    rolling_disk     1 (plane)          1                   normal force, friction [N]
    rolling_sphere   1 (space)          2                   normal force, friction [N]
    rolling_wheel    1 (space)          2                   load, traction, lateral force [N]
    knife_edge                          1 (plane)           lateral force [N]

A rolling contact has two constraints, `name.contact` on positions and `name.slip` on velocities.
Forces are those of a on b at the contact.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from jaxmech.parts.body import AbstractBody, ground
from jaxmech.parts.joint_base import Joint, part_name, partners, pinned, point
from jaxmech.parts.position_equations import Level
from jaxmech.parts.values import Value, Vector, direction, positive
from jaxmech.parts.velocity_equations import Edge, RoundSlip, WheelContact, WheelSlip


def rolling_disk(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector,
    radius: Value,
) -> Joint:
    """A disk that rolls without slip on a line; in the plane.

    Args:
        name: name of the joint.
        a: the body with the line, or `ground`.
        at_a: a point of the line on a [m].
        b: the disk.
        at_b: centre of the disk on b [m].
        normal: normal of the line, on a, towards the disk.
        radius: radius of the disk [m].

    Example:
        >>> from jaxmech.parts import planar_body
        >>> disk = planar_body("disk", mass=1.0, inertia="I")
        >>> rolling_disk("road", ground, (0, 0), disk, (0, 0), normal=(0, 1), radius="r").kind
        'rolling disk'
    """
    return _round("rolling disk", 2, name, (a, b), (at_a, at_b), normal, radius)


def rolling_sphere(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector,
    radius: Value,
) -> Joint:
    """A sphere that rolls without slip on a plane and may spin about its normal; in space.

    Args:
        name: name of the joint.
        a: the body with the plane, or `ground`.
        at_a: a point of the plane on a [m].
        b: the sphere.
        at_b: centre of the sphere on b [m].
        normal: normal of the plane, on a, towards the sphere.
        radius: radius of the sphere [m].

    Example:
        >>> from jaxmech.parts import spatial_body
        >>> ball, o = spatial_body("ball", mass=1.0, inertia=(0.1, 0.1, 0.1)), (0, 0, 0)
        >>> rolling_sphere("table", ground, o, ball, o, normal=(0, 0, 1), radius=0.5).kind
        'rolling sphere'
    """
    return _round("rolling sphere", 3, name, (a, b), (at_a, at_b), normal, radius)


def rolling_wheel(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    normal: Vector,
    axle: Vector,
    radius: Value,
) -> Joint:
    """A thin wheel that rolls without slip on a plane, upright or leaning; in space.

    Traction is the force along axle x normal, which is forward for an axle that points to the left;
    the lateral force is that along normal x (axle x normal).

    Args:
        name: name of the joint.
        a: the body with the plane, or `ground`.
        at_a: a point of the plane on a [m].
        b: the wheel.
        at_b: centre of the wheel on b [m].
        normal: normal of the plane, on a, towards the wheel; never parallel to the axle.
        axle: direction of the axle on b.
        radius: radius of the wheel [m].

    Example:
        >>> from jaxmech.parts import spatial_body
        >>> coin, o = spatial_body("coin", mass=1.0, inertia=(0.1, 0.2, 0.1)), (0, 0, 0)
        >>> z, y = (0, 0, 1), (0, 1, 0)
        >>> rolling_wheel("table", ground, o, coin, o, normal=z, axle=y, radius=0.5).kind
        'rolling wheel'
    """
    kind, points = "rolling wheel", (at_a, at_b)
    part, bodies, size, centers = pinned(kind, name, (a, b), points, sizes=(3,), turning=True)
    n, u = direction(part, "normal", normal, size), direction(part, "axle", axle, size)
    r = positive(part, "radius", radius)
    contact, slip = WheelContact(centers[0], n, centers[1], u, r), WheelSlip(n, centers[1], u, r)
    return Joint(kind, name, bodies, (contact,), (slip,))


def knife_edge(
    name: str, b: AbstractBody, at_b: Vector, *, along: Vector, on: AbstractBody = ground
) -> Joint:
    """A blade, or a wheel seen from above: a point of b moves only along a direction of b.

    It applies in the plane.

    Args:
        name: name of the joint.
        b: the body with the blade.
        at_b: the point on b [m].
        along: direction of the blade on b.
        on: the body on which it moves.

    Example:
        >>> from jaxmech.parts import planar_body
        >>> sleigh = planar_body("sleigh", mass=1.0, inertia=0.1)
        >>> knife_edge("skate", sleigh, (0, 0), along=(1, 0)).kind
        'knife edge'
    """
    part = part_name("knife edge", name)
    (a, b), size = partners(part, (on, b), sizes=(2,), turning=True)
    edge = Edge(point(part, "at_b", b, at_b, size), direction(part, "along", along, size))
    return Joint("knife edge", name, (a, b), velocities=(edge,))


def _round(
    kind: str, size: int, name: str, pair: tuple[AbstractBody, AbstractBody],
    points: tuple[Vector, Vector], normal: Vector, radius: Value,
) -> Joint:  # fmt: skip
    checked = pinned(kind, name, pair, points, sizes=(size,), turning=True)
    part, bodies, _, (at_a, at_b) = checked
    n, r = direction(part, "normal", normal, size), positive(part, "radius", radius)
    contact, slip = Level(at_a, n, at_b, r), RoundSlip(n, at_b, r)
    return Joint(kind, name, bodies, (contact,), (slip,))
