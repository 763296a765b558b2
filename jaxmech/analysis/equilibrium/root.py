"""A zero of possibly redundant equations near a guess, with its derivatives.

Minimum-norm Levenberg-Marquardt steps. Six dampings and parts of their steps are tried side by side
and the best is taken, the undamped Newton step among them; so there is no state between steps, and
a batch has no branches. Redundant equations and directions of no effect do no harm.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import hoisted
from jaxmech.linalg import QR, matvec, rows_on_host
from jaxmech.utils.arrays import HostArray

ITERATIONS = 100
DAMPING = (0.0, 1e-8, 1e-5, 1e-3, 1e-1, 10.0)
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03)  # parts of a step, of which the best is taken

Equations = Callable[[Array, Any], Array]


def root(equations: Equations, start: Array, theta: Any) -> Array:
    """Return z with equations(z, theta) = 0 near a start, or the z of the least residual.

    Its derivatives of any order with respect to theta, and to traced values in the equations, are
    those of the zero that moves least (implicit function theorem), whatever the start.
    """
    theta = jax.tree.map(jnp.asarray, theta)
    # A function with custom derivative rules must not close over traced values.
    with_traced, traced = hoisted(equations, start, theta)

    def stacked(z: Array, theta: Any) -> Array:
        return with_traced(theta[0], z, theta[1])

    @jax.custom_jvp
    def solved(start: Array, theta: Any) -> Array:
        return _solve(lambda z: stacked(z, theta), start)

    @solved.defjvp
    def implicit(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
        start, theta = primals
        z = solved(start, theta)
        _, moved = jax.jvp(lambda theta: stacked(z, theta), (theta,), (tangents[1],))
        return z, -_shortest(jax.jacfwd(stacked)(z, theta), moved)

    return solved(jax.lax.stop_gradient(start), (traced, theta))


def _shortest(J: Array, r: Array) -> Array:
    """J^+ r for r in the range of J, with the derivatives of the solution of a linear equation."""
    count, unknowns = J.shape
    size = max(count, unknowns)  # `custom_linear_solve` accepts square matrices
    square = jnp.zeros((size, size), J.dtype).at[:count, :unknowns].set(J)
    frozen = jax.lax.stop_gradient(square)

    def solve(_: Any, b: Array) -> Array:
        return QR().factor(frozen).min_norm_solve(b)[0]

    def solve_transposed(_: Any, b: Array) -> Array:
        return QR().factor(frozen.T).min_norm_solve(b)[0]

    b = jnp.zeros(size, r.dtype).at[:count].set(r)
    x = jax.lax.custom_linear_solve(lambda x: matvec(square, x), b, solve, solve_transposed)
    return x[:unknowns]


def _solve(equations: Callable[[Array], Array], start: Array) -> Array:
    def missed(value: Array) -> Array:
        return jnp.where(jnp.all(jnp.isfinite(value)), jnp.sqrt((value * value).sum()), jnp.inf)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        z, size, _, k = carry
        F, J = equations(z), jax.jacfwd(equations)(z)

        def trial(damping: Array) -> tuple[Array, Array]:
            # The z part of the shortest solution of [J, sqrt(mu) 1] x = F is J^T (J J^T + mu)^-1 F,
            # the Levenberg-Marquardt step. mu decreases with the residual, so that the last steps
            # are Newton steps.
            damped = jnp.sqrt(damping * size) * jnp.eye(len(F), dtype=z.dtype)
            augmented = jnp.concatenate([J, damped], axis=1)
            d = QR().factor(augmented).min_norm_solve(F)[0][: z.size]
            # Far from a zero whole steps fail for every damping where constraints are many.
            moved = z[None] - jnp.asarray(np.array(LENGTHS), z.dtype)[:, None] * d[None]
            sizes = jax.vmap(lambda z: missed(equations(z)))(moved)
            best = jnp.argmin(sizes)
            return moved[best], sizes[best]

        # Steps are few and the factorization is small: trying all dampings is simpler than choosing
        # one.
        trials, sizes = jax.lax.map(trial, jnp.asarray(np.array(DAMPING), z.dtype))
        best = jnp.argmin(sizes)
        better = sizes[best] < size
        z = jnp.where(better, trials[best], z)
        return z, jnp.minimum(sizes[best], size), better, k + 1

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, size, better, k = carry
        return better & (k < ITERATIONS) & (size > 0)

    first = (start, missed(equations(start)), jnp.asarray(True), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(goes_on, step, first)[0]


def root_known(
    values: Callable[[HostArray], HostArray],
    linear: Callable[[HostArray], tuple[HostArray, HostArray]],
    start: HostArray,
) -> HostArray:
    """`root` for a start whose numbers are known.

    Args:
        values: the equations.
        linear: the equations and their Jacobian.
        start: shape (n,).
    """
    with np.errstate(all="ignore"):
        z, size = start, _missed(values(start))
        for _ in range(ITERATIONS):
            if not size > 0:
                break
            F, J = linear(z)
            trials = []  # parts of the steps for all dampings
            for damping in np.array(DAMPING, z.dtype):
                damped = np.sqrt(damping * size, dtype=z.dtype) * np.eye(len(F), dtype=z.dtype)
                rows = rows_on_host(np.concatenate([J, damped], axis=1))
                step = rows.min_norm_solve(F)[0][: z.size]
                trials += [z - length * step for length in np.array(LENGTHS, z.dtype)]
            sizes = [_missed(values(trial)) for trial in trials]
            best = int(np.argmin(sizes))
            if not sizes[best] < size:
                break
            z, size = trials[best], sizes[best]
        return z


def _missed(value: HostArray) -> float:
    return float(np.sqrt((value * value).sum())) if np.isfinite(value).all() else float("inf")
