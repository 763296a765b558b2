"""`Passage`: the way over a joint from the pivot of one body to that of the next, and its rates.

The *pivot* of a body is a point that is fixed on it, at the joint by which it hangs on the body
before unless that moves on the body. The *axes* of a body are those it was described with, or,
after a hinge whose axis is fixed on both bodies, such that their third one is that axis.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.inertia import Turn, in_space, matmul, rounded
from jaxmech.parts.kinematics.joint_coordinates import Link
from jaxmech.parts.kinematics.relations import Relation
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import (
    apply,
    cross,
    plane_rotation,
    right_products,
    rotation,
    rotation_about,
    spin_in_body,
)
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
            relation = _free(self.link, q, speeds)
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


def _free(link: Link, q: Array, v: Array) -> Relation:
    body, dtype = link.body, q.dtype
    size = body.dimension
    zeros = np.zeros(size, dtype)
    ends = (q[:size], v[:size]), (zeros, zeros)
    if not body.rotates:
        return Relation(np.eye(3, dtype=dtype), q, *ends, np.zeros(3, dtype))
    if size == 2:
        return Relation(plane_rotation(q[2]), q[2], *ends, v[2])
    return Relation(rotation(q[3:]), q[3:], *ends, spin_in_body(q[3:], v[3:]))


def connection_of(link: Link, read: Reader, has_spins: bool) -> Connection:
    """The connection of a link."""
    t = 1.0 * read.t
    functions = () if link.joint is None else link.joint.functions
    is_steady = not any(depends_on(lambda t, fn=fn: fn(t, read.params), (t,)) for fn in functions)
    return Connection(link, read, is_steady, has_spins)
