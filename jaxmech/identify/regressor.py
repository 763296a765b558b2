"""The regressor: what each inertial parameter contributes to the forces of random motions.

The laws of Newton and Euler are linear in the mass m, the static moment S and the inertia I of a
body about its pivot, all along its axes:

    force     m a + alpha x S + w x (w x S)
    torque    S x a + I alpha + w x I w

with the spin w, the angular acceleration alpha, and the acceleration a of the pivot less that of
gravity, or of the part of it that no support carries (Atkeson, An and Hollerbach, "Estimation of
inertial parameters of manipulator loads and links", International Journal of Robotics Research 5,
1986). Their power in the directions in which the mechanism can move gives the rows of the regressor
Y: the forces of a motion are Y phi, with the inertial parameters phi. The accelerations of a free
motion depend on the same combinations of phi, or only on their ratios where no force is known.
The inertial parameters are

    planar body     I, mx, my, m
    spatial body    Ixx, Iyy, Izz, Ixy, Ixz, Iyz, mx, my, mz, m
    point mass      m
    rotor           rotor

with the mass m [kg], the static moment (mx, my, mz) [kg m], mass times centre of mass, and the
entries of the matrix of inertia [kg m^2], along the axes of the body and about its pivot: the point
of the joint by which it hangs on the body before, or its reference point where there is none.
A body that weighs nothing, such as one between two joints, has no parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis import State, nearest_consistent
from jaxmech.parts import (
    AbstractBody,
    AbstractKinematics,
    EnergyDifference,
    Gravity,
    Inertia,
    JointCoordinates,
    Mechanism,
    Moving,
    Reader,
    Rotors,
    Support,
    Turn,
    connection_of,
    in_space,
)
from jaxmech.system import Params, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of

_STEP = 0.1  # of the walk through the poses of closed loops, relative to 1 + |q|
_TRIES = 5  # poses that are tried for each motion
_RANK = 1e-8  # singular values of constraint rows of unit length that count as zero
_RATE = 2.0  # standard deviation of rates and accelerations [rad/s or m/s]


class RandomMotion(NamedTuple):
    """A state with accelerations, and a basis of the possible velocities.

    Attributes:
        q: coordinates, (n,).
        v: their rates, (n,).
        a: their accelerations, (n,).
        directions: the basis, (n, f), with f degrees of freedom.
    """

    q: HostArray
    v: HostArray
    a: HostArray
    directions: HostArray

    def further(self, draw: np.random.Generator) -> HostArray:
        """A pose a step away in one of the directions, (n,)."""
        way = self.directions @ draw.normal(size=self.directions.shape[1])
        relative = np.abs(way) / (1 + np.abs(self.q))
        return self.q + _STEP * way / relative.max(initial=1e-9)


def motions(
    system: System,
    kinematics: AbstractKinematics,
    q: HostArray | None,
    t: float,
    params: Params,
    count: int,
    draw: np.random.Generator,
) -> list[RandomMotion]:
    """Random motions: in poses drawn freely, or on a walk along the constraints from a pose q."""
    n = len(kinematics.coordinates)
    drawn: list[RandomMotion] = []
    for _ in range(_TRIES * count):
        pose = _pose(kinematics, draw) if q is None else q
        if q is not None and drawn:
            pose = drawn[-1].further(draw)
        motion = _motion(system, n, pose, t, params, draw)
        if motion is not None:
            drawn.append(motion)
        if len(drawn) == count or (q is not None and not drawn):
            break
    if len(drawn) < count:
        raise ValueError(
            "Argument `q` must be a pose from which the mechanism can move, near its constraints, "
            f"but from this one {len(drawn)} of {count} poses were reached; take it from "
            "`assemble`."
        )
    return drawn


def _pose(kinematics: AbstractKinematics, draw: np.random.Generator) -> HostArray:
    """Angles of full turns, directions of quaternions, and positions of about a metre."""
    names = kinematics.coordinates
    turns = np.array([name.rpartition(".")[2].startswith("angle") for name in names], bool)
    q = np.where(turns, draw.uniform(-np.pi, np.pi, len(names)), draw.normal(size=len(names)))
    for norm in kinematics.norms:
        part = slice(norm.first, norm.first + 4)
        q[part] /= np.linalg.norm(q[part])
    return q


def _motion(
    system: System, n: int, q: HostArray, t: float, params: Params, draw: np.random.Generator
) -> RandomMotion | None:
    """A random motion in the consistent pose nearest to q; None if there is none."""
    v, a = _RATE * draw.normal(size=(2, n))
    if not system.constraints:
        return RandomMotion(q, v, a, np.eye(n))
    states = np.zeros(system.n - n)
    q, v = np.concatenate([q, states]), np.concatenate([v, states])
    state = State(jnp.asarray(q), jnp.asarray(v), jnp.asarray(t), params)
    pose, is_consistent = nearest_consistent(system, state, 1e-8)
    if not (is_consistent and pose.is_finite):
        return None
    A, b = pose.A[:, :n], pose.b
    lengths = np.linalg.norm(A, axis=1)
    lengths = np.where(lengths > 0, lengths, 1.0)
    A, b = A / lengths[:, None], b / lengths
    _, s, vt = np.linalg.svd(A)
    directions = vt[int((s > _RANK).sum()) :].T
    a = np.linalg.pinv(A, _RANK) @ b + directions @ (directions.T @ a)
    return RandomMotion(np.asarray(pose.state.q)[:n], np.asarray(pose.state.v)[:n], a, directions)


# The entries of a matrix of inertia in the order of the names.
_ROWS, _COLUMNS = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
_LETTERS = {
    (2, True): ("I", "mx", "my", "m"),
    (3, True): ("Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz", "mx", "my", "mz", "m"),
    (2, False): ("m",),
    (3, False): ("m",),
}


class Heavy(NamedTuple):
    """A body, and its pivot along its axes, d numbers; hashable."""

    body: AbstractBody
    pivot: tuple[float, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return _LETTERS[self.body.dimension, self.body.rotates]

    def values(self, read: Reader) -> Array:
        """The parameters, (k,)."""
        mass, static, moments = self.body.inertia(read)
        if not self.body.rotates:
            return jnp.reshape(mass, (1,))
        flat = self.body.dimension == 2
        whole = jnp.zeros((3, 3)).at[2, 2].set(moments) if flat else moments
        unturned = Turn(np.eye(3), np.eye(3))
        about = Inertia(mass, in_space(static), whole).moved(
            unturned, -in_space(np.array(self.pivot))
        )
        inertia = about.moments[2:, 2] if flat else about.moments[_ROWS, _COLUMNS]
        static = about.static[: self.body.dimension]
        return jnp.concatenate([inertia, static, jnp.reshape(mass, (1,))])

    @property
    def columns(self) -> np.ndarray:
        """The indices of its parameters among the ten of a body in space, (k,)."""
        whole = _LETTERS[3, True]
        return np.array([whole.index("Izz" if x == "I" else x) for x in self.letters])

    def twist(self, moving: Moving) -> Array:
        """The velocity of the pivot and the spin, along the axes of the ground, (2, 3)."""
        v = moving.velocity_at(moving.frame.point(np.array(self.pivot)))
        return jnp.stack([jnp.asarray(in_space(x)) for x in (v, moving.spin)])


@dataclass(frozen=True)
class StandardParameters:
    """The s inertial parameters of a mechanism, those of bodies near the ground first; hashable."""

    kinematics: AbstractKinematics
    bodies: tuple[Heavy, ...]
    gravities: tuple[Gravity, ...]
    supports: tuple[Support, ...]  # that carry a part of the weight, whatever it is
    rotors: tuple[Rotors, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names such as `forearm.mx` and `elbow.angle.rotor`."""
        of_bodies = [f"{heavy.body.name}.{x}" for heavy in self.bodies for x in heavy.letters]
        return (*of_bodies, *(f"{x}.rotor" for one in self.rotors for x in one.coordinates))

    @property
    def powers(self) -> np.ndarray:
        """The power of a length in the unit of each parameter, 0 to 2, (s,)."""
        powers = {"m": 0, "mx": 1, "my": 1, "mz": 1}
        of_bodies = [powers.get(x, 2) for heavy in self.bodies for x in heavy.letters]
        turning = ["angle" in x.rpartition(".")[2] for one in self.rotors for x in one.coordinates]
        return np.array([*of_bodies, *(2 * is_angle for is_angle in turning)], int)

    def values(self, params: Params, t: Any = 0.0) -> Array:
        """The parameters (s,) as functions of those of the mechanism."""
        t = jnp.asarray(t, float)
        parts = [x.values(Reader(f"body {x.body.name!r}", t, params)) for x in self.bodies]
        for one in self.rotors:
            inertias = Reader(one.part, t, params).vector(one.inertias, len(one.coordinates))
            parts.append(jnp.asarray(inertias))
        return jnp.concatenate([jnp.zeros(0), *parts])

    def carried(self, body: AbstractBody, params: Params, t: Any = 0.0) -> Any:
        """The part of the acceleration of gravity that supports take from a body, (3,)."""
        parts = [x for x in self.supports if x.bodies == (body,)]
        read = [Reader(x.part, t, params).vector(x.acceleration, 3) for x in parts]
        return sum(read, np.zeros(3))

    def moving(self, q: Array, v: Array, t: Array, params: Params) -> list[tuple[Heavy, Moving]]:
        """The bodies with their motions."""
        motions = self.kinematics.moving([x.body for x in self.bodies], q, v, t, params)
        return list(zip(self.bodies, motions, strict=True))


def standard_parameters(subject: Mechanism | System, params: Params) -> StandardParameters | None:
    """The inertial parameters of a mechanism or its system; None for a system without bodies."""
    system = subject.system if isinstance(subject, Mechanism) else subject
    energy = system.plain.lagrangian
    if not isinstance(energy, EnergyDifference):
        return None
    heavy = [one for one in _pivoted(energy.kinematics, params) if _is_heavy(one.body, params)]
    rotors = tuple(term for term in energy.elements.terms if isinstance(term, Rotors))
    potentials = energy.elements.potentials
    carrying = tuple(x for x in potentials if isinstance(x, Support) and x.follows_weight)
    return StandardParameters(energy.kinematics, tuple(heavy), energy.gravities, carrying, rotors)


def _pivoted(kinematics: AbstractKinematics, params: Params) -> list[Heavy]:
    """The bodies with their pivots, those before others first."""
    if not isinstance(kinematics, JointCoordinates):
        return [Heavy(body, (0.0,) * body.dimension) for body in kinematics.bodies]
    heavy = []
    for link in kinematics.links:
        point = connection_of(link, Reader(link.part, jnp.zeros(()), params), False).seat().point
        heavy.append(Heavy(link.body, tuple(np.asarray(point).tolist()[: link.body.dimension])))
    return heavy


def _is_heavy(body: AbstractBody, params: Params) -> bool:
    numbers = body.inertia(Reader(f"body {body.name!r}", np.zeros(()), params))
    return any(np.any(np.asarray(x) != 0) for x in numbers)


# The matrices of inertia with one of the six entries, (6, 3, 3).
_ENTRIES = np.array([
    [[float({i, j} == {a, b} and (i == j) == (a == b)) for j in range(3)] for i in range(3)]
    for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
])  # fmt: skip


def regressor(
    standard: StandardParameters, motions: Sequence[RandomMotion], t: float, params: Params
) -> tuple[HostArray, HostArray]:
    """The rows of all motions, (r, s), in units of the sizes (s,) that the columns may have."""
    time = jnp.asarray(t, float)
    states = [jnp.stack([jnp.asarray(m[k]) for m in motions]) for k in range(3)]
    forces, lengths, weight = map(np.asarray, _forces_of_all(standard, *states, time, params))
    pairs = zip(motions, forces, strict=True)
    rows = np.concatenate([motion.directions.T @ force for motion, force in pairs])
    # what a unit of each may contribute in rotations of about 1 rad/s, and by weights
    length = float(lengths.max(initial=0.0)) or 1.0
    around = length + float(np.linalg.norm(weight))
    sizes = np.array([length * around, around, 1.0])[standard.powers]
    return rows / sizes, sizes


@jit_of("standard")
def _forces_of_all(
    standard: StandardParameters, q: Array, v: Array, a: Array, t: Array, params: Params
) -> tuple[Array, Array, Array]:
    """The forces of all motions, the extents of the pivots, and the acceleration of weights."""
    weight = _acceleration_of_weights(standard, t, params)

    def evaluate(q: Array, v: Array, a: Array) -> tuple[Array, Array]:
        return _forces(standard, weight, (q, v, a, t), params)

    return *jax.vmap(evaluate)(q, v, a), weight


def _forces(
    standard: StandardParameters,
    weight: Array,
    state: tuple[Array, Array, Array, Array],
    params: Params,
) -> tuple[Array, Array]:
    """The forces on the coordinates by unit parameters, (n, s), and the extent of the pivots."""
    q, v, a, t = state

    def twists(q: Array, v: Array, t: Array) -> Array:
        return jnp.stack([one.twist(x) for one, x in standard.moving(q, v, t, params)])

    now, rates = jax.jvp(twists, (q, v, t), (v, a, jnp.ones_like(t)))
    partial_velocities = jax.jacfwd(twists, 1)(q, v, t)  # (bodies, 2, 3, n)
    columns, extents = list[Array](), [jnp.zeros(())]
    for k, (heavy, moving) in enumerate(standard.moving(q, v, t, params)):
        axes = jnp.asarray(in_space(moving.frame.axes))
        felt = weight - standard.carried(heavy.body, params, t)
        spin, angular, acceleration = now[k, 1], rates[k, 1], rates[k, 0] - felt
        loads = _loads(*(x @ axes for x in (acceleration, spin, angular)))
        powers = jnp.einsum("ksi,sjn,ji->nk", loads, partial_velocities[k], axes)
        columns.append(powers[:, heavy.columns])
        extents.append(jnp.linalg.norm(moving.frame.point(np.array(heavy.pivot))))
    for one in standard.rotors:
        names = standard.kinematics.coordinates
        turning = np.array([[name == x for x in one.coordinates] for name in names])
        columns.append(jnp.where(turning, a[:, None], 0.0))
    return jnp.concatenate(columns, axis=1), jnp.max(jnp.stack(extents))


def _loads(acceleration: Array, spin: Array, angular: Array) -> Array:
    """Forces and torques about the pivot by unit parameters, in the body's axes, (10, 2, 3)."""
    unit = jnp.eye(3)
    by_static = jnp.cross(angular, unit) + jnp.cross(spin, jnp.cross(spin, unit))
    entries = jnp.asarray(_ENTRIES)
    by_inertia = entries @ angular + jnp.cross(spin, entries @ spin)
    forces = [jnp.zeros((6, 3)), by_static, acceleration[None]]
    torques = [by_inertia, jnp.cross(unit, acceleration), jnp.zeros((1, 3))]
    return jnp.stack([jnp.concatenate(forces), jnp.concatenate(torques)], axis=1)


def _acceleration_of_weights(standard: StandardParameters, t: Array, params: Params) -> Array:
    """The sum of the accelerations of gravity, (3,)."""
    size = standard.kinematics.bodies[0].dimension

    def slope(one: Gravity) -> Array:
        energy = [one.energy(x, Reader("gravity", t, params)) for x in np.eye(size)]
        return jnp.stack([jnp.asarray(x) for x in energy])

    down = sum((-slope(one) for one in standard.gravities), jnp.zeros(size))
    return jnp.asarray(in_space(jnp.asarray(down)))
