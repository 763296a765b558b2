"""`Member`: a body of a tree and the passage to it, with what counts as its inertia.

A `Passage` is the way over a joint from the pivot of one body to that of the next, and its rates.
The *pivot* of a body is a point that is fixed on it, at the joint by which it hangs on the body
before unless that moves on the body. The *axes* of a body are those it was described with, or,
after a hinge whose axis is fixed on both bodies, such that their third one is that axis.

What a body shares with the motion of the body before counts there (the base parameters of Gautier
and Khalil, "Direct calculation of minimum set of inertial parameters of serial robots", 1990): the
mass where their joint is a point of both, and the static moment along the axis of a hinge. So most
bodies have no mass of their own, and their equations fewer terms.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.inertia import Inertia, Turn, in_space, matmul, rounded
from jaxmech.parts.kinematics.base import Relation
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates, Link
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import apply, cross, right_products, rotation, rotation_about
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.probing import depends_on


class Seat(NamedTuple):
    """The pivot on a body, (3,), and the rotation from its axes to the described ones, (3, 3)."""

    point: AnyArray
    axes: AnyArray


class Passage(NamedTuple):
    """A joint at a state, with k velocities.

    Attributes:
        turn: from the axes of the body to those of the body before.
        offset: from the pivot of the body before to that of the body, along the axes of the former.
        spins: spin for a unit of each velocity, along the axes of the body, (3, k).
        ways: rate of `offset` for a unit of each velocity, (3, k).
        spin: relative spin, (3,).
        rate: rate of `offset`, (3,).
        spin_rate: rate of `spin` without accelerations of the joint, (3,).
        rate_rate: rate of `rate` without accelerations of the joint, (3,).
    """

    turn: Turn
    offset: AnyArray
    spins: AnyArray
    ways: AnyArray
    spin: AnyArray
    rate: AnyArray
    spin_rate: AnyArray
    rate_rate: AnyArray


def way_of_a_point(q: Array, v: Array) -> Passage:
    """The way to a point that moves freely, with its coordinates and their rates."""
    identity, zeros = np.eye(3, dtype=q.dtype), np.zeros(3, q.dtype)
    spins = np.zeros((3, 3), q.dtype)
    turn = Turn(identity, identity)
    return Passage(turn, q, spins, identity, zeros, v, zeros, zeros)


@dataclass(frozen=True)
class Connection:
    """A link of a tree with the values of its joint.

    Attributes:
        link: the link.
        read: reader of the values.
        is_steady: whether none of them depends on time.
        has_spins: whether velocities of a quaternion are spins.
    """

    link: Link
    read: Reader
    is_steady: bool
    has_spins: bool

    @property
    def is_spinning(self) -> bool:
        """Whether the last velocities are the spin of b relative to a, along the axes of b."""
        return self.has_spins and self.link.has_norm

    @property
    def is_carried(self) -> bool:
        """Whether the velocities are those of a point that moves freely, and a spin."""
        return self.is_spinning and self.link.joint is None

    @property
    def n_velocities(self) -> int:
        """The number of velocities of the joint."""
        return len(self.link.letters) - self.is_spinning

    @property
    def hinge_axes(self) -> tuple[AnyArray, AnyArray] | None:
        """The rotations to the axes of both bodies of a hinge from axes that it turns, (3, 3)."""
        joint = self.link.joint
        return joint.hinge_axes(self.read) if joint is not None and self.is_steady else None

    @property
    def is_hinge(self) -> bool:
        """Whether the third axis of the body is that of a hinge."""
        return self.hinge_axes is not None

    @property
    def has_fixed_pivot(self) -> bool:
        """Whether the joint stays where it is on the body."""
        joint = self.link.joint
        if joint is None:
            return True
        return self.is_steady and not (joint.slides and self.link.is_reversed)

    def seat(self) -> Seat:
        """The pivot and the axes of the body."""
        dtype, joint = self.read.dtype, self.link.joint
        point, axes = np.zeros(3, dtype), np.eye(3, dtype=dtype)
        if joint is not None and self.is_steady:
            point = in_space(self._end(not self.link.is_reversed))
        if self.hinge_axes is not None:
            axes = self.hinge_axes[int(not self.link.is_reversed)]
        return Seat(point, axes)

    def passage(self, parent_seat: Seat, seat: Seat, q: Array, v: Array) -> Passage:
        """The joint at its coordinates and velocities, between two bodies."""
        if self.hinge_axes is not None:
            return self._about_axis(parent_seat, self.hinge_axes, q[0], v[0])
        if self.is_spinning and self.is_steady:
            return self._spun(parent_seat, q, v)
        return self._moved(parent_seat, seat, q, v)

    def _about_axis(
        self, parent_seat: Seat, hinge_axes: tuple[AnyArray, AnyArray], angle: Array, rate: Array
    ) -> Passage:
        """A hinge, whose axis is the third one of the body."""
        dtype, is_reversed = self.read.dtype, self.link.is_reversed
        third, zeros = np.eye(3, dtype=dtype)[2], np.zeros(3, dtype)
        turn = rotation_about(third, angle)
        fixed = rounded(matmul(parent_seat.axes.T, hinge_axes[int(is_reversed)]))
        end = in_space(self._end(is_reversed))
        third = -third if is_reversed else third
        return Passage(
            Turn(fixed, turn.T if is_reversed else turn),
            apply(parent_seat.axes.T, end - parent_seat.point),
            third[:, None],
            np.zeros((3, 1), dtype),
            rate * third,
            *(zeros,) * 3,
        )

    def _spun(self, parent_seat: Seat, q: Array, v: Array) -> Passage:
        """A ball, or the turn of a free body about its reference point."""
        dtype, is_reversed, into = self.read.dtype, self.link.is_reversed, parent_seat.axes.T
        axes, spin, spins = rotation(_with_unit(q)[-4:]), v[-3:], np.eye(3, dtype=dtype)
        zeros = joint = np.zeros(3, dtype)
        if self.link.joint is not None:
            joint = apply(into, in_space(self._end(is_reversed)) - parent_seat.point)
        if is_reversed:
            spins, spin, axes = -axes, -apply(axes, spin), axes.T
        ways = np.zeros((3, 3), dtype)
        return Passage(Turn(into, axes), joint, spins, ways, spin, *(zeros,) * 3)

    def _moved(self, parent_seat: Seat, seat: Seat, q: Array, v: Array) -> Passage:
        """Any joint, by derivatives of where it takes the body."""
        t = 1.0 * self.read.t
        q, v = 1.0 * q, 1.0 * v

        def rates(q: Array, v: Array, t: Array) -> tuple[AnyArray, AnyArray]:
            relation = self._relation(q, v, t)
            axes, offset = in_space(relation.axes), self._offset(relation, seat)
            spin, rate = in_space(relation.spin), in_space(relation.at_a[1])
            if self.has_fixed_pivot:
                return 1.0 * spin, 1.0 * rate
            return spin, rate - apply(axes, cross(spin, offset) + in_space(relation.at_b[1]))

        relation = self._relation(q, v, t)
        axes = in_space(relation.axes)
        joint = in_space(relation.at_a[0]) - parent_seat.point
        if not self.has_fixed_pivot:
            joint = joint - apply(axes, self._offset(relation, seat))
        time_rate = jnp.zeros_like(t) if self.is_steady else jnp.ones_like(t)
        (spin, rate), (spin_rate, rate_rate) = jax.jvp(
            rates, (q, v, t), (self._speeds(q, v), jnp.zeros_like(v), time_rate)
        )
        spins, ways = jax.jacfwd(lambda v: rates(q, v, t))(v)
        into = parent_seat.axes.T
        return Passage(
            Turn(into, axes), apply(into, joint), spins, matmul(into, ways), spin,
            apply(into, rate), spin_rate, apply(into, rate_rate),
        )  # fmt: skip

    def _offset(self, relation: Relation, seat: Seat) -> AnyArray:
        """The way from the pivot to the joint, along the axes of the body, (3,)."""
        return in_space(relation.at_b[0]) - seat.point

    def _speeds(self, q: Array, v: Array) -> Array:
        """The rates of the coordinates of the joint."""
        if not self.is_spinning:
            return v
        return jnp.concatenate([v[:-3], apply(right_products(q[-4:]), v[-3:]) / 2])

    def _relation(self, q: Array, v: Array, t: Array) -> Relation:
        joint, speeds = self.link.joint, self._speeds(q, v)
        if self.link.has_norm:
            q, speeds = jax.jvp(_with_unit, (q,), (speeds,))
        read = replace(self.read, t=t)
        if joint is None:
            relation = _free(self.link.body, q, speeds)
        elif self.is_steady:
            relation = joint.relation(q, speeds, read)
        else:
            relation = joint.moving(q, speeds, read)
        if self.is_spinning:
            relation = relation._replace(spin=v[-3:])
        return relation.reverse if self.link.is_reversed else relation

    def _end(self, on_b: bool) -> AnyArray:
        """The joint on its second or first body, (d,)."""
        joint = self.link.joint
        assert joint is not None
        return self.read.vector(joint.at_b if on_b else joint.at_a, self.link.body.dimension)


def _with_unit(q: Array) -> Array:
    """The coordinates with a unit quaternion at their end, so that every state is one of bodies."""
    e = q[-4:]
    squared = e @ e
    return jnp.concatenate([q[:-4], e / jnp.sqrt(jnp.where(squared > 0, squared, 1.0))])


def _free(body: AbstractBody, q: Array, v: Array) -> Relation:
    frame, d = body.frame(q), body.dimension
    zeros = np.zeros(d, q.dtype)
    ends = (q[:d], v[:d]), (zeros, zeros)
    return Relation(frame.axes, frame.attitude, *ends, body.spin(q, v))


def connection_of(link: Link, read: Reader, has_spins: bool) -> Connection:
    """The connection of a link."""
    t = 1.0 * read.t
    functions = () if link.joint is None else link.joint.functions
    is_steady = not any(depends_on(lambda t, fn=fn: fn(t, read.params), (t,)) for fn in functions)
    return Connection(link, read, is_steady, has_spins)


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
