"""The stages of an embedded Runge-Kutta pair, whose rates the error estimate needs as well."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.formulations import Partition
from jaxmech.integrate.checks import finite_states, first_that_holds
from jaxmech.integrate.methods.explicit_step import evaluate_stage
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKuttaPair
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import EvaluatedState
from jaxmech.status import Status
from jaxmech.system import Params

_SMALL = 8  # coordinates and constraint equations of a system whose stages are unrolled
_TOGETHER = 6  # stages of one loop there


class PairWeights(eqx.Module):
    """The S stages of a pair, with the weights of their rates.

    The rates of earlier stages are kept as they are, and not added to the sums of those that
    follow: native code reads them once for each weight, but would write each sum as often.
    """

    nodes: Float[Array, " S"]  # fractions of the step
    before: Float[Array, " S S"]  # of the S rates before a stage, the last one at the end
    is_last: Bool[Array, " S"]
    step: Float[Array, " S"]  # of the rates in the step
    errors: Float[Array, " E S"]  # of the rates in its E errors
    error_at_end: tuple[float, ...] = eqx.field(static=True)  # of the rate at its end

    @staticmethod
    def of(pair: AbstractRungeKuttaPair, dtype: Any) -> "PairWeights":
        """The stages of a pair, their weights padded with zeros."""
        tableau, errors = pair.tableau, np.asarray(pair.errors)
        # The last weight of an error estimate belongs to the rate at the end, known only after
        # projection.
        count = len(tableau.nodes)
        earlier = np.stack([np.roll(row, -j) for j, row in enumerate(tableau.matrix)])
        return PairWeights(
            nodes=jnp.asarray(tableau.nodes, dtype),
            before=jnp.asarray(earlier, dtype),
            is_last=jnp.asarray(np.arange(count) == count - 1),
            step=jnp.asarray(tableau.weights, dtype),
            errors=jnp.asarray(errors[:, :-1], dtype),
            error_at_end=tuple(errors[:, -1].tolist()),
        )


class StageRates(eqx.Module):
    """The carry of the loop over the stages."""

    speeds: Float[Array, " S n"]  # of the stages so far, the last one at the end, after zeros
    accelerations: Float[Array, " S k"]  # likewise
    q: Float[Array, " n"]  # of the last stage
    v: Float[Array, " k"] | None  # of the last stage; None where the speeds are the same
    independent: Bool[Array, ""]  # whether all rows were at all stages
    status: Int[Array, ""]  # a `Status`
    rank: Int[Array, ""]  # the smallest so far


def pair_stages(
    scheme: Scheme, stages: PairWeights, chart: Partition | None, start: EvaluatedState, t: Array,
    h: Array, params: Params,
) -> StageRates:  # fmt: skip
    """Evaluate the stages after the first, which is known, of a step of size h at time t."""
    system = scheme.system
    is_small = start.q.size + start.independent_rows.size <= _SMALL

    def add_stage(so_far: StageRates, stage: Any) -> tuple[StageRates, None]:
        node, weights, is_last = stage
        q = start.q + h * (weights @ so_far.speeds)
        v = start.v + h * (weights @ so_far.accelerations)
        stage_t = t + node * h
        is_finite = jnp.asarray(True)
        if not is_small:  # where it pays
            (q, v), is_finite = finite_states((q, v), (start.q, start.v))
        q, v, law, failures = evaluate_stage(
            scheme, chart, q, v, stage_t, params, start.independent_rows,
            is_start=jnp.asarray(False), is_end=is_last,
        )  # fmt: skip
        before = so_far.status != Status.OK, so_far.status
        status = first_that_holds(before, (~is_finite, Status.NONFINITE), *failures)
        speeds = system.dynamics.speeds(q, v, stage_t, params)
        return StageRates(
            jnp.concatenate([so_far.speeds[1:], speeds[None]]),
            jnp.concatenate([so_far.accelerations[1:], law.qdd[None]]),
            q,
            None if not system.velocities else v,
            so_far.independent & (law.rank == m),
            status,
            jnp.minimum(so_far.rank, law.rank),
        ), None  # fmt: skip

    m = jnp.asarray(start.independent_rows.size, jnp.int32)
    count = len(stages.nodes)
    speeds = system.dynamics.speeds(start.q, start.v, t, params)
    v = None if not system.velocities else start.v
    first = StageRates(
        _after_zeros(speeds, count - 1), _after_zeros(start.qdd, count - 1),
        start.q, v, start.rank == m, start.status, start.rank,
    )  # fmt: skip
    # Native code unrolls short loops, and then knows the zeros among the weights. That halves the
    # time of a step of a small system; a large one would take too long to compile.
    for k in range(1, count, _TOGETHER if is_small else count):
        part = slice(k, min(k + _TOGETHER, count) if is_small else count)
        first, _ = jax.lax.scan(
            add_stage, first, (stages.nodes[part], stages.before[part], stages.is_last[part])
        )
    return first


def _after_zeros(x: Array, count: int) -> Array:
    return jnp.concatenate([jnp.zeros((count, x.size), x.dtype), x[None]])
