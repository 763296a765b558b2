"""`kinematics`: the motion of a mechanism along the range of a driver, on one branch of its poses.

With as many drivers as degrees of freedom the constraints alone determine the motion: the pose,
its velocity and acceleration by linear equations, and then the forces, of which those of the
drivers are what a motor has to supply,

    M qdd - Q = A^T lambda + D^T mu,    D = d(driven quantities)/dq.

The pose q is the solution of level(q, s, t, p) = 0: the constraints, and the driven quantity less
its value s. A step goes along the tangent, J dq = -(dlevel/ds ds + dlevel/dt dt), and Newton's
method returns to the level (Allgower and Georg 1990, chapter 6). A step from q to q' is accepted if

    |J(q)^+ (J(q') - J(q))| < 1/2,

so that J is regular all the way between them, no other branch is met, and the result is close to
the tangent and to q. Where J becomes singular, at a dead point, the steps become ever shorter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import jacobian, native_call
from jaxmech.control.inverse_dynamics import require_ideal
from jaxmech.linalg import QR, Metric, matvec, max_abs, metric, min_norm_solve
from jaxmech.state import some_direction
from jaxmech.system import Holonomic, Params, Subject, System, extents_at, near, with_params
from jaxmech.utils.checks import (
    coordinate_indices,
    is_known,
    naming_missing,
    require_finite,
    require_function,
    with_standard_promotion,
)
from jaxmech.utils.jit_cache import jit_of

TURN = 0.5  # largest change of J in a step, relative to J
MOVE = 0.5  # largest change of a coordinate in a step, in extents
BEND = 0.25  # largest distance from the tangent, in parts of the step
NEWTON = 5  # corrections of a step; each leaves the square of the error
SETTLING = 40  # corrections of the start, which may be farther off
STEPS = 5_000  # for one value of the driver
SINGULAR = 0.03  # change of J with the fourth root of round-off, relative to J, near dead points


class KinematicStatus(IntEnum):
    """Whether the pose for a value of a driver was reached."""

    REACHED = 0
    DEAD_POINT = 1
    UNDETERMINED = 2
    NO_POSE = 3
    INCONSISTENT = 4

    @property
    def message(self) -> str:
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
    system.require_smooth()
    system = system.in_rates(params)
    require_ideal("system", system)
    system.require_no_states("take the system without them")
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
    solution = _kinematics(system, driven, names, q, *columns, ts, params)
    solution = eqx.tree_at(
        lambda x: (x.values, x.drive, x.end), solution,
        (s, solution.drive.reshape(s.shape), solution.end.reshape(s.shape[1:])),
    )  # fmt: skip
    failed = np.flatnonzero(np.asarray(solution.status)) if throw and is_known(solution) else ()
    for k in failed[:1]:
        status = KinematicStatus(int(solution.status[k]))
        value, end = (
            np.array2string(np.asarray(x), precision=6) for x in (solution.values[k], solution.end)
        )
        of_start = status in (KinematicStatus.UNDETERMINED, KinematicStatus.INCONSISTENT)
        argument = "start" if of_start else "values"
        raise ValueError(
            f"Argument `{argument}` must lead to values[{k}] = {value} of "
            f"{', '.join(solution.drivers)}, but the way ends at {end}: {status.message}; or pass "
            "throw=False."
        )
    return solution


@dataclass(frozen=True)
class DrivenLevel:
    """The constraints of a system and its driver, as a function of q; equal ones are the same.

    Attributes:
        system: a system in the rates of its coordinates, with constraints on positions alone.
        driver: function (q, params) of the driven quantities, (k,).
    """

    system: System
    driver: Callable[[Array, Params], Array]

    def __call__(self, q: Array, s: Array, t: Array, params: Params) -> Array:
        """The residuals of the constraints, then of the driver, (m,)."""
        position = self.system.dynamics.position_level(q, t, params)
        return jnp.concatenate([position, self.driver(q, params) - s])

    def rows(self, q: Array, s: Array, t: Array, params: Params, extents: Array) -> Metric:
        """The factorized Jacobian J with respect to q, in the extents of the coordinates."""
        J = jacobian(lambda q: self(q, s, t, params), q)
        return metric(jnp.diag(extents**-2), J, QR())


class DrivenPose(NamedTuple):
    """A pose that belongs to values of the driver and a time."""

    q: Float[Array, " n"]
    s: Float[Array, " k"]
    t: Float[Array, ""]


class PoseSequence(NamedTuple):
    """The result of `follow`.

    Attributes:
        q: poses; the last one that was reached where a value was not, shape (K, n).
        s: values of the driver at these poses, (K, k).
        reached: whether the values were reached, (K,).
        singular: whether J is singular at the pose, or close to it, (K,).
    """

    q: Float[Array, " K n"]
    s: Float[Array, " K k"]
    reached: Bool[Array, " K"]
    singular: Bool[Array, " K"]


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
    # The poses have the derivatives of `on_level` alone.
    first, targets, times, fixed = jax.lax.stop_gradient((start, s, t, params))
    extents = extents_at(system, first, jnp.zeros_like(first), times[0], fixed)
    q, is_consistent = settled(level, first, times[0], fixed, extents)
    begin = DrivenPose(q, level.driver(q, fixed), times[0])
    undetermined = is_singular(level, begin, fixed, extents)
    branch = follow(level, begin, targets, times, fixed, extents)
    failure = jnp.where(branch.singular, KinematicStatus.DEAD_POINT, KinematicStatus.NO_POSE)
    failure = jnp.where(undetermined, KinematicStatus.UNDETERMINED, failure)
    status = jnp.where(branch.reached, KinematicStatus.REACHED, failure)
    status = jnp.where(is_consistent, status, KinematicStatus.INCONSISTENT).astype(jnp.int32)
    sizes = system.dynamics.sizes(start, start, t[0], params)

    def at_value(values: tuple[Array, ...]) -> tuple[Any, ...]:
        q, s, ds, dds, t = values
        q = on_level(level, q, (s, t, params), extents)
        v, qdd, rows = rates(level, DrivenPose(q, s, t), ds, dds, params, extents)
        eom = system.dynamics.at(q, v, t, params)
        need = matvec(eom.M, qdd) - eom.Q
        # Those of all rows, of minimum norm.
        multipliers = min_norm_solve(extents[:, None] * rows.A.T, extents * need)
        parts = jnp.split(multipliers, np.cumsum(sizes))
        pulls = [r.T @ x for r, x in zip(jnp.split(rows.A, np.cumsum(sizes)), parts, strict=True)]
        return q, v, qdd, parts[-1], parts[:-1], pulls[:-1]

    # A loop: the factorizations of a batch of values would be read number by number.
    moves = jax.lax.map(at_value, (branch.q, s, ds, dds, t))
    good = status == KinematicStatus.REACHED

    def known(x: Array) -> Array:
        return jnp.where(good.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.nan)

    q, v, qdd, drive, multipliers, pulls = jax.tree.map(known, moves)
    labels = [c.name for c in system.constraints]
    return Kinematics(
        values=s, t=t, q=q, v=v, qdd=qdd, drive=drive,
        multipliers=dict(zip(labels, multipliers, strict=True)),
        reactions=dict(zip(labels, pulls, strict=True)),
        status=status, end=branch.s[-1], end_pose=branch.q[-1],
        coordinates=tuple(system.coordinates), drivers=names,
    )  # fmt: skip


def settled(
    level: DrivenLevel, q: Array, t: Array, params: Params, extents: Array
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """The start on the constraints, if possible with its values of the driver, and whether it is.

    By the shortest corrections, none of which moves a coordinate by more than `MOVE` extents.
    """
    s = level.driver(q, params)
    count = level.system.dynamics.position_level(q, t, params).size

    def corrected(held: Array, q: Array) -> Array:
        keep = jnp.where(held | (jnp.arange(count + s.size) < count), 1.0, 0.0).astype(q.dtype)
        A = keep[:, None] * jacobian(lambda q: level(q, s, t, params), q)
        rows = metric(jnp.diag(extents**-2), A, QR())
        d = rows.min_norm_solve(keep * level(q, s, t, params))[0]
        return q - d * jnp.minimum(1.0, MOVE / jnp.maximum(max_abs(d / extents), MOVE))

    def corrected_often(held: Array) -> tuple[Array, Array]:
        x = jax.lax.fori_loop(0, SETTLING, lambda _, x: corrected(held, x), q)
        A = jacobian(lambda q: level(q, s, t, params), x)[:count]
        good = near(level(x, s, t, params)[:count], A, x, extents)
        return x, good & jnp.isfinite(x).all()

    x, good = jax.lax.map(corrected_often, jnp.asarray([True, False]))
    return jnp.where(good[0], x[0], x[1]), good.any()


def follow(
    level: DrivenLevel, start: DrivenPose, s: Float[Array, " K k"], t: Float[Array, " K"],
    params: Params, extents: Float[Array, " n"],
) -> PoseSequence:  # fmt: skip
    """Follow the branch from a pose on it to each of the values in turn."""

    def to_next(
        carry: tuple[DrivenPose, Array], target: tuple[Array, Array]
    ) -> tuple[tuple[DrivenPose, Array], PoseSequence]:
        pose, alive = carry
        # Beyond a dead point two branches meet.
        aim = jax.tree.map(partial(jnp.where, alive), DrivenPose(pose.q, *target), pose)
        pose, reached = _followed(level, pose, aim, params, extents)
        reached &= alive
        singular = is_singular(level, pose, params, extents)
        return (pose, reached), PoseSequence(pose.q, pose.s, reached, singular)

    return jax.lax.scan(to_next, (start, jnp.asarray(True)), (s, t))[1]


def is_singular(
    level: DrivenLevel, pose: DrivenPose, params: Params, extents: Float[Array, " n"]
) -> Bool[Array, ""]:
    """Whether J is singular, or as close to it as where a walk to a dead point ends."""
    # Relative to J its change with the pose is as large as 1 / (distance from a singular pose),
    # whose square is the distance of the driver from a dead point.
    q, s, t = pose
    eps = float(jnp.finfo(q.dtype).eps)
    away = q + eps**0.25 * extents * jnp.asarray(some_direction(q))
    rows = level.rows(q, s, t, params, extents)
    turn = _turn(rows, jacobian(lambda q: level(q, s, t, params), away), extents)
    return (rows.rank < q.size) | ~(turn < SINGULAR)


class _Walk(NamedTuple):
    """Where a walk to the next value has come, in parts of its way."""

    q: Float[Array, " n"]
    part: Float[Array, ""]
    step: Float[Array, ""]
    tries: Int[Array, ""]


def _followed(
    level: DrivenLevel, start: DrivenPose, target: DrivenPose, params: Params, extents: Array
) -> tuple[DrivenPose, Bool[Array, ""]]:
    """The pose at the target, or the last one before it, and whether it was reached."""
    shortest = float(jnp.finfo(start.q.dtype).eps) ** 0.5

    def at(part: Array) -> tuple[Array, Array]:
        # At the end exactly the target.
        is_end = part >= 1
        s = jnp.where(is_end, target.s, start.s + part * (target.s - start.s))
        return s, jnp.where(is_end, target.t, start.t + part * (target.t - start.t))

    def goes_on(walk: _Walk) -> Array:
        return (walk.part < 1) & (walk.step >= shortest) & (walk.tries < STEPS)

    def step(walk: _Walk) -> _Walk:
        rows = level.rows(walk.q, *at(walk.part), params, extents)
        # The change of the level with the part of the way, for a fixed pose.
        slope = jax.jvp(
            lambda part: level(walk.q, *at(part), params), (walk.part,), (jnp.ones_like(walk.part),)
        )[1]
        tangent = -rows.min_norm_solve(slope)[0]
        fastest = max_abs(tangent / extents)
        size = jnp.minimum(walk.step, 1 - walk.part)
        size = jnp.minimum(size, MOVE / jnp.maximum(fastest, MOVE))
        end = jnp.where(size >= 1 - walk.part, 1.0, walk.part + size)
        q, strain = _stepped(level, walk.q, size * tangent, at(end), params, extents, rows)
        accepted = (strain <= 1) & (rows.rank == walk.q.size)
        factor = 0.8 / jnp.maximum(strain, 0.1)
        return _Walk(
            q=jnp.where(accepted, q, walk.q),
            part=jnp.where(accepted, end, walk.part),
            step=size
            * jnp.where(accepted, jnp.clip(factor, 0.25, 2.0), jnp.clip(factor, 0.1, 0.5)),
            tries=walk.tries + 1,
        )

    one = jnp.ones((), start.q.dtype)
    first = _Walk(start.q, 0 * one, one, jnp.zeros((), jnp.int32))
    last = jax.lax.while_loop(goes_on, step, first)
    return DrivenPose(last.q, *at(last.part)), last.part >= 1


def _stepped(
    level: DrivenLevel, q: Array, move: Array, at_end: tuple[Array, Array], params: Params,
    extents: Array, rows: Metric,
) -> tuple[Array, Array]:  # fmt: skip
    """The pose after a step, and how much of what is allowed it takes; infinite for a failure."""
    small = float(jnp.finfo(q.dtype).eps) ** 0.5

    def corrected(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        x, _ = carry
        d = level.rows(x, *at_end, params, extents).min_norm_solve(level(x, *at_end, params))[0]
        return x - d, max_abs(d / extents)

    ahead = q + move
    x, last = jax.lax.fori_loop(0, NEWTON, corrected, (ahead, jnp.zeros((), q.dtype)))
    after = jacobian(lambda x: level(x, *at_end, params), x)
    on_level = near(level(x, *at_end, params), after, x, extents)
    turn = _turn(rows, after, extents)
    way = max_abs((x - q) / extents)
    bend = max_abs((x - ahead) / extents) / (BEND * way + small)
    strain = jnp.maximum(jnp.maximum(turn / TURN, bend), way / (2 * MOVE))
    good = jnp.isfinite(strain) & on_level & (last <= small)
    return x, jnp.where(good, strain, jnp.inf)


def _turn(rows: Metric, after: Array, extents: Array) -> Array:
    """The size of J^+ (J' - J), in the extents of the coordinates."""

    def column(change: Array) -> Array:
        return rows.min_norm_solve(change)[0] / extents

    columns = jax.lax.map(column, ((after - rows.A) * extents[None]).T)
    return jnp.sqrt((columns * columns).sum())


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def on_level(level: DrivenLevel, q: Array, context: Any, extents: Array) -> Float[Array, " n"]:
    """q itself, with the derivatives of any order of the root of the level that it is.

    Args:
        level: the function of the root.
        q: a root, shape (n,).
        context: the other arguments of the level: s, t and params.
        extents: the extents of the coordinates, shape (n,).
    """
    return q


@on_level.defjvp
def _on_level_jvp(level: DrivenLevel, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """J dq = -(the change of the level for a fixed pose), by the implicit function theorem."""
    q, context, extents = primals
    q = on_level(level, q, context, extents)
    s, t, params = context
    rows = level.rows(q, s, t, params, extents)
    change = jax.jvp(lambda context: level(q, *context), (context,), (tangents[1],))[1]
    return q, -rows.min_norm_solve(change)[0]


def rates(
    level: DrivenLevel, pose: DrivenPose, ds: Array, dds: Array, params: Params, extents: Array
) -> tuple[Float[Array, " n"], Float[Array, " n"], Metric]:
    """The velocities and accelerations of a pose for those of the driver, and the rows J."""
    q, s, t = pose
    rows = level.rows(q, s, t, params, extents)
    zero, one = jnp.zeros_like(t), jnp.ones_like(t)

    def along(v: Array) -> Callable[[Array], Array]:
        return lambda x: level(q + x * v, s + x * ds + x * x / 2 * dds, t + x, params)

    def speed(v: Array, x: Array) -> Array:
        return jax.jvp(along(v), (x,), (one,))[1]

    v = -rows.min_norm_solve(speed(jnp.zeros_like(q), zero))[0]
    bent = jax.jvp(partial(speed, v), (zero,), (one,))[1]
    return v, -rows.min_norm_solve(bent)[0], rows
