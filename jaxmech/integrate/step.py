"""One step of one trajectory: the stages of the method, the projection, and the checks."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.consistency import extents_at
from jaxmech.formulations import Partition
from jaxmech.integrate.checks import check_dependent_rows, first_that_holds, unless
from jaxmech.integrate.methods.implicit import AbstractImplicit, StepData, rounding
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta
from jaxmech.integrate.methods.tableaus import Tableau
from jaxmech.integrate.methods.variational import AbstractVariational, Advance
from jaxmech.integrate.methods.variational.step_equations import StepStart
from jaxmech.integrate.scheme import Scheme
from jaxmech.stabilization import RowsBefore
from jaxmech.status import Status
from jaxmech.system import Params
from jaxmech.utils.jit_cache import jit_of


class StepInfo(eqx.Module):
    """The checks of one step.

    Attributes:
        good: whether all checks passed.
        status: `Status` of this step alone, int32.
        rank: smallest number of independent constraint equations of the stages.
        computed: whether the law of motion returned numbers, so that `rank` is meaningful.
        correction: `Scheme.correction` of the step, (2, n); None unless constraints contain time.
    """

    good: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]
    computed: Bool[Array, ""]
    correction: Float[Array, "2 n"] | None = None


def step(
    scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params,
    extents: Float[Array, " n"] | None = None,
) -> tuple[Array, Array, StepInfo]:  # fmt: skip
    """q (n,) and v (n,) after one step of size h from time t, and the checks of the step.

    `extents` are those of the coordinates (`jaxmech.consistency`), by default at the start.
    """
    if extents is None:
        extents = extents_at(scheme.system, q, v, t, params)
    # A step is the same for any number of steps, and traced once for all of them.
    single = scheme.with_one_step()
    return _step(single, q, v, t, h, params, extents)


@jit_of("scheme")
def _step(
    scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params,
    extents: Float[Array, " n"],
) -> tuple[Array, Array, StepInfo]:  # fmt: skip
    if isinstance(scheme.method, AbstractVariational):
        moved = scheme.method.advance(
            scheme.system, scheme.formulation, StepStart(q, v, t, h, params), extents
        )
        no_correction = scheme.correction((moved.q, moved.v), (moved.q, moved.v), h)
        return moved.q, moved.v, replace(_variational_info(moved), correction=no_correction)
    if isinstance(scheme.method, AbstractImplicit):
        return _implicit_step(scheme, scheme.method, q, v, t, h, params, extents)
    assert isinstance(scheme.method, AbstractRungeKutta)
    with jax.named_scope("stages"):
        stages = _stages(scheme.method.tableau, q.dtype)
        chart = scheme.formulation.chart(scheme.system, q, v, t, params, extents)
        end = _run_stages(scheme, stages, chart, q, v, t, h, params)
        moved_q, moved_v = q + h * end.speeds[-1], v + h * end.accelerations[-1]
    with jax.named_scope("projection"):
        rows = RowsBefore(~end.independent, end.first_rank, extents)
        new_q, new_v, reached = scheme.after_step(chart, moved_q, moved_v, t + h, params, rows)
        correction = scheme.correction((moved_q, moved_v), (new_q, new_v), h)
    with jax.named_scope("checks"):
        info = replace(_stages_info(end, new_q, new_v, reached), correction=correction)
    return new_q, new_v, info


def _implicit_step(
    scheme: Scheme, method: AbstractImplicit, q: Array, v: Array, t: Array, h: Array,
    params: Params, extents: Float[Array, " n"],
) -> tuple[Array, Array, StepInfo]:  # fmt: skip
    has_length = h != 0  # repeated save times have not
    enough = rounding(q, v, len(scheme.system.states))
    data = StepData(q, v, t, jnp.where(has_length, h, 1.0), params, enough)
    with jax.named_scope("stages"):
        moved = method.step(scheme, data)
    with jax.named_scope("projection"):
        rows = RowsBefore(~moved.independent, moved.rank, extents)
        new_q, new_v, reached = scheme.after_step(None, moved.q, moved.v, t + h, params, rows)
        correction = scheme.correction((moved.q, moved.v), (new_q, new_v), h)
    # NaN and infinity survive the sum, so one test serves for all numbers.
    finite = jnp.isfinite(new_q.sum() + new_v.sum())
    status = first_that_holds(
        (moved.status == Status.SINGULAR_MASS, Status.SINGULAR_MASS),
        (~finite, Status.NONFINITE),
        (moved.status != Status.OK, moved.status),
        (~reached, Status.PROJECTION_FAILED),
    )
    status = jnp.where(has_length, status, int(Status.OK))
    computed = finite & (status != Status.SINGULAR_MASS)
    info = StepInfo(status == Status.OK, status, moved.rank, computed, correction)
    return jnp.where(has_length, new_q, q), jnp.where(has_length, new_v, v), info


def _variational_info(moved: Advance) -> StepInfo:
    finite = jnp.isfinite(moved.q.sum() + moved.v.sum())
    good = finite & moved.definite & moved.converged & moved.reached

    def bad() -> Array:
        return first_that_holds(
            (~moved.definite, Status.SINGULAR_MASS),
            (~finite, Status.NONFINITE),
            (~moved.converged, Status.NOT_CONVERGED),
            (~moved.reached, Status.PROJECTION_FAILED),
        )

    status = jax.lax.cond(~good, bad, lambda: jnp.asarray(Status.OK, jnp.int32))
    return StepInfo(good, status, moved.rank, moved.definite & finite)


class _StageState(eqx.Module):
    """The carry of the loop over the stages.

    Attributes:
        speeds: sums of speeds for the stages that follow and, last, for the step.
        accelerations: the same of accelerations.
        good: whether all checks passed.
        independent: whether all rows were independent at all stages.
        status: `Status` so far, int32.
        rank: smallest rank so far.
        first_rank: rank at the first stage.
        independent_rows: flags of the rows that may be taken as independent.
    """

    speeds: Float[Array, " sums n"]
    accelerations: Float[Array, " sums n"]
    good: Bool[Array, ""]
    independent: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]
    first_rank: Int[Array, ""]
    independent_rows: Bool[Array, " m"]


def _run_stages(
    scheme: Scheme, stages: "_Stage", chart: Partition | None, q: Array, v: Array, t: Array,
    h: Array, params: Params,
) -> _StageState:  # fmt: skip
    # A loop, so that the law of motion is compiled once for all stages.
    def evaluate_stage(so_far: _StageState, stage: _Stage) -> tuple[_StageState, None]:
        stage_q, stage_v = q + h * so_far.speeds[0], v + h * so_far.accelerations[0]
        stage_t = t + stage.node * h
        stage_q, stage_v, complete = scheme.completed(chart, stage_q, stage_v, stage_t, params)
        with jax.named_scope("law_of_motion"):
            eom, law = scheme.law(stage_q, stage_v, stage_t, params, so_far.independent_rows)
        failures: list[tuple[Array, Status | Array]] = [
            (~law.definite, Status.SINGULAR_MASS),
            *unless(law.converged, Status.NONIDEAL_FAILED),
            *unless(complete, Status.PROJECTION_FAILED),
            check_dependent_rows(eom, law, so_far.independent_rows, stage.is_start, stage.is_end),
        ]
        is_ok, good, independent_rows = (
            so_far.status == Status.OK,
            so_far.good,
            so_far.independent_rows,
        )
        status = jnp.where(is_ok, first_that_holds(*failures), so_far.status)
        # `status` is read only where `good` is false: native code then computes it in a rare
        # branch.
        for failed, _ in failures:
            good &= ~failed
        state = _StageState(
            speeds=stage.added(so_far.speeds, stage_v),
            accelerations=stage.added(so_far.accelerations, law.qdd),
            good=good,
            independent=so_far.independent & (law.rank == m),
            status=status,
            rank=jnp.minimum(so_far.rank, law.rank),
            first_rank=jnp.where(stage.is_start, law.rank, so_far.first_rank),
            # Later stages lie only near the constraints, where dependent rows seem independent: so
            # the choice of the first stage stands.
            independent_rows=independent_rows
            if law.independent is None
            else jnp.where(stage.is_start, law.independent, independent_rows),
        )
        return state, None

    zeros = jnp.zeros((stages.weights.shape[1], q.size), q.dtype)
    count = sum(scheme.system.sizes(q, v, t, params))
    m, true = jnp.asarray(count, jnp.int32), jnp.asarray(True)
    ok, all_rows = jnp.asarray(Status.OK, jnp.int32), jnp.ones(count, bool)
    return jax.lax.scan(
        evaluate_stage, _StageState(zeros, zeros, true, true, ok, m, m, all_rows), stages
    )[0]


def _stages_info(end: _StageState, q: Array, v: Array, reached: Array) -> StepInfo:
    finite = jnp.isfinite(q.sum() + v.sum())
    good = end.good & (finite & reached)
    true, ok = jnp.asarray(True), jnp.asarray(Status.OK, jnp.int32)

    def bad() -> tuple[Array, Array]:
        definite = end.status != Status.SINGULAR_MASS
        ended = first_that_holds((~finite, Status.NONFINITE), (~reached, Status.PROJECTION_FAILED))
        # A singular mass comes first, because it makes numbers that are not finite; those come
        # next, because all other checks are meaningless for them.
        first = definite & (~finite | (end.status == Status.OK))
        return jnp.where(first, ended, end.status), definite & finite

    # Behind `cond`, so that native code skips the parts that are only needed after a failure.
    status, computed = jax.lax.cond(~good, bad, lambda: (ok, true))
    rows = jnp.asarray(end.independent_rows.size, jnp.int32)
    rank = jax.lax.cond(~end.independent, lambda: end.rank, lambda: rows)
    return StepInfo(good, status, rank, computed)


class _Stage(eqx.Module):
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

    def added(self, sums: Float[Array, " sums n"], rate: Array) -> Float[Array, " sums n"]:
        """The sums for the next stage, its own first."""
        # The first sum has been used by its stage; the others move up by one. A table of all rates
        # would take a computed index, which native code turns into a chain of selects.
        moved = jnp.concatenate([sums[1:-1], jnp.zeros_like(sums[:1]), sums[-1:]])
        return moved + self.weights[:, None] * rate[None]


def _stages(tableau: Tableau, dtype: Any) -> _Stage:
    count = len(tableau.nodes)
    table = np.zeros((count, count))
    for j, row in enumerate(tableau.stages):
        table[j, : len(row)] = row
    # Sums are carried only as far ahead as the method looks: fewer numbers in registers.
    farthest = max(j - i for j, i in zip(*np.nonzero(table), strict=True))
    weights = np.zeros((count, farthest + 1))
    # Row j, column k - 1: the weight of the rate of stage j in stage j + k.
    for k in range(1, farthest + 1):
        weights[: count - k, k - 1] = np.diagonal(table, -k)
    weights[:, -1] = tableau.weights
    numbers = np.arange(count)
    return _Stage(
        node=jnp.asarray(tableau.nodes, dtype),
        weights=jnp.asarray(weights, dtype),
        is_start=jnp.asarray(numbers == 0),
        is_end=jnp.asarray(np.isin(numbers, (0, count - 1))),
    )
