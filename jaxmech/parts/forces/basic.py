"""Gravity, springs, dampers, torques and applied forces.

    force            acts on                             enters as
    gravity          all bodies                          potential
    spring           a point of a and a point of b       potential
    torsion_spring   a and b                             potential
    damper           a point of a and a point of b       force
    torsion_damper   a and b                             force
    torque           a and b                             force
    applied_force    a point of a body                   force
    rotor            a coordinate                        kinetic energy
    joint_spring     a coordinate                        potential

The energy of a mechanism with potentials alone is conserved, and audited in every simulation.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the force.
"""

import numpy as np

from jaxmech.parts.body import AbstractBody, ground
from jaxmech.parts.forces.elements import (
    Applied,
    CoordinateSprings,
    Damper,
    Gravity,
    Rotors,
    Spring,
    Torque,
    TorsionSpring,
)
from jaxmech.parts.joints.checks import part_name, partners, point, turning_pair
from jaxmech.parts.values import Value, Vector, direction, non_negative, number, vector


def gravity(acceleration: Value = 9.81, *, down: Vector | None = None) -> Gravity:
    """The weight of all bodies of a mechanism, along -y in the plane and -z in space.

    Args:
        acceleration: acceleration of gravity [m/s^2].
        down: another direction of gravity, of any length.

    Example:
        >>> gravity("g")
        Gravity(acceleration='g', down=None)
    """
    magnitude = number("gravity", "acceleration", acceleration)
    if down is None:
        return Gravity(magnitude, None)
    size = np.size(down) if np.ndim(down) == 1 else 3  # that of a name is checked when it is read
    return Gravity(magnitude, direction("gravity", "down", down, size))


spring, damper = Spring, Damper


def torsion_spring(
    name: str,
    a: AbstractBody,
    b: AbstractBody,
    *,
    stiffness: Value,
    rest: Value = 0.0,
    axis: Vector | None = None,
    axis_b: Vector | None = None,
) -> TorsionSpring:
    """A torsion spring between two bodies that share an axis.

    Args:
        name: name of the spring.
        a: first body, or `ground`.
        b: second body.
        stiffness: torsional stiffness [N m/rad].
        rest: angle of b relative to a at which there is no torque [rad].
        axis: in space, the shared axis on a; the angle is as in `given_angle`, between -pi and pi.
        axis_b: the axis on b, by default the same components as `axis`.
    """
    part, bodies, axes = turning_pair("torsion spring", name, (a, b), axis, axis_b)
    k, rest_angle = number(part, "stiffness", stiffness), number(part, "rest", rest)
    return TorsionSpring(part, bodies, k, rest_angle, axes)


def torsion_damper(
    name: str, a: AbstractBody, b: AbstractBody, *, damping: Value, axis: Vector | None = None
) -> Torque:
    """A damper on the angular velocity of b relative to a.

    Args:
        name: name of the damper.
        a: first body, or `ground`.
        b: second body.
        damping: damping coefficient [N m s/rad].
        axis: in space, the axis of the damper on a.
    """
    part, bodies, axes = turning_pair("torsion damper", name, (a, b), axis)
    return Torque(part, bodies, 0.0, number(part, "damping", damping), axes and axes[0])


def torque(
    name: str, a: AbstractBody, b: AbstractBody, value: Value, *, axis: Vector | None = None
) -> Torque:
    """A torque on b and the opposite torque on a, such as that of a motor.

    Args:
        name: name of the torque.
        a: first body, or `ground`.
        b: second body.
        value: the torque on b [N m].
        axis: in space, the direction of the torque on a.
    """
    part, bodies, axes = turning_pair("torque", name, (a, b), axis)
    return Torque(part, bodies, number(part, "value", value), 0.0, axes and axes[0])


def applied_force(
    name: str, body: AbstractBody, at: Vector, force: Vector, *, follows: bool = False
) -> Applied:
    """An external force at a point of a body.

    Args:
        name: name of the force.
        body: the body on which it acts.
        at: the point on the body [m].
        force: components [N], two or three values.
        follows: whether the components are along the axes of the body instead of the ground.
    """
    part = part_name("applied force", name)
    (a, b), size = partners(part, (ground, body))
    components = vector(part, "force", force, size)
    at_b = point(part, "at", b, at, size)
    return Applied(part, (b,) if follows else (a, b), at_b, components)


def rotor(name: str, coordinate: str, inertia: Value) -> Rotors:
    """A rotor that turns with a coordinate, such as that of a motor: the energy a v^2 / 2.

    Args:
        name: name of the rotor.
        coordinate: name of the coordinate, such as "elbow.angle".
        inertia: a [kg m^2], the moment of inertia times the square of the gear ratio; for a
            coordinate in metres a mass [kg].
    """
    part = part_name("rotor", name)
    return Rotors(part, (coordinate,), (non_negative(part, "inertia", inertia),))


def joint_spring(
    name: str, coordinate: str, *, stiffness: Value, rest: Value = 0.0
) -> CoordinateSprings:
    """A spring on a coordinate: the potential k (q - rest)^2 / 2, for angles of any size.

    Args:
        name: name of the spring.
        coordinate: name of the coordinate, such as "elbow.angle".
        stiffness: stiffness k [N m/rad], for a coordinate in metres [N/m].
        rest: the coordinate at which there is no force [rad] or [m].
    """
    part = part_name("spring", name)
    k, rest_value = number(part, "stiffness", stiffness), number(part, "rest", rest)
    return CoordinateSprings(part, (coordinate,), (k,), (rest_value,))
