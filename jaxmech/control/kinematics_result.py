"""`Kinematics`: the poses of a driven mechanism, and why one was not reached."""

from enum import IntEnum

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from jaxmech.control.branch import DrivenLevel
from jaxmech.system import Params, System, extents_at
from jaxmech.utils.checks import coordinate_indices, is_known


class KinematicStatus(IntEnum):
    """Whether the pose for a value of a driver was reached."""

    REACHED = 0
    DEAD_POINT = 1
    UNDETERMINED = 2
    NO_POSE = 3
    INCONSISTENT = 4

    @property
    def message(self) -> str:
        """A phrase that describes the outcome."""
        return _MESSAGES[self]


_MESSAGES = {
    KinematicStatus.REACHED: "the pose was reached on the branch of the start",
    KinematicStatus.DEAD_POINT: (
        "a dead point lies before this value: there the mechanism can move while the driver is held"
    ),
    KinematicStatus.UNDETERMINED: (
        "the constraints and the driver do not determine the pose at the start"
    ),
    KinematicStatus.NO_POSE: "no pose was found for this value, though no dead point is near",
    KinematicStatus.INCONSISTENT: "the start is not near a pose that satisfies the constraints",
}


class Kinematics(eqx.Module):
    """The motion of a mechanism along the range of a driver, the result of `kinematics`.

    Attributes:
        values: values of the driver, shape (K,), or (K, k) for several of them.
        t: times [s], shape (K,).
        q: coordinates, shape (K, n); NaN, as all that follows from them, where the status is not 0.
        v: their rates, shape (K, n).
        qdd: their accelerations, shape (K, n).
        drive: the generalized force of each driver on what it drives, in the shape of `values`: a
            torque for an angle, a force for a length.
        multipliers: multipliers of minimum norm by constraint name, shape (K, j).
        reactions: by constraint name, the generalized force on the system, shape (K, n).
        status: a `KinematicStatus` for each value, 0 where the pose was reached, shape (K,).
        end: where the motion ends: the last value, or the dead point; in the shape of one value.
        end_pose: the pose there, shape (n,).
        coordinates: names of the coordinates.
        drivers: names of what is driven.
    """

    values: Float[Array, "*K"]
    t: Float[Array, " K"]
    q: Float[Array, " K n"]
    v: Float[Array, " K n"]
    qdd: Float[Array, " K n"]
    drive: Float[Array, "*K"]
    multipliers: dict[str, Float[Array, " K _"]]
    reactions: dict[str, Float[Array, " K n"]]
    status: Int[Array, " K"]
    end: Float[Array, "*k"]
    end_pose: Float[Array, " n"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    drivers: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> Array:
        """A coordinate, or with `.rate` at the end its rate, by name, shape (K,)."""
        coordinate = name.removesuffix(".rate") if name not in self.coordinates else name
        (index,) = coordinate_indices("name", (coordinate,), self.coordinates)
        return (self.q if name == coordinate else self.v)[..., index]

    @property
    def subject(self) -> str:
        """What is driven, in words."""
        names = self.drivers if len(self.drivers) < 4 else (*self.drivers[:1], self.drivers[-1])
        return (" to " if len(self.drivers) > 3 else " and ").join(names)

    def __repr__(self) -> str:
        if not is_known(self.q) or not isinstance(self.q, jax.Array | np.ndarray):
            return f"Kinematics(coordinates={self.coordinates}, without values)"
        good = np.asarray(self.status) == KinematicStatus.REACHED
        title = f"{good.sum()} of {good.size} values of {self.subject} reached"
        width = max(map(len, self.coordinates))
        lines = [f"Kinematics: {title}"]
        for name, x in zip(self.coordinates, np.moveaxis(np.asarray(self.q), -1, 0), strict=True):
            if good.any():
                least, most = (
                    f"{0.0 if abs(x) < 1e-12 else x:.6g}" for x in (x[good].min(), x[good].max())
                )
                lines.append(f"  {name:<{width}}  {least} ... {most}")
        return "\n".join(lines)


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
