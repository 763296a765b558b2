"""The linear systems of implicit steps, with the Jacobian of the motion.

The motion as a system of first order is q' = v, v' = a(q, v, t), where a and the multipliers
solve M a - A^T lambda = Q + C and A a = b. Implicit methods solve linear systems with
mu I - J, where J is the Jacobian of (v, a). The derivatives of a are never formed: they solve the
same equations with the residuals R = Q + C - M a + A^T lambda and S = b - A a, differentiated at
constant a and lambda, on the right. With them, (mu I - J) (x, w) = (r, s) becomes x = (w + r) / mu
and the saddle-point system

    (M - R_v / mu - R_q / mu^2) w - (A^T + C_lambda) nu = (M s + R_q r / mu) / mu
    (A - S_v / mu - S_q / mu^2) w                       = (A s + S_q r / mu) / mu

of the size of the equations of motion, whose matrices tend to M and A for short steps.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.methods.moved import StepStart
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law
from jaxmech.linalg import SaddlePoint, matvec, saddle_point, singular_weights
from jaxmech.system import EquationsOfMotion, SingularMass


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
        weights = singular_weights(self.M, self.A, self.singular)
        K, J = matrix[:n], matrix[n:]
        return Resolvent(self, saddle_point(K, self.push, J, self.independent_rows, weights), z)


class Resolvent(eqx.Module):
    """The resolvent (mu I - J)^-1 of a real mu."""

    at: MotionJacobian
    factors: SaddlePoint  # of the saddle-point system
    z: Array  # 1 / mu

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the matrices could be factorized; if not, all results are meaningless."""
        return self.factors.regular

    def solve(self, r: Array, s: Array, in_t: Array) -> tuple[Array, Array]:
        """x and w for the right-hand sides r and s and `in_t` times the derivative by t."""
        jacobian, z = self.at, self.z
        n = len(jacobian.M)
        load = jnp.concatenate([matvec(jacobian.M, s), matvec(jacobian.A, s)])
        load = load + z * matvec(jacobian.in_q, r) + in_t * jacobian.in_t
        w, _ = self.factors.solve(z * load[:n], z * load[n:])
        return (w + r) * z, w


def jacobian_at(
    scheme: Scheme, data: StepStart, equations_and_law: tuple[Any, Law], independent: Array
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
