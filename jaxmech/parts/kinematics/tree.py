"""The tree of a mechanism: which joints have coordinates, and which close loops."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.joint_base import Joint
from jaxmech.parts.kinematics.base import AbstractKinematics
from jaxmech.parts.kinematics.body_coordinates import BodyCoordinates
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates, Link
from jaxmech.parts.kinematics.motions import (
    AbstractMotion,
    Ball,
    Cardan,
    Helix,
    Hinge,
    Plane,
    Rigid,
    Sleeve,
    Slide,
)
from jaxmech.parts.position_equations import (
    Across,
    Coincide,
    Level,
    Parallel,
    Perpendicular,
    Turned,
)
from jaxmech.parts.velocity_equations import ScrewSpeed


def kinematics_of(
    bodies: Sequence[AbstractBody], joints: Sequence[Any], coordinates: str, cut: Sequence[str]
) -> tuple[AbstractKinematics, tuple[str, ...]]:
    """The kinematics of a mechanism, and the joints whose coordinates it uses."""
    if coordinates not in ("bodies", "joints"):
        raise ValueError(
            f'Argument `coordinates` must be "bodies" or "joints", but is {coordinates!r}.'
        )
    if coordinates == "bodies":
        if cut:
            raise ValueError(
                'Argument `cut` must be left out with coordinates="bodies", where all joints are '
                "constraints."
            )
        return BodyCoordinates(tuple(bodies)), ()
    known = [joint.name for joint in joints if isinstance(joint, Joint)]
    for name in cut:
        if name not in known:
            raise ValueError(
                f"Argument `cut` must hold names of joints ({', '.join(known)}), but has {name!r}."
            )
    tree, names = spanning_tree(bodies, joints, cut)
    if bodies and not tree.coordinates:
        raise ValueError(
            "Argument `joints` must leave some freedom to a body, but welds all bodies to the "
            'ground, so that no coordinates are left; with coordinates="bodies" welds are '
            "constraints and have reactions."
        )
    return (tree, names) if names else (BodyCoordinates(tuple(bodies)), ())


def spanning_tree(
    bodies: Sequence[AbstractBody], joints: Sequence[Any], cut: Sequence[str]
) -> tuple[JointCoordinates, tuple[str, ...]]:
    """The coordinates of joints along a tree from the ground, and the names of its joints.

    The tree is as shallow as possible, joints in their given order; a body that no joint connects
    to the ground moves freely. Joints of the names `cut` are left out, and so are those without a
    name, since coordinates are called after their joints.
    """
    motions = {
        joint.name: (joint, motion)
        for joint in joints
        if isinstance(joint, Joint) and joint.name and joint.name not in cut
        for motion in [motion_of(joint)]
        if motion is not None
    }
    links: list[Link] = []
    reached = ["ground"]
    waiting = list(bodies)
    place = 0
    while waiting:
        if place == len(reached):  # nothing else hangs on the bodies so far
            body = waiting.pop(0)
            _add(links, Link(body, "ground", None, body.name, f"body {body.name!r}", 0))
            reached.append(body.name)
        for joint, motion in motions.values():
            parent, body = joint.bodies
            is_reversed = body.name == reached[place]
            if is_reversed:
                parent, body = body, parent
            if parent.name == reached[place] and body in waiting:
                name, part = joint.name, joint.part
                _add(links, Link(body, parent.name, motion, name, part, 0, is_reversed))
                waiting.remove(body)
                reached.append(body.name)
        place += 1
    names = tuple(link.joint for link in links if link.motion is not None)
    return JointCoordinates(tuple(bodies), tuple(links)), names


def _add(links: list[Link], link: Link) -> None:
    first = links[-1].first + len(links[-1].letters) if links else 0
    links.append(replace(link, first=first))


def motion_of(joint: Joint) -> AbstractMotion | None:
    """The motion that a joint between two bodies leaves free; None if it has no coordinates.

    Such joints tie points to curves or surfaces, or let bodies roll.
    """
    if len(joint.bodies) != 2 or not all(b.rotates for b in joint.bodies):
        return None
    size = joint.bodies[1].dimension
    match joint.positions, joint.velocities:
        case (Coincide(at_a, at_b),), ():
            return Hinge(at_a, at_b, None) if size == 2 else Ball(at_a, at_b)
        case (Coincide(at_a, at_b), Parallel(u, w, zero)), ():
            return Hinge(at_a, at_b, (u, w), zero)
        case (Coincide(at_a, at_b), Perpendicular(u, w)), ():
            return Cardan(at_a, at_b, u, w)
        case (Coincide(at_a, at_b), Turned(turn)), ():
            return Rigid(at_a, at_b, turn, size)
        case (Across(at_a, axis, at_b), Turned(turn)), ():
            return Slide(at_a, at_b, axis, turn, size)
        case (Across(at_a, u, at_b), Parallel(_, w)), ():
            return Sleeve(at_a, at_b, (u, w))
        case (Level(at_a, u, at_b, 0.0), Parallel(_, w)), ():
            return Plane(at_a, at_b, (u, w))
        case (Across(at_a, u, at_b), Parallel(_, w)), (ScrewSpeed(_, _, lead),):
            return Helix(at_a, at_b, (u, w), lead)
    return None
