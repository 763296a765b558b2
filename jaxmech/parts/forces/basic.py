"""Gravity, springs, dampers, torques and applied forces.

    force            acts on                             enters as
    gravity          all bodies                          potential
    spring           a point of a and a point of b       potential
    torsion_spring   a and b                             potential
    damper           a point of a and a point of b       force
    force_law        a point of a and a point of b       force
    torsion_damper   a and b                             force
    torque           a and b                             force
    applied_force    a point of a body                   force
    rotor            a coordinate                        kinetic energy
    joint_spring     a coordinate                        potential

The energy of a mechanism with potentials alone is conserved, and audited in every simulation.

Each function raises a TypeError for an argument that is not a body or not a value, and a ValueError
for bodies, points or directions that do not fit; the message names the force.
"""

from jaxmech.parts.forces.elements import (
    Applied,
    CoordinateSprings,
    Damper,
    ForceLaw,
    Gravity,
    Rotors,
    Spring,
    Torque,
    TorsionDamper,
    TorsionSpring,
)
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.values import Value, non_negative, number

gravity = Gravity
spring, damper = Spring, Damper
torsion_spring, torsion_damper, torque = TorsionSpring, TorsionDamper, Torque
applied_force, force_law = Applied, ForceLaw


def rotor(name: str, coordinate: str | Joint, inertia: Value) -> Rotors:
    """A rotor that turns with a coordinate, such as that of a motor: the energy a v^2 / 2.

    Args:
        name: name of the rotor.
        coordinate: name of the coordinate, such as "elbow.angle", or a joint that has only one.
        inertia: a [kg m^2], the moment of inertia times the square of the gear ratio; for a
            coordinate in metres a mass [kg].
    """
    part = f"rotor {name!r}"
    return Rotors(part, (_name(part, coordinate),), (non_negative(part, "inertia", inertia),))


def joint_spring(
    name: str, coordinate: str | Joint, *, stiffness: Value, rest: Value = 0.0
) -> CoordinateSprings:
    """A spring on a coordinate: the potential k (q - rest)^2 / 2, for angles of any size.

    Args:
        name: name of the spring.
        coordinate: name of the coordinate, such as "elbow.angle", or a joint that has only one.
        stiffness: stiffness k [N m/rad], for a coordinate in metres [N/m].
        rest: the coordinate at which there is no force [rad] or [m].
    """
    part = f"spring {name!r}"
    k, rest_value = number(part, "stiffness", stiffness), number(part, "rest", rest)
    return CoordinateSprings(part, (_name(part, coordinate),), (k,), (rest_value,))


def _name(part: str, coordinate: str | Joint) -> str:
    """The name of a coordinate, or of the only one of a joint."""
    if isinstance(coordinate, str):
        return coordinate
    names = [f"{coordinate.name}.{letter}" for letter in getattr(coordinate, "letters", ())]
    if len(names) != 1:
        raise ValueError(
            f"Argument `coordinate` of {part} must be the name of a coordinate, or a joint with "
            f"one; {coordinate.name!r} has {', '.join(names) or 'none'}."
        )
    return names[0]
