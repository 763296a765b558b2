"""The equations of a system at a state, as numpy arrays.

Rows of A may depend on each other in one pose only, wherever the constraints hold (a loop that
closes for these lengths only), or everywhere (an equation written twice). So A is examined at the
state, at states nearby on the constraints, and at states nearby on no constraint.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import native_program
from jaxmech.linalg import row_weights, unit, weighted_gram
from jaxmech.system import Params, Subject, System, mass_scale, with_params
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_finite

SPREAD = 0.02  # distance of nearby states, relative to 1 + |q|


class State(NamedTuple):
    """Coordinates, velocities, time and parameters."""

    q: Array
    v: Array
    t: Array
    params: Params


def checked_in_rates(
    system: Subject, q: Any, v: Any, t: Any, params: Params
) -> tuple[System, State]:
    """The system and a state of it in the rates of the coordinates, of finite numbers."""
    system, params = with_params(system, params)
    q, v, t, params = system.arguments(q, v, t, params)
    require_finite(q=q, v=v, t=t, params=params)
    speeds = system.dynamics.speeds(q, v, t, params)
    return system.in_rates(params), State(q, speeds, t, params)


@dataclass(frozen=True)
class Pose:
    """The equations at a state, as numpy arrays in double precision."""

    state: State
    M: HostArray  # mass matrix, (n, n)
    metric: HostArray  # M, made definite with the constraints where it is singular
    Q: HostArray  # generalized force, (n,)
    A: HostArray  # constraint rows, (m, n)
    b: HostArray  # right-hand side, (m,)
    position: HostArray  # residuals of the constraints on positions, (k,)
    A_position: HostArray  # their derivatives with respect to q, (k, n)
    velocity: HostArray  # residuals of the constraints on velocities, (l,)
    A_velocity: HostArray  # their derivatives with respect to v, (l, n)

    @property
    def is_finite(self) -> bool:
        parts = self.M, self.Q, self.A, self.b, self.position, self.velocity
        return all(np.isfinite(x).all() for x in parts)

    @property
    def rows(self) -> HostArray:
        """The rows of A L^-T with M = L L^T, of unit length, shape (m, n)."""
        return self._scaled[0]

    @property
    def lengths(self) -> HostArray:
        """The lengths of the rows of A L^-T, shape (m,)."""
        return self._scaled[1]

    @cached_property
    def _scaled(self) -> tuple[HostArray, HostArray]:
        for M in (self.M, self.metric):
            scale = mass_scale(M)
            # Shifted, since a singular matrix with round-off may pass for a definite one.
            try:
                L = np.linalg.cholesky(M / np.outer(scale, scale) - 1e-10 * np.eye(len(M)))
            except np.linalg.LinAlgError:
                continue
            return unit(np.linalg.solve(L, (self.A / scale).T).T)
        return unit(self.A)


def pose(system: System, state: State) -> Pose:
    """The equations at a state; NaN where the functions of the system are NaN."""
    values = _equations(system, *state)
    return Pose(state, **{name: np.asarray(x, float) for name, x in values.items()})


@native_program("system")
def _equations(system: System, q: Array, v: Array, t: Array, params: Params) -> dict[str, Array]:
    eom = system.dynamics.at(q, v, t, params)
    A_position, A_velocity = system.dynamics.jacobians(q, v, t, params)
    return {
        "M": eom.M,
        "metric": eom.M + weighted_gram(eom.A, row_weights(eom.M, eom.A)),
        "Q": eom.Q,
        "A": eom.A,
        "b": eom.b,
        "position": system.dynamics.position_level(q, t, params),
        "A_position": A_position,
        "velocity": system.dynamics.velocity_level(q, v, t, params),
        "A_velocity": A_velocity,
    }


def moved(state: State, seed: int) -> State:
    """A state a few hundredths away in a pseudo-random direction, off the constraints."""
    draw = np.random.default_rng(seed)

    def shifted(x: Array) -> Array:
        away = SPREAD * (1 + np.abs(np.asarray(x))) * draw.normal(size=x.shape)
        return x + jnp.asarray(away, x.dtype)

    return state._replace(q=shifted(state.q), v=shifted(state.v))


NEARBY = 6  # number of states around a state
FAR = 0.3  # largest distance of one of them, relative to 1 + |q|


_Plane = tuple[HostArray, float]  # of the x with direction . x = offset


def nearest_consistent(
    system: System,
    state: State,
    tolerance: float,
    slices: tuple[_Plane | None, _Plane | None] = (None, None),
) -> tuple[Pose, bool]:
    """The nearest consistent state by Gauss-Newton, and whether the constraints hold there."""
    small = 1e3 * tolerance**2
    for _ in range(60):
        x, q, v = pose(system, state), np.asarray(state.q), np.asarray(state.v)
        dq = _step(x.metric, x.A_position, x.position, q, slices[0], tolerance)
        dv = _step(x.metric, x.A_velocity, x.velocity, v, slices[1], tolerance)
        if not np.isfinite([*dq, *dv]).all() or (
            _tiny(dq, state.q, small) and _tiny(dv, state.v, small)
        ):
            break
        state = state._replace(
            q=state.q - jnp.asarray(dq, state.q.dtype), v=state.v - jnp.asarray(dv, state.v.dtype)
        )
    x = pose(system, state)
    reached = _holds(x.position, x.A_position, state.q, small)
    return x, reached and _holds(x.velocity, x.A_velocity, state.v, small)


def _holds(level: HostArray, A: HostArray, x: Any, tolerance: float) -> bool:
    """Whether changes of x by at most tolerance (1 + |x|) cancel the residuals, row by row."""
    return bool(np.all(np.abs(level) <= tolerance * (np.abs(A) @ (1 + np.abs(np.asarray(x))))))


def _step(
    metric: HostArray,
    A: HostArray,
    level: HostArray,
    x: HostArray,
    plane: _Plane | None,
    tolerance: float,
) -> HostArray:
    """The smallest change, in the metric of M, that cancels the residuals to first order."""
    if plane is not None:
        direction, offset = plane
        A, level = np.vstack([A, direction]), np.append(level, direction @ x - offset)
    if not level.size:
        return np.zeros(A.shape[1])
    scale = mass_scale(metric)
    rows, lengths = unit(A / scale)
    target = level / np.where(lengths > 0, lengths, 1.0)
    return np.linalg.pinv(rows, rcond=tolerance) @ target / scale


def _tiny(step: HostArray, x: Any, tolerance: float) -> bool:
    return bool(np.all(np.abs(step) <= tolerance * (1 + np.abs(x))))


def nearby(system: System, state: State, tolerance: float) -> list[Pose]:
    """Consistent states, a few hundredths away from a state in several directions."""
    # Each is sought on a plane that does not contain the state: a singular pose is the apex of a
    # cone, and Gauss-Newton without such a plane would return to the apex.
    x = pose(system, state)
    poses = []
    for seed in range(NEARBY):
        away = moved(state, seed)
        slices = (
            _transverse_plane(x.A_position, np.asarray(state.q), np.asarray(away.q)),
            _transverse_plane(x.A_velocity, np.asarray(state.v), np.asarray(away.v)),
        )
        poses.append(nearest_consistent(system, away, tolerance, slices))
    # Others may be those of a different shape of the mechanism.
    center = np.asarray(state.q)
    return [
        other
        for other, reached in poses
        if reached and np.all(np.abs(other.state.q - center) <= FAR * (1 + np.abs(center)))
    ]


def _transverse_plane(A: HostArray, x: HostArray, away: HostArray) -> _Plane | None:
    """The plane across the free part of a change; None if the constraints have full rank."""
    change = away - x
    rows, _ = unit(A)
    free = change - np.linalg.pinv(rows, rcond=1e-6) @ (rows @ change)
    length = np.linalg.norm(free)
    if length < 1e-6 * np.linalg.norm(change):
        return None
    return (free / length, float(free @ x / length + length))
