"""The stages of explicit Runge-Kutta methods.

Without an error estimate the rate of a stage is added at once to the sums of those that follow: a
fixed step needs no rate after its stage, so that native code holds few numbers in registers. An
embedded pair keeps all rates, which its estimate needs as well.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import check_dependent_rows, finite_states, first_that_holds, unless
from jaxmech.integrate.methods.moved import Moved
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKuttaPair
from jaxmech.integrate.methods.tableaus import Tableau, following
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law, Partition
from jaxmech.status import Status
from jaxmech.system import Params

Failures = list[tuple[Array, Status | Array]]  # flags and statuses, of which the first counts


def evaluate_stage(
    scheme: Scheme, chart: Partition | None, q: Array, v: Array, t: Array, params: Params,
    independent_rows: Bool[Array, " m"], *, is_start: Array, is_end: Array,
) -> tuple[Array, Array, Law, Failures]:  # fmt: skip
    """The state completed by the chart, the law of motion there, and its possible failures.

    Only the `independent_rows` count; `is_start` and `is_end` flag the stages at which dependent
    rows are checked.
    """
    q, v, complete = scheme.completed(chart, q, v, t, params)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, independent_rows)
    failures: Failures = [
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        *unless(complete, Status.PROJECTION_FAILED),
        check_dependent_rows(eom, law, v, independent_rows, is_start, is_end),
    ]
    return q, v, law, failures


class EvaluatedState(eqx.Module):
    """A state on the constraints with its accelerations, which steps with an error estimate need.

    Its time is that of the run (`RunSetting.time`).
    """

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    qdd: Float[Array, " k"]  # the rates of v
    independent_rows: Bool[Array, " m"]  # which rows were taken as independent
    rank: Int[Array, ""]
    status: Int[Array, ""]  # failure of the law of motion there, a `Status`


def evaluated_state(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> EvaluatedState:
    """A state with its accelerations; all rows may count as independent."""
    yes = jnp.asarray(True)
    all_rows = jnp.ones(sum(scheme.system.dynamics.sizes(q, v, t, params)), bool)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, all_rows)
    status = first_that_holds(
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        check_dependent_rows(eom, law, v, all_rows, yes, yes),
    )
    return EvaluatedState(
        q, v, law.qdd, all_rows if law.independent is None else law.independent, law.rank, status
    )


_SMALL = 32  # coordinates and constraint equations of a system whose stages are unrolled


class SumWeights(eqx.Module):
    """A stage of a method, or all of them along a leading axis.

    The rate of a stage enters the sums of the stages that follow, as many of them as the method
    uses, and the sum of the step, which is the last.

    Attributes:
        node: the fraction of the step at which it is evaluated.
        weights: weights of its rate in each of the sums.
        is_start: whether it is the first stage.
        is_end: whether it is the first or the last stage.
    """

    node: Array
    weights: Float[Array, " *S sums"]
    is_start: Bool[Array, " *S"]
    is_end: Bool[Array, " *S"]

    @staticmethod
    def of(tableau: Tableau, dtype: Any) -> "SumWeights":
        """The stages of a method, their weights padded with zeros."""
        table, numbers = following(tableau.stages), np.arange(len(tableau.nodes))
        # Sums are carried only as far ahead as the method looks: fewer numbers in registers.
        farthest = 1 + int(np.flatnonzero(table.any(0)).max())
        weights = np.column_stack([table[:, :farthest], tableau.weights])
        return SumWeights(
            node=jnp.asarray(tableau.nodes, dtype),
            weights=jnp.asarray(weights, dtype),
            is_start=jnp.asarray(numbers == 0),
            is_end=jnp.asarray(np.isin(numbers, (0, len(numbers) - 1))),
        )

    def added(self, sums: Float[Array, " sums n"], rate: Array) -> Float[Array, " sums n"]:
        """The sums for the next stage, its own first."""
        # The first sum has been used by its stage; the others move up by one. A table of all rates
        # would take a computed index, which native code turns into a chain of selects.
        moved = jnp.concatenate([sums[1:-1], jnp.zeros_like(sums[:1]), sums[-1:]])
        return moved + self.weights[:, None] * rate[None]


class StageSums(eqx.Module):
    """The carry of the loop over the stages.

    Attributes:
        speeds: sums of the rates of q for the stages that follow and, last, for the step.
        accelerations: the same of the rates of v.
        good: whether all checks passed.
        independent: whether all rows were independent at all stages.
        status: `Status` so far, int32.
        rank: smallest rank so far.
        first_rank: rank at the first stage.
        independent_rows: flags of the rows that may be taken as independent.
    """

    speeds: Float[Array, " sums n"]
    accelerations: Float[Array, " sums k"]
    good: Bool[Array, ""]
    independent: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]
    first_rank: Int[Array, ""]
    independent_rows: Bool[Array, " m"]

    def moved(self, q: Array, v: Array, h: Array) -> Moved:
        """The end of a step of size h from q and v."""
        ends = q + h * self.speeds[-1], v + h * self.accelerations[-1]
        rows = self.independent_rows.size
        return Moved(*ends, self.good, self.status, self.independent, self.rank, rows)


def sum_stages(
    scheme: Scheme, stages: SumWeights, chart: Partition | None, q: Array, v: Array, t: Array,
    h: Array, params: Params,
) -> StageSums:  # fmt: skip
    """Evaluate all stages of a step of size h from (q, v) at time t."""

    # A loop, so that the law of motion is compiled once for all stages.
    def add_stage(so_far: StageSums, stage: SumWeights) -> tuple[StageSums, None]:
        stage_q, stage_v = q + h * so_far.speeds[0], v + h * so_far.accelerations[0]
        stage_t = t + stage.node * h
        stage_q, stage_v, law, failures = evaluate_stage(
            scheme, chart, stage_q, stage_v, stage_t, params, so_far.independent_rows,
            is_start=stage.is_start, is_end=stage.is_end,
        )  # fmt: skip
        good, independent_rows = so_far.good, so_far.independent_rows
        is_ok = so_far.status == Status.OK
        status = jnp.where(is_ok, first_that_holds(*failures), so_far.status)
        # `status` is read only where `good` is false: native code then computes it in a rare
        # branch.
        for failed, _ in failures:
            good &= ~failed
        if law.independent is not None:
            # Later stages lie only near the constraints, where dependent rows seem independent: so
            # the choice of the first stage stands.
            independent_rows = jnp.where(stage.is_start, law.independent, independent_rows)
        state = StageSums(
            speeds=stage.added(
                so_far.speeds, scheme.system.dynamics.speeds(stage_q, stage_v, stage_t, params)
            ),
            accelerations=stage.added(so_far.accelerations, law.qdd),
            good=good,
            independent=so_far.independent & (law.rank == m),
            status=status,
            rank=jnp.minimum(so_far.rank, law.rank),
            first_rank=jnp.where(stage.is_start, law.rank, so_far.first_rank),
            independent_rows=independent_rows,
        )
        return state, None

    sums = stages.weights.shape[1]
    no_speeds, no_accelerations = (jnp.zeros((sums, x.size), x.dtype) for x in (q, v))
    count = sum(scheme.system.dynamics.sizes(q, v, t, params))
    m, true = jnp.asarray(count, jnp.int32), jnp.asarray(True)
    ok, all_rows = jnp.asarray(Status.OK, jnp.int32), jnp.ones(count, bool)
    start = StageSums(no_speeds, no_accelerations, true, true, ok, m, m, all_rows)
    # The stages of a large system stay a loop. Its backward pass makes each stage again, since the
    # zeros of M and A would be unknown in numbers that it keeps from the forward pass.
    is_small = q.size + count <= _SMALL
    body = add_stage if is_small else jax.checkpoint(add_stage, prevent_cse=False)
    return jax.lax.scan(body, start, stages)[0]


_SMALL_PAIR = 8  # coordinates and constraint equations of a system whose stages are unrolled
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
    v: Float[Array, " u"]  # of the last stage; empty where the speeds are the same
    independent: Bool[Array, ""]  # whether all rows were at all stages
    status: Int[Array, ""]  # a `Status`
    rank: Int[Array, ""]  # the smallest so far


def pair_stages(
    scheme: Scheme, stages: PairWeights, chart: Partition | None, start: EvaluatedState, t: Array,
    h: Array, params: Params,
) -> StageRates:  # fmt: skip
    """Evaluate the stages after the first, which is known, of a step of size h at time t."""
    system = scheme.system
    is_small = start.q.size + start.independent_rows.size <= _SMALL_PAIR

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
            v if system.velocities else v[:0],
            so_far.independent & (law.rank == m),
            status,
            jnp.minimum(so_far.rank, law.rank),
        ), None  # fmt: skip

    m = jnp.asarray(start.independent_rows.size, jnp.int32)
    count = len(stages.nodes)
    speeds = system.dynamics.speeds(start.q, start.v, t, params)
    v = start.v if system.velocities else start.v[:0]
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
