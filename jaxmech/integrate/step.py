"""One step of one trajectory: the stages of the method, the projection, and the checks."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.methods.explicit_stages import StageSums, SumWeights, sum_stages
from jaxmech.integrate.methods.implicit import ImplicitStep, Rodas5P
from jaxmech.integrate.methods.implicit_equations import StepData
from jaxmech.integrate.methods.rattle import RATTLE, Advance, StepStart
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.switches import gap_count
from jaxmech.state import RowsBefore
from jaxmech.status import Status
from jaxmech.system import Params, extents_at
from jaxmech.utils.jit_cache import jit_of


class StepState(eqx.Module):
    """The state and the time at which a step begins, and the next one does."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]


class StepInfo(eqx.Module):
    """The checks of one step.

    Attributes:
        good: whether all checks passed.
        status: `Status` of this step alone, int32.
        rank: smallest number of independent constraint equations of the stages.
        computed: whether the law of motion returned numbers, so that `rank` is meaningful.
        correction: `Scheme.correction` of the step; empty unless constraints contain time.
    """

    good: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]
    computed: Bool[Array, ""]
    correction: tuple[Array, ...] = ()


def step(
    scheme: Scheme, state: StepState, h: Array, params: Params,
    extents: Float[Array, " n"] | None = None,
) -> tuple[StepState, StepInfo]:  # fmt: skip
    """The state after one step of size h, and the checks of the step.

    `extents` are those of the coordinates (`jaxmech.system.consistency`), by default at the start.
    """
    if extents is None:
        extents = extents_at(scheme.system, state.q, state.v, state.t, params)
    params = scheme.in_step(state.q, state.v, state.t, h, params)
    # A step is the same for any number of steps, and traced once for all of them.
    single = scheme.with_one_step()
    end, info = single.by_contact(params, lambda scheme: _step(scheme, state, h, params, extents))
    if gap_count(scheme.system):
        info = replace(info, good=info.good & is_finite(end.q, end.v))
    return end, info


def is_finite(q: Array, v: Array) -> Bool[Array, ""]:
    """Whether a state is finite.

    Native code folds products with zero where NaN would show in such a test, but does not see the
    tests within a branch.
    """
    finite: Array = jnp.isfinite(q.sum() + v.sum())
    return finite


@jit_of("scheme")
def _step(
    scheme: Scheme, state: StepState, h: Array, params: Params, extents: Float[Array, " n"]
) -> tuple[StepState, StepInfo]:
    method = scheme.method
    if isinstance(method, RATTLE):
        return _variational_step(scheme, method, state, h, params, extents)
    if isinstance(method, Rodas5P):
        return _implicit_step(scheme, method, state, h, params, extents)
    assert isinstance(method, AbstractRungeKutta)
    return _explicit_step(scheme, method, state, h, params, extents)


def _explicit_step(
    scheme: Scheme, method: AbstractRungeKutta, state: StepState, h: Array, params: Params,
    extents: Float[Array, " n"],
) -> tuple[StepState, StepInfo]:  # fmt: skip
    q, v, t, end_t = state.q, state.v, state.t, state.t + h
    with jax.named_scope("stages"):
        stages = SumWeights.of(method.tableau, q.dtype)
        chart = scheme.formulation.chart(scheme.system, q, v, t, params, extents)
        sums = sum_stages(scheme, stages, chart, q, v, t, h, params)
        moved_q, moved_v = q + h * sums.speeds[-1], v + h * sums.accelerations[-1]
    with jax.named_scope("projection"):
        rows = RowsBefore(~sums.independent, sums.first_rank, extents)
        new_q, new_v, reached = scheme.after_step(chart, moved_q, moved_v, end_t, params, rows)
        correction = scheme.correction((moved_q, moved_v), (new_q, new_v), end_t, h, params)
    with jax.named_scope("checks"):
        info = replace(_stages_info(sums, new_q, new_v, reached), correction=correction)
    return StepState(new_q, new_v, end_t), info


def _variational_step(
    scheme: Scheme, method: RATTLE, state: StepState, h: Array, params: Params,
    extents: Float[Array, " n"],
) -> tuple[StepState, StepInfo]:  # fmt: skip
    start = StepStart(state.q, state.v, state.t, h, params)
    moved = method.advance(scheme.system, scheme.formulation, start, extents)
    no_correction = scheme.correction(
        (moved.q, moved.v), (moved.q, moved.v), state.t + h, h, params
    )
    info = replace(_variational_info(moved), correction=no_correction)
    return StepState(moved.q, moved.v, state.t + h), info


def _implicit_step(
    scheme: Scheme, method: Rodas5P, state: StepState, h: Array, params: Params,
    extents: Float[Array, " n"],
) -> tuple[StepState, StepInfo]:  # fmt: skip
    q, v, t, end_t = state.q, state.v, state.t, state.t + h
    has_length = h != 0  # repeated save times have not
    data = StepData(q, v, t, jnp.where(has_length, h, 1.0), params)
    with jax.named_scope("stages"):
        moved = method.step(scheme, data)
    with jax.named_scope("projection"):
        rows = RowsBefore(~moved.independent, moved.rank, extents)
        new_q, new_v, reached = scheme.after_step(None, moved.q, moved.v, end_t, params, rows)
        correction = scheme.correction((moved.q, moved.v), (new_q, new_v), end_t, h, params)
    with jax.named_scope("checks"):
        info = _implicit_info(moved, new_q, new_v, reached, has_length)
        info = replace(info, correction=correction)
    new_q, new_v = jnp.where(has_length, new_q, q), jnp.where(has_length, new_v, v)
    return StepState(new_q, new_v, end_t), info


def _implicit_info(
    moved: ImplicitStep, q: Array, v: Array, reached: Array, has_length: Array
) -> StepInfo:
    # NaN and infinity survive the sum, so one test serves for all numbers.
    finite = jnp.isfinite(q.sum() + v.sum())
    status = first_that_holds(
        (moved.status == Status.SINGULAR_MASS, Status.SINGULAR_MASS),
        (~finite, Status.NONFINITE),
        (moved.status != Status.OK, moved.status),
        (~reached, Status.PROJECTION_FAILED),
    )
    status = jnp.where(has_length, status, int(Status.OK))
    computed = finite & (status != Status.SINGULAR_MASS)
    return StepInfo(status == Status.OK, status, moved.rank, computed)


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


def _stages_info(end: StageSums, q: Array, v: Array, reached: Array) -> StepInfo:
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
