"""Consistent states: the nearest one, and a few more around it."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.analysis.row_dependence import without_rows
from jaxmech.analysis.states import (
    Numbers,
    Pose,
    State,
    as_pose,
    holds,
    mass_scale,
    moved,
    numbers,
)
from jaxmech.linalg import unit
from jaxmech.system import System

NEARBY = 6  # number of states around a state


class _Slice(NamedTuple):
    """The plane `direction` . x = `offset`."""

    direction: Numbers
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
        x = numbers(system, state)
        dq = _step(x.metric, x.A_position, x.position, np.asarray(state.q), slices[0], tolerance)
        dv = _step(x.metric, x.A_velocity, x.velocity, np.asarray(state.v), slices[1], tolerance)
        if not np.isfinite([*dq, *dv]).all() or (
            _tiny(dq, state.q, small) and _tiny(dv, state.v, small)
        ):
            break
        state = state._replace(
            q=state.q - jnp.asarray(dq, state.q.dtype), v=state.v - jnp.asarray(dv, state.v.dtype)
        )
    x = numbers(system, state)
    reached = holds(x.position, x.A_position, state.q, small)
    return as_pose(x, state), reached and holds(x.velocity, x.A_velocity, state.v, small)


def _step(
    metric: Numbers, A: Numbers, level: Numbers, x: Numbers, plane: _Slice | None, tolerance: float
) -> Numbers:
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


def _tiny(step: Numbers, x: Any, tolerance: float) -> bool:
    return bool(np.all(np.abs(step) <= tolerance * (1 + np.abs(x))))


def nearby(system: System, state: State, tolerance: float) -> list[Pose]:
    """Consistent states, a few hundredths away from a state in several directions."""
    # Each is sought on a plane that does not contain the state: a singular pose is the apex of a
    # cone, and Gauss-Newton without such a plane would return to the apex.
    x = numbers(system, state)
    found = []
    for seed in range(NEARBY):
        away = moved(state, seed)
        slices = (
            _transverse_plane(x.A_position, np.asarray(state.q), np.asarray(away.q)),
            _transverse_plane(x.A_velocity, np.asarray(state.v), np.asarray(away.v)),
        )
        found.append(nearest_consistent(system, away, tolerance, slices))
    return [pose for pose, reached in found if reached]


def _transverse_plane(A: Numbers, x: Numbers, away: Numbers) -> _Slice | None:
    """The plane across the free part of a change; None if the constraints have full rank."""
    change = away - x
    free = without_rows(A, change, 1e-6)
    length = np.linalg.norm(free)
    if length < 1e-6 * np.linalg.norm(change):
        return None
    return _Slice(free / length, float(free @ x / length + length))
