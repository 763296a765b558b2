"""`Rodas5P`: an implicit method for stiff systems."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.checks import check_dependent_rows, first_that_holds, unless
from jaxmech.integrate.methods.implicit_equations import MotionJacobian, jacobian_at
from jaxmech.integrate.methods.moved import Moved, StepStart
from jaxmech.integrate.methods.runge_kutta import AbstractPair, Policies, require_udwadia_kalaba
from jaxmech.integrate.methods.tableaus import RODAS_5P, RosenbrockTableau, StepControl
from jaxmech.integrate.scheme import Scheme
from jaxmech.status import Status
from jaxmech.system import System


class _Sums(eqx.Module):
    """The contributions of earlier stages to those that follow, the next one first."""

    states: Float[Array, " S 2 n"]  # to q and v at which the stages are evaluated
    rights: Float[Array, " S 2 n"]  # to the right-hand sides
    step: Float[Array, "2 n"]  # to the step
    last: Float[Array, "2 n"]  # the last U
    good: Bool[Array, ""]  # whether all laws of motion could be solved


def rosenbrock_step(
    scheme: Scheme, tableau: RosenbrockTableau, jacobian: MotionJacobian, data: StepStart
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
        r, s = stage_v + so_far.rights[0, 0] / h, law.qdd + so_far.rights[0, 1] / h
        U = jnp.stack(solver.solve(r, s, time * h))
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
    order = RODAS_5P.order
    evaluations = len(RODAS_5P.nodes)

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the law of motion reports its independent rows."""
        does = "linearizes the equations of motion itself"
        alternatives = "`jm.RK4()` and `jm.Adaptive()`"
        require_udwadia_kalaba("jm.Rodas5P", policies[0], does, alternatives)

    def step(self, scheme: Scheme, data: StepStart) -> tuple[Moved, Float[Array, "2 n"]]:
        """One step, not yet projected, and its errors in q and v."""
        q, v, t, params = data.q, data.v, data.t, data.params
        all_rows, yes = (
            jnp.ones(sum(scheme.system.dynamics.sizes(q, v, t, params)), bool),
            jnp.asarray(True),
        )
        with jax.named_scope("law_of_motion"):
            eom, law = scheme.law(q, v, t, params, all_rows)
        # The rows of the start count in all stages, as in an explicit step.
        independent_rows = all_rows if law.independent is None else law.independent
        jacobian = jacobian_at(scheme, data, (eom, law), independent_rows)
        changes, errors, solved = rosenbrock_step(scheme, RODAS_5P, jacobian, data)
        status = first_that_holds(
            (~law.definite, Status.SINGULAR_MASS),
            *unless(law.converged, Status.NONIDEAL_FAILED),
            check_dependent_rows(eom, law, v, all_rows, yes, yes),
            (~solved, Status.NOT_CONVERGED),
        )
        independent = law.rank == jnp.asarray(all_rows.size, law.rank.dtype)
        good = status == Status.OK
        ends, rows = (q + changes[0], v + changes[1]), all_rows.size
        return Moved(*ends, good, status, independent, law.rank, rows), errors
