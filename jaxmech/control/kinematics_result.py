"""`Kinematics`: the poses of a driven mechanism, and why one was not reached."""

from enum import IntEnum

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

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

    @property
    def is_of_start(self) -> bool:
        """Whether it is the start that has to be another one."""
        return self in (KinematicStatus.UNDETERMINED, KinematicStatus.INCONSISTENT)


_MESSAGES = {
    KinematicStatus.REACHED: "the pose was reached on the branch of the start",
    KinematicStatus.DEAD_POINT: (
        "this is a dead point, where the mechanism can move while the driver is held, so that the "
        "range must be shorter, or another coordinate driven"
    ),
    KinematicStatus.UNDETERMINED: (
        "the constraints and the driver do not determine the pose at the start, which is a dead "
        "point, or more has to be driven"
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

    def __repr__(self) -> str:
        if not is_known(self.q) or not isinstance(self.q, jax.Array | np.ndarray):
            return f"Kinematics(coordinates={self.coordinates}, without values)"
        good = np.asarray(self.status) == KinematicStatus.REACHED
        driven = ", ".join(self.drivers)
        return f"Kinematics: {good.sum()} of {good.size} values of {driven} reached"
