"""`kinematics`: the motion of a mechanism along the range of a driver, on one branch of its poses.

With as many drivers as degrees of freedom the constraints alone determine the motion: the pose by
`branch`, its velocity and acceleration by linear equations, and then the forces, of which those of
the drivers are what a motor has to supply,

    M qdd - Q = A^T lambda + D^T mu,    D = d(driven quantities)/dq.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmech.compiler import native_call
from jaxmech.control.branch import (
    DrivenLevel,
    DrivenPose,
    follow,
    forces,
    is_singular,
    on_level,
    rates,
    settled,
)
from jaxmech.control.inverse_dynamics import require_ideal
from jaxmech.system import (
    Holonomic,
    Params,
    Subject,
    System,
    extents_at,
    in_rates,
    require_no_states,
    with_params,
)
from jaxmech.utils.checks import (
    coordinate_indices,
    is_known,
    naming_missing,
    require_finite,
    require_function,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import jit_of


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


Driver = str | Sequence[str] | Callable[..., Any]


@dataclass(frozen=True)
class Driven:
    """The driven quantities (k,): coordinates by their indices, or a function."""

    source: Any  # indices of coordinates, or a function (q, params)

    def __call__(self, q: Array, params: Params) -> Array:
        """The driven quantities at a pose."""
        if not callable(self.source):
            return jnp.stack([q[pose] for pose in self.source])
        with naming_missing("`driver`", params):
            value = jnp.asarray(self.source(q, params), q.dtype)
        if value.ndim > 1:
            raise ValueError(
                "The value of `driver` must be a number or have shape (k,), but has shape "
                f"{value.shape}."
            )
        return jnp.atleast_1d(value)


@with_standard_promotion
def kinematics(
    system: Subject,
    driver: Driver,
    values: Any,
    start: Any,
    params: Params = None,
    *,
    t: Any = 0.0,
    rate: Any = 1.0,
    acceleration: Any = 0.0,
    throw: bool = True,
) -> Kinematics:
    """Follow a mechanism along the range of a driver: positions, velocities, accelerations, forces.

    The mechanism moves from the start to each value in turn, in steps so short that it cannot
    change to another branch of its poses. Where it comes to a dead point, the poses of this value
    and of all after it are NaN: beyond lies no pose, or more than one. Pure under `jit` and `vmap`;
    derivatives of any order, such as those with respect to lengths in `params`, are those of the
    poses (implicit function theorem).

    Args:
        system: the system, with ideal constraints on positions alone.
        driver: the name of a coordinate, a sequence of names, or a function `driver(q, params)` of
            the driven quantities, () or (k,), such as the lengths of legs. As many are needed as
            there are degrees of freedom.
        values: values of the driver in the order of the motion, shape (K,), or (K, k) for k
            drivers.
        start: a pose near the branch, shape (n,), anywhere in the range of the driver. It is moved
            onto the constraints, if possible with its value of the driver.
        params: the parameters that the functions of the system expect.
        t: times [s], () or (K,), at which constraints and forces are evaluated.
        rate: rate of the driver, for which `v` and the forces are computed, broadcast to the
            shape of `values`. With the default v is the derivative with respect to the driver.
        acceleration: acceleration of the driver, likewise.
        throw: whether to raise if a value was not reached; never under `jit` and `vmap`, where
            `status` tells.

    Raises:
        TypeError: if `system` is not a `System`, or `driver` neither names nor a function.
        ValueError: if a name is unknown, a shape is wrong, or the constraints are not on positions
            alone; and if `throw` is set, if the driver does not determine the motion, the start is
            not near a pose, or a dead point lies before a value.

    Example:
        >>> from jaxmech import models
        >>> model = models.double_pendulum_angles()
        >>> held = kinematics(
        ...     model.system, ["theta1", "theta2"], [[np.pi / 2, 0.0]], [0.0, 0.0], model.params,
        ...     rate=0.0,
        ... )
        >>> print((held.drive / 9.81).round(6))  # torques m g (1 + 2) l and m g l
        [[3. 1.]]
    """
    system, params = with_params(system, params)
    system = in_rates(system, params)
    require_ideal("system", system)
    require_no_states(system.states, "Argument `system`", "take the system without them")
    for c in system.constraints:
        if not isinstance(c, Holonomic):
            raise ValueError(
                f"Argument `system` must have constraints on positions alone, but {c.name!r} is a "
                f"{type(c).__name__}: the pose depends on the way there; use `simulate`."
            )
    if callable(driver):
        require_function("driver", driver, "q, params")
        driven = Driven(driver)
    else:
        names = (driver,) if isinstance(driver, str) else tuple(driver)
        driven = Driven(tuple(coordinate_indices("driver", names, system.coordinates)))
    at_rest = jnp.zeros_like(jnp.asarray(start))
    q, _, _, params = system.arguments(start, at_rest, 0.0, params, ("start", "start"))
    s = jnp.asarray(values, q.dtype)
    if s.ndim not in (1, 2) or not s.shape[0]:
        raise ValueError(f"Argument `values` must have shape (K,) or (K, k), but has {s.shape}.")
    ds, dds = (jnp.broadcast_to(jnp.asarray(x, q.dtype), s.shape) for x in (rate, acceleration))
    ts = jnp.broadcast_to(jnp.asarray(t, q.dtype), s.shape[:1])
    count = jax.eval_shape(driven, q, params).size
    if s.shape[1:] != (count,) and (s.shape[1:] or count != 1):
        needed = "(K,)" if count == 1 else f"(K, {count})"
        raise ValueError(
            f"Argument `values` must have shape {needed}, a row for each of K values of "
            f"{'the driver' if count == 1 else f'{count} drivers'}, but has shape {s.shape}."
        )
    if callable(driver):  # the entries of what a function returns
        name = getattr(driver, "__name__", "driver").replace("<lambda>", "driver")
        names = (name,) if count == 1 else tuple(f"{name}[{k}]" for k in range(count))
    require_finite(values=(s, ds, dds), start=q, t=ts, params=params)
    columns = [x.reshape(-1, count) for x in (s, ds, dds)]
    found = _kinematics(system, driven, names, q, *columns, ts, params)
    found = eqx.tree_at(
        lambda x: (x.values, x.drive, x.end), found,
        (s, found.drive.reshape(s.shape), found.end.reshape(s.shape[1:])),
    )  # fmt: skip
    if throw and is_known(found):
        _require_reached(found)
    return found


def _require_reached(found: Kinematics) -> None:
    """Raise a ValueError that says where the motion of known numbers ends, and why."""
    failed = np.flatnonzero(np.asarray(found.status))
    if not failed.size:
        return
    k = int(failed[0])
    status = KinematicStatus(int(found.status[k]))
    value, end = (np.array2string(np.asarray(x), precision=6) for x in (found.values[k], found.end))
    of_start = status in (KinematicStatus.UNDETERMINED, KinematicStatus.INCONSISTENT)
    argument = "start" if of_start else "values"
    raise ValueError(
        f"Argument `{argument}` must lead to values[{k}] = {value} of {', '.join(found.drivers)}, "
        f"but the way ends at {end}: {status.message}; or pass throw=False."
    )


@jit_of("system", "driven", "names", is_frame=True)
def _kinematics(
    system: System, driven: Driven, names: tuple[str, ...], start: Array, s: Array, ds: Array,
    dds: Array, t: Array, params: Params,
) -> Kinematics:  # fmt: skip
    inputs = start, s, ds, dds, t, params
    return native_call(
        partial(_along, system, driven, names), *inputs, differ=(True,) + (False,) * 5
    )


def _along(
    system: System, driven: Driven, names: tuple[str, ...], start: Array, s: Array, ds: Array,
    dds: Array, t: Array, params: Params,
) -> Kinematics:  # fmt: skip
    level = DrivenLevel(system, driven)
    fixed = jax.lax.stop_gradient((start, s, t, params))
    poses, status, end, extents = _poses(level, *fixed)
    sizes = system.dynamics.sizes(start, start, t[0], params)

    def at_value(values: tuple[Array, ...]) -> tuple[Any, ...]:
        q, s, ds, dds, t = values
        q = on_level(level, q, (s, t, params), extents)
        pose = DrivenPose(q, s, t)
        v, qdd, rows = rates(level, pose, ds, dds, params, extents)
        multipliers = forces(system, pose, v, qdd, params, rows, extents)
        parts = jnp.split(multipliers, np.cumsum(sizes))
        pulls = [r.T @ x for r, x in zip(jnp.split(rows.A, np.cumsum(sizes)), parts, strict=True)]
        return q, v, qdd, parts[-1], parts[:-1], pulls[:-1]

    # A loop: the factorizations of a batch of values would be read number by number.
    moves = jax.lax.map(at_value, (poses, s, ds, dds, t))
    good = status == KinematicStatus.REACHED

    def known(x: Array) -> Array:
        return jnp.where(good.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.nan)

    q, v, qdd, drive, multipliers, pulls = jax.tree.map(known, moves)
    labels = [c.name for c in system.constraints]
    return Kinematics(
        values=s, t=t, q=q, v=v, qdd=qdd, drive=drive,
        multipliers=dict(zip(labels, multipliers, strict=True)),
        reactions=dict(zip(labels, pulls, strict=True)),
        status=status, end=end, end_pose=poses[-1],
        coordinates=tuple(system.coordinates), drivers=names,
    )  # fmt: skip


def _poses(
    level: DrivenLevel, start: Array, s: Array, t: Array, params: Params
) -> tuple[Array, Array, Array, Array]:
    """The poses, their statuses, the last value that was reached, and the extents."""
    extents = extents_at(level.system, start, jnp.zeros_like(start), t[0], params)
    q, is_consistent = settled(level, start, t[0], params, extents)
    begin = DrivenPose(q, level.driver(q, params), t[0])
    undetermined = is_singular(level, begin, params, extents)
    branch = follow(level, begin, s, t, params, extents)
    failure = jnp.where(branch.singular, KinematicStatus.DEAD_POINT, KinematicStatus.NO_POSE)
    failure = jnp.where(undetermined, KinematicStatus.UNDETERMINED, failure)
    status = jnp.where(branch.reached, KinematicStatus.REACHED, failure)
    status = jnp.where(is_consistent, status, KinematicStatus.INCONSISTENT)
    return branch.q, status.astype(jnp.int32), branch.s[-1], extents
