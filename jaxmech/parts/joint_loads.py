"""`JointLoads`: the force and torque that each joint of a mechanism exerts.

A joint that is a constraint exerts its multipliers. A joint whose coordinates are used has none: it
exerts what the balance of momentum leaves over for the bodies behind it, from the ends of the tree
to its root. With the momentum p of a body, and its angular momentum h about its reference point P,
the force and the torque about P of all that acts on it are

    F = p',    T = h' + v_P x p
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.parts.body import AbstractBody, Frame, Ground, Load, Moving, shifted, sum_of_loads
from jaxmech.parts.forces import AbstractLoad, AbstractPotential, Gravity
from jaxmech.parts.joints.base import Joint
from jaxmech.parts.kinematics import AbstractKinematics
from jaxmech.parts.tree import JointCoordinates, Link
from jaxmech.parts.values import Reader
from jaxmech.parts.vectors import cross, moment, product, quarter_turn

State = tuple[Array, Array, Array, Any]  # q, v, t and the parameters
Bodies = Sequence[AbstractBody]


@dataclass(frozen=True)
class JointLoads:
    """The loads of a on b of all joints with names.

    Attributes:
        kinematics: the kinematics of the mechanism.
        joints: the joints, each with the names of its constraints; one of the tree has none.
        gravities: the weights.
        potentials: the forces with a potential.
        loads: the forces without one.
    """

    kinematics: AbstractKinematics
    joints: tuple[tuple[Joint, tuple[str, ...]], ...]
    gravities: tuple[Gravity, ...]
    potentials: tuple[AbstractPotential, ...]
    loads: tuple[AbstractLoad, ...]

    def __call__(
        self, q: Array, v: Array, qdd: Array, multipliers: Mapping[str, Array], t: Array,
        params: Any,
    ) -> dict[str, Load]:  # fmt: skip
        """By joint, force (d,) and torque about the joint's point on b, along the ground's axes."""
        state = q, v, t, params
        of_constraints = [
            (joint, self._constraint_loads(joint, names, multipliers, state))
            for joint, names in self.joints
            if any(_multipliers(multipliers, name).size for name in names)
        ]
        exerted = {joint.name: loads[1] for joint, loads in of_constraints if joint.name}
        if isinstance(self.kinematics, JointCoordinates):
            acting: list[tuple[Bodies, tuple[Load, ...]]] = [*self._applied_loads(state)]
            acting += [(joint.bodies, loads) for joint, loads in of_constraints]
            exerted |= self._tree_loads(self.kinematics.links, qdd, acting, state)
        joints_by_name = {joint.name: joint for joint, _ in self.joints if joint.name in exerted}
        at_joints = {}
        for name, joint in joints_by_name.items():
            frame = self._moving(joint.bodies[1:2], state)[0].frame
            point = joint.point_on_b(frame, Reader(joint.part, t, params))
            at_joints[name] = shifted(exerted[name], frame.origin, frame._replace(origin=point))
        return at_joints

    def _moving(self, bodies: Bodies, state: State) -> tuple[Moving, ...]:
        return self.kinematics.moving(bodies, *state)

    def _constraint_loads(
        self, joint: Joint, names: tuple[str, ...], multipliers: Mapping[str, Array], state: State
    ) -> tuple[Load, ...]:
        _, _, t, params = state
        motions, read = self._moving(joint.bodies, state), Reader(joint.part, t, params)
        loads = tuple(map(_zero_like, motions))
        if joint.positions:
            pushes = _multipliers(multipliers, names[0])
            of_positions = _slope(
                lambda x: pushes @ joint.position_level(_frames(x), read), motions, _displaced
            )
            loads = tuple(map(sum_of_loads, loads, of_positions))
        if joint.velocities:
            levels = names[1:] if joint.positions else names
            drags = jnp.concatenate([_multipliers(multipliers, name) for name in levels])
            of_velocities = _slope(
                lambda x: drags @ joint.velocity_level(x, read), motions, _accelerated
            )
            loads = tuple(map(sum_of_loads, loads, of_velocities))
        return loads

    def _applied_loads(self, state: State) -> Iterator[tuple[Bodies, tuple[Load, ...]]]:
        _, _, t, params = state
        for force in self.loads:
            motions = self._moving(force.bodies, state)
            yield force.bodies, force.loads(motions, Reader(force.part, t, params))
        for potential in self.potentials:
            yield potential.bodies, self._potential_loads(potential, state)
        for body in self.kinematics.bodies:
            for weight in self.gravities:
                yield (body,), self._weight(weight, body, state)

    def _potential_loads(self, force: AbstractPotential, state: State) -> tuple[Load, ...]:
        _, _, t, params = state
        motions, read = self._moving(force.bodies, state), Reader(force.part, t, params)
        return _slope(lambda x: -force.energy(_frames(x), read), motions, _displaced)

    def _weight(self, weight: Gravity, body: AbstractBody, state: State) -> tuple[Load, ...]:
        _, _, t, params = state
        of_body, read = Reader(body.part, t, params), Reader("gravity", t, params)

        def work(x: tuple[Moving, ...]) -> Any:
            return -weight.energy(body.moment(x[0].frame, of_body), read)

        return _slope(work, self._moving((body,), state), _displaced)

    def _tree_loads(
        self, links: Sequence[Link], qdd: Array,
        acting: Sequence[tuple[Bodies, tuple[Load, ...]]], state: State,
    ) -> dict[str, Load]:  # fmt: skip
        bodies = (Ground(dimension=self.kinematics.bodies[0].dimension), *self.kinematics.bodies)
        motions = self._moving(bodies, state)
        frames = {body.name: m.frame for body, m in zip(bodies, motions, strict=True)}
        missing = self._rates_of_momentum(qdd, state)
        for loaded, loads in acting:
            for body, load in zip(loaded, loads, strict=True):
                if body.name in missing:
                    missing[body.name] = sum_of_loads(missing[body.name], _opposite(load))
        exerted = {}
        for link in reversed(links):
            if link.joint is None:
                continue
            load, frame = missing[link.body.name], frames[link.body.name]
            on_before = _opposite(shifted(load, frame.origin, frames[link.parent]))
            if link.parent in missing:
                missing[link.parent] = sum_of_loads(missing[link.parent], _opposite(on_before))
            exerted[link.name] = on_before if link.is_reversed else load
        return exerted

    def _rates_of_momentum(self, qdd: Array, state: State) -> dict[str, Load]:
        """The force and torque of all that acts on each body."""
        q, v, t, params = state
        bodies = self.kinematics.bodies

        def momenta(q: Array, v: Array, t: Array) -> list[Load]:
            motions = self._moving(bodies, (q, v, t, params))
            reads = [Reader(body.part, t, params) for body in bodies]
            return list(map(_momenta, bodies, motions, reads))

        values, rates = jax.jvp(momenta, (q, v, t), (v, qdd, jnp.ones_like(t)))
        motions = self._moving(bodies, state)
        return {
            body.name: (force, torque + moment(m.velocity, p))
            for body, m, (p, _), (force, torque) in zip(bodies, motions, values, rates, strict=True)
        }


def total_momentum(kinematics: AbstractKinematics, state: State) -> tuple[Array, Array]:
    """The momentum and the angular momentum about the origin of all bodies."""
    _, _, t, params = state
    linear, angular = [], []
    for body, motion in zip(
        kinematics.bodies, kinematics.moving(kinematics.bodies, *state), strict=True
    ):
        p, h = _momenta(body, motion, Reader(body.part, t, params))
        linear.append(p)
        angular.append(h + moment(motion.frame.origin, p))
    return jnp.stack(linear).sum(0), jnp.stack(angular).sum(0)


def _multipliers(multipliers: Mapping[str, Array], name: str) -> Array:
    """The multipliers of a constraint, or of all gaps of a unilateral one; empty without any."""
    if name in multipliers:
        return multipliers[name]
    gaps = [x for key, x in multipliers.items() if key.startswith(f"{name}[")]
    return jnp.concatenate([jnp.zeros(0), *gaps])


def _momenta(body: AbstractBody, motion: Moving, read: Reader) -> Load:
    frame = motion.frame
    is_planar = frame.axes.shape == (2, 2)
    spin = motion.spin if is_planar else frame.components(motion.spin)

    def kinetic(velocity: Array, spin: Array) -> Any:
        return body.kinetic(velocity, spin, read)

    along = jnp.asarray(frame.components(motion.velocity)), jnp.asarray(spin)
    p, h = jax.grad(kinetic, argnums=(0, 1))(*along)
    return frame.direction(p), h if is_planar else frame.direction(h)


def _slope(
    fn: Callable[[tuple[Moving, ...]], Any],
    motions: tuple[Moving, ...],
    moved: Callable[[Moving, Load], Moving],
) -> tuple[Load, ...]:
    """The derivative of a function by a move of each body."""

    def value(moves: tuple[Load, ...]) -> Any:
        return fn(tuple(map(moved, motions, moves)))

    return jax.grad(value)(tuple(map(_zero_like, motions)))


def _displaced(motion: Moving, move: Load) -> Moving:
    (origin, axes, attitude), (shift, turn) = motion.frame, move
    if axes.shape == (2, 2):
        axes = axes + turn * jnp.stack([quarter_turn(column) for column in axes.T], 1)
        attitude = attitude + turn
    else:
        axes = axes + jnp.stack([cross(turn, column) for column in axes.T], 1)
        attitude = attitude + product(
            jnp.concatenate([jnp.zeros(1, turn.dtype), turn / 2]), attitude
        )
    return motion._replace(frame=Frame(origin + shift, axes, attitude))


def _accelerated(motion: Moving, move: Load) -> Moving:
    """A body with a small velocity and a small spin more."""
    shift, turn = move
    return motion._replace(velocity=motion.velocity + shift, spin=motion.spin + turn)


def _zero_like(motion: Moving) -> Load:
    return jnp.zeros_like(motion.velocity), jnp.zeros_like(motion.spin)


def _frames(motions: Sequence[Moving]) -> tuple[Frame, ...]:
    return tuple(m.frame for m in motions)


def _opposite(load: Load) -> Load:
    return -load[0], -load[1]
