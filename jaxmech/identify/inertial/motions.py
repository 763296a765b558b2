"""Random states of a mechanism, with accelerations and the directions in which it can move."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.analysis import State, nearest_consistent
from jaxmech.parts import AbstractKinematics
from jaxmech.system import Params, System
from jaxmech.utils.arrays import HostArray

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
