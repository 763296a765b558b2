"""One step of one trajectory: the stages of the method, the projection, and the checks."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.methods.explicit_stages import sum_stages
from jaxmech.integrate.methods.implicit import Rodas5P
from jaxmech.integrate.methods.rattle import RATTLE
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKutta, StepStart
from jaxmech.integrate.run_params import gap_count, with_shared_rows, without_last
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import Partition
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
    """The checks of one step."""

    good: Bool[Array, ""]  # whether all of them passed
    status: Int[Array, ""]  # `Status` of this step alone, int32
    rank: Int[Array, ""]  # smallest number of independent constraint equations of the stages
    computed: Bool[Array, ""]  # whether the law of motion returned numbers, as `rank` needs
    correction: tuple[Array, ...] = ()  # `Scheme.correction`; none unless constraints contain time


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
    single, count = scheme.with_one_step(), gap_count(scheme.system)
    if not count:
        return _step(single, state, h, params, extents)
    # Where no gap is closed, it is one of the system without them; of gaps that are not closed at
    # once it has one.
    closed, apart = (
        replace(single, system=system, contact=None)
        for system in (with_shared_rows(single.system, count), without_last(single.system, count))
    )
    end, info = single.if_closed(
        params, count, *(partial(_step, x, state, h, params, extents) for x in (closed, apart))
    )
    return end, replace(info, good=info.good & is_finite(end.q, end.v))


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
    method, q, v, t, end_t = scheme.method, state.q, state.v, state.t, state.t + h
    start, has_length = StepStart(q, v, t, h, params), h != 0  # repeated save times have none
    chart: Partition | None = None
    first_rank: Array | None = None  # of a step that is projected
    with jax.named_scope("stages"):
        if isinstance(method, RATTLE):
            moved = method.step(scheme, start, extents)
        elif isinstance(method, Rodas5P):
            moved, _ = method.step(scheme, replace(start, h=jnp.where(has_length, h, 1.0)))
            first_rank = moved.rank
        else:
            assert isinstance(method, AbstractRungeKutta)
            chart = scheme.formulation.chart(scheme.system, q, v, t, params, extents)
            moved, first_rank = sum_stages(scheme, method.tableau, chart, q, v, t, h, params)
    new_q, new_v, reached = moved.q, moved.v, jnp.asarray(True)
    with jax.named_scope("projection"):
        if first_rank is not None:
            rows = RowsBefore(~moved.independent, first_rank, extents)
            new_q, new_v, reached = scheme.after_step(chart, new_q, new_v, end_t, params, rows)
        correction = scheme.correction((moved.q, moved.v), (new_q, new_v), end_t, h, params)
    with jax.named_scope("checks"):
        # NaN and infinity survive the sum, so one test serves for all numbers.
        finite = jnp.isfinite(new_q.sum() + new_v.sum())
        good = moved.good & (finite & reached)
        true, ok = jnp.asarray(True), jnp.asarray(Status.OK, jnp.int32)

        def bad() -> tuple[Array, Array]:
            definite = moved.status != Status.SINGULAR_MASS
            cases = (~finite, Status.NONFINITE), (~reached, Status.PROJECTION_FAILED)
            # A singular mass comes first, because it makes numbers that are not finite; those come
            # next, because all other checks are meaningless for them.
            first = definite & (~finite | (moved.status == Status.OK))
            return jnp.where(first, first_that_holds(*cases), moved.status), definite & finite

        # Behind `cond`, so that native code skips the parts that are only needed after a failure.
        status, computed = jax.lax.cond(~good, bad, lambda: (ok, true))
        most = jnp.asarray(moved.rows, jnp.int32)
        rank = jax.lax.cond(~moved.independent, lambda: moved.rank, lambda: most)
        info = StepInfo(good, status, rank, computed, correction)
    if isinstance(method, Rodas5P):
        new_q, new_v = jnp.where(has_length, new_q, q), jnp.where(has_length, new_v, v)
        good = info.good | ~has_length
        info = replace(info, good=good, status=jnp.where(good, ok, info.status))
    return StepState(new_q, new_v, end_t), info
