"""Routes in JAX: `jm.simulate`, and hand-written alternatives.

All of them are `jit(vmap(one trajectory))` with the parameters as arguments. The others run the
classical Runge-Kutta method in a `lax.scan`, or in diffrax.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve

import jaxmech as jm
from experiments.speed.cases import Case
from experiments.speed.routes import Prepared, Unavailable, compiled
from jaxmech.compiler import off

State = tuple[Array, Array]
Law = Callable[[jm.laws.EquationsOfMotion], Array]  # accelerations from M, Q, A, b
OneRun = Callable[[Array, Array, Any], Any]


def simulated(
    case: Case, q0: np.ndarray, v0: np.ndarray, *,
    projection: jm.Projection | None, audit: bool = False, lanes: bool = True,
) -> Prepared:  # fmt: skip
    """Run `jm.simulate`: the whole `Solution`, or without `audit` only the final state.

    Unused parts of a solution are eliminated. Without `lanes` the same program runs by plain
    `jax.vmap`.
    """
    run = end_of_simulation(case, projection)
    if audit:
        run = partial(_simulation, case, projection)
    with nullcontext() if lanes else off():
        prepared = _compiled(case, run, q0, v0)
    if audit:
        return replace(prepared, compared=lambda found: (found.q[:, -1], found.v[:, -1]))
    return prepared


def pseudoinverse(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Solve the Udwadia-Kalaba equation with `jnp.linalg.pinv`, in a `lax.scan`."""
    return _compiled(case, _scanned(case, _with_pinv), q0, v0)


def library_cholesky(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Compute the multipliers from A M^-1 A^T by `jax.scipy.linalg.cho_factor`, in a `lax.scan`."""
    return _compiled(case, _scanned(case, _with_cholesky), q0, v0)


def with_diffrax(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Integrate the right-hand side of `library_cholesky` with diffrax."""
    try:
        import diffrax
    except ImportError:
        raise Unavailable("diffrax is not installed: pip install 'jaxmech[bench]'") from None

    class RK4(diffrax.AbstractERK):  # diffrax has no classical method of its own
        tableau = diffrax.ButcherTableau(
            c=np.array([1 / 2, 1 / 2, 1.0]),
            a_lower=(np.array([1 / 2]), np.array([0.0, 1 / 2]), np.array([0.0, 0.0, 1.0])),
            b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
            b_error=np.zeros(4),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms: object) -> int:
            return 4

    def run(q: Array, v: Array, params: Any) -> State:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, p: _slope(case, _with_cholesky, *y, t, p)),
            RK4(scan_kind="lax"),  # the fastest of the variants for a forward run
            t0=0.0,
            t1=case.end,
            dt0=case.step_size,
            y0=(q, v),
            args=params,
            saveat=diffrax.SaveAt(t1=True),
            max_steps=case.steps + 1,
            throw=False,
        )
        return jax.tree.map(lambda saved: saved[-1], solution.ys)

    return _compiled(case, run, q0, v0)


def end_of_simulation(case: Case, projection: jm.Projection | None) -> OneRun:
    """Make the function of one trajectory to its final state by `jm.simulate`."""

    def run(q: Array, v: Array, params: Any) -> State:
        solution = _simulation(case, projection, q, v, params)
        return solution.q[-1], solution.v[-1]

    return run


def _simulation(
    case: Case, projection: jm.Projection | None, q: Array, v: Array, params: Any
) -> jm.Solution:
    ts, steps = jnp.array([0.0, case.end]), jm.FixedSteps(per_save=case.steps)
    return jm.simulate(case.model.system, q, v, ts, params, steps=steps, projection=projection)


def _with_pinv(eom: jm.laws.EquationsOfMotion) -> Array:
    """The accelerations a + M^-1/2 (A M^-1/2)^+ (b - A a), a = M^-1 Q."""
    values, vectors = jnp.linalg.eigh(eom.M)
    root = (vectors / jnp.sqrt(values)[None]) @ vectors.T
    a = root @ (root @ eom.Q)
    return a + root @ (jnp.linalg.pinv(eom.A @ root) @ (eom.b - eom.A @ a))


def _with_cholesky(eom: jm.laws.EquationsOfMotion) -> Array:
    """The accelerations a + M^-1 A^T (A M^-1 A^T)^-1 (b - A a)."""
    mass = cho_factor(eom.M)
    a, moved = cho_solve(mass, eom.Q), cho_solve(mass, eom.A.T)
    return a + moved @ cho_solve(cho_factor(eom.A @ moved), eom.b - eom.A @ a)


def _slope(case: Case, law: Law, q: Array, v: Array, t: Array, params: Any) -> State:
    return v, law(case.model.system.equations(q, v, t, params))


def _scanned(case: Case, law: Law) -> OneRun:
    """Run the classical Runge-Kutta method in a `lax.scan`."""
    h = case.step_size

    def run(q: Array, v: Array, params: Any) -> State:
        def step(state: State, t: Array) -> tuple[State, None]:
            def slope(weight: float, k: State) -> State:
                q, v = (x + weight * h * dx for x, dx in zip(state, k, strict=True))
                return _slope(case, law, q, v, t + weight * h, params)

            k1 = slope(0.0, state)
            k2 = slope(0.5, k1)
            k3 = slope(0.5, k2)
            k4 = slope(1.0, k3)
            rates = zip(state, k1, k2, k3, k4, strict=True)
            return tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in rates), None

        return jax.lax.scan(step, (q, v), h * jnp.arange(case.steps))[0]

    return run


def _compiled(case: Case, run: OneRun, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    params = jax.tree.map(jnp.asarray, dict(case.model.params))
    return compiled(jax.vmap(run, in_axes=(0, 0, None)), q0, v0, params)
