"""Constraints that do work: the force C in addition to that of the multipliers.

The force of ideal constraints does no work in any virtual displacement w. If it does the work
w^T C, with a given C (Udwadia and Kalaba 2002), the equations of motion are

    M qdd = Q + A^T lambda + C,    A qdd = b

and every law of motion solves them with Q + C in place of Q:

    qdd = a + M^-1/2 D^+ (b - A a) + M^-1/2 (I - D^+ D) M^-1/2 C,    D = A M^-1/2.

Friction depends on the multipliers, C = C(lambda), and lambda, which is affine in Q, depends on C.
With K = d lambda / dQ of the law and its ideal multipliers lambda0,

    lambda = lambda0 + K C(lambda)

is a fixed-point equation in the multipliers. There may be none, where friction is strong enough to
jam, or several (Painleve 1895). Solutions are found by Newton's method from lambda0 and from
-lambda0, and count as unique where both agree. For one multiplier and a force that grows with its
size this decides existence and uniqueness; in general it may miss further solutions, or fail where
there is one.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxmech.laws.base import AbstractFormulation, Law
from jaxmech.linalg import QR, column_space_projector, matvec
from jaxmech.system import EquationsOfMotion, System
from jaxmech.utils.probing import depends_on

State = tuple[Array, Array, Array, Any]  # q, v, t, params
Force = Callable[[Array, State], Array]  # C as a function of the multipliers and the state

SEARCHES = 8  # Newton steps towards the multipliers
REFINEMENTS = 2  # differentiated Newton steps: exact up to third derivatives


def solve_law(
    formulation: AbstractFormulation,
    system: System,
    eom: EquationsOfMotion,
    state: State,
    *,
    independent: Bool[Array, " m"] | None = None,
) -> Law:
    """Solve a law of motion with the non-ideal force C of the system.

    In the `Law`, `nonideal_force` is C; if C depends on the multipliers, `converged` flags whether
    they were found, and if not, C is that of the ideal multipliers.
    """

    def solve(Q: Array) -> Law:
        return formulation.solve(replace(eom, Q=Q), independent=independent)

    settled = getattr(system.nonideal, "settled", None)
    if settled is not None:
        return settled(_solved(system, solve, eom, state), eom, state[-1])
    return _solved(system, solve, eom, state)


def _solved(
    system: System, solve: Callable[[Array], Law], eom: EquationsOfMotion, state: State
) -> Law:
    if system.nonideal is None:
        return solve(eom.Q)

    def force(multipliers: Array, state: State) -> Array:
        q, v, t, params = state
        return system.dynamics.nonideal_force(q, v, multipliers, t, params)

    if not depends_on(force, (jnp.zeros_like(eom.b), state)):
        C = force(jnp.zeros_like(eom.b), state)
        return replace(solve(eom.Q + C), nonideal_force=C)
    ideal = solve(eom.Q)
    slopes = jax.jacfwd(lambda Q: solve(Q).multipliers)(eom.Q)
    # Friction needs a unique lambda: that of minimum norm, independent of the rows a law drops.
    read = getattr(system.nonideal, "read", lambda count: None)(len(eom.b))
    if read is None:
        smallest = column_space_projector(eom.A)
        K, start = smallest @ slopes, matvec(smallest, ideal.multipliers)
    else:  # a few of them: the equation is one in those alone
        pull = QR().factor(eom.A.T)
        lambdas = jnp.concatenate([ideal.multipliers[:, None], slopes], axis=1)
        lambdas = jax.vmap(lambda x: pull.min_norm_solve(matvec(eom.A.T, x))[0], 1, 1)(lambdas)
        lambdas = jnp.stack([lambdas[k] for k in read])
        start, K, whole = lambdas[:, 0], lambdas[:, 1:], force
        zero = jnp.zeros((), start.dtype)

        def force(multipliers: Array, state: State) -> Array:
            parts = dict(zip(read, jnp.unstack(multipliers), strict=True))
            return whole(jnp.stack([parts.get(k, zero) for k in range(len(eom.b))]), state)

    is_linear = getattr(system.nonideal, "is_linear", False)
    multipliers, converged = _fixed_point(force, start, K, state, is_linear)
    C = force(jnp.where(converged, multipliers, start), state)
    law = solve(eom.Q + C)
    return replace(law, free=ideal.free, nonideal_force=C, converged=converged)


def _fixed_point(
    force: Force, start: Array, K: Array, state: State, is_linear: bool
) -> tuple[Array, Bool[Array, ""]]:
    """Solve lambda = start + K C(lambda); also whether a unique solution was found."""

    def miss(multipliers: Array, start: Array, K: Array, state: State) -> Array:
        return multipliers - start - matvec(K, force(multipliers, state))

    def newton(multipliers: Array, start: Array, K: Array, state: State) -> Array:
        slope = jax.jacfwd(force)(multipliers, state)
        slope = jnp.where(jnp.isfinite(slope), slope, 0.0)  # |lambda| is not differentiable at 0
        slope_matrix = jnp.eye(start.size, dtype=start.dtype) - K @ slope
        mismatch = miss(multipliers, start, K, state)
        return multipliers - QR().factor(slope_matrix).min_norm_solve(mismatch)[0]

    if is_linear:
        multipliers = other = newton(start, start, K, state)
    else:
        # The search is not differentiated; the derivative is that of the refinements after it.
        frozen = jax.lax.stop_gradient((start, K, state))
        solutions = jax.vmap(
            lambda x: jax.lax.fori_loop(0, SEARCHES, lambda _, x: newton(x, *frozen), x)
        )(jnp.stack([frozen[0], -frozen[0]]))
        multipliers, other = jax.lax.stop_gradient((solutions[0], solutions[1]))
        for _ in range(REFINEMENTS):
            multipliers = newton(multipliers, start, K, state)
    # Terms of K C may cancel, so zero is relative to their sizes and not to their sum.
    at_play = matvec(jnp.abs(K), jnp.abs(force(multipliers, state)))
    size = _largest(multipliers) + _largest(start) + _largest(at_play)
    tolerance = float(jnp.finfo(start.dtype).eps) ** 0.5 * size
    solved = _largest(miss(multipliers, start, K, state)) <= tolerance
    return multipliers, solved & (_largest(other - multipliers) <= tolerance)


def _largest(x: Array) -> Array:
    return jnp.max(jnp.abs(x), initial=0.0)
