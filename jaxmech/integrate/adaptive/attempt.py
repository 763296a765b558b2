"""One attempted step of an embedded pair: its end on the constraints, and its error."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.formulations import AbstractChart
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.norm import ErrorNorm
from jaxmech.integrate.checks import check_dependent_rows, first_that_holds, unless
from jaxmech.integrate.implicit import AbstractImplicit, StepData, rounding
from jaxmech.integrate.methods import AbstractRungeKuttaPair
from jaxmech.integrate.scheme import Scheme
from jaxmech.stabilization import RowsBefore
from jaxmech.status import Status
from jaxmech.system import Params

_SMALL = 8  # coordinates and constraint equations of a system whose stages are unrolled
_TOGETHER = 6  # stages of one loop there
_ITERATION = 1e-2  # largest error of the iteration of an implicit step, in tolerances


class Knot(eqx.Module):
    """A state on the constraints with its accelerations, where a step begins and another ends.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        qdd: accelerations, shape (n,).
        kept: which constraint rows were taken as independent.
        rank: how many.
        status: what is wrong with the law of motion there, a `Status`.
    """

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    qdd: Float[Array, " n"]
    kept: Bool[Array, " m"]
    rank: Int[Array, ""]
    status: Int[Array, ""]


class Attempt(eqx.Module):
    """The result of an attempted step.

    Attributes:
        end: its end.
        error: its error in tolerances; NaN if it could not be computed.
        errors: in q and in v by coordinate, shape (2, n).
        rank: smallest rank seen.
        status: what went wrong, a `Status`.
        stiffness: |h lambda|, of the eigenvalue that the last two stages show.
    """

    end: Knot
    error: Float[Array, ""]
    errors: Float[Array, "2 n"]
    rank: Int[Array, ""]
    status: Int[Array, ""]
    stiffness: Float[Array, ""]


def knot(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> Knot:
    """A state with its accelerations; all rows may count as independent."""
    yes = jnp.asarray(True)
    every = jnp.ones(sum(scheme.system.sizes(q, v, t, params)), bool)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, every)
    status = first_that_holds(
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        check_dependent_rows(eom, law, every, yes, yes),
    )
    return Knot(q, v, law.qdd, every if law.kept is None else law.kept, law.rank, status)


def attempt(
    scheme: Scheme, tolerance: Tolerance, start: Knot, t: Array, h: Array, params: Params
) -> Attempt:
    """A step of size h from time t."""
    method = scheme.method
    assert isinstance(method, Adaptive)
    if isinstance(method.pair, AbstractImplicit):
        chart, moved = None, _implicit(scheme, tolerance, method.pair, start, t, h, params)
    else:
        assert isinstance(method.pair, AbstractRungeKuttaPair)
        chart = scheme.formulation.chart(scheme.system, start.q, start.v, t, params)
        moved = _explicit(scheme, method.pair, chart, start, t, h, params)
    after = t + h
    norm = ErrorNorm.of(scheme, tolerance, (start.q, start.v), (moved.q, moved.v), after, params)
    with jax.named_scope("projection"):
        rows = RowsBefore(~moved.independent, start.rank)
        new_q, new_v, reached = scheme.after_step(chart, moved.q, moved.v, after, params, rows)
    # The accelerations at the projected end serve the error, the next step and the interpolation.
    end = knot(scheme, new_q, new_v, after, params)
    at_end = jnp.asarray(moved.error_at_end, new_q.dtype)[:, None]
    error, errors = norm.error(
        moved.in_q + h * at_end * new_v[None], moved.in_v + h * at_end * end.qdd[None]
    )
    finite = jnp.isfinite(new_q.sum() + new_v.sum() + end.qdd.sum())
    status = first_that_holds(
        (moved.status == Status.SINGULAR_MASS, Status.SINGULAR_MASS),
        (~finite, Status.NONFINITE),
        (moved.status != Status.OK, moved.status),
        (~reached, Status.PROJECTION_FAILED),
        (end.status != Status.OK, end.status),
    )
    stiffness = jnp.zeros_like(h)
    if moved.last is not None:
        last_q, last_v, last_qdd = moved.last
        # The last stage and the end lie at the same time: the difference of their rates over that
        # of their states is about the size of the dominant eigenvalue (Hairer and Wanner II, IV.2).
        stiffness = jnp.abs(h) * _ratio(
            (new_v - last_v, end.qdd - last_qdd), (new_q - last_q, new_v - last_v)
        )
    return Attempt(end, error, errors, jnp.minimum(moved.rank, end.rank), status, stiffness)


class _Moved(eqx.Module):
    """A step before projection.

    Attributes:
        q: coordinates at its end.
        v: velocities at its end.
        in_q: estimates of the error of q, without the rate at the end, shape (E, n).
        in_v: the same of v.
        error_at_end: weights of the rate at the end of the step in the estimates.
        independent: whether all rows were independent.
        rank: smallest rank.
        status: what went wrong, a `Status`.
        last: q, v and accelerations of the last stage; None for implicit methods.
    """

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    in_q: Float[Array, " E n"]
    in_v: Float[Array, " E n"]
    error_at_end: tuple[float, ...] = eqx.field(static=True)
    independent: Bool[Array, ""]
    rank: Int[Array, ""]
    status: Int[Array, ""]
    last: tuple[Array, Array, Array] | None


def _implicit(
    scheme: Scheme, tolerance: Tolerance, pair: AbstractImplicit, start: Knot, t: Array, h: Array,
    params: Params,
) -> _Moved:  # fmt: skip
    sizes = jnp.stack([jnp.max(jnp.abs(x)) for x in (start.q, start.v)])
    allowed = jax.lax.stop_gradient(tolerance.atol + tolerance.rtol * sizes)
<<<<<<< HEAD
    # Newton's method need not be more exact than a small part of the error that is allowed anyway.
    enough = jnp.maximum(_ITERATION * allowed, rounding(start.q, start.v))
=======
    # A fixed part of the tolerance would add up over more steps the stricter it is (Hairer and
    # Wanner, Solving Ordinary Differential Equations II, IV.8, use the root of it too).
    part = jnp.minimum(_ITERATION, jax.lax.stop_gradient(jnp.sqrt(tolerance.rtol)))
    enough = jnp.maximum(part * allowed, rounding(start.q, start.v))
>>>>>>> eb131a9 (Radau: the estimate is held to 0.1 rtol^0.8, and iterations to a part of it that shrinks; the command of work and precision keeps a file for each case)
    found = pair.step(scheme, StepData(start.q, start.v, t, h, params, enough))
    in_q, in_v = found.errors[:, None]
    return _Moved(
        found.q, found.v, in_q, in_v, (0.0,), found.independent, found.rank, found.status, None
    )


def _explicit(
    scheme: Scheme, pair: AbstractRungeKuttaPair, chart: AbstractChart | None, start: Knot,
    t: Array, h: Array, params: Params,
) -> _Moved:  # fmt: skip
    stages = _StageWeights.of(pair, start.q.dtype)
    last = _run_stages(scheme, stages, chart, start, t, h, params)
    return _Moved(
        start.q + h * last.speeds[stages.step],
        start.v + h * last.accelerations[stages.step],
        h * last.speeds[stages.step + 1 :],
        h * last.accelerations[stages.step + 1 :],
        stages.error_at_end,
        last.independent,
        last.rank,
        last.status,
        (last.q, last.v, last.qdd),
    )


def _ratio(rates: tuple[Array, Array], states: tuple[Array, Array]) -> Array:
    """|rates| / |states|, or zero for equal states."""
    above, below = (sum((x * x).sum() for x in pair) for pair in (rates, states))
    is_zero = below == 0
    found: Array = jnp.where(is_zero, 0.0, jnp.sqrt(above / jnp.where(is_zero, 1.0, below)))
    return jax.lax.stop_gradient(found)


class _StagesSoFar(eqx.Module):
    """The carry of the loop over the stages.

    Attributes:
        speeds: sums of speeds for the stages that follow, for the step and for its errors.
        accelerations: the same of accelerations.
        q: coordinates of the last stage.
        v: its velocities.
        qdd: its accelerations.
        independent: whether all rows were independent at all stages.
        status: `Status` so far, int32.
        rank: smallest rank so far.
    """

    speeds: Float[Array, " sums n"]
    accelerations: Float[Array, " sums n"]
    q: Float[Array, " n"]
    v: Float[Array, " n"]
    qdd: Float[Array, " n"]
    independent: Bool[Array, ""]
    status: Int[Array, ""]
    rank: Int[Array, ""]


def _run_stages(
    scheme: Scheme, stages: "_StageWeights", chart: AbstractChart | None, start: Knot, t: Array,
    h: Array, params: Params,
) -> _StagesSoFar:  # fmt: skip
    """The stages after the first, which is known, as a loop."""

    def one(so_far: _StagesSoFar, own: Any) -> tuple[_StagesSoFar, None]:
        node, weights, is_last = own
        q = start.q + h * so_far.speeds[0]
        v = start.v + h * so_far.accelerations[0]
        stage_t = t + node * h
        q, v, complete = scheme.completed(chart, q, v, stage_t, params)
        with jax.named_scope("law_of_motion"):
            eom, law = scheme.law(q, v, stage_t, params, start.kept)
        status = first_that_holds(
            (so_far.status != Status.OK, so_far.status),
            (~law.definite, Status.SINGULAR_MASS),
            *unless(law.converged, Status.NONIDEAL_FAILED),
            *unless(complete, Status.PROJECTION_FAILED),
            check_dependent_rows(eom, law, start.kept, jnp.asarray(False), is_last),
        )
        return _StagesSoFar(
            stages.added(so_far.speeds, weights, v),
            stages.added(so_far.accelerations, weights, law.qdd),
            q, v, law.qdd,
            so_far.independent & (law.rank == m),
            status,
            jnp.minimum(so_far.rank, law.rank),
        ), None  # fmt: skip

    m = jnp.asarray(start.kept.size, jnp.int32)
    none = jnp.zeros((stages.sums, start.q.size), start.q.dtype)
    first = _StagesSoFar(
        stages.added(none, stages.weights[0], start.v),
        stages.added(none, stages.weights[0], start.qdd),
        start.q, start.v, start.qdd, start.rank == m, start.status, start.rank,
    )  # fmt: skip
    # Native code unrolls short loops, and then knows the zeros among the weights. That halves the
    # time of a step of a small system; a large one would take too long to compile.
    count = len(stages.nodes)
    is_small = start.q.size + start.kept.size <= _SMALL
    for k in range(1, count, _TOGETHER if is_small else count):
        part = slice(k, min(k + _TOGETHER, count) if is_small else count)
        first, _ = jax.lax.scan(
            one, first, (stages.nodes[part], stages.weights[part], stages.is_last[part])
        )
    return first


class _StageWeights(eqx.Module):
    """The S stages of a pair.

    The rate of a stage enters the sums of the stages that follow, as many of them as the method
    uses, then the sum of the step, then those of the errors.

    Attributes:
        nodes: the fractions of the step at which they are taken, shape (S,).
        weights: of their rates in each of the sums, shape (S, sums).
        is_last: whether it is the last stage, shape (S,).
        step: number of the sum of the step.
        sums: number of sums.
        error_at_end: weights of the rate at the end of the step in its errors.
    """

    nodes: Float[Array, " S"]
    weights: Float[Array, " S sums"]
    is_last: Bool[Array, " S"]
    step: int = eqx.field(static=True)
    sums: int = eqx.field(static=True)
    error_at_end: tuple[float, ...] = eqx.field(static=True)

    @staticmethod
    def of(pair: AbstractRungeKuttaPair, dtype: Any) -> "_StageWeights":
        """The stages of a pair, their weights padded with zeros."""
        tableau, errors = pair.tableau, np.asarray(pair.errors)
        count = len(tableau.nodes)
        table = np.zeros((count, count))
        for j, row in enumerate(tableau.stages):
            table[j, : len(row)] = row
        farthest = max(j - i for j, i in zip(*np.nonzero(table), strict=True))
        weights = np.zeros((count, farthest + 1 + len(errors)))
        for k in range(1, farthest + 1):
            weights[: count - k, k - 1] = np.diagonal(table, -k)
        weights[:, farthest] = tableau.weights
        # The last weight of an error estimate belongs to the rate at the end, known only after
        # projection.
        weights[:, farthest + 1 :] = errors[:, :-1].T
        return _StageWeights(
            nodes=jnp.asarray(tableau.nodes, dtype),
            weights=jnp.asarray(weights, dtype),
            is_last=jnp.asarray(np.arange(count) == count - 1),
            step=int(farthest),
            sums=weights.shape[1],
            error_at_end=tuple(errors[:, -1].tolist()),
        )

    def added(self, sums: Float[Array, " sums n"], weights: Array, rate: Array) -> Array:
        """The sums for the next stage, its own first."""
        none = jnp.zeros_like(sums[:1])
        moved = jnp.concatenate([sums[1 : self.step], none, sums[self.step :]])
        return moved + weights[:, None] * rate[None]
