"""The equations of implicit steps: linear systems with the Jacobian of the motion, and Radau's.

The motion as a system of first order is q' = v, v' = a(q, v, t), where a and the multipliers
solve M a - A^T lambda = Q + C and A a = b. Implicit methods solve linear systems with
mu I - J, where J is the Jacobian of (v, a). The derivatives of a are never formed: they solve the
same equations with the residuals R = Q + C - M a + A^T lambda and S = b - A a, differentiated at
constant a and lambda, on the right. With them, (mu I - J) (x, w) = (r, s) becomes x = (w + r) / mu
and the saddle-point system

    (M - R_v / mu - R_q / mu^2) w - (A^T + C_lambda) nu = (M s + R_q r / mu) / mu
    (A - S_v / mu - S_q / mu^2) w                       = (A s + S_q r / mu) / mu

of the size of the equations of motion, whose matrices tend to M and A for short steps.

One step of Radau IIA is collocation at three points, solved by simplified Newton iterations. With
increments Z_i = Y_i - y of the three stages, F_i = f(y + Z_i, t + c_i h) and the tableau A, the
equations are F - A^-1 Z / h = 0. The transformation T splits their Jacobian, taken at the start of
the step, into a real system with mu = gamma / h and a complex one with mu = (alpha + i beta) / h
(Hairer and Wanner, Solving Ordinary Differential Equations II, IV.8).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import hoisted
from jaxmech.integrate.methods.tableaus import RADAU_5
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law
from jaxmech.linalg import SaddlePoint, matvec, saddle_point, singular_weights
from jaxmech.system import EquationsOfMotion, Params, SingularMass, largest


class StepData(eqx.Module):
    """The start of a step, and the accuracy of its equations."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    t: Float[Array, ""]
    h: Float[Array, ""]
    params: Params
    enough: Float[Array, "2 k"]  # allowed error of an iteration, in q and in v, as by `largest`


class MotionJacobian(eqx.Module):
    """Derivatives of the residuals at a state, with constant accelerations and multipliers."""

    M: Float[Array, " n n"]  # mass matrix
    A: Float[Array, " m n"]  # constraint matrix
    push: Float[Array, " m n"]  # A^T + C_lambda transposed, the directions of the constraint forces
    in_q: Float[Array, " nm n"]  # R_q and S_q, one above the other
    in_v: Float[Array, " nm n"]  # R_v and S_v
    in_t: Float[Array, " nm"]  # R_t and S_t
    independent_rows: Bool[Array, " m"]  # constraint rows that count as independent
    singular: SingularMass = eqx.field(static=True)  # as in `System`

    def resolvent(self, real: Array) -> "Resolvent":
        """The factors of mu I - J."""
        n, z = len(self.M), 1 / real
        matrix = jnp.concatenate([self.M, self.A]) - self.in_v * z - self.in_q * (z * z)
        return Resolvent(self, self._factors(matrix[:n], self.push, matrix[n:]), z)

    def complex_resolvent(self, real: Array, imaginary: Array) -> "ComplexResolvent":
        """The factors for a complex mu, kept as real matrices of twice the size."""
        n, stacked = len(self.M), jnp.concatenate([self.M, self.A])
        # 1 / mu and 1 / mu^2 of the complex mu, in real and imaginary parts: the compiler has real
        # numbers.
        size = real**2 + imaginary**2
        z, zi = real / size, -imaginary / size
        re = stacked - self.in_v * z - self.in_q * (z * z - zi * zi)
        im = -self.in_v * zi - self.in_q * (2 * z * zi)
        K, J = (_embedded(re[part], im[part]) for part in (slice(n), slice(n, None)))
        B = _embedded(self.push, jnp.zeros_like(self.push))
        return ComplexResolvent(self, self._factors(K, B, J), z, zi)

    def _factors(self, K: Array, B: Array, J: Array) -> SaddlePoint:
        copies = len(K) // len(self.M)
        independent = jnp.concatenate([self.independent_rows] * copies)
        weights = singular_weights(self.M, self.A, self.singular)
        if weights is not None:
            weights = jnp.concatenate([weights] * copies)
        return saddle_point(K, B, J, independent, weights)


def _embedded(re: Array, im: Array) -> Array:
    return jnp.concatenate([jnp.concatenate([re, -im], 1), jnp.concatenate([im, re], 1)])


class Pair(NamedTuple):
    """A vector of the system of first order: the part of q and that of v, shape (n,) each."""

    q: Array
    v: Array


class Resolvent(eqx.Module):
    """The resolvent (mu I - J)^-1 of a real mu."""

    at: MotionJacobian
    factors: SaddlePoint  # of the saddle-point system
    z: Array  # 1 / mu

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the matrices could be factorized; if not, all results are meaningless."""
        return self.factors.regular

    def solve(self, rhs: Pair, in_t: Array | float | None = None) -> Pair:
        """Solve for (x, w); `in_t` times the derivative by t adds to `rhs`."""
        jacobian, z = self.at, self.z
        n = len(jacobian.M)
        load = _above(jacobian, rhs.v) + z * matvec(jacobian.in_q, rhs.q)
        if in_t is not None:
            load = load + in_t * jacobian.in_t
        w, _ = self.factors.solve(z * load[:n], z * load[n:])
        return Pair((w + rhs.q) * z, w)


class ComplexResolvent(eqx.Module):
    """The resolvent (mu I - J)^-1 of a complex mu."""

    at: MotionJacobian
    factors: SaddlePoint  # of the saddle-point system
    z: Array  # real part of 1 / mu
    zi: Array  # imaginary part

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the matrices could be factorized; if not, all results are meaningless."""
        return self.factors.regular

    def solve(self, re: Pair, im: Pair) -> tuple[Pair, Pair]:
        """Real and imaginary part of (x, w)."""
        jacobian, z, zi = self.at, self.z, self.zi
        n = len(jacobian.M)
        in_re, in_im = matvec(jacobian.in_q, re.q), matvec(jacobian.in_q, im.q)
        first = _above(jacobian, re.v) + z * in_re - zi * in_im
        second = _above(jacobian, im.v) + z * in_im + zi * in_re
        # Once more times 1 / mu, as for a real mu.
        first, second = z * first - zi * second, z * second + zi * first
        f = jnp.concatenate([first[:n], second[:n]])
        g = jnp.concatenate([first[n:], second[n:]])
        w, _ = self.factors.solve(f, g)
        w, wi = w[:n], w[n:]
        x, xi = w + re.q, wi + im.q
        return Pair(z * x - zi * xi, w), Pair(z * xi + zi * x, wi)


def _above(jacobian: MotionJacobian, s: Array) -> Array:
    return jnp.concatenate([matvec(jacobian.M, s), matvec(jacobian.A, s)])


def jacobian_at(
    scheme: Scheme, data: StepData, equations_and_law: tuple[Any, Law], independent: Array
) -> MotionJacobian:
    """The derivatives at the start of a step, whose equations and law of motion are known."""
    (eom, law), params = equations_and_law, data.params
    system, formulation = scheme.system, scheme.formulation

    def pushed(q: Array, v: Array, t: Array, multipliers: Array) -> Array:
        return system.dynamics.nonideal_force(q, v, multipliers, t, params)

    def residuals(q: Array, v: Array, t: Array) -> Array:
        # At constant accelerations and multipliers the residuals are the equations themselves:
        # nothing of the law that solves them is differentiated.
        equations: EquationsOfMotion = formulation.equations(system, q, v, t, params)
        feedback = scheme.stabilization.feedback(system, q, v, t, params)
        R = equations.Q - matvec(equations.M, law.qdd) + matvec(equations.A.T, law.multipliers)
        if system.nonideal is not None:
            R = R + pushed(q, v, t, law.multipliers)
        return jnp.concatenate([R, equations.b + feedback - matvec(equations.A, law.qdd)])

    state = data.q, data.v, data.t
    in_q, in_v = jax.jacfwd(residuals, argnums=(0, 1))(*state)
    in_t = jax.jvp(lambda t: residuals(*state[:2], t), state[2:], (jnp.ones_like(data.t),))[1]
    push = eom.A
    if system.nonideal is not None:
        push = push + jax.jacfwd(pushed, argnums=3)(*state, law.multipliers).T
    return MotionJacobian(
        eom.M, eom.A, push, in_q, in_v, in_t, jax.lax.stop_gradient(independent), eom.singular_mass
    )


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
    pair: ComplexResolvent

    @staticmethod
    def of(jacobian: MotionJacobian, h: Array) -> "Solvers":
        """Make the solvers for a step of size h."""
        re, im = RADAU_5.complex
        return Solvers(
            jacobian.resolvent(RADAU_5.real / h), jacobian.complex_resolvent(re / h, im / h)
        )

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the matrices could be factorized."""
        return self.real.regular & self.pair.regular

    def correction(self, missing: Float[Array, "3 2 n"]) -> Float[Array, "3 2 n"]:
        """The change of Z that cancels the residual to first order."""
        first, second, third = (Pair(*x) for x in _combined(_BACK, missing))
        real = self.real.solve(first)
        re, im = self.pair.solve(second, third)
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
