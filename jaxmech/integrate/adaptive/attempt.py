"""One attempted step of an embedded pair: its end on the constraints, and its error."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.first_order import largest
from jaxmech.formulations import Partition
from jaxmech.integrate.checks import check_dependent_rows, first_that_holds, unless
from jaxmech.integrate.methods.implicit import AbstractImplicit, StepData, rounding
from jaxmech.integrate.methods.runge_kutta import AbstractRungeKuttaPair
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import Tolerance
from jaxmech.linalg import matvec
from jaxmech.stabilization import RowsBefore, metric_mass
from jaxmech.status import Status
from jaxmech.system import Params

_SMALL = 8  # coordinates and constraint equations of a system whose stages are unrolled
_TOGETHER = 6  # stages of one loop there
_SECOND = 0.01  # weight of the second estimate of `DormandPrince8`
_ITERATION = 1e-2  # largest error of the iteration of an implicit step, in tolerances


class StepState(eqx.Module):
    """A state on the constraints with its accelerations, where a step begins and another ends."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    qdd: Float[Array, " n"]
    independent_rows: Bool[Array, " m"]  # which rows were taken as independent
    rank: Int[Array, ""]
    status: Int[Array, ""]  # failure of the law of motion there, a `Status`


class Attempt(eqx.Module):
    """The result of an attempted step."""

    end: StepState
    error: Float[Array, ""]  # of the pair, in tolerances; NaN if it could not be computed
    correction: Float[Array, ""] | None  # `Scheme.correction`, in tolerances; None if not driven
    errors: Float[Array, "2 n"]  # in q and in v by coordinate, with the correction
    rank: Int[Array, ""]  # the smallest during the step
    status: Int[Array, ""]  # failure of the step, a `Status`
    stiffness: Float[Array, ""]  # |h lambda| of the eigenvalue estimated from the last two stages


class ErrorNorm(eqx.Module):
    """The scale of the error of a step, in the metric of the mass matrix.

    It is that of the whole difference of the two methods. Its part along the constraints alone is a
    worse measure: with few degrees of freedom it occasionally passes through zero, so that steps
    are accepted that are too long (docs/decisions/adaptive_steps.md).
    """

    M: Float[Array, " k k"]  # mass matrix at the end of the step, without states
    allowed_q: Float[Array, ""]
    allowed_v: Float[Array, ""]
    allowed: Float[Array, " s"]  # of each state of first order

    @staticmethod
    def of(
        scheme: Scheme, tolerance: Tolerance, start: tuple[Array, Array], end: tuple[Array, Array],
        t: Array, params: Params,
    ) -> "ErrorNorm":  # fmt: skip
        """Make the norm for a step from one state to another, which is not yet projected."""
        start, end, t, params = jax.lax.stop_gradient((start, end, t, params))
        # All of this is at the state at which the projection is computed, and shared with it.
        M = metric_mass(scheme.system, *end, t, params)
        size = len(M) - len(scheme.system.states)
        M = M[:size, :size]
        in_q, in_v = (
            tolerance.atol + tolerance.rtol * jnp.maximum(_size(M, first), _size(M, last))
            for first, last in zip(start, end, strict=True)
        )
        first, last = (jnp.abs(v[size:]) for _, v in (start, end))
        of_states = tolerance.atol + tolerance.rtol * jnp.maximum(first, last)
        return ErrorNorm(M, in_q, in_v, of_states)

    def error(self, in_q: Array, in_v: Array) -> tuple[Array, Array]:
        """The error in units of the tolerance, and by coordinate in q and v, shape (2, n).

        The arguments are one estimate, or two combined as in `DormandPrince8`: (E, n) each.
        """
        in_q, in_v = jax.lax.stop_gradient((in_q, in_v))
        errors = jnp.stack([in_q[0], in_v[0]])
        sizes = [self.measure(*estimate) for estimate in zip(in_q, in_v, strict=True)]
        if len(sizes) == 1:
            return jnp.sqrt(sizes[0]), errors
        first, second = sizes
        divisor = first + _SECOND * second
        error = jnp.where(
            divisor > 0, first / jnp.sqrt(jnp.where(divisor > 0, divisor, 1.0)), divisor
        )
        return error, errors

    def of_correction(self, moves: Float[Array, "2 n"]) -> Array:
        """The displacement by the projection in units of the tolerance for positions."""
        return jnp.sqrt(sum(_size(self.M, x) ** 2 for x in moves) / 2) / self.allowed_q

    def measure(self, in_q: Array, in_v: Array) -> Array:
        """The mean square of both, and of each state, in units of the tolerance."""
        squares = _size(self.M, in_q) / self.allowed_q, _size(self.M, in_v) / self.allowed_v
        total = squares[0] ** 2 + squares[1] ** 2
        states = self.allowed.size
        if states:
            total = total + ((in_v[-states:] / self.allowed) ** 2).sum()
        return total / (2 + states)


def _size(M: Array, x: Array) -> Array:
    """The size sqrt(x^T M x / tr M) of the coordinates or velocities that are not states."""
    x = x[: len(M)]
    # Over the trace, so that neither the number of coordinates nor the unit of mass counts. Round-
    # off can make the square of a singular M slightly negative.
    return jnp.sqrt(jnp.maximum(x @ matvec(M, x), 0.0) / jnp.trace(M))


def step_state(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> StepState:
    """A state with its accelerations; all rows may count as independent."""
    yes = jnp.asarray(True)
    all_rows = jnp.ones(sum(scheme.system.sizes(q, v, t, params)), bool)
    with jax.named_scope("law_of_motion"):
        eom, law = scheme.law(q, v, t, params, all_rows)
    status = first_that_holds(
        (~law.definite, Status.SINGULAR_MASS),
        *unless(law.converged, Status.NONIDEAL_FAILED),
        check_dependent_rows(eom, law, all_rows, yes, yes),
    )
    return StepState(
        q, v, law.qdd, all_rows if law.independent is None else law.independent, law.rank, status
    )


def attempt(
    scheme: Scheme, tolerance: Tolerance, start: StepState, t: Array, h: Array, params: Params,
    extents: Float[Array, " n"] | None,
) -> Attempt:  # fmt: skip
    """Attempt a step of size h from time t, with the extents of the coordinates."""
    method = scheme.method
    if isinstance(method, AbstractImplicit):
        chart, moved = None, _implicit(scheme, tolerance, method, start, t, h, params)
    else:
        assert isinstance(method, AbstractRungeKuttaPair)
        chart = scheme.formulation.chart(scheme.system, start.q, start.v, t, params, extents)
        moved = _explicit(scheme, method, chart, start, t, h, params)
    end_t = t + h
    norm = ErrorNorm.of(scheme, tolerance, (start.q, start.v), (moved.q, moved.v), end_t, params)
    with jax.named_scope("projection"):
        rows = RowsBefore(~moved.independent, start.rank, extents)
        new_q, new_v, reached = scheme.after_step(chart, moved.q, moved.v, end_t, params, rows)
    # The accelerations at the projected end serve the error, the next step and the interpolation.
    end = step_state(scheme, new_q, new_v, end_t, params)
    at_end = jnp.asarray(moved.error_at_end, new_q.dtype)[:, None]
    error, errors = norm.error(
        moved.in_q + h * at_end * new_v[None], moved.in_v + h * at_end * end.qdd[None]
    )
    correction = scheme.correction((moved.q, moved.v), (new_q, new_v), h)
    if correction is not None:
        errors = errors.at[0].add(jnp.abs(correction).sum(0))
        correction = norm.of_correction(correction)
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
        # The last stage and the end lie at the same time: their rates differ from each other by
        # about the dominant eigenvalue times the difference of states (Hairer and Wanner II, IV.2).
        stiffness = jnp.abs(h) * _ratio(
            (new_v - last_v, end.qdd - last_qdd), (new_q - last_q, new_v - last_v)
        )
    rank = jnp.minimum(moved.rank, end.rank)
    return Attempt(end, error, correction, errors, rank, status, stiffness)


class _Moved(eqx.Module):
    """The end of a step before projection."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    in_q: Float[Array, " E n"]  # estimates of the error of q, without the rate at the end
    in_v: Float[Array, " E n"]  # the same of v
    error_at_end: tuple[float, ...] = eqx.field(static=True)  # weights of that rate
    independent: Bool[Array, ""]  # whether all rows were
    rank: Int[Array, ""]  # the smallest
    status: Int[Array, ""]  # failure of the step, a `Status`
    last: tuple[Array, Array, Array] | None  # q, v, qdd of the last stage; not of implicit methods


def _implicit(
    scheme: Scheme, tolerance: Tolerance, pair: AbstractImplicit, start: StepState, t: Array,
    h: Array, params: Params,
) -> _Moved:  # fmt: skip
    states = len(scheme.system.states)
    sizes = largest(jnp.stack([start.q, start.v]), states)
    allowed = jax.lax.stop_gradient(tolerance.atol + tolerance.rtol * sizes)
    # Newton's method need not be more exact than a small part of the error that is allowed anyway.
    # A fixed part would add up over more steps the stricter the tolerance is (Hairer and Wanner II,
    # IV.8, take the root of it, too).
    part = jnp.minimum(_ITERATION, jax.lax.stop_gradient(jnp.sqrt(tolerance.rtol)))
    enough = jnp.maximum(part * allowed, rounding(start.q, start.v, states))
    result = pair.step(scheme, StepData(start.q, start.v, t, h, params, enough))
    in_q, in_v = result.errors[:, None]
    return _Moved(
        result.q, result.v, in_q, in_v, (0.0,), result.independent, result.rank, result.status, None
    )


def _explicit(
    scheme: Scheme, pair: AbstractRungeKuttaPair, chart: Partition | None, start: StepState,
    t: Array, h: Array, params: Params,
) -> _Moved:  # fmt: skip
    stages = _StageWeights.of(pair, start.q.dtype)
    last = _run_stages(scheme, stages, chart, start, t, h, params)
    return _Moved(
        start.q + h * (stages.step @ last.speeds),
        start.v + h * (stages.step @ last.accelerations),
        h * jnp.stack([w @ last.speeds for w in stages.errors]),
        h * jnp.stack([w @ last.accelerations for w in stages.errors]),
        stages.error_at_end,
        last.independent,
        last.rank,
        last.status,
        (last.q, last.speeds[-1], last.accelerations[-1]),
    )


def _ratio(rates: tuple[Array, Array], states: tuple[Array, Array]) -> Array:
    numerator, denominator = (sum((x * x).sum() for x in pair) for pair in (rates, states))
    is_zero = denominator == 0
    ratio: Array = jnp.where(
        is_zero, 0.0, jnp.sqrt(numerator / jnp.where(is_zero, 1.0, denominator))
    )
    return jax.lax.stop_gradient(ratio)


class _StagesSoFar(eqx.Module):
    """The carry of the loop over the stages."""

    speeds: Float[Array, " S n"]  # of the stages so far, the last one at the end, after zeros
    accelerations: Float[Array, " S n"]  # likewise
    q: Float[Array, " n"]  # of the last stage
    independent: Bool[Array, ""]  # whether all rows were at all stages
    status: Int[Array, ""]  # a `Status`
    rank: Int[Array, ""]  # the smallest so far


def _run_stages(
    scheme: Scheme, stages: "_StageWeights", chart: Partition | None, start: StepState, t: Array,
    h: Array, params: Params,
) -> _StagesSoFar:  # fmt: skip
    def evaluate_stage(so_far: _StagesSoFar, stage: Any) -> tuple[_StagesSoFar, None]:
        node, weights, is_last = stage
        q = start.q + h * (weights @ so_far.speeds)
        v = start.v + h * (weights @ so_far.accelerations)
        stage_t = t + node * h
        q, v, complete = scheme.completed(chart, q, v, stage_t, params)
        with jax.named_scope("law_of_motion"):
            eom, law = scheme.law(q, v, stage_t, params, start.independent_rows)
        status = first_that_holds(
            (so_far.status != Status.OK, so_far.status),
            (~law.definite, Status.SINGULAR_MASS),
            *unless(law.converged, Status.NONIDEAL_FAILED),
            *unless(complete, Status.PROJECTION_FAILED),
            check_dependent_rows(eom, law, start.independent_rows, jnp.asarray(False), is_last),
        )
        return _StagesSoFar(
            jnp.concatenate([so_far.speeds[1:], v[None]]),
            jnp.concatenate([so_far.accelerations[1:], law.qdd[None]]),
            q,
            so_far.independent & (law.rank == m),
            status,
            jnp.minimum(so_far.rank, law.rank),
        ), None  # fmt: skip

    m = jnp.asarray(start.independent_rows.size, jnp.int32)
    count = len(stages.nodes)
    zeros = jnp.zeros((count - 1, start.q.size), start.q.dtype)
    first = _StagesSoFar(
        jnp.concatenate([zeros, start.v[None]]),
        jnp.concatenate([zeros, start.qdd[None]]),
        start.q, start.rank == m, start.status, start.rank,
    )  # fmt: skip
    # Native code unrolls short loops, and then knows the zeros among the weights. That halves the
    # time of a step of a small system; a large one would take too long to compile.
    is_small = start.q.size + start.independent_rows.size <= _SMALL
    for k in range(1, count, _TOGETHER if is_small else count):
        part = slice(k, min(k + _TOGETHER, count) if is_small else count)
        first, _ = jax.lax.scan(
            evaluate_stage, first, (stages.nodes[part], stages.before[part], stages.is_last[part])
        )
    return first


class _StageWeights(eqx.Module):
    """The S stages of a pair.

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
    def of(pair: AbstractRungeKuttaPair, dtype: Any) -> "_StageWeights":
        """The stages of a pair, their weights padded with zeros."""
        tableau, errors = pair.tableau, np.asarray(pair.errors)
        # The last weight of an error estimate belongs to the rate at the end, known only after
        # projection.
        count = len(tableau.nodes)
        earlier = np.stack([np.roll(row, -j) for j, row in enumerate(tableau.matrix)])
        return _StageWeights(
            nodes=jnp.asarray(tableau.nodes, dtype),
            before=jnp.asarray(earlier, dtype),
            is_last=jnp.asarray(np.arange(count) == count - 1),
            step=jnp.asarray(tableau.weights, dtype),
            errors=jnp.asarray(errors[:, :-1], dtype),
            error_at_end=tuple(errors[:, -1].tolist()),
        )
