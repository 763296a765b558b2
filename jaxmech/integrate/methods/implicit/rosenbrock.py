"""One step of a Rosenbrock method: linear systems with the exact Jacobian, no iteration."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.methods.implicit.coefficients import RosenbrockTableau
from jaxmech.integrate.methods.implicit.jacobian import MotionJacobian, Pair, StepData
from jaxmech.integrate.scheme import Scheme


class _Sums(eqx.Module):
    """The contributions of earlier stages to those that follow, the next one first."""

    states: Float[Array, " S 2 n"]  # to q and v at which the stages are evaluated
    rights: Float[Array, " S 2 n"]  # to the right-hand sides
    step: Float[Array, "2 n"]  # to the step
    last: Float[Array, "2 n"]  # the last U
    good: Bool[Array, ""]  # whether all laws of motion could be solved


def rosenbrock_step(
    scheme: Scheme, tableau: RosenbrockTableau, jacobian: MotionJacobian, data: StepData
) -> tuple[Float[Array, "2 n"], Float[Array, "2 n"], Bool[Array, ""]]:
    """The change of q and v, its error, and whether the laws and linear systems could be solved."""
    q, v, h = data.q, data.v, data.h
    solver = jacobian.resolvent(1 / (h * tableau.gamma))

    # A loop, so that the law of motion is compiled once for all stages.
    def solve_stage(so_far: _Sums, stage: Any) -> tuple[_Sums, None]:
        node, time, in_states, in_rights, weight = stage
        stage_q, stage_v = q + so_far.states[0, 0], v + so_far.states[0, 1]
        with jax.named_scope("law_of_motion"):
            _, law = scheme.law(
                stage_q, stage_v, data.t + node * h, data.params, jacobian.independent_rows
            )
        rhs = Pair(stage_v + so_far.rights[0, 0] / h, law.qdd + so_far.rights[0, 1] / h)
        U = jnp.stack(solver.solve(rhs, time * h))
        good = so_far.good & law.definite
        if law.converged is not None:
            good &= law.converged.all()
        return _Sums(
            _shifted(so_far.states, in_states, U),
            _shifted(so_far.rights, in_rights, U),
            so_far.step + weight * U,
            U,
            good,
        ), None

    zeros = jnp.zeros((2, q.size), q.dtype)
    stage_zeros = jnp.zeros((len(tableau.nodes) - 1, 2, q.size), q.dtype)
    start = _Sums(stage_zeros, stage_zeros, zeros, zeros, jnp.asarray(True))
    stages = jax.tree.map(
        lambda x: jnp.asarray(x, q.dtype),
        (
            np.array(tableau.nodes, float),
            np.array(tableau.time, float),
            _following(tableau.stages),
            _following(tableau.couplings),
            np.array(tableau.weights, float),
        ),
    )
    end = jax.lax.scan(solve_stage, start, stages)[0]
    return end.step, end.last, end.good & solver.regular


def _following(rows: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """Row i has the weights of stage i in the stages that follow it, padded with zeros."""
    count = len(rows)
    table = np.zeros((count, count - 1))
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            table[j, i - j - 1] = weight
    return table


def _shifted(sums: Array, weights: Array, U: Array) -> Array:
    # As in `step`: sums move up by one, to avoid a computed index.
    moved = jnp.concatenate([sums[1:], jnp.zeros_like(sums[:1])])
    # The weights are those before the shift: that of the next stage comes first.
    return moved + weights[:, None, None] * U[None]
