"""Consistent states: the nearest one, and a few more around it."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.row_dependence import without_rows
from jaxmech.analysis.states import Pose, State, moved, pose
from jaxmech.linalg import unit
from jaxmech.properties import mass_scale
from jaxmech.system import System
from jaxmech.utils.arrays import HostArray

NEARBY = 6  # number of states around a state
FAR = 0.3  # largest distance of one of them, relative to 1 + |q|


class _Slice(NamedTuple):
    """The plane `direction` . x = `offset`."""

    direction: HostArray
    offset: float


def nearest_consistent(
    system: System,
    state: State,
    tolerance: float,
    slices: tuple[_Slice | None, _Slice | None] = (None, None),
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
    plane: _Slice | None,
    tolerance: float,
) -> HostArray:
    """The smallest change, in the metric of M, that cancels the residuals to first order."""
    if plane is not None:
        A = np.vstack([A, plane.direction])
        level = np.append(level, plane.direction @ x - plane.offset)
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
    return [other for other, reached in poses if reached and _is_near(other.state, state)]


def _is_near(state: State, middle: State) -> bool:
    """Whether a state is near another one, and not one of a different shape of the mechanism."""
    q, center = np.asarray(state.q), np.asarray(middle.q)
    return bool(np.all(np.abs(q - center) <= FAR * (1 + np.abs(center))))


def _transverse_plane(A: HostArray, x: HostArray, away: HostArray) -> _Slice | None:
    """The plane across the free part of a change; None if the constraints have full rank."""
    change = away - x
    free = without_rows(A, change, 1e-6)
    length = np.linalg.norm(free)
    if length < 1e-6 * np.linalg.norm(change):
        return None
    return _Slice(free / length, float(free @ x / length + length))
