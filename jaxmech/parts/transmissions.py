"""Gears, belts, racks and screws: joints that couple rotations, or a rotation and a translation.

    joint   equation in the plane                  in space, on velocities
    gear    ra angle_a + rb angle_b = phase        ra spin_a + rb spin_b = 0
    belt    ra angle_a - rb angle_b = phase        ra spin_a - rb spin_b = 0
    rack    r angle_a - x_b = phase                r spin_a - speed_b = 0
    screw                                          2 pi speed - lead spin = 0

In space there is no phase. Each joint has one equation; a screw also has those of a sleeve, which
leaves one freedom. The multipliers are the force of a tooth, of the belt, or along the screw [N].

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the joint.
"""

from jaxmech.parts.body import AbstractBody, ground
from jaxmech.parts.joint_base import Joint, axes_of, part_name, partners, pinned, require_no_axes
from jaxmech.parts.position_equations import Across, Mesh, Parallel, RackMesh
from jaxmech.parts.values import Value, Vector, direction, number, positive
from jaxmech.parts.velocity_equations import GearSpeed, RackSpeed, ScrewSpeed
from jaxmech.utils.text import capital


def gear(
    name: str,
    a: AbstractBody,
    radius_a: Value,
    b: AbstractBody,
    radius_b: Value,
    *,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
    axis_b: Vector | None = None,
) -> Joint:
    """Two gear wheels on a carrier: ra angle_a + rb angle_b = phase, relative to the carrier.

    The bearings are separate joints. A negative radius means an internal gear. In space the
    equation is on velocities, without a phase.

    Args:
        name: name of the joint.
        a: first wheel.
        radius_a: pitch radius of the first wheel [m].
        b: second wheel.
        radius_b: pitch radius of the second wheel [m].
        carrier: the body that holds the bearings.
        phase: the value of ra angle_a + rb angle_b [m]; in the plane only.
        axis_a: in space, the axis of the first wheel, on that wheel.
        axis_b: in space, the axis of the second wheel, on that wheel. Parallel axes must point in
            the same direction, as in the plane.

    Example:
        >>> from jaxmech.parts import planar_body
        >>> one, two = (planar_body(name, mass=1.0, inertia=0.1) for name in ("one", "two"))
        >>> gear("teeth", one, 0.1, two, 0.3).kind
        'gear'
    """
    return _wheels(
        "gear", name, (a, b, carrier), (radius_a, radius_b), phase, (axis_a, axis_b), 1.0
    )


def belt(
    name: str,
    a: AbstractBody,
    radius_a: Value,
    b: AbstractBody,
    radius_b: Value,
    *,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
    axis_b: Vector | None = None,
) -> Joint:
    """Two pulleys with a belt that does not slip, or sprockets with a chain, on a carrier.

    Both turn in the same sense: ra angle_a - rb angle_b = phase, relative to the carrier. For a
    crossed belt use `gear`.

    Args:
        name: name of the joint.
        a: first pulley.
        radius_a: radius of the first pulley [m].
        b: second pulley.
        radius_b: radius of the second pulley [m].
        carrier: the body that holds the bearings.
        phase: the value of ra angle_a - rb angle_b [m]; in the plane only.
        axis_a: in space, the axis of the first pulley, on that pulley.
        axis_b: in space, the axis of the second pulley, on that pulley.

    Example:
        >>> from jaxmech.parts import planar_body
        >>> one, two = (planar_body(name, mass=1.0, inertia=0.1) for name in ("one", "two"))
        >>> belt("timing", one, 0.1, two, 0.2).kind
        'belt'
    """
    return _wheels(
        "belt", name, (a, b, carrier), (radius_a, radius_b), phase, (axis_a, axis_b), -1.0
    )


def rack(
    name: str,
    a: AbstractBody,
    radius: Value,
    b: AbstractBody,
    *,
    axis: Vector,
    carrier: AbstractBody = ground,
    phase: Value = 0.0,
    axis_a: Vector | None = None,
) -> Joint:
    """A rack that a pinion moves along an axis of their carrier.

    A turn by a positive angle moves the rack along `axis`. The bearing of the pinion and the guide
    of the rack are separate joints.

    Args:
        name: name of the joint.
        a: the pinion.
        radius: pitch radius of the pinion [m].
        b: the rack.
        axis: direction of the motion of the rack on the carrier.
        carrier: the body that holds the bearing.
        phase: the value of r angle - x [m]; in the plane only.
        axis_a: in space, the axis of the pinion, on the pinion.

    Example:
        >>> from jaxmech.parts import planar_body
        >>> pinion, bar = (planar_body(name, mass=1.0, inertia=0.1) for name in ("pinion", "bar"))
        >>> rack("steering", pinion, 0.01, bar, axis=(1, 0)).kind
        'rack'
    """
    part = part_name("rack", name)
    bodies, size = partners(part, (a, b, carrier), turning=True)
    r, u = positive(part, "radius", radius), direction(part, "axis", axis, size)
    if size == 2:
        require_no_axes(part, axis_a=axis_a)
        return Joint("rack", name, bodies, (RackMesh(r, u, number(part, "phase", phase)),))
    _require_no_phase(part, phase)
    if axis_a is None:
        raise ValueError(
            f"{capital(part)} must have `axis_a` in space; write the direction of the axis of the "
            "pinion."
        )
    speed = RackSpeed(direction(part, "axis_a", axis_a, 3), r, u)
    return Joint("rack", name, bodies, velocities=(speed,))


def screw(
    name: str,
    a: AbstractBody,
    at_a: Vector,
    b: AbstractBody,
    at_b: Vector,
    *,
    axis: Vector,
    lead: Value,
    axis_b: Vector | None = None,
) -> Joint:
    """A nut or spindle: b turns about an axis of a and moves along it by its lead; in space.

    In the coordinates of joints it has an `angle`, at whose zero the points coincide; as a
    constraint it keeps the initial offset.

    Args:
        name: name of the joint.
        a: first body, or `ground`.
        at_a: a point of the axis on a [m].
        b: second body.
        at_b: a point of the axis on b [m].
        axis: direction of the axis on a.
        lead: displacement along the axis per full turn [m], positive for a right-handed screw.
        axis_b: direction of the axis on b, by default the same components as `axis`.

    Example:
        >>> from jaxmech.parts import spatial_body
        >>> nut, o = spatial_body("nut", mass=1.0, inertia=(0.1, 0.1, 0.1)), (0, 0, 0)
        >>> screw("spindle", ground, o, nut, o, axis=(0, 0, 1), lead=0.005).kind
        'screw'
    """
    part, bodies, _, points = pinned("screw", name, (a, b), (at_a, at_b), sizes=(3,), turning=True)
    axes = axes_of(part, axis, axis_b)
    speed = ScrewSpeed(axes[0], points[1], number(part, "lead", lead))
    sleeve = Across(points[0], axes[0], points[1]), Parallel(*axes)
    return Joint("screw", name, bodies, sleeve, (speed,))


def _wheels(
    kind: str, name: str, wheels: tuple[AbstractBody, AbstractBody, AbstractBody],
    radii: tuple[Value, Value], phase: Value, axes: tuple[Vector | None, Vector | None],
    sense: float,
) -> Joint:  # fmt: skip
    part, (radius_a, radius_b), (axis_a, axis_b) = part_name(kind, name), radii, axes
    bodies, size = partners(part, wheels, turning=True)
    ra, rb = _radius(part, "radius_a", radius_a), _radius(part, "radius_b", radius_b)
    if sense < 0:
        ra, rb = positive(part, "radius_a", ra), positive(part, "radius_b", rb)
    if size == 2:
        require_no_axes(part, axis_a=axis_a, axis_b=axis_b)
        return Joint(kind, name, bodies, (Mesh(ra, rb, number(part, "phase", phase), sense),))
    _require_no_phase(part, phase)
    if axis_a is None or axis_b is None:
        raise ValueError(
            f"{capital(part)} must have `axis_a` and `axis_b` in space; write the direction of the "
            "axis of each wheel."
        )
    ua, ub = direction(part, "axis_a", axis_a, 3), direction(part, "axis_b", axis_b, 3)
    return Joint(kind, name, bodies, velocities=(GearSpeed(ua, ra, ub, rb, sense),))


def _radius(part: str, argument: str, radius: Value) -> Value:
    """Check a radius, which is negative for an internal gear."""
    checked = number(part, argument, radius)
    if checked == 0.0:
        raise ValueError(f"{capital(part)} must have a `{argument}` other than zero; correct it.")
    return checked


def _require_no_phase(part: str, phase: Value) -> None:
    if phase != 0:
        raise ValueError(
            f"{capital(part)} must have no `phase` in space, where its equation is one on "
            "velocities; leave it out."
        )
