"""One attempted step of an embedded pair: its end on the constraints, and its error."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.integrate.checks import finite_states, first_that_holds
from jaxmech.integrate.methods.explicit_stages import (
    EvaluatedState,
    evaluated_state,
    pair_stages,
)
from jaxmech.integrate.methods.implicit import Rodas5P
from jaxmech.integrate.methods.runge_kutta import (
    AbstractPair,
    AbstractRungeKuttaPair,
    Moved,
    StepStart,
)
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import Tolerance
from jaxmech.linalg import matvec
from jaxmech.state import RowsBefore, coordinate_metric, metric_mass
from jaxmech.status import Status
from jaxmech.system import Params

_SECOND = 0.01  # weight of the second estimate of `DormandPrince8`


class Attempt(eqx.Module):
    """The result of an attempted step."""

    end: EvaluatedState
    error: Float[Array, ""]  # of the pair, in tolerances; NaN if it could not be computed
    correction: Float[Array, ""]  # `Scheme.correction`, in tolerances
    errors: Float[Array, "2 n"]  # in q and in its rate by coordinate, with the correction
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
    M_q: Float[Array, " n n"]  # that of displacements of q; the same without quasi-velocities
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
        M_q = coordinate_metric(scheme.system, M, *end, t, params)
        dynamics = scheme.system.dynamics
        size, mechanical = dynamics.mechanical_velocities, dynamics.mechanical
        M, M_q = M[:size, :size], M_q[:mechanical, :mechanical]
        in_q, in_v = (
            tolerance.atol + tolerance.rtol * jnp.maximum(_size(M, first), _size(M, last))
            for M, first, last in zip((M_q, M), start, end, strict=True)
        )
        first, last = (jnp.abs(v[size:]) for _, v in (start, end))
        of_states = tolerance.atol + tolerance.rtol * jnp.maximum(first, last)
        return ErrorNorm(M, M_q, in_q, in_v, of_states)

    def error(self, in_q: Array, in_v: Array) -> Array:
        """The error in units of the tolerance.

        The arguments are one estimate, or two combined as in `DormandPrince8`: (E, n) each.
        """
        in_q, in_v = jax.lax.stop_gradient((in_q, in_v))
        sizes = [self.measure(*estimate) for estimate in zip(in_q, in_v, strict=True)]
        if len(sizes) == 1:
            return jnp.sqrt(sizes[0])
        first, second = sizes
        divisor = first + _SECOND * second
        return jnp.where(
            divisor > 0, first / jnp.sqrt(jnp.where(divisor > 0, divisor, 1.0)), divisor
        )

    def measure(self, in_q: Array, in_v: Array) -> Array:
        """The mean square of both, and of each state, in units of the tolerance."""
        squares = _size(self.M_q, in_q) / self.allowed_q, _size(self.M, in_v) / self.allowed_v
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


def attempt(
    scheme: Scheme, tolerance: Tolerance, start: EvaluatedState, t: Array, h: Array, params: Params,
    extents: Float[Array, " n"] | None,
) -> Attempt:  # fmt: skip
    """Attempt a step of size h from time t, with the extents of the coordinates."""
    method, before = scheme.method, params
    weights_at_end = [0.0]  # of the rate at the end in the error
    last: tuple[Array, ...] = ()  # q, v and their rates of the last stage of an explicit method
    params = scheme.in_step(start.q, start.v, t, h, params)
    if params is not before:
        start = evaluated_state(scheme, start.q, start.v, t, params)
    if isinstance(method, Rodas5P):
        chart = None
        moved, errors = method.step(scheme, StepStart(start.q, start.v, t, h, params))
        in_q, in_v = errors[:1], errors[1:]
    else:
        assert isinstance(method, AbstractRungeKuttaPair)
        chart = scheme.formulation.chart(scheme.system, start.q, start.v, t, params, extents)
        made = pair_stages(scheme, method.tableau, chart, start, t, h, params)
        # The last weight of an error belongs to the rate at the end, known only after projection.
        weights_at_end = [error[-1] for error in method.errors]
        errors = jnp.asarray([error[:-1] for error in method.errors], start.q.dtype)
        in_step = jnp.asarray(method.tableau.weights, start.q.dtype)
        q = start.q + h * (in_step @ made.speeds)
        v = start.v + h * (in_step @ made.accelerations)
        good, count = made.status == Status.OK, start.independent_rows.size
        moved = Moved(q, v, good, made.status, made.independent, made.rank, count)
        in_q = h * jnp.stack([w @ made.speeds for w in errors])
        in_v = h * jnp.stack([w @ made.accelerations for w in errors])
        last_v = made.v if scheme.system.velocities else made.speeds[-1]
        last = made.q, last_v, made.speeds[-1], made.accelerations[-1]
    end_t = t + h
    (q, v), is_finite = finite_states((moved.q, moved.v), (start.q, start.v))
    moved = replace(moved, q=q, v=v)
    norm = ErrorNorm.of(scheme, tolerance, (start.q, start.v), (moved.q, moved.v), end_t, params)
    with jax.named_scope("projection"):
        rows = RowsBefore(~moved.independent, start.rank, extents)
        new_q, new_v, reached = scheme.after_step(chart, moved.q, moved.v, end_t, params, rows)
    (new_q, new_v), is_projected = finite_states((new_q, new_v), (start.q, start.v))
    # The accelerations at the projected end serve the error, the next step and the interpolation.
    end = evaluated_state(scheme, new_q, new_v, end_t, params)
    at_end = jnp.asarray(weights_at_end, new_q.dtype)[:, None]
    speeds = scheme.system.dynamics.speeds(new_q, new_v, end_t, params)
    in_q = in_q + h * at_end * speeds[None]
    in_v = in_v + h * at_end * end.qdd[None]
    error = norm.error(in_q, in_v)
    if params is not before:
        # A direction that is kept in a step may have to be another one at its end.
        turned = scheme.turned(new_q, new_v, end_t, params)
        late = evaluated_state(scheme, new_q, new_v, end_t, turned).qdd - end.qdd
        late_speeds = scheme.system.dynamics.speeds(new_q, late, end_t, params)
        by_turn = norm.error((h * h * late_speeds / 6)[None], (h * late / 3)[None])
        error = jnp.sqrt(error**2 + by_turn**2)
    in_speeds = scheme.system.dynamics.speeds(new_q, in_v[0], end_t, params)
    errors = jax.lax.stop_gradient(jnp.stack([in_q[0], in_speeds]))
    correction = scheme.correction((moved.q, moved.v), (new_q, new_v), end_t, h, params)
    if correction:
        errors = errors.at[0].add(jnp.abs(jnp.stack(correction)).sum(0))
    is_finite &= is_projected & jnp.isfinite(end.qdd.sum())
    status = first_that_holds(
        (moved.status == Status.SINGULAR_MASS, Status.SINGULAR_MASS),
        (~is_finite, Status.NONFINITE),
        (moved.status != Status.OK, moved.status),
        (~reached, Status.PROJECTION_FAILED),
        (end.status != Status.OK, end.status),
    )
    squares = [_size(norm.M_q, x) ** 2 for x in correction]
    moves = jnp.sqrt(sum(squares) / 2) / norm.allowed_q
    stiffness = _stiffness(last, end, speeds, h)
    rank = jnp.minimum(moved.rank, end.rank)
    return Attempt(end, error, moves, errors, rank, status, stiffness)


def _stiffness(last: tuple[Array, ...], end: EvaluatedState, speeds: Array, h: Array) -> Array:
    """|h lambda| by the rates of the last stage and of the end; zero for implicit methods.

    Both lie at the same time: their rates differ from each other by about the dominant eigenvalue
    times the difference of states (Hairer and Wanner II, IV.2).
    """
    if not last:
        return jnp.zeros_like(h)
    q, v, last_speeds, last_qdd = last
    rates, states = (speeds - last_speeds, end.qdd - last_qdd), (end.q - q, end.v - v)
    numerator, denominator = (sum((x * x).sum() for x in pair) for pair in (rates, states))
    is_zero = denominator == 0
    ratio = jnp.sqrt(numerator / jnp.where(is_zero, 1.0, denominator))
    return jnp.abs(h) * jax.lax.stop_gradient(jnp.where(is_zero, 0.0, ratio))


SAFETY = 0.9
LEAST_ERROR = 1e-4  # smallest remembered error: that of a much too small step has no information
FAILED = 0.1  # factor after a step that could not be computed


def grown(method: AbstractPair, error: Array, previous_error: Array) -> Array:
    """The factor from an accepted step to the next one; `previous_error` is that of the one before.

    PI control after Gustafsson; Hairer and Wanner, Solving Ordinary Differential Equations II,
    IV.2: err^-(1/k - 3/4 beta) err_before^beta, k the order of the error of a step.
    """
    control = method.control
    integral = 1 / (control.order + 1) - 0.75 * control.memory
    factor = SAFETY / power(jnp.maximum(error, 1e-14), integral)
    if control.memory:
        factor *= power(previous_error, control.memory)
    return jnp.clip(factor, control.least, control.most)


def power(x: Array, exponent: float) -> Array:
    """x to a multiple of 1/64 that is near the exponent, which is below one.

    By square roots, since native code calls `pow` of the C library for one lane at a time: it took
    a fifth of the time of small systems.
    """
    result, root = jnp.ones_like(x), x
    for digit in f"{round(exponent * 64):06b}":
        root = jnp.sqrt(root)
        if digit == "1":
            result = result * root
    return result


def shrunk(method: AbstractPair, error: Array) -> Array:
    """The factor from a rejected step to the next attempt."""
    control = method.control
    factor = SAFETY / power(jnp.maximum(error, 1.0), 1 / (control.order + 1))
    # A step that could not be computed has no error to go by.
    return jnp.where(jnp.isfinite(error), jnp.maximum(factor, control.least), FAILED)


def first_step(
    scheme: Scheme, tolerance: Tolerance, start: EvaluatedState, t: Array, span: Array,
    params: Params,
) -> Array:  # fmt: skip
    """The size of the first step, by an explicit Euler step; `span` is signed.

    Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.4, in the metric of
    the mass matrix.
    """
    start, t, span, params = jax.lax.stop_gradient((start, t, span, params))
    state, system = (start.q, start.v), scheme.system
    speeds = system.dynamics.speeds(*state, t, params)
    norm = ErrorNorm.of(scheme, tolerance, state, state, t, params)
    size = jnp.sqrt(norm.measure(*state))
    speed = jnp.sqrt(norm.measure(speeds, start.qdd))
    # At rest, or at the origin, the ratio has no information.
    tiny = (size < 1e-5) | (speed < 1e-5)
    guess = jnp.where(tiny, 1e-6, 0.01 * size / jnp.where(speed > 0, speed, 1.0))
    guess = jnp.minimum(guess, jnp.abs(span))
    # The change of the accelerations along a step of Euler's method stands for the second
    # derivative.
    h = jnp.sign(span) * guess
    (q, v), _ = finite_states((start.q + h * speeds, start.v + h * start.qdd), state)
    _, law = scheme.law(q, v, t + h, params, start.independent_rows)
    change_of_speeds = h * system.dynamics.speeds(start.q, start.qdd, t, params)
    change = jnp.sqrt(norm.measure(change_of_speeds, law.qdd - start.qdd)) / guess
    largest = jnp.maximum(speed, jnp.where(jnp.isfinite(change), change, jnp.inf))
    order = scheme.pair.control.order
    usual = power(0.01 / jnp.where(largest <= 1e-15, 1.0, largest), 1 / (order + 1))
    better = jnp.where(largest <= 1e-15, jnp.maximum(1e-6, guess * 1e-3), usual)
    better = jnp.where(jnp.isfinite(largest), better, guess * 1e-3)
    duration = jnp.abs(span)
    # An integer fraction of the span: then rounding differences in the arguments, which occur if
    # separate code computes a part of the start, do not change the bits of the step.
    return duration / jnp.ceil(duration / jnp.minimum(jnp.minimum(100 * guess, better), duration))
