"""Routes in JAX: `jm.simulate`, and what one would write without it.

All of them are `jit(vmap(one trajectory))` with the parameters as arguments. The others run the
classical Runge-Kutta method in a `lax.scan`, or in diffrax.
"""

from collections.abc import Callable
from dataclasses import replace
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

Law = Callable[[jm.EquationsOfMotion], Array]  # accelerations from M, Q, A, b
OneRun = Callable[[Array, Array, Any], Any]


def default(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """`jm.simulate` with default arguments: projection, and the whole `Solution`."""
    return _whole_solution(case, jm.Projection(), q0, v0)


def without_audit(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """With projection, but only the final state, so that the audit is eliminated."""
    return _compiled(case, one_simulation(case, jm.Projection()), q0, v0)


def without_projection(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The whole `Solution` with `projection=None`."""
    return _whole_solution(case, None, q0, v0)


def bare_kernel(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """Only the final state, with `projection=None`: what the other routes compute."""
    return _compiled(case, one_simulation(case, None), q0, v0)


def bare_kernel_by_vmap(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The same program by plain `jax.vmap`."""
    with off():
        return bare_kernel(case, q0, v0)


def pseudoinverse(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The formula of Udwadia and Kalaba with `jnp.linalg.pinv`."""
    return _compiled(case, _scanned(case, _with_pinv), q0, v0)


def library_cholesky(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The multipliers from A M^-1 A^T by `jax.scipy.linalg.cho_factor`."""
    return _compiled(case, _scanned(case, _with_cholesky), q0, v0)


def with_diffrax(case: Case, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    """The right-hand side of `library_cholesky` in diffrax."""
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

    def run(q: Array, v: Array, params: Any) -> tuple[Array, Array]:
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


def one_simulation(case: Case, projection: jm.Projection | None) -> OneRun:
    """The final state of one trajectory by `jm.simulate`."""

    def run(q: Array, v: Array, params: Any) -> tuple[Array, Array]:
        solution = _simulation(case, projection, q, v, params)
        return solution.q[-1], solution.v[-1]

    return run


def _whole_solution(
    case: Case, projection: jm.Projection | None, q0: np.ndarray, v0: np.ndarray
) -> Prepared:
    """A run that returns all that a `Solution` holds, so that nothing is eliminated."""
    prepared = _compiled(case, lambda *args: _simulation(case, projection, *args), q0, v0)
    return replace(prepared, compared=lambda found: (found.q[:, -1], found.v[:, -1]))


def _simulation(
    case: Case, projection: jm.Projection | None, q: Array, v: Array, params: Any
) -> jm.Solution:
    ts, method = jnp.array([0.0, case.end]), jm.RK4(substeps=case.steps)
    return jm.simulate(case.model.system, q, v, ts, params, method=method, projection=projection)


def _with_pinv(eom: jm.EquationsOfMotion) -> Array:
    """a + M^-1/2 (A M^-1/2)^+ (b - A a), a = M^-1 Q."""
    values, vectors = jnp.linalg.eigh(eom.M)
    root = (vectors / jnp.sqrt(values)[None]) @ vectors.T
    a = root @ (root @ eom.Q)
    return a + root @ (jnp.linalg.pinv(eom.A @ root) @ (eom.b - eom.A @ a))


def _with_cholesky(eom: jm.EquationsOfMotion) -> Array:
    """a + M^-1 A^T (A M^-1 A^T)^-1 (b - A a)."""
    mass = cho_factor(eom.M)
    a, moved = cho_solve(mass, eom.Q), cho_solve(mass, eom.A.T)
    return a + moved @ cho_solve(cho_factor(eom.A @ moved), eom.b - eom.A @ a)


def _slope(case: Case, law: Law, q: Array, v: Array, t: Array, params: Any) -> tuple[Array, Array]:
    return v, law(case.model.system.equations(q, v, t, params))


def _scanned(case: Case, law: Law) -> OneRun:
    """The classical Runge-Kutta method in a `lax.scan`."""
    h = case.step_size

    def step(params: Any, state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], None]:
        def slope(weight: float, k: tuple[Array, Array]) -> tuple[Array, Array]:
            q, v = (x + weight * h * dx for x, dx in zip(state, k, strict=True))
            return _slope(case, law, q, v, t + weight * h, params)

        k1 = slope(0.0, state)
        k2 = slope(0.5, k1)
        k3 = slope(0.5, k2)
        k4 = slope(1.0, k3)
        rates = zip(state, k1, k2, k3, k4, strict=True)
        return tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in rates), None

    def run(q: Array, v: Array, params: Any) -> tuple[Array, Array]:
        times = h * jnp.arange(case.steps)
        return jax.lax.scan(lambda state, t: step(params, state, t), (q, v), times)[0]

    return run


def _compiled(case: Case, run: OneRun, q0: np.ndarray, v0: np.ndarray) -> Prepared:
    params = jax.tree.map(jnp.asarray, dict(case.model.params))
    return compiled(jax.vmap(run, in_axes=(0, 0, None)), q0, v0, params)
