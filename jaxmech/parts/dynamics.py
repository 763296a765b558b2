"""`MassAndForce`: M and Q of a tree of bodies by recursions along it, instead of derivatives.

The mass matrix is that of the composite-rigid-body recursion (Walker and Orin 1982; Featherstone,
"Rigid Body Dynamics Algorithms", 2008, section 6.2), the force that of the recursive Newton-Euler
equations (Luh, Walker and Paul 1980), with spins and accelerations along the axes of each body and
about its pivot. A weight is an acceleration of the ground.

The *pivot* of a body is a point that is fixed on it, at the joint by which it hangs on the body
before unless that moves on the body. The *axes* of a body are those it was described with, or,
after a hinge whose axis is fixed on both bodies, such that their third one is that axis.

What a body shares with the motion of the body before counts there (the base parameters of Gautier
and Khalil, "Direct calculation of minimum set of inertial parameters of serial robots", 1990): the
mass where their joint is a point of both, and the static moment along the axis of a hinge. So most
bodies have no mass of their own, and their equations fewer terms.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody
from jaxmech.parts.forces import Gravity
from jaxmech.parts.inertia import Inertia, Turn, acceleration_field, in_space, rounded
from jaxmech.parts.joints.motions import Hinge, Rigid
from jaxmech.parts.kinematics import Relation
from jaxmech.parts.tree import JointCoordinates, Link, Spins
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import (
    apply,
    cross,
    cross_matrix,
    is_zero,
    matmul,
    right_products,
    rotation,
    rotation_about,
)
from jaxmech.system import lagrange_equations
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.probing import depends_on
from jaxmech.utils.traces import repeated


class Seat(NamedTuple):
    """The pivot on a body, (3,), and the rotation from its axes to the described ones, (3, 3)."""

    point: AnyArray
    axes: AnyArray


class Passage(NamedTuple):
    """The way over a joint from the pivot of one body to that of the next, with k velocities.

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
        return len(self.link.letters) - self.is_spinning

    @property
    def hinge_axes(self) -> tuple[AnyArray, AnyArray] | None:
        """The rotations to the axes of both bodies of a hinge from axes that it turns, (3, 3)."""
        joint = self.link.joint
        if joint is None or not self.is_steady or joint.slides:
            return None
        rotation = joint.motions[1]
        return rotation.to_third_axes(self.read) if isinstance(rotation, Hinge) else None

    @property
    def has_fixed_pivot(self) -> bool:
        """Whether the joint stays where it is on the body."""
        joint = self.link.joint
        if joint is None:
            return True
        return self.is_steady and not (joint.slides and self.link.is_reversed)

    def seat(self) -> Seat:
        dtype = self.read.dtype
        point, axes = np.zeros(3, dtype), np.eye(3, dtype=dtype)
        if self.is_steady:
            point = in_space(self._end(not self.link.is_reversed))
        if self.hinge_axes is not None:
            axes = self.hinge_axes[int(not self.link.is_reversed)]
        return Seat(point, axes)

    def passage(self, parent_seat: Seat, seat: Seat, q: Array, v: Array) -> Passage:
        if self.hinge_axes is not None:
            return self._about_axis(parent_seat, self.hinge_axes, q[0], v[0])
        if self.is_spinning and self.is_steady:
            return self._spun(parent_seat, q, v)
        return self._moved(parent_seat, seat, q, v)

    def divided(self, inertia: Inertia, zero: Inertia) -> tuple[Inertia, Inertia]:
        """What counts as inertia of the body, and of the body before."""
        if self.is_carried:
            return inertia._replace(mass=zero.mass), zero._replace(mass=inertia.mass)
        joint = self.link.joint
        if joint is None or not self.is_steady:
            return inertia, zero
        rotation = joint.motions[1]
        if isinstance(rotation, Rigid):  # moments of inertia turn with the body before
            if not joint.slides:
                return zero, inertia
            return inertia._replace(moments=zero.moments), zero._replace(moments=inertia.moments)
        if joint.slides:
            return inertia, zero
        # The mass moves with that body, and with a hinge also the static moment along its axis.
        inertia, shared = inertia._replace(mass=zero.mass), zero._replace(mass=inertia.mass)
        if isinstance(rotation, Hinge):
            along = np.eye(3, dtype=zero.mass.dtype)[2]
            shared = shared._replace(static=inertia.static * along)
            inertia = inertia._replace(static=inertia.static * (1 - along))
        return inertia, shared

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
        zeros = np.zeros(3, dtype)
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
        """The joint on its second or first body, (d,); a free body moves by its reference point."""
        joint, size = self.link.joint, self.link.body.dimension
        if joint is None:
            return np.zeros(size, self.read.dtype)
        return self.read.vector(joint.at_b if on_b else joint.at_a, size)


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


def members_of(
    kinematics: JointCoordinates, q: Array, v: Array, t: Array, params: Any, has_spins: bool
) -> list[Member]:
    """The bodies of a tree, those before others first; v are rates, or `Spins`.

    In spins a free body turns about a point that moves freely, and which has its mass.
    """
    dtype = q.dtype
    identity, zeros, none = np.eye(3, dtype=dtype), np.zeros(3, dtype), Inertia.zero(dtype)
    seats = {"ground": Seat(zeros, identity)}
    members, connections, first = list[Member](), dict[str, Connection](), 0
    for link in kinematics.links:
        name, parent, time = link.body.name, link.parent, 1.0 * t
        functions = () if link.joint is None else link.joint.functions
        is_steady = not any(depends_on(lambda t, fn=fn: fn(t, params), (time,)) for fn in functions)
        connection = Connection(link, Reader(link.mover.part, t, params), is_steady, has_spins)
        seat, x = connection.seat(), link.entries(q)
        last = first + connection.n_velocities
        passage = connection.passage(seats[parent], seat, x, v[first:last])
        if connection.is_carried:
            parent = f"reference point of {name!r}"
            way = Passage(
                Turn(identity, identity), x[:3], np.zeros((3, 3), dtype), identity,
                zeros, v[first : first + 3], zeros, zeros,
            )  # fmt: skip
            members.append(Member(parent, "ground", first, way, none))
            first += 3
        inertia = _about_seat(link.body, seat, Reader(link.body.part, t, params))
        members.append(Member(name, parent, first, passage, inertia))
        seats[name], connections[name], first = seat, connection, last
    inertias = {member.name: member.inertia for member in members}
    for name, parent, _, passage, _ in reversed(members):
        if name not in connections:
            continue
        connection = connections[name]
        inertias[name], shared = connection.divided(inertias[name], none)
        if parent != "ground":
            turn = passage.turn
            if connection.hinge_axes is not None:
                turn = turn._replace(rotation=identity)
            inertias[parent] = inertias[parent].plus(shared.moved(turn, passage.offset))
    return [member._replace(inertia=inertias[member.name]) for member in members]


def _about_seat(body: AbstractBody, seat: Seat, read: Reader) -> Inertia:
    """The inertia of a body about its pivot, along its axes."""
    mass, static, moments = body.inertia(read)
    if body.dimension == 2:
        last = np.eye(3, dtype=read.dtype)[2]
        moments = moments * (last[:, None] * last)
    turn = Turn(seat.axes.T, np.eye(3, dtype=read.dtype))
    return Inertia(mass, in_space(static), moments).moved(turn, -turn.out(seat.point))


@dataclass(frozen=True)
class MassAndForce:
    """M (k, k) and Q (k,) of bodies, their weights, and other terms of a Lagrangian.

    Attributes:
        kinematics: the tree.
        gravities: the weights.
        others: the terms that are no kinetic energies of bodies nor weights, if there are any:
            `others(q, v, t, params)` with the rates v, a scalar.
        spins: the velocities; None for the rates of the coordinates.
    """

    kinematics: JointCoordinates
    gravities: tuple[Gravity, ...]
    others: Callable[..., Array] | None
    spins: Spins | None = None

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> tuple[Array, Array]:
        n = len(self.kinematics.coordinates)
        k = n if self.spins is None else len(self.spins.names)
        q, v, t = 1.0 * jnp.asarray(q)[:n], 1.0 * jnp.asarray(v)[:k], jnp.asarray(t)
        members = members_of(self.kinematics, q, v, t, params, self.spins is not None)
        M = mass_of(members, k)
        Q = -effort_of(members, self._upward(t, params))
        if self.others is None:
            return M, Q
        extra_mass, force = self._of_others(self.others, q, v, t, params)
        return M + extra_mass, Q + force

    def _of_others(
        self, others: Callable[..., Array], q: Array, v: Array, t: Array, params: Any
    ) -> tuple[Array, Array]:
        """M and Q of the other terms, by derivatives."""
        # Traced once for its value and its derivatives by q, v and t.
        gradients, spins = jax.jit(jax.grad(others, argnums=(0, 1))), self.spins

        def slopes(q: Array, v: Array, t: Array) -> tuple[Array, Array]:
            speeds = v if spins is None else apply(spins(q, t, params), v)
            of_q_and_v: tuple[Array, Array] = gradients(q, speeds, t, params)
            return of_q_and_v

        if spins is None:
            return lagrange_equations(slopes, q, v, t)
        T = spins(q, t, params)
        M, force = lagrange_equations(slopes, q, v, t, apply(T, v))
        return matmul(T.T, M), apply(T.T, force)

    def _upward(self, t: Array, params: Any) -> AnyArray:
        """The acceleration of the ground in whose place weights are, (3,)."""
        read, size = Reader("gravity", t, params), self.kinematics.bodies[0].dimension
        total = np.zeros(3, read.dtype)
        for weight in self.gravities:
            vertical = np.eye(size, dtype=read.dtype)[-1]
            if weight.down is not None:
                vertical = -unit(read, weight.down, size)
            total = total + read.number(weight.acceleration) * in_space(vertical)
        return total


class CompositeMomenta(NamedTuple):
    """Momenta of the bodies from one on, for unit rates of k joints.

    Attributes:
        linear: momenta, (3, k).
        angular: angular momenta about the pivot of the first body, (3, k).
        coordinates: indices of the coordinates of the joints, (k,).
    """

    linear: AnyArray
    angular: AnyArray
    coordinates: np.ndarray


def mass_of(members: Sequence[Member], n: int) -> Array:
    """The mass matrix, (n, n)."""
    composite = {member.name: member.inertia for member in members}
    outboard: dict[str, list[CompositeMomenta]] = {member.name: [] for member in members}
    numbers: list[Array] = [jnp.zeros(1, members[0].inertia.static.dtype)]
    indices = np.zeros((n, n), int)
    for member in reversed(members):
        passage, inertia = member.passage, composite[member.name]
        columns = member.first + np.arange(passage.spins.shape[1])
        linear, angular = _momenta(passage, inertia)
        momenta = CompositeMomenta(linear, angular, columns)
        if beyond := outboard[member.name]:
            # Linear momenta are along the axes of the body before.
            seen = [x._replace(linear=passage.turn.out(x.linear)) for x in beyond]
            linear, angular, coordinates = zip(momenta, *seen, strict=True)
            momenta = CompositeMomenta(
                jnp.concatenate(linear, 1), jnp.concatenate(angular, 1), np.concatenate(coordinates)
            )
        if columns.size:
            rows = matmul(passage.spins.T, momenta.angular) + matmul(passage.ways.T, momenta.linear)
            numbering = sum(x.size for x in numbers) + np.arange(rows.size).reshape(rows.shape)
            indices[np.ix_(columns, momenta.coordinates)] = numbering
            numbers.append(jnp.ravel(rows))
        if member.parent in outboard:
            moved_inertia = inertia.moved(passage.turn, passage.offset)
            composite[member.parent] = composite[member.parent].plus(moved_inertia)
            angular = passage.turn.out(momenta.angular)
            if not is_zero(passage.offset):
                angular = angular + matmul(cross_matrix(passage.offset), momenta.linear)
            outboard[member.parent].append(momenta._replace(angular=angular))
    # Each pair of coordinates is in one of two entries, or in both with the same value.
    last = sum(x.size for x in numbers)
    symmetric_indices = np.minimum(*(np.where(x == 0, last, x) for x in (indices, indices.T)))
    return jnp.concatenate(numbers)[np.where(symmetric_indices == last, 0, symmetric_indices)]


@repeated
def _momenta(passage: Passage, inertia: Inertia) -> tuple[AnyArray, AnyArray]:
    """The momenta of a rigid tree after a joint, linear ones along the axes of the body before."""
    linear, angular = inertia.momenta(passage.spins)
    linear = passage.turn.out(linear)
    if not is_zero(passage.ways):
        linear = linear + inertia.mass * passage.ways
        angular = angular + matmul(cross_matrix(inertia.static), passage.turn.back(passage.ways))
    return linear, angular


class Course(NamedTuple):
    """How a body moves where the joints have no accelerations, along its axes.

    Attributes:
        acceleration: acceleration of the pivot, (3,).
        spin: angular velocity, (3,).
        angular: angular acceleration, (3,).
        field: `acceleration_field` of both, (3, 3).
    """

    acceleration: AnyArray
    spin: AnyArray
    angular: AnyArray
    field: AnyArray


def effort_of(members: Sequence[Member], upward: AnyArray) -> Array:
    """The generalized force (n,) that holds the accelerations of the joints at zero."""
    zeros = np.zeros(3, upward.dtype)
    courses = {"ground": Course(upward, zeros, zeros, np.zeros((3, 3), upward.dtype))}
    loads = {"ground": (zeros, zeros)}
    for member in members:
        course = _course(courses[member.parent], member.passage)
        courses[member.name] = course
        loads[member.name] = member.inertia.load(*course)
    efforts = []
    for member in reversed(members):
        passage, (force, torque) = member.passage, loads[member.name]
        force = passage.turn.out(force)
        if passage.spins.shape[1]:
            efforts.append(matmul(passage.spins.T, torque) + matmul(passage.ways.T, force))
        if member.parent != "ground":
            parent_load = loads[member.parent]
            moment = passage.turn.out(torque)
            if not is_zero(passage.offset):
                moment = moment + cross(passage.offset, force)
            loads[member.parent] = parent_load[0] + force, parent_load[1] + moment
    return jnp.concatenate([jnp.zeros(0, upward.dtype), *reversed(efforts)])


@repeated
def _course(parent: Course, passage: Passage) -> Course:
    spin = passage.turn.back(parent.spin) + passage.spin
    angular = passage.turn.back(parent.angular) + cross(spin, passage.spin) + passage.spin_rate
    acceleration = parent.acceleration + passage.rate_rate
    if not is_zero(parent.field):
        acceleration = acceleration + apply(parent.field, passage.offset)
    if not is_zero(passage.rate):
        acceleration = acceleration + 2 * cross(parent.spin, passage.rate)
    field = acceleration_field(spin, angular)
    return Course(passage.turn.back(acceleration), spin, angular, field)
