"""`Member`: a body of a tree, with what counts as its inertia.

What a body shares with the motion of the body before counts there (the base parameters of Gautier
and Khalil, "Direct calculation of minimum set of inertial parameters of serial robots", 1990): the
mass where their joint is a point of both, and the static moment along the axis of a hinge. So most
bodies have no mass of their own, and their equations fewer terms.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.dynamics.passage import (
    Connection,
    Passage,
    Seat,
    connection_of,
    way_of_a_point,
)
from jaxmech.parts.inertia import Inertia, Turn, in_space
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates
from jaxmech.parts.values import Reader


class Member(NamedTuple):
    """A body at a state.

    Attributes:
        name: its name.
        parent: name of the body that it hangs on.
        first: index of the first velocity of the joint between them.
        passage: the joint.
        inertia: the inertia about its pivot, without what counts as that of the body before.
    """

    name: str
    parent: str
    first: int
    passage: Passage
    inertia: Inertia


class _Joint(NamedTuple):
    """A joint at a state; `connection` is None for the way of a point."""

    connection: Connection | None
    name: str  # of the body or point behind it
    parent: str
    first: int
    passage: Passage


def members_of(
    kinematics: JointCoordinates, q: Array, v: Array, t: Array, params: Any, has_spins: bool
) -> list[Member]:
    """The bodies of a tree, those before others first; v are rates, or `Spins`.

    In spins a free body turns about a point that moves freely, and which has its mass.
    """
    dtype = q.dtype
    seats = {"ground": Seat(np.zeros(3, dtype), np.eye(3, dtype=dtype))}
    inertias = {"ground": Inertia.zero(dtype)}
    joints, first = list[_Joint](), 0
    for link in kinematics.links:
        connection = connection_of(link, Reader(link.part, t, params), has_spins)
        name, parent, seat = link.body.name, link.parent, connection.seat()
        x, last = link.entries(q), first + connection.n_velocities
        passage = connection.passage(seats[parent], seat, x, v[first:last])
        if connection.is_carried:
            parent = f"reference point of {name!r}"
            way = way_of_a_point(x[:3], v[first : first + 3])
            joints.append(_Joint(None, parent, "ground", first, way))
            inertias[parent] = Inertia.zero(dtype)
            first += 3
        joints.append(_Joint(connection, name, parent, first, passage))
        seats[name], first = seat, last
        inertias[name] = _about_seat(link.body, seat, Reader(f"body {name!r}", t, params))
    for joint in reversed(joints):
        if joint.connection is None:
            continue
        parent, turn = joint.parent, joint.passage.turn
        inertias[joint.name], shared = _divided(joint.connection, inertias[joint.name])
        if parent != "ground":
            if joint.connection.is_hinge:
                turn = turn._replace(rotation=np.eye(3, dtype=dtype))
            inertias[parent] = inertias[parent].plus(shared.moved(turn, joint.passage.offset))
    return [Member(j.name, j.parent, j.first, j.passage, inertias[j.name]) for j in joints]


def _about_seat(body: AbstractBody, seat: Seat, read: Reader) -> Inertia:
    """The inertia of a body about its pivot, along its axes."""
    mass, static, moments = body.inertia(read)
    if body.dimension == 2:
        last = np.eye(3, dtype=read.dtype)[2]
        moments = moments * (last[:, None] * last)
    turn = Turn(seat.axes.T, np.eye(3, dtype=read.dtype))
    return Inertia(mass, in_space(static), moments).moved(turn, -turn.out(seat.point))


def _divided(connection: Connection, inertia: Inertia) -> tuple[Inertia, Inertia]:
    """What counts as inertia of a body, and of the body before."""
    zero = Inertia.zero(connection.read.dtype)
    if connection.is_carried:
        return inertia._replace(mass=zero.mass), zero._replace(mass=inertia.mass)
    joint = connection.link.joint
    if joint is None or not connection.is_steady:
        return inertia, zero
    return joint.divided(inertia, zero)
