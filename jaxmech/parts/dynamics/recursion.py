"""`MassAndForce`: M and Q of a tree of bodies by recursions along it, instead of derivatives.

The mass matrix is that of the composite-rigid-body recursion (Walker and Orin 1982; Featherstone,
"Rigid Body Dynamics Algorithms", 2008, section 6.2), the force that of the recursive Newton-Euler
equations (Luh, Walker and Paul 1980), with spins and accelerations along the axes of each body and
about its pivot. A weight is an acceleration of the ground.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.equations import generalized_force, mass_matrix
from jaxmech.parts.dynamics.inertia import Inertia, acceleration_field
from jaxmech.parts.dynamics.members import Member, members_of
from jaxmech.parts.dynamics.passage import Passage
from jaxmech.parts.dynamics.space import across, in_space, is_zero, matmul
from jaxmech.parts.forces.elements import Gravity
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import Numbers, apply, cross


@dataclass(frozen=True)
class MassAndForce:
    """M (n, n) and Q (n,) of bodies, their weights, and other terms of a Lagrangian.

    Attributes:
        kinematics: the tree.
        gravities: the weights.
        others: the terms that are no kinetic energies of bodies nor weights, if there are any:
            `others(q, v, t, params)`, a scalar.
    """

    kinematics: JointCoordinates
    gravities: tuple[Gravity, ...]
    others: Callable[..., Array] | None

    def __call__(self, q: Any, v: Any, t: Any, params: Any) -> tuple[Array, Array]:
        """M and Q at a state, without states of first order."""
        n = len(self.kinematics.coordinates)
        q, v, t = 1.0 * jnp.asarray(q)[:n], 1.0 * jnp.asarray(v)[:n], jnp.asarray(t)
        members = members_of(self.kinematics, q, v, t, params)
        M = mass_of(members, n)
        Q = -effort_of(members, self._upward(t, params), n)
        if self.others is None:
            return M, Q
        gradients = jax.grad(self.others, argnums=(0, 1))

        def slopes(q: Array, v: Array, t: Array) -> tuple[Array, Array]:
            of_q_and_v: tuple[Array, Array] = gradients(q, v, t, params)
            return of_q_and_v

        more = mass_matrix(slopes, q, v, t)
        return M + more, Q + generalized_force(slopes, q, v, t)

    def _upward(self, t: Array, params: Any) -> Numbers:
        """The acceleration of the ground in whose place weights are, (3,)."""
        read, size = Reader("gravity", t, params), self.kinematics.bodies[0].dimension
        total = np.zeros(3, read.dtype)
        for weight in self.gravities:
            up = np.eye(size, dtype=read.dtype)[-1]
            if weight.down is not None:
                up = -unit(read, weight.down, size)
            total = total + read.number(weight.acceleration) * in_space(up)
        return total


class CompositeMomenta(NamedTuple):
    """CompositeMomenta of the bodies from one on, for unit rates of k joints.

    Attributes:
        linear: momenta, (3, k).
        angular: angular momenta about the pivot of the first body, (3, k).
        coordinates: indices of the coordinates of the joints, (k,).
    """

    linear: Numbers
    angular: Numbers
    coordinates: np.ndarray


def mass_of(members: Sequence[Member], n: int) -> Array:
    """The mass matrix, (n, n)."""
    composite = {member.name: member.inertia for member in members}
    after: dict[str, list[CompositeMomenta]] = {member.name: [] for member in members}
    numbers: list[Array] = [jnp.zeros(1, members[0].inertia.static.dtype)]
    places = np.zeros((n, n), int)
    for member in reversed(members):
        to, inertia = member.passage, composite[member.name]
        own = member.first + np.arange(to.spins.shape[1])
        momenta = _joined([_momenta(to, inertia, own), *(_seen(x, to) for x in after[member.name])])
        if own.size:
            rows = matmul(to.spins.T, momenta.angular) + matmul(to.ways.T, momenta.linear)
            within = sum(x.size for x in numbers) + np.arange(rows.size).reshape(rows.shape)
            places[np.ix_(own, momenta.coordinates)] = within
            numbers.append(jnp.ravel(rows))
        if member.before in after:
            more = inertia.moved(to.turn, to.way)
            composite[member.before] = composite[member.before].plus(more)
            turned = to.turn.out(momenta.angular)
            if not is_zero(to.way):
                turned = turned + matmul(across(to.way), momenta.linear)
            after[member.before].append(momenta._replace(angular=turned))
    # Each pair of coordinates is in one of two entries, or in both with the same value.
    last = sum(x.size for x in numbers)
    either = np.minimum(*(np.where(x == 0, last, x) for x in (places, places.T)))
    return jnp.concatenate(numbers)[np.where(either == last, 0, either)]


def _momenta(to: Passage, inertia: Inertia, own: np.ndarray) -> CompositeMomenta:
    """The momenta of a rigid tree after a joint, linear ones along the axes of the body before."""
    linear, angular = inertia.momenta(to.spins)
    linear = to.turn.out(linear)
    if not is_zero(to.ways):
        linear = linear + inertia.mass * to.ways
        angular = angular + matmul(across(inertia.static), to.turn.back(to.ways))
    return CompositeMomenta(linear, angular, own)


def _seen(momenta: CompositeMomenta, to: Passage) -> CompositeMomenta:
    """The same with linear momenta along the axes of the body before."""
    return momenta._replace(linear=to.turn.out(momenta.linear))


def _joined(parts: Sequence[CompositeMomenta]) -> CompositeMomenta:
    linear, angular, coordinates = zip(*parts, strict=True)
    if len(parts) == 1:
        return parts[0]
    return CompositeMomenta(
        jnp.concatenate(linear, 1), jnp.concatenate(angular, 1), np.concatenate(coordinates)
    )


class Course(NamedTuple):
    """How a body moves where the joints have no accelerations, along its axes.

    Attributes:
        spin: angular velocity, (3,).
        angular: angular acceleration, (3,).
        field: `acceleration_field` of both, (3, 3).
        acceleration: acceleration of the pivot, (3,).
    """

    spin: Numbers
    angular: Numbers
    field: Numbers
    acceleration: Numbers


def effort_of(members: Sequence[Member], upward: Numbers, n: int) -> Array:
    """The generalized force (n,) that holds the accelerations of the joints at zero."""
    still = np.zeros(3, upward.dtype)
    courses = {"ground": Course(still, still, np.zeros((3, 3), upward.dtype), upward)}
    loads = {"ground": (still, still)}
    for member in members:
        course = _course(courses[member.before], member.passage)
        courses[member.name] = course
        loads[member.name] = member.inertia.load(
            course.acceleration, course.spin, course.angular, course.field
        )
    efforts = []
    for member in reversed(members):
        to, (force, torque) = member.passage, loads[member.name]
        force = to.turn.out(force)
        if to.spins.shape[1]:
            efforts.append(apply(to.spins.T, torque) + apply(to.ways.T, force))
        if member.before != "ground":
            before = loads[member.before]
            moment = to.turn.out(torque)
            if not is_zero(to.way):
                moment = moment + cross(to.way, force)
            loads[member.before] = before[0] + force, before[1] + moment
    return jnp.concatenate([jnp.zeros(0, upward.dtype), *reversed(efforts)])


def _course(before: Course, to: Passage) -> Course:
    """The course of the body after a joint."""
    spin = to.turn.back(before.spin) + to.spin
    angular = to.turn.back(before.angular) + cross(spin, to.spin) + to.spin_rate
    acceleration = before.acceleration + apply(before.field, to.way) + to.rate_rate
    if not is_zero(to.rate):
        acceleration = acceleration + 2 * cross(before.spin, to.rate)
    field = acceleration_field(spin, angular)
    return Course(spin, angular, field, to.turn.back(acceleration))
