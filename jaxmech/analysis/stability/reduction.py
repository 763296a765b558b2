"""The linear equations of small deviations from a motion, in independent coordinates.

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

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.analysis.stability.balance import (
    Balance,
    Freedom,
    acceleration_rows,
    balance,
    held_integrals,
    parameter_reach,
    row_order,
)
from jaxmech.analysis.states import State
from jaxmech.linalg import QR, column_space_projector, matvec, metric, null_basis
from jaxmech.system import Nonholonomic, System, reach
from jaxmech.utils.probing import depends_on


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
