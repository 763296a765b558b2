"""One step of one trajectory: the stages of the method, the projection, and the checks."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.consistency import extents_at
from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.methods.explicit_step import StageSums, SumWeights, sum_stages
from jaxmech.integrate.methods.implicit import AbstractImplicit, StepData, rounding
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta
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
        stages = SumWeights.of(scheme.method.tableau, q.dtype)
        chart = scheme.formulation.chart(scheme.system, q, v, t, params, extents)
        end = sum_stages(scheme, stages, chart, q, v, t, h, params)
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
