"""The equations of a system at a state, as numpy arrays.

Rows of A may depend on each other in one pose only, wherever the constraints hold (a loop that
closes for these lengths only), or everywhere (an equation written twice). So A is examined at the
state, at states nearby on the constraints, and at states nearby on no constraint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from jaxmech.constraints import Holonomic, Nonholonomic
from jaxmech.linalg import row_weights, unit, weighted_gram
from jaxmech.stabilization import Violation, constraint_jacobians
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of

Numbers = NDArray[np.floating]
SPREAD = 0.02  # distance of nearby states, relative to 1 + |q|


class State(NamedTuple):
    """Coordinates, velocities, time and parameters."""

    q: Array
    v: Array
    t: Array
    params: Params


@dataclass(frozen=True)
class Pose:
    """The equations at a state.

    Attributes:
        state: the state.
        M: mass matrix, shape (n, n).
        Q: generalized force, shape (n,).
        A: constraint rows, shape (m, n).
        b: right-hand side, shape (m,).
        rows: the rows of A L^-T with M = L L^T, of unit length, shape (m, n).
        lengths: the lengths of the rows of A L^-T, shape (m,).
        level: residuals of the constraints at the levels of position and velocity.
    """

    state: State
    M: Numbers
    Q: Numbers
    A: Numbers
    b: Numbers
    rows: Numbers
    lengths: Numbers
    level: Numbers


class Values(NamedTuple):
    """M, Q, A and b, and the constraint residuals with their derivatives."""

    M: Any
    metric: Any  # M, definite with the constraints where it is singular
    Q: Any
    A: Any
    b: Any
    position: Any
    A_position: Any
    velocity: Any
    A_velocity: Any


@jit_of("system")
def _values(system: System, q: Array, v: Array, t: Array, params: Params) -> Values:
    eom = system.equations(q, v, t, params)
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    return Values(
        M=eom.M,
        metric=eom.M + weighted_gram(eom.A, row_weights(eom.M, eom.A)),
        Q=eom.Q,
        A=eom.A,
        b=eom.b,
        position=system.position_level(q, t, params),
        A_position=A_position,
        velocity=system.velocity_level(q, v, t, params),
        A_velocity=A_velocity,
    )


def pose(system: System, state: State) -> Pose:
    """The equations at a state; NaN where the functions of the system are NaN."""
    return as_pose(numbers(system, state), state)


def as_pose(x: Values, state: State) -> Pose:
    """The pose of the values at a state, as numpy arrays."""
    rows, lengths = unit(_in_metric(x.A, x.M, x.metric))
    level = np.concatenate([x.position, x.velocity])
    return Pose(state, x.M, x.Q, x.A, x.b, rows, lengths, level)


def numbers(system: System, state: State) -> Values:
    """All values at a state, as numpy arrays in double precision."""
    return Values(*(np.asarray(x, float) for x in _values(system, *state)))


def mass_scale(M: Numbers) -> Numbers:
    """The square roots of the diagonal of M, 1 where zero: M / (s s^T) has a unit diagonal."""
    scale = np.sqrt(np.abs(np.diagonal(M)))
    return np.where(scale > 0, scale, 1.0)


def _in_metric(A: Any, *metrics: Any) -> Numbers:
    """A L^-T for the first of the metrics that is positive definite; A itself if none is."""
    for M in metrics:
        scale = mass_scale(M)
        # Shifted, since a singular matrix with round-off may pass for a definite one.
        try:
            L = np.linalg.cholesky(M / np.outer(scale, scale) - 1e-10 * np.eye(len(M)))
        except np.linalg.LinAlgError:
            continue
        return np.linalg.solve(L, (A / scale).T).T
    return np.asarray(A)


def violated(system: System, sizes: Sequence[int], state: State) -> tuple[Violation, ...]:
    """The constraints violated at a state, by the test of `stabilization.violations`."""
    x = numbers(system, state)
    tolerance = float(jnp.finfo(state.q.dtype).eps) ** 0.375
    found = []
    for level, kinds, value, A, at in (
        ("position", Holonomic, x.position, x.A_position, state.q),
        ("velocity", Holonomic | Nonholonomic, x.velocity, x.A_velocity, state.v),
    ):
        named = [
            (c.name, k)
            for c, k in zip(system.constraints, sizes, strict=True)
            if isinstance(c, kinds)
        ]
        ends = np.cumsum([k for _, k in named])[:-1]
        parts = zip(named, np.split(value, ends), np.split(A, ends), strict=False)
        for (name, size), own, rows in parts:
            if size and not holds(own, rows, at, tolerance):
                found.append(Violation(name, level, float(np.abs(own).max())))
    return tuple(found)


def holds(level: Any, A: Any, x: Any, tolerance: float) -> bool:
    """Whether changes of x by at most tolerance (1 + |x|) cancel the residuals, row by row."""
    return bool(np.all(np.abs(level) <= tolerance * (np.abs(A) @ (1 + np.abs(np.asarray(x))))))


def moved(state: State, seed: int) -> State:
    """A state a few hundredths away in a pseudo-random direction, off the constraints."""
    draw = np.random.default_rng(seed)

    def shifted(x: Array) -> Array:
        away = SPREAD * (1 + np.abs(np.asarray(x))) * draw.normal(size=x.shape)
        return x + jnp.asarray(away, x.dtype)

    return state._replace(q=shifted(state.q), v=shifted(state.v))
