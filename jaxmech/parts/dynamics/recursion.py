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

from jaxmech.parts.dynamics.members import Member, Passage, members_of
from jaxmech.parts.forces.elements import Gravity
from jaxmech.parts.inertia import Inertia, acceleration_field, across, in_space, is_zero, matmul
from jaxmech.parts.kinematics.joint_coordinates import JointCoordinates
from jaxmech.parts.kinematics.tree import Spins
from jaxmech.parts.values import Reader, unit
from jaxmech.parts.vectors import apply, cross
from jaxmech.system import generalized_force, mass_matrix
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.traces import repeated


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
        """M and Q at a state, without states of first order."""
        n = len(self.kinematics.coordinates)
        k = n if self.spins is None else len(self.spins.names)
        q, v, t = 1.0 * jnp.asarray(q)[:n], 1.0 * jnp.asarray(v)[:k], jnp.asarray(t)
        members = members_of(self.kinematics, q, v, t, params, self.spins is not None)
        M = mass_of(members, k)
        Q = -effort_of(members, self._upward(t, params), k)
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

        M = mass_matrix(slopes, q, v, t)
        if spins is None:
            return M, generalized_force(slopes, q, v, t)
        T = spins(q, t, params)
        force = generalized_force(slopes, q, v, t, speeds=apply(T, v))
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
    """CompositeMomenta of the bodies from one on, for unit rates of k joints.

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
        momenta = _joined(
            [
                CompositeMomenta(linear, angular, columns),
                *(_seen(x, passage) for x in outboard[member.name]),
            ]
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
                angular = angular + matmul(across(passage.offset), momenta.linear)
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
        angular = angular + matmul(across(inertia.static), passage.turn.back(passage.ways))
    return linear, angular


def _seen(momenta: CompositeMomenta, passage: Passage) -> CompositeMomenta:
    """The same with linear momenta along the axes of the body before."""
    return momenta._replace(linear=passage.turn.out(momenta.linear))


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

    spin: AnyArray
    angular: AnyArray
    field: AnyArray
    acceleration: AnyArray


def effort_of(members: Sequence[Member], upward: AnyArray, n: int) -> Array:
    """The generalized force (n,) that holds the accelerations of the joints at zero."""
    zeros = np.zeros(3, upward.dtype)
    courses = {"ground": Course(zeros, zeros, np.zeros((3, 3), upward.dtype), upward)}
    loads = {"ground": (zeros, zeros)}
    for member in members:
        course = _course(courses[member.parent], member.passage)
        courses[member.name] = course
        loads[member.name] = member.inertia.load(
            course.acceleration, course.spin, course.angular, course.field
        )
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
    """The course of the body after a joint."""
    spin = passage.turn.back(parent.spin) + passage.spin
    angular = passage.turn.back(parent.angular) + cross(spin, passage.spin) + passage.spin_rate
    acceleration = parent.acceleration + passage.rate_rate
    if not is_zero(parent.field):
        acceleration = acceleration + apply(parent.field, passage.offset)
    if not is_zero(passage.rate):
        acceleration = acceleration + 2 * cross(parent.spin, passage.rate)
    field = acceleration_field(spin, angular)
    return Course(spin, angular, field, passage.turn.back(acceleration))
