"""Why a value of a driver was not reached, in the words of an error."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jaxmech.consistency import extents_at
from jaxmech.control.branch import DrivenLevel
from jaxmech.control.kinematics_result import Kinematics, KinematicStatus
from jaxmech.system import Params, System

LARGE = 0.3  # part of the largest rate, of coordinates that are named as moving
SINGULAR = 1e-4  # singular values of J that count as zero


def require_reached(level: DrivenLevel, found: Kinematics, params: Params) -> None:
    """Raise a ValueError that says where the motion of known numbers ends, and why."""
    failed = np.nonzero(np.asarray(found.status))[0]
    if not failed.size:
        return
    k, status = int(failed[0]), KinematicStatus(int(found.status[failed[0]]))
    values, end = np.asarray(found.values[k]), np.asarray(found.end)
    names = found.subject
    if status is KinematicStatus.INCONSISTENT:
        raise ValueError(
            "Argument `start` must be near a pose that satisfies the constraints, but is not; give "
            "a closer one, such as the result of `assemble`."
        )
    if status is KinematicStatus.UNDETERMINED:
        raise ValueError(_undetermined(level, found, params))
    location = f"values[{k}] = {_text(values)}"
    where = f"{names} = {_text(end)}"
    if status is KinematicStatus.NO_POSE:
        raise ValueError(
            f"No pose was found for {location} of {names}: the way from the start ends at {where}, "
            "though no dead point is near; check that the drivers agree with each other and that "
            "the constraints have derivatives there, or pass throw=False."
        )
    J = _unit_rows_at(level, found, params)
    raise ValueError(
        f"Argument `values` must not go beyond a dead point, but {location} of {names} does: at "
        f"{where} {_moving(level.system, J)} can move while the driver is held. "
        "Shorten the range, drive another coordinate, or pass throw=False."
    )


def _undetermined(level: DrivenLevel, found: Kinematics, params: Params) -> str:
    """Why the driver does not determine the pose at the start."""
    J = _unit_rows_at(level, found, params)
    count = found.drive[0].size
    freedom = level.system.n - int(np.linalg.matrix_rank(J[: len(J) - count], tol=SINGULAR))
    names = found.subject
    if count < freedom:
        return (
            f"Argument `driver` must determine the pose, but the mechanism has {freedom} degrees "
            f"of freedom, of which {names} is {count}; drive more coordinates, or constrain them."
        )
    return (
        f"Argument `start` must not be a dead point, but there {_moving(level.system, J)} can move "
        f"while {names} is held; start elsewhere, or drive another coordinate."
    )


def _unit_rows_at(level: DrivenLevel, found: Kinematics, params: Params) -> NDArray[np.floating]:
    """J where the motion ends, in the extents of the coordinates, with rows of unit size."""
    q, t, system = found.end_pose, found.t[0], level.system
    extents = np.asarray(extents_at(system, q, jnp.zeros_like(q), t, params))
    s = level.driver(q, params)
    draw = np.random.default_rng(5)
    away = [q + 0.3 * extents * draw.uniform(-1, 1, q.size) for _ in range(3)]
    rows = jax.jit(jax.jacfwd(lambda q: level(q, s, t, params)))
    matrices = [np.asarray(rows(jnp.asarray(x, q.dtype))) * extents for x in (q, *away)]
    # A row may vanish at a dead point, and there alone.
    lengths = np.max([np.linalg.norm(J, axis=1) for J in matrices], axis=0)
    return matrices[0] / np.where(lengths > 0, lengths, 1.0)[:, None]


def _moving(system: System, J: NDArray[np.floating]) -> str:
    """The coordinates that move most in the direction closest to the null space of J."""
    part = np.abs(np.linalg.svd(J)[2][-1])
    moving = [
        name for name, x in zip(system.coordinates, part, strict=True) if x > LARGE * part.max()
    ]
    return " and ".join(moving)


def _text(x: NDArray[np.floating]) -> str:
    return f"{x:.6g}" if x.ndim == 0 else f"({', '.join(f'{c:.6g}' for c in x)})"
