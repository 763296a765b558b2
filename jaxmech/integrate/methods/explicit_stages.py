"""The stages of explicit Runge-Kutta methods.

Without an error estimate the rate of a stage is added at once to the sums of those that follow: a
fixed step needs no rate after its stage, so that native code holds few numbers in registers. An
embedded pair keeps all rates, which its estimate needs as well.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import Failures, failures, finite_states, first_that_holds
from jaxmech.integrate.methods.runge_kutta import Moved, Tableau, following
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Law, Partition
from jaxmech.status import Status
from jaxmech.system import Params


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
    return q, v, law, failures(eom, law, v, independent_rows, is_start, is_end, complete)


class EvaluatedState(eqx.Module):
    """A state on the constraints with its accelerations, for steps with an error estimate."""

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
    status = first_that_holds(*failures(eom, law, v, all_rows, yes, yes))
    return EvaluatedState(
        q, v, law.qdd, all_rows if law.independent is None else law.independent, law.rank, status
    )


_SMALL = 32  # coordinates and constraint equations of a system whose stages are unrolled


class StageSums(eqx.Module):
    """The carry of the loop over the stages of a fixed step."""

    speeds: Float[Array, " sums n"]  # of the rates of q: for the next stages and, last, the step
    accelerations: Float[Array, " sums k"]  # likewise of the rates of v
    good: Bool[Array, ""]  # whether all checks passed
    independent: Bool[Array, ""]  # whether all rows were independent at all stages
    status: Int[Array, ""]  # a `Status`
    rank: Int[Array, ""]  # the smallest so far
    first_rank: Int[Array, ""]  # at the first stage
    independent_rows: Bool[Array, " m"]  # rows that may be taken as independent


def sum_stages(
    scheme: Scheme, tableau: Tableau, chart: Partition | None, q: Array, v: Array, t: Array,
    h: Array, params: Params,
) -> tuple[Moved, Int[Array, ""]]:  # fmt: skip
    """The end of a step of size h from (q, v) at time t, and the rank at its first stage."""
    following_weights, numbers = following(tableau.stages), np.arange(len(tableau.nodes))
    # Sums are carried only as far ahead as the method looks: fewer numbers in registers. The last
    # one is that of the step.
    farthest = 1 + int(np.flatnonzero(following_weights.any(0)).max())
    weights = np.column_stack([following_weights[:, :farthest], tableau.weights])
    is_end = np.isin(numbers, (0, len(numbers) - 1))
    stages = (
        jnp.asarray(tableau.nodes, q.dtype), jnp.asarray(weights, q.dtype),
        jnp.asarray(numbers == 0), jnp.asarray(is_end),
    )  # fmt: skip

    def added(sums: Float[Array, " sums n"], weights: Array, rate: Array) -> Array:
        """The sums for the next stage, its own first."""
        # The first sum has been used by its stage; the others move up by one. A table of all rates
        # would take a computed index, which native code turns into a chain of selects.
        moved = jnp.concatenate([sums[1:-1], jnp.zeros_like(sums[:1]), sums[-1:]])
        return moved + weights[:, None] * rate[None]

    # A loop, so that the law of motion is compiled once for all stages.
    def add_stage(so_far: StageSums, stage: Any) -> tuple[StageSums, None]:
        node, weights, is_start, is_end = stage
        stage_q, stage_v = q + h * so_far.speeds[0], v + h * so_far.accelerations[0]
        stage_t = t + node * h
        stage_q, stage_v, law, cases = evaluate_stage(
            scheme, chart, stage_q, stage_v, stage_t, params, so_far.independent_rows,
            is_start=is_start, is_end=is_end,
        )  # fmt: skip
        good, independent_rows = so_far.good, so_far.independent_rows
        is_ok = so_far.status == Status.OK
        status = jnp.where(is_ok, first_that_holds(*cases), so_far.status)
        # `status` is read only where `good` is false: native code then computes it in a rare
        # branch.
        for failed, _ in cases:
            good &= ~failed
        if law.independent is not None:
            # Later stages lie only near the constraints, where dependent rows seem independent: so
            # the choice of the first stage stands.
            independent_rows = jnp.where(is_start, law.independent, independent_rows)
        speeds = scheme.system.dynamics.speeds(stage_q, stage_v, stage_t, params)
        state = StageSums(
            speeds=added(so_far.speeds, weights, speeds),
            accelerations=added(so_far.accelerations, weights, law.qdd),
            good=good,
            independent=so_far.independent & (law.rank == m),
            status=status,
            rank=jnp.minimum(so_far.rank, law.rank),
            first_rank=jnp.where(is_start, law.rank, so_far.first_rank),
            independent_rows=independent_rows,
        )
        return state, None

    no_speeds, no_accelerations = (jnp.zeros((farthest + 1, x.size), x.dtype) for x in (q, v))
    count = sum(scheme.system.dynamics.sizes(q, v, t, params))
    m, true = jnp.asarray(count, jnp.int32), jnp.asarray(True)
    ok, all_rows = jnp.asarray(Status.OK, jnp.int32), jnp.ones(count, bool)
    start = StageSums(no_speeds, no_accelerations, true, true, ok, m, m, all_rows)

    # A `while`, which native code does not unroll, and whose numbers it does not know.
    def add_next(carry: tuple[Array, StageSums]) -> tuple[Array, StageSums]:
        k, sums = carry
        rates = sums.speeds, sums.accelerations
        finite, are_finite = finite_states(rates, jax.tree.map(jnp.zeros_like, rates))
        failed = (sums.status == Status.OK) & ~are_finite
        status = jnp.where(failed, int(Status.NONFINITE), sums.status).astype(jnp.int32)
        sums = replace(
            sums, speeds=finite[0], accelerations=finite[1], good=sums.good & are_finite,
            status=status,
        )  # fmt: skip
        return k + 1, add_stage(sums, jax.tree.map(lambda x: x[k], stages))[0]

    if scheme.is_compact:
        first = jnp.zeros((), jnp.int32), start
        sums = jax.lax.while_loop(lambda carry: carry[0] < len(numbers), add_next, first)[1]
    else:
        # The stages of a large system stay a loop. Its backward pass makes each stage again, since
        # the zeros of M and A would be unknown in numbers that it keeps from the forward pass.
        is_small = q.size + count <= _SMALL
        body = add_stage if is_small else jax.checkpoint(add_stage, prevent_cse=False)
        sums = jax.lax.scan(body, start, stages)[0]
    ends = q + h * sums.speeds[-1], v + h * sums.accelerations[-1]
    moved = Moved(*ends, sums.good, sums.status, sums.independent, sums.rank, count)
    return moved, sums.first_rank


_SMALL_PAIR = 8  # coordinates and constraint equations of a system whose stages are unrolled
_TOGETHER = 6  # stages of one loop there


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
    scheme: Scheme, tableau: Tableau, chart: Partition | None, start: EvaluatedState, t: Array,
    h: Array, params: Params,
) -> StageRates:  # fmt: skip
    """Evaluate the stages after the first, which is known, of a step of size h at time t.

    The rates of earlier stages are kept as they are, and not added to the sums of those that
    follow: native code reads them once for each weight, but would write each sum as often.
    """
    system, count = scheme.system, len(tableau.nodes)
    nodes = jnp.asarray(tableau.nodes, start.q.dtype)
    # Of the rates before each stage, the last one at the end.
    before = np.stack([np.roll(row, -j) for j, row in enumerate(tableau.matrix)])
    stages = nodes, jnp.asarray(before, start.q.dtype), jnp.asarray(np.arange(count) == count - 1)
    is_small = start.q.size + start.independent_rows.size <= _SMALL_PAIR

    def add_stage(so_far: StageRates, stage: Any) -> tuple[StageRates, None]:
        node, weights, is_last = stage
        q = start.q + h * (weights @ so_far.speeds)
        v = start.v + h * (weights @ so_far.accelerations)
        stage_t = t + node * h
        is_finite = jnp.asarray(True)
        if not is_small:  # where it pays
            (q, v), is_finite = finite_states((q, v), (start.q, start.v))
        q, v, law, cases = evaluate_stage(
            scheme, chart, q, v, stage_t, params, start.independent_rows,
            is_start=jnp.asarray(False), is_end=is_last,
        )  # fmt: skip
        before = so_far.status != Status.OK, so_far.status
        status = first_that_holds(before, (~is_finite, Status.NONFINITE), *cases)
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
        first, _ = jax.lax.scan(add_stage, first, tuple(x[part] for x in stages))
    return first


def _after_zeros(x: Array, count: int) -> Array:
    return jnp.concatenate([jnp.zeros((count, x.size), x.dtype), x[None]])
