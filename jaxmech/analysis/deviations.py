"""The equations of motion as a residual, and those of small deviations, which are linear.

Deviations dq, dv, da and dlambda from a state (q, v) with its accelerations a and multipliers
lambda obey, to first order,

    M da + C dv + K dq = A^T dlambda,      C = dr/dv,  K = dr/dq

with r = M a - Q - A^T lambda at fixed a and lambda. So K holds the geometric stiffness of the
multipliers, -d(A^T lambda)/dq; for holonomic constraints that is -lambda . d2phi/dq2. The
constraints restrict the deviations at each level, those of position, velocity and acceleration:

    A_p dq = 0,      A_v dv + B dq = 0,      A da + H_v dv + H_q dq = 0

Orthonormal bases Z and Y of the null spaces of A_p and A_v, which differ in dimension where a
constraint is nonholonomic, solve the first two: dq = Z x, dv = T x + Y u. A steady motion follows
a symmetry with the velocity field xi(q) and W = dxi/dq: a wheel rolls on, a top turns. In the
comoving frame, deviations change at the rates dv - W dq and da - W dv, and the equations have
constant coefficients:

    dx/dt = R x + P u,      M_r du/dt + C_r u + K_r x = 0
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.analysis.states import State
from jaxmech.compiler import jacobian, native_program
from jaxmech.laws import acceleration
from jaxmech.linalg import QR, column_space_projector, matvec, metric, null_basis, unit
from jaxmech.system import Acceleration, KnownState, Nonholonomic, Params, System
from jaxmech.utils.probing import (
    actual,
    cached_by_shapes,
    concrete_at,
    depends_on,
    generic,
    outside_traces,
)

Freedom = tuple[int, int, int]  # numbers of positions, velocities and accelerations


class Balance(NamedTuple):
    """The residuals of the equations of motion at a state, its accelerations and multipliers."""

    force: Any  # M a - Q - A^T lambda - C, shape (n,)
    rows: Any  # A a - b, shape (m,)
    pull: Any  # A^T lambda, shape (n,)
    speed: Any  # residual of the constraints at the velocity level, shape (l,)


def balance(
    system: System, q: Array, v: Array, t: Array, params: Params, a: Array, multipliers: Array
) -> Balance:
    """The equations of motion at (q, v, a, t), by derivatives along the motion: M is not formed.

    The rows and multipliers of `Acceleration` constraints come last.
    """
    first = system.dynamics.mechanical
    rates, state_rates = system.dynamics.state_rates(q, v, t, params), a[first:]
    a = jnp.concatenate([a[:first], rates])

    level, rate = _level_and_rate(system, q, v, t, params, a)
    aim, servo_pull = jax.vjp(lambda a: _servo(system, q, v, t, params, a), a)
    _, pulled = jax.vjp(lambda v: system.dynamics.velocity_level(q, v, t, params), v)
    pull = pulled(multipliers[: level.size])[0] + servo_pull(multipliers[level.size :])[0]
    pull = system.dynamics.without_states(pull)
    along = v, a, jnp.ones_like(t)
    (by_q, _), (_, rate_of_momentum) = jax.jvp(
        lambda *state: system.dynamics.slopes(*state, params), (q, v, t), along
    )
    force = (
        system.dynamics.without_states(rate_of_momentum - by_q)
        - pull
        - system.dynamics.applied_force(q, v, t, params)
    )
    if system.nonideal is not None:
        # The multipliers move with the state here, since the friction depends on them.
        multipliers_of_law = acceleration(system, q, v, t, params).multipliers
        force = force - system.dynamics.nonideal_force(q, v, multipliers_of_law, t, params)
    force = jnp.concatenate([force[:first], state_rates - rates])
    return Balance(force, jnp.concatenate([rate, aim]), pull, level)


def _level_and_rate(
    system: System, q: Array, v: Array, t: Array, params: Params, a: Array
) -> tuple[Array, Array]:
    def speed(q: Array, v: Array, t: Array) -> Array:
        return system.dynamics.velocity_level(q, v, t, params)

    return jax.jvp(speed, (q, v, t), (v, a, jnp.ones_like(t)))


def _servo(system: System, q: Array, v: Array, t: Array, params: Params, a: Array) -> Array:
    servos = [c for c in system.constraints if isinstance(c, Acceleration)]
    values = [c.value(q, v, a, t, params) for c in servos]
    return jnp.concatenate([jnp.zeros((0,), q.dtype), *values])


def parameter_reach(force: Callable[[Params], Array], params: Params) -> Array:
    """The effect of relative changes of all parameters on forces, which balance at an equilibrium.

    It remains where the stiffness vanishes too, at a fold.
    """
    numbers, constants = eqx.partition(params, eqx.is_inexact_array)
    draw = np.random.default_rng(17)  # different changes, so that their effects do not cancel
    moves = jax.tree.map(
        lambda x: x * jnp.asarray(draw.uniform(0.5, 1.5, x.shape), x.dtype), numbers
    )
    return jnp.abs(jax.jvp(lambda p: force(eqx.combine(p, constants)), (numbers,), (moves,))[1])


def reach(A: Array, x: Array) -> Array:
    """The largest effect of a relative change of every component on each row, |A| (1 + |x|)."""
    return matvec(jnp.abs(A), 1 + jnp.abs(x))


def acceleration_rows(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """The rows of the constraints on the accelerations, shape (m, n), in the order of `balance`."""
    if constrains_states(system, q, v, t, params):
        raise ValueError(
            "Argument `system` must have constraints without states of first order to be "
            f"linearized, but one contains {' or '.join(system.states)}; write its reaction as a "
            "force, or look at a simulation."
        )
    first = system.dynamics.mechanical
    rates = system.dynamics.state_rates(q, v, t, params)

    def rows(a: Array) -> Array:
        a = jnp.concatenate([a[:first], rates])
        rate = _level_and_rate(system, q, v, t, params, a)[1]
        return jnp.concatenate([rate, _servo(system, q, v, t, params, a)])

    return jacobian(rows, jnp.zeros_like(q))


def held_integrals(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " s n"]:
    """Rows that hold the integrals of states of first order, where nothing depends on them."""
    rows = jnp.eye(system.n, dtype=q.dtype)[system.dynamics.mechanical :]
    return rows[:0] if reads_integrals(system, q, v, t, params) else rows


@cached_by_shapes
def reads_integrals(system: System, q: Array, v: Array, t: Array, params: Params) -> bool:
    """Whether the motion depends on the integrals of the states of first order."""
    return _depends_on_last(system, 0, q, v, t, params)


@cached_by_shapes
def constrains_states(system: System, q: Array, v: Array, t: Array, params: Params) -> bool:
    """Whether a constraint on the velocities contains states of first order."""
    return _depends_on_last(system, 1, q, v, t, params)


def _depends_on_last(system: System, index: int, *state: Any) -> bool:
    """Whether functions depend on the entries of q (0) or v (1) that belong to states."""
    dynamics = system.dynamics
    mechanical = dynamics.mechanical_velocities if index else dynamics.mechanical
    if state[index].size == mechanical:
        return False

    def effects(*state: Any) -> Array:
        def values(last: Array) -> Array:
            q, v, t, params = state
            if index:
                v = jnp.concatenate([v[:mechanical], last])
            else:
                q = jnp.concatenate([q[:mechanical], last])
            level = dynamics.velocity_level(q, v, t, params)
            if index:
                return level
            eom = system.dynamics.at(q, v, t, params)
            parts = eom.M, eom.Q, eom.A, eom.b, level, dynamics.position_level(q, t, params)
            return jnp.concatenate([x.ravel() for x in parts])

        last = state[index][mechanical:]
        slopes = jax.jacfwd(values)(last)
        # Where functions overflow a slope is NaN, whatever they depend on.
        here, elsewhere = values(last)[:, None], values(1.5 * last)[:, None]
        is_same = (here == elsewhere) | (jnp.isnan(here) & jnp.isnan(elsewhere))
        return jnp.where(jnp.isfinite(slopes), slopes, jnp.where(is_same, 0.0, 1.0))

    effects_at_states = concrete_at(effects, [generic(state, seed) for seed in (11, 12)])
    return any(x is None or bool(np.any(x != 0)) for x in effects_at_states)


def row_order(system: System, sizes: tuple[int, ...]) -> np.ndarray:
    """The order of the rows of the system with `Acceleration` constraints last."""
    servo = [isinstance(c, Acceleration) for c in system.constraints]
    return np.argsort(np.repeat(servo, sizes), kind="stable")


SAMPLES = 4  # number of batch members whose ranks are counted
ASIDE = 1e-3  # relative distance of the states with which a pose is compared


def require_consistent(system: System, state: State) -> None:
    """Raise a ValueError that names a constraint violated by a known state."""
    for violation in KnownState(system, *state).violations():
        raise ValueError(
            f"Arguments `q` and `v` must meet the constraints, but {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; `assemble` them first."
        )


def freedom_at(system: System, state: State) -> Freedom:
    """The numbers of positions, velocities and accelerations that the constraints leave free.

    They are counted at the state, or at members of the batch under `jax.vmap`; under `jit`, where
    values are unknown, at generic arguments.
    """
    members = actual(state, SAMPLES)
    if members is None:
        return _generic_freedom(system, *state)
    leaves, structure = jax.tree.flatten(members)
    states = [jax.tree.unflatten(structure, x) for x in zip(*map(jnp.asarray, leaves), strict=True)]
    return min(_freedom(_rows(system, *member)) for member in states)


def require_regular(system: System, state: State, freedom: Freedom) -> None:
    """Raise a ValueError where the rank of the constraints is smaller than at states nearby."""
    q, v, t, params = state
    A_p, A_v, _ = map(np.asarray, _rows(system, *state))
    if not freedom[0] or not A_v.shape[0]:
        return
    draw = np.random.default_rng(3)
    for _ in range(2):
        change = draw.uniform(-1, 1, system.n) * (1 + np.abs(np.asarray(q)))
        change = change - np.linalg.pinv(A_p, rcond=1e-6) @ (A_p @ change)
        moved = _rows(system, q + ASIDE * jnp.asarray(change, q.dtype), v, t, params)
        for level, A, freedom_rows in zip(
            ("positions", "velocities"), moved[:2], freedom[:2], strict=True
        ):
            # Singular values that vanish in a singular pose are of the order of ASIDE at this
            # distance from it.
            rank = int((_singular_values(A) > 0.03 * ASIDE).sum())
            if rank > system.n - freedom_rows:
                raise ValueError(
                    "Argument `q` must not be a singular pose, but the constraints on "
                    f"{level} have rank {system.n - freedom_rows} there and {rank} nearby; move "
                    "away from it, to where the degrees of freedom are well defined."
                )


@native_program("system")
def _rows(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, ...]:
    """The rows of the constraints on positions, velocities and accelerations."""
    A_p, A_v = system.dynamics.jacobians(q, v, t, params)
    A_p = jnp.concatenate([A_p, held_integrals(system, q, v, t, params)])
    servo = [c.rows(q, v, t, params)[0] for c in system.constraints if isinstance(c, Acceleration)]
    return A_p, A_v, jnp.concatenate([A_v, *servo])


def _singular_values(rows: Any) -> np.ndarray:
    rows, lengths = unit(np.asarray(rows))
    return np.linalg.svd(rows[lengths > 0], compute_uv=False)


def _freedom(rows: tuple[Any, ...]) -> Freedom:
    n = rows[0].shape[1]
    tolerance = float(jnp.finfo(rows[0].dtype).eps) ** 0.5
    ranks = [int((_singular_values(A) > tolerance).sum()) for A in rows]
    return n - ranks[0], n - ranks[1], n - ranks[2]


@cached_by_shapes
def _generic_freedom(system: System, q: Array, v: Array, t: Array, params: Params) -> Freedom:
    rows = outside_traces(_rows, system, *generic((q, v, t, params), seed=21))
    if rows is None:
        raise ValueError(
            "Argument `freedom` must be given here, since the functions of the system close over "
            "values that are being traced; pass (positions, velocities, accelerations), as "
            "`structure` counts."
        )
    return _freedom(rows)


class FullEquations(eqx.Module):
    """The linear equations in all coordinates: M da + C dv + K dq = A^T dlambda.

    Rows on accelerations are those of positions and velocities, differentiated, and then those of
    `Acceleration` constraints.

    Attributes:
        a: accelerations at the state, shape (n,).
        multipliers: at the state, of minimum norm, in the order of the system, shape (m,).
        M: mass matrix, shape (n, n).
        C: derivative of the unbalanced force with respect to v, shape (n, n).
        K: the same with respect to q, geometric stiffness included, shape (n, n).
        geometric: the geometric stiffness, -d(A^T lambda)/dq, shape (n, n).
        drift: derivative of the unbalanced force with respect to t, shape (n,).
        change: rate at which the matrices change with t alone, relative to the largest number of
            each, the largest of these rates [1/s].
        A_p: constraint rows on dq, shape (k, n).
        A_v: constraint rows on dv, shape (l, n).
        B: coefficients of dq in the same rows, shape (l, n).
        A: constraint rows on da, shape (m, n).
        H_q: coefficients of dq in the same rows, shape (m, n).
        H_v: coefficients of dv in the same rows, shape (m, n).
        forces: sizes of the forces at play, shape (n,).
    """

    a: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    M: Float[Array, " n n"]
    C: Float[Array, " n n"]
    K: Float[Array, " n n"]
    geometric: Float[Array, " n n"]
    drift: Float[Array, " n"]
    change: Float[Array, ""]
    A_p: Float[Array, " k n"]
    A_v: Float[Array, " l n"]
    B: Float[Array, " l n"]
    A: Float[Array, " m n"]
    H_q: Float[Array, " m n"]
    H_v: Float[Array, " m n"]
    forces: Float[Array, " n"]


class ReducedEquations(eqx.Module):
    """The linear equations in independent coordinates.

    Attributes:
        Z: matrix of dq = Z x, shape (n, k).
        Y: matrix of dv = T x + Y u, shape (n, l).
        T: matrix in the same equation, shape (n, k).
        R: matrix of dx/dt = R x + P u, shape (k, k).
        P: matrix in the same equation, shape (k, l).
        M: mass matrix of M du/dt + C u + K x = 0, shape (l, l).
        C: damping matrix in the same equation, shape (l, l).
        K: stiffness matrix in the same equation, shape (l, k).
        rows: constraints on du/dt by `Acceleration`, rows du/dt + slopes (x, u) = 0, shape (c, l).
        slopes: matrix in the same equation, shape (c, k + l).
        regular: whether the ranks of A_p and A_v are n - k and n - l.
    """

    Z: Float[Array, " n k"]
    Y: Float[Array, " n l"]
    T: Float[Array, " n k"]
    R: Float[Array, " k k"]
    P: Float[Array, " k l"]
    M: Float[Array, " l l"]
    C: Float[Array, " l l"]
    K: Float[Array, " l k"]
    rows: Float[Array, " c l"]
    slopes: Float[Array, " c _"]
    regular: Bool[Array, ""]

    def solve(self, force: Float[Array, " l j"], shift: Float[Array, " c j"]) -> Array:
        """du/dt for forces in the columns and inhomogeneities of the rows, shape (l, j)."""
        if not self.M.size or not force.shape[1]:
            return jnp.zeros_like(force)
        pair = metric(self.M, self.rows, QR())
        return jax.vmap(lambda f, b: pair.solve(f, b)[1], (1, 1), 1)(force, shift)

    def matrix(self) -> Float[Array, " j j"]:
        """The matrix of the first-order system, d(x, u)/dt = matrix (x, u)."""
        accelerations = self.solve(-jnp.concatenate([self.K, self.C], 1), -self.slopes)
        return jnp.concatenate([jnp.concatenate([self.R, self.P], 1), accelerations])


class AtRest(NamedTuple):
    """The equations of motion at a state, without accelerations and multipliers."""

    M: Any  # shape (n, n)
    A: Any  # shape (m, n)
    force: Any  # -Q, shape (n,)
    rows: Any  # -b, shape (m,)


class Forced(NamedTuple):
    """The accelerations at a state, and the forces that they need."""

    a: Any  # shape (n,)
    force: Any  # M a - Q, shape (n,)
    multipliers: Any  # of minimum norm, in the order of `balance`, shape (m,)


class Derivatives(NamedTuple):
    """The derivatives of the equations of motion at fixed accelerations and multipliers."""

    A_p: Any  # rows on dq, shape (k, n)
    by_q: Balance  # of each part, shapes (_, n)
    by_v: Balance
    drift: Any  # by t, shape (n,)
    change: Any  # the largest relative rate of a matrix
    reach: Any  # effects of relative changes of q and the parameters on forces, shape (n,)


def at_rest(system: System, state: State) -> AtRest:
    """The equations of motion at a state."""
    q, v, t, params = state
    A, zero = acceleration_rows(system, q, v, t, params), jnp.zeros_like(q)
    balances = balance(system, q, v, t, params, zero, jnp.zeros(len(A), q.dtype))
    return AtRest(system.dynamics.mass(q, v, t, params), A, balances.force, balances.rows)


def forced(statics: AtRest, freedom: Freedom) -> Forced:
    """The accelerations and the minimum-norm multipliers that balance them."""
    M, A = statics.M, statics.A
    # a = A^+ b plus the null-space component that balances the forces there
    N, _ = null_basis(A, freedom[2])
    rows = QR().factor(A)
    a = rows.min_norm_solve(-statics.rows)[0]
    if N.shape[1]:
        free = metric(N.T @ M @ N, jnp.zeros((0, N.shape[1]), M.dtype), QR())
        a = a - N @ free.solve(N.T @ (statics.force + M @ a), a[:0])[1]
    force = statics.force + M @ a
    multipliers = matvec(column_space_projector(A), rows.min_norm_solve(matvec(A, force))[1])
    return Forced(a, force, multipliers)


def derivatives(system: System, state: State, a: Array, multipliers: Array) -> Derivatives:
    """The derivatives of the equations of motion at accelerations and multipliers."""
    q, v, t, params = state

    def parts(q: Array, v: Array, t: Array) -> Balance:
        return balance(system, q, v, t, params, a, multipliers)

    def matrices(t: Array) -> tuple[Array, Array, tuple[Balance, Balance]]:
        """M, the rows on positions, and the derivatives of each part with respect to q and v."""
        A_p = system.dynamics.position_jacobian(q, t, params)
        slopes = jax.jacfwd(lambda q, v: parts(q, v, t), (0, 1))(q, v)
        slopes = (Balance(*(x[0] for x in slopes)), Balance(*(x[1] for x in slopes)))
        return system.dynamics.mass(q, v, t, params), A_p, slopes

    if depends_on(lambda t: (system.dynamics.mass(q, v, t, params), parts(q, v, t)), (t,)):
        values, rates = jax.jvp(matrices, (t,), (jnp.ones_like(t),))
        _, A_p, (by_q, by_v) = values
        drift = jax.jacfwd(lambda t: parts(q, v, t).force)(t)

        def relative(value: Array, rate: Array) -> Array:
            """The largest rate of a number relative to the largest number of its matrix."""
            size = jnp.max(jnp.abs(value), initial=0.0)
            return jnp.max(jnp.abs(rate), initial=0.0) / jnp.where(size > 0, size, 1.0)

        change = jnp.max(jnp.stack(jax.tree.leaves(jax.tree.map(relative, values, rates))))
    else:
        _, A_p, (by_q, by_v) = matrices(t)
        drift, change = jnp.zeros_like(q), jnp.zeros_like(t)
    if not any(isinstance(c, Nonholonomic) for c in system.constraints):
        A_p = by_v.speed
    A_p = jnp.concatenate([A_p, held_integrals(system, q, v, t, params)])

    def force(params: Any) -> Array:
        return balance(system, q, v, t, params, a, multipliers).force

    effects = reach(by_q.force, q) + parameter_reach(force, params)
    return Derivatives(A_p, by_q, by_v, drift, change, effects)


def full_equations(
    system: System, state: State, statics: AtRest, motion: Forced, slopes: Derivatives
) -> FullEquations:
    """The linear equations in all coordinates about a state that satisfies the constraints."""
    by_q, by_v = slopes.by_q, slopes.by_v
    # The last are effects of relative changes of q and the parameters: at rest forces may all
    # vanish.
    forces = jnp.abs(statics.force) + jnp.abs(motion.force)
    forces = forces + jnp.abs(statics.M) @ jnp.abs(motion.a) + slopes.reach
    return FullEquations(
        a=motion.a,
        multipliers=motion.multipliers[
            np.argsort(row_order(system, system.dynamics.sizes(*state)))
        ],
        M=statics.M,
        C=by_v.force,
        K=by_q.force,
        geometric=-by_q.pull,
        drift=slopes.drift,
        change=slopes.change,
        A_p=slopes.A_p,
        A_v=by_v.speed,
        B=by_q.speed,
        A=statics.A,
        H_q=by_q.rows,
        H_v=by_v.rows,
        forces=forces,
    )


def reduced_equations(
    full: FullEquations, W: Float[Array, " n n"], freedom: Freedom
) -> ReducedEquations:
    """The linear equations in independent coordinates, with W of the symmetry that is followed."""
    count = full.A_v.shape[0]  # of rows on velocities
    Z, right_position = null_basis(full.A_p, freedom[0])
    is_holonomic = full.A_p.shape == full.A_v.shape  # then no constraint is nonholonomic
    Y, right_velocity = (Z, right_position) if is_holonomic else null_basis(full.A_v, freedom[1])
    inverse = full.A_v.T
    if count:
        solve = QR().factor(full.A_v).min_norm_solve
        inverse = jax.vmap(lambda r: solve(r)[0], 1, 1)(jnp.eye(count, dtype=full.A_v.dtype))
    T = W @ Z - inverse @ (full.A_v @ (W @ Z) + full.B @ Z)
    R, P = Z.T @ (T - W @ Z), Z.T @ Y
    dq = jnp.concatenate([Z, jnp.zeros_like(Y)], 1)
    dv = jnp.concatenate([T, Y], 1)
    # da = Y w + G (x, u): the constraints alone determine G, the equations of motion w
    shift = full.H_q @ dq + full.H_v @ dv
    G = -inverse @ shift[:count]
    drift_rows = Y.T @ (W @ dv + T @ jnp.concatenate([R, P], 1))  # w = du/dt + moving (x, u)
    carried = Y.T @ (full.M @ (G + Y @ drift_rows) + full.C @ dv + full.K @ dq)
    servo = full.A[count:]
    return ReducedEquations(
        Z=Z,
        Y=Y,
        T=T,
        R=R,
        P=P,
        M=Y.T @ full.M @ Y,
        C=carried[:, freedom[0] :],
        K=carried[:, : freedom[0]],
        rows=servo @ Y,
        slopes=servo @ (G + Y @ drift_rows) + shift[count:],
        regular=right_position & right_velocity,
    )


def unsteadiness(
    full: FullEquations, small: ReducedEquations, v: Float[Array, " n"], W: Float[Array, " n n"]
) -> Float[Array, ""]:
    """The distance of a motion from following a symmetry: 0 if it does, about 1 if not at all.

    The accelerations must be W v, and stay so: with (v, W v, W W v) in the place of (dq, dv, da)
    and time advancing, the linear equations must hold too. Unbalanced forces are compared
    with the largest force at play; in the second condition over the time in which the motion
    changes a deviation of one unit, or a second at rest. At rest the matrices must not change with
    time either: the eigenvalues of a shaken pendulum do not determine its stability.
    """
    rates = W @ v
    rate = jnp.max(jnp.abs(v))
    later = full.M @ (W @ rates) + full.C @ rates + full.K @ v + full.drift
    later = later / jnp.where(rate > 0, rate, 1.0)
    missed = jnp.stack([full.M @ (full.a - rates), small.Y @ (small.Y.T @ later)])
    largest = jnp.max(full.forces + jnp.abs(full.M) @ jnp.abs(rates))
    missed_share = jnp.max(jnp.abs(missed)) / jnp.where(largest > 0, largest, 1.0)
    return jnp.where(rate > 0, missed_share, jnp.maximum(missed_share, full.change))
