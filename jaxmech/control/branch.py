"""A branch of the poses of a mechanism, followed along a driver.

The pose q is the solution of level(q, s, t, p) = 0: the constraints, and the driven quantity less
its value s. A step goes along the tangent, J dq = -(dlevel/ds ds + dlevel/dt dt), and Newton's
method returns to the level (Allgower and Georg 1990, chapter 6). A step from q to q' is accepted if

    |J(q)^+ (J(q') - J(q))| < 1/2,

so that J is regular all the way between them, no other branch is met, and the result is close to
the tangent and to q. Where J becomes singular, at a dead point, the steps become ever shorter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import jacobian
from jaxmech.linalg import QR, Metric, matvec, max_abs, metric, min_norm_solve
from jaxmech.state import some_direction
from jaxmech.system import Params, System, near

TURN = 0.5  # largest change of J in a step, relative to J
MOVE = 0.5  # largest change of a coordinate in a step, in extents
BEND = 0.25  # largest distance from the tangent, in parts of the step
NEWTON = 5  # corrections of a step; each leaves the square of the error
SETTLING = 40  # corrections of the start, which may be farther off
STEPS = 5_000  # for one value of the driver
SINGULAR = 0.03  # change of J with the fourth root of round-off, relative to J, near dead points


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


def forces(
    system: System,
    pose: DrivenPose,
    v: Array,
    qdd: Array,
    params: Params,
    rows: Metric,
    extents: Array,
) -> Float[Array, " m"]:
    """The multipliers of all rows J, of minimum norm: J^T lambda = M qdd - Q."""
    eom = system.dynamics.at(pose.q, v, pose.t, params)
    need = matvec(eom.M, qdd) - eom.Q
    return min_norm_solve(extents[:, None] * rows.A.T, extents * need)
