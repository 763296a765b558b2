"""`Rodas5P`: an implicit method for stiff systems.

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

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.checks import failures, first_that_holds
from jaxmech.integrate.methods.runge_kutta import (
    AbstractPair,
    Moved,
    Policies,
    StepControl,
    StepStart,
    following,
    require_udwadia_kalaba,
    table,
)
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law
from jaxmech.linalg import matvec, row_weights, saddle_point
from jaxmech.status import Status
from jaxmech.system import EquationsOfMotion, System

# Stage i solves (I / (h gamma) - J) U_i = f(y + sum_j a_ij U_j, t + c_i h) + sum_j C_ij U_j / h
# + h d_i f_t, without products with the Jacobian; the step is y + sum_j b_j U_j, and the last U its
# error (Hairer and Wanner, Solving Ordinary Differential Equations II, IV.7). The coefficients are
# gamma, the nodes c, the stages a and couplings C after the first, the times d and the weights b.
# Steinebach, Construction of Rosenbrock-Wanner method Rodas5P and numerical benchmarks within the
# Julia Differential Equations package, BIT Numerical Mathematics 63, 27 (2023).
_NODES, *_STAGES, _TIME, _WEIGHTS = table(
    """
    0 0.6358126895828704 0.4095798393397535 0.9769306725060716 0.4288403609558664 1 1 1;
    3.0;
    2.849394379747939 0.45842242204463923;
    -6.954028509809101 2.489845061869568 -10.358996098473584;
    2.8029986275628964 0.5072464736228206 -0.3988312541770524 -0.04721187230404641;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1 1;
    0.21193756319429014 -0.42387512638858027 -0.3384627126235924 1.8046452872882734
    2.325825639765069 0 0 0;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
    0.030198172008377946 1 1 1
    """
)
_COUPLINGS = table(
    """
    -14.155112264123755;
    -17.97296035885952 -2.859693295451294;
    147.12150275711716 -1.41221402718213 71.68940251302358;
    165.43517024871676 -0.4592823456491126 42.90938336958603 -5.961986721573306;
    24.854864614690072 -3.0009227002832186 47.4931110020768 5.5814197821558125 -0.6610691825249471;
    30.91273214028599 -3.1208243349937974 77.79954646070892 34.28646028294783 -19.097331116725623
    -28.087943162872662;
    37.80277123390563 -3.2571969029072276 112.26918849496327 66.9347231244047 -40.06618937091002
    -54.66780262877968 -9.48861652309627
    """
)
_GAMMA = 0.21193756319429014


class _Sums(eqx.Module):
    """The contributions of earlier stages to those that follow, the next one first."""

    states: Float[Array, " S 2 n"]  # to q and v at which the stages are evaluated
    rights: Float[Array, " S 2 n"]  # to the right-hand sides
    step: Float[Array, "2 n"]  # to the step
    last: Float[Array, "2 n"]  # the last U
    good: Bool[Array, ""]  # whether all laws of motion could be solved


@dataclass(frozen=True)
class Rodas5P(AbstractPair):
    """A Rosenbrock method of order 5 for stiff systems, eight stages (Steinebach 2023).

    L-stable and stiffly accurate: stiff springs and strong damping do not limit its steps. Each
    step solves linear systems with the exact Jacobian of the constrained accelerations, from
    automatic differentiation, and iterates nothing. Usually the first choice for stiff systems at
    tolerances down to 1e-8: `method=Rodas5P(), steps=Adaptive(rtol=...)`. Steps end on the
    constraints by projection.

    Raises:
        ValueError: by `simulate`, if the law of motion is not `UdwadiaKalaba`, or its solver is
            `SVD`.
    """

    control = StepControl(order=4, least=0.2, most=6.0, memory=0.0, stable=float("inf"))
    interpolates: ClassVar[bool] = False
    error_constant = 1.0  # about
    order = 5
    evaluations = len(_NODES)

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the law of motion reports its independent rows."""
        does = "linearizes the equations of motion itself"
        alternatives = "`jm.RK4()` and `jm.Adaptive()`"
        require_udwadia_kalaba("jm.Rodas5P", policies[0], does, alternatives)

    def step(self, scheme: Scheme, start: StepStart) -> tuple[Moved, Float[Array, "2 n"]]:
        """One step, not yet projected, and its errors in q and v."""
        q, v, t, h, params = start.q, start.v, start.t, start.h, start.params
        all_rows = jnp.ones(sum(scheme.system.dynamics.sizes(q, v, t, params)), bool)
        yes, n = jnp.asarray(True), q.size
        with jax.named_scope("law_of_motion"):
            eom, law = scheme.law(q, v, t, params, all_rows)
        # The rows of the start count in all stages, as in an explicit step.
        independent_rows = all_rows if law.independent is None else law.independent
        independent_rows = jax.lax.stop_gradient(independent_rows)
        push, in_q, in_v, in_t = _slopes(scheme, start, eom, law)
        mu = 1 / (h * _GAMMA)
        z = 1 / mu
        matrix = jnp.concatenate([eom.M, eom.A]) - in_v * z - in_q * (z * z)
        weights = _weights_of_rows(eom)
        factors = saddle_point(matrix[:n], push, matrix[n:], independent_rows, weights)

        # A loop, so that the law of motion is compiled once for all stages.
        def solve_stage(so_far: _Sums, stage: Any) -> tuple[_Sums, None]:
            node, time, in_states, in_rights, weight = stage
            stage_q, stage_v = q + so_far.states[0, 0], v + so_far.states[0, 1]
            with jax.named_scope("law_of_motion"):
                _, law = scheme.law(stage_q, stage_v, t + node * h, params, independent_rows)
            r, s = stage_v + so_far.rights[0, 0] / h, law.qdd + so_far.rights[0, 1] / h
            load = jnp.concatenate([matvec(eom.M, s), matvec(eom.A, s)])
            load = load + z * matvec(in_q, r) + time * h * in_t
            w, _ = factors.solve(z * load[:n], z * load[n:])
            U = jnp.stack([(w + r) * z, w])
            good = so_far.good & law.definite
            if law.converged is not None:
                good &= law.converged.all()
            return _Sums(
                _shifted(so_far.states, in_states, U), _shifted(so_far.rights, in_rights, U),
                so_far.step + weight * U, U, good,
            ), None  # fmt: skip

        zeros = jnp.zeros((2, n), q.dtype)
        stage_zeros = jnp.zeros((len(_NODES) - 1, 2, n), q.dtype)
        later = following(((), *_STAGES)), following(((), *_COUPLINGS))
        columns = _NODES, _TIME, *later, _WEIGHTS
        stages = tuple(jnp.asarray(np.array(column, float), q.dtype) for column in columns)
        sums = _Sums(stage_zeros, stage_zeros, zeros, zeros, yes)
        sums = jax.lax.scan(solve_stage, sums, stages)[0]
        status = first_that_holds(
            *failures(eom, law, v, all_rows, yes, yes),
            (~(sums.good & factors.regular), Status.NOT_CONVERGED),
        )
        independent = law.rank == jnp.asarray(all_rows.size, law.rank.dtype)
        ends, rows = (q + sums.step[0], v + sums.step[1]), all_rows.size
        return Moved(*ends, status == Status.OK, status, independent, law.rank, rows), sums.last


def _weights_of_rows(eom: EquationsOfMotion) -> Array | None:
    """Weights of the rows that make up for a singular M, shape (m,); None if it is regular.

    Any weights give the same solution, so they have no derivative.
    """
    if not eom.singular_mass:
        return None
    indices = np.arange(len(eom.A))
    is_chosen = np.isin(indices, indices if eom.singular_mass is True else eom.singular_mass)
    return jax.lax.stop_gradient(jnp.where(is_chosen, row_weights(eom.M, eom.A), 0.0))


def _shifted(sums: Array, weights: Array, U: Array) -> Array:
    # As in `sum_stages`: sums move up by one, to avoid a computed index.
    moved = jnp.concatenate([sums[1:], jnp.zeros_like(sums[:1])])
    # The weights are those before the shift: that of the next stage comes first.
    return moved + weights[:, None, None] * U[None]


def _slopes(
    scheme: Scheme, start: StepStart, eom: EquationsOfMotion, law: Law
) -> tuple[Array, Array, Array, Array]:
    """A^T + C_lambda transposed, (m, n); R and S, one above the other, by q, v and t."""
    system, state, params = scheme.system, (start.q, start.v, start.t), start.params

    def pushed(q: Array, v: Array, t: Array, multipliers: Array) -> Array:
        return system.dynamics.nonideal_force(q, v, multipliers, t, params)

    def residuals(q: Array, v: Array, t: Array) -> Array:
        # At constant accelerations and multipliers the residuals are the equations themselves:
        # nothing of the law that solves them is differentiated.
        equations = scheme.formulation.equations(system, q, v, t, params)
        feedback = scheme.stabilization.feedback(system, q, v, t, params)
        R = equations.Q - matvec(equations.M, law.qdd) + matvec(equations.A.T, law.multipliers)
        if system.nonideal is not None:
            R = R + pushed(q, v, t, law.multipliers)
        return jnp.concatenate([R, equations.b + feedback - matvec(equations.A, law.qdd)])

    in_q, in_v = jax.jacfwd(residuals, argnums=(0, 1))(*state)
    in_t = jax.jvp(lambda t: residuals(*state[:2], t), state[2:], (jnp.ones_like(start.t),))[1]
    push = eom.A
    if system.nonideal is not None:
        push = push + jax.jacfwd(pushed, argnums=3)(*state, law.multipliers).T
    return push, in_q, in_v, in_t
