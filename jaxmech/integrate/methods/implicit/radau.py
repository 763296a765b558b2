"""One step of Radau IIA: collocation at three points, solved by simplified Newton iterations.

With increments Z_i = Y_i - y of the three stages, F_i = f(y + Z_i, t + c_i h) and the tableau A,
the equations are F - A^-1 Z / h = 0. The transformation T splits their Jacobian, taken at the start
of the step, into a real system with mu = gamma / h and a complex one with mu = (alpha + i beta) / h
(Hairer and Wanner, Solving Ordinary Differential Equations II, IV.8).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import hoisted
from jaxmech.first_order import largest
from jaxmech.integrate.methods.implicit.coefficients import RADAU_5
from jaxmech.integrate.methods.implicit.jacobian import MotionJacobian, Pair, Resolvent, StepData
from jaxmech.integrate.scheme import Scheme

_INVERSE = np.linalg.inv(RADAU_5.matrix)
_BACK = np.linalg.inv(RADAU_5.transform)
_ROOT = np.sqrt(6.0)
_ERROR = np.array([-(13 + 7 * _ROOT), -13 + 7 * _ROOT, -1.0]) / 3
_DERIVATIVE_SWEEPS = 8  # of a linear iteration that gains at least one digit in each

_UNKNOWN_RATE = 0.9  # of the first correction
_ROUNDING = 1 / 16  # correction, relative to what is enough, below which only round-off is left

_Rates = Callable[[Array, Any], Array]


class Solvers(eqx.Module):
    """The factorized matrices of the real and of the complex system."""

    real: Resolvent
    pair: Resolvent

    @staticmethod
    def of(jacobian: MotionJacobian, h: Array) -> "Solvers":
        """Make the solvers for a step of size h."""
        re, im = RADAU_5.complex
        return Solvers(jacobian.resolvent(RADAU_5.real / h), jacobian.resolvent(re / h, im / h))

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the matrices could be factorized."""
        return self.real.regular & self.pair.regular

    def correction(self, missing: Float[Array, "3 2 n"]) -> Float[Array, "3 2 n"]:
        """The change of Z that cancels the residual to first order."""
        first, second, third = (Pair(*x) for x in _combined(_BACK, missing))
        real = self.real.solve(first)
        re, im = self.pair.solve_complex(second, third)
        return _combined(RADAU_5.transform, jnp.stack([jnp.stack(x) for x in (real, re, im)]))


def _combined(matrix: np.ndarray, x: Array) -> Array:
    return (jnp.asarray(matrix, x.dtype)[:, :, None, None] * x[None]).sum(1)


def radau_step(
    scheme: Scheme, iterations: int, jacobian: MotionJacobian, start: StepData
) -> tuple[Float[Array, "3 2 n"], Bool[Array, ""], Solvers]:
    """The increments of q and v at the stages, and whether they could be found; the solvers."""
    # Simplified Newton: the Jacobian affects the rate of convergence only, not the limit.
    solvers = jax.lax.stop_gradient(Solvers.of(jacobian, start.h))

    def missing(Z: Array, data: Any) -> Array:
        """The residual F - A^-1 Z / h."""
        q, v, t, h, params, independent = data

        def stage_rate(_: None, stage: Any) -> tuple[None, Array]:
            node, increment = stage
            stage_q, stage_v = q + increment[0], v + increment[1]
            with jax.named_scope("law_of_motion"):
                law = scheme.law(stage_q, stage_v, t + node * h, params, independent)[1]
            return None, jnp.stack([stage_v, law.qdd])

        rates = jax.lax.scan(stage_rate, None, (jnp.asarray(RADAU_5.nodes, Z.dtype), Z))[1]
        return rates - _combined(_INVERSE, Z) / h

    guess = jnp.zeros((3, 2, start.q.size), start.q.dtype)
    data = start.q, start.v, start.t, start.h, start.params, jacobian.independent_rows
    hoisted_missing, traced = hoisted(missing, guess, data)

    def with_traced(Z: Array, data: Any) -> Array:
        values, traced = data
        return hoisted_missing(traced, Z, values) if traced else missing(Z, values)

    Z, converged = _collocation(with_traced, iterations, solvers, (data, traced), start.enough)
    return Z, converged, solvers


class _Iteration(eqx.Module):
    Z: Float[Array, "3 2 n"]
    size: Float[Array, ""]
    converged: Bool[Array, ""]
    diverged: Bool[Array, ""]


def _solve(
    missing: _Rates, iterations: int, solvers: Solvers, data: Any, enough: Array
) -> tuple[Array, Array]:
    n = data[0][0].size
    start = jnp.zeros((3, 2, n), enough.dtype)

    def correct(state: _Iteration) -> _Iteration:
        change = solvers.correction(missing(state.Z, data))
        size = jnp.max(largest(jnp.abs(change).max(0), enough.shape[1] - 1) / enough)
        # The first correction has no predecessor; a pessimistic rate asks for a second one unless
        # the first is far below what is enough.
        rate = jnp.where(state.size > 0, size / state.size, _UNKNOWN_RATE)
        # Corrections fall geometrically: this is the sum of those that would follow.
        remaining = size * rate / jnp.maximum(1 - rate, 0.1)
        is_small = ((remaining <= 1.0) & (rate < 1.0)) | (size <= _ROUNDING)
        return _Iteration(state.Z + change, size, is_small, ~(rate < 2.0))

    def correct_or_rest(_: Array, state: _Iteration) -> _Iteration:
        ended = state.converged | state.diverged
        return jax.lax.cond(~ended, lambda: correct(state), lambda: state)

    no = jnp.asarray(False)
    first = _Iteration(start, jnp.zeros((), enough.dtype), no, no)
    end = jax.lax.fori_loop(0, iterations, correct_or_rest, first)
    return end.Z, end.converged & solvers.regular


_collocation = jax.custom_jvp(_solve, nondiff_argnums=(0, 1))


@_collocation.defjvp
def _collocation_jvp(
    missing: _Rates, iterations: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    # By the same linear iteration as the solution.
    solvers, data, _ = primals
    Z, converged = _collocation(missing, iterations, *primals)

    _, by_data = jax.jvp(lambda data: missing(Z, data), (data,), (tangents[1],))
    # The exact Jacobian at the stages, not the one at the start of the step: the sweeps converge to
    # the derivative of the solution itself.
    _, by_Z = jax.linearize(lambda Z: missing(Z, data), Z)

    # No loop: JAX 0.9.2 cannot transpose one here, beside that over the stages.
    dZ = jnp.zeros_like(Z)
    for _ in range(_DERIVATIVE_SWEEPS):
        dZ = dZ + solvers.correction(by_Z(dZ) + by_data)
    return (Z, converged), (dZ, np.zeros((), jax.dtypes.float0))


def radau_error(
    scheme: Scheme, Z: Array, solvers: Solvers, start: StepData, qdd: Array, independent: Array
) -> Pair:
    """The error of q and v, of order 3, with the stiff components filtered twice."""
    q, v = start.q, start.v
    weights = jnp.asarray(_ERROR, q.dtype)[:, None, None]
    spread = (weights * Z).sum(0) / start.h
    # Hairer and Wanner, equations (8.19) and (8.20): for very stiff components the first estimate
    # tends to the size of the state, and would reject steps without need; the second tends to zero.
    first = solvers.real.solve(Pair(v + spread[0], qdd + spread[1]))
    _, law = scheme.law(q + first.q, v + first.v, start.t, start.params, independent)
    return solvers.real.solve(Pair(v + first.v + spread[0], law.qdd + spread[1]))
