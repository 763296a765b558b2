"""A whole trajectory in steps of the size that a tolerance asks for."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.adaptive.attempt import Attempt, Knot, attempt, knot
from jaxmech.integrate.adaptive.control import LEAST_ERROR, first_step, grown, shrunk
from jaxmech.integrate.adaptive.dense import interpolated
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.counts import StepCounts
from jaxmech.integrate.error_estimate import relative
from jaxmech.integrate.rollout import Trajectory, residuals, start_status
from jaxmech.integrate.step import Scheme
from jaxmech.stabilization import Projection
from jaxmech.status import Status
from jaxmech.system import Params

_SUSPICIOUS = 15  # steps at the limit of stability in a row, nearly, that make a system stiff
_CLEARED = 6  # other steps in a row that end the suspicion
_STRETCH = 1.01  # of the last step, so that no short one remains


class _Audit(eqx.Module):
    """What is remembered of the accepted steps."""

    position: Float[Array, ""]
    velocity: Float[Array, ""]
    rank: Int[Array, ""]
    errors: Float[Array, "2 n"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    fastest: Float[Array, " n"]


class _Stiffness(eqx.Module):
    """Counts of steps at the limit of stability, and of others in a row."""

    limited: Int[Array, ""]
    free: Int[Array, ""]
    is_suspected: Bool[Array, ""]
    t: Float[Array, ""]


class _State(eqx.Module):
    """The carry of a run.

    Attributes:
        elapsed: time since the start, not negative.
        knot: the present state.
        before: the start of the last step.
        last: size of the last step.
        size: of the next attempt.
        error: of the last step, for the control.
        is_repeat: whether the last attempt was rejected.
        status: `Status` so far.
        t_failed: as in `Trajectory`.
    """

    elapsed: Float[Array, ""]
    knot: Knot
    before: Knot
    last: Float[Array, ""]
    size: Float[Array, ""]
    error: Float[Array, ""]
    is_repeat: Bool[Array, ""]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]
    counts: StepCounts
    stiffness: _Stiffness
    audit: _Audit


def adaptive_rollout(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance
) -> Trajectory:
    """The trajectory from (q0, v0) saved at ts, and how much work it was."""
    span = jax.lax.stop_gradient(ts[-1] - ts[0])
    run = _Run(scheme, tolerance, ts[0], span, params)
    start = run.start(q0, v0)

    def one(state: _State, ts_k: Array) -> tuple[_State, tuple[Array, ...]]:
        target = jax.lax.stop_gradient(jnp.abs(ts_k - run.t0))
        audit = replace(state.audit, position=0 * state.elapsed, velocity=0 * state.elapsed)
        state = jax.lax.while_loop(
            lambda s: (s.elapsed < target) & (s.status == Status.OK),
            run.advanced,
            replace(state, audit=audit),
        )
        is_there = state.elapsed >= target
        q, v, reached = run.within(state, ts_k)
        failed = is_there & ~reached
        state = replace(
            state,
            status=jnp.where(failed, int(Status.PROJECTION_FAILED), state.status),
            t_failed=jnp.where(failed & jnp.isnan(state.t_failed), ts_k, state.t_failed),
        )
        position, velocity = residuals(scheme, q, v, ts_k, params)
        found = (
            q, v,
            jnp.maximum(state.audit.position, position),
            jnp.maximum(state.audit.velocity, velocity),
        )  # fmt: skip
        is_known = is_there & reached
        return state, tuple(jnp.where(is_known, x, jnp.nan) for x in found)

    end, saved = jax.lax.scan(one, start, ts[1:])
    is_ok = jnp.isnan(start.t_failed)
    first = q0, v0, start.audit.position, start.audit.velocity
    q, v, position, velocity = (
        jnp.concatenate([jnp.where(is_ok, x, jnp.nan)[None], rest])
        for x, rest in zip(first, saved, strict=True)
    )
    audit = end.audit
    in_q, in_v = audit.errors
    error = relative(in_q, in_v, audit.low, audit.high, audit.fastest, end.elapsed)
    error = jnp.where(end.counts.accepted > 0, error, jnp.nan)
    counts = replace(end.counts, t_stiff=end.stiffness.t)
    return Trajectory(q, v, position, velocity, audit.rank, end.status, end.t_failed, error, counts)


@dataclass(frozen=True, eq=False)
class _Run:
    """What stays the same during a run."""

    scheme: Scheme
    tolerance: Tolerance
    t0: Array
    span: Array
    params: Params

    @property
    def method(self) -> Adaptive:
        """The method of the scheme."""
        assert isinstance(self.scheme.method, Adaptive)
        return self.scheme.method

    @property
    def evaluations(self) -> int:
        """Evaluations of the law of motion in an attempt."""
        return len(self.method.pair.tableau.nodes)

    def time(self, elapsed: Array) -> Array:
        """The time after so much of it."""
        return self.t0 + jnp.sign(self.span) * elapsed

    def start(self, q: Array, v: Array) -> _State:
        """The state before the first step."""
        scheme, t, params = self.scheme, self.t0, self.params
        first = knot(scheme, q, v, t, params)
        status = start_status(scheme, q, v, t, params)
        status = jnp.where(status == Status.OK, first.status, status)
        zero, none = jnp.zeros_like(t), jnp.zeros((), jnp.int32)
        nan, at = jnp.full_like(t, jnp.nan), jax.lax.stop_gradient(t)
        fixed_q, fixed_v = jax.lax.stop_gradient((q, v))
        return _State(
            elapsed=zero,
            knot=first,
            before=first,
            last=jnp.ones_like(t),
            size=first_step(scheme, self.tolerance, first, t, self.span, params),
            error=jnp.full_like(t, LEAST_ERROR),
            is_repeat=jnp.asarray(False),
            status=status,
            t_failed=jnp.where(status == Status.OK, nan, at),
            counts=StepCounts(none, none, none + 2, zero, nan),
            stiffness=_Stiffness(none, none, jnp.asarray(False), nan),
            audit=_Audit(
                *residuals(scheme, q, v, t, params), first.rank,
                jnp.zeros((2, *q.shape), q.dtype), fixed_q, fixed_q, jnp.abs(fixed_v),
            ),
        )  # fmt: skip

    def advanced(self, state: _State) -> _State:
        """The state after one attempt."""
        left = jnp.abs(self.span) - state.elapsed
        is_last = _STRETCH * state.size >= left
        size = jax.lax.stop_gradient(jnp.where(is_last, left, state.size))
        t, h = self.time(state.elapsed), jnp.sign(self.span) * size
        tried = attempt(self.scheme, self.tolerance, state.knot, t, h, self.params)
        computed = tried.status == Status.OK
        accepted = computed & (tried.error <= 1.0)
        elapsed = jnp.where(is_last, jnp.abs(self.span), state.elapsed + size)
        counts = state.counts
        counts = replace(
            counts,
            accepted=counts.accepted + accepted,
            rejected=counts.rejected + ~accepted,
            evaluations=counts.evaluations + self.evaluations,
            longest=jnp.where(accepted, jnp.maximum(counts.longest, size), counts.longest),
        )
        moved = self._accepted(state, tried, elapsed, size)
        error = jnp.where(computed, tried.error, jnp.inf)
        stays = replace(state, size=size * shrunk(self.method, error), is_repeat=jnp.asarray(True))
        state = jax.tree.map(lambda yes, no: jnp.where(accepted, yes, no), moved, stays)
        return self._ended(replace(state, counts=counts), tried, size)

    def _accepted(self, state: _State, tried: Attempt, elapsed: Array, size: Array) -> _State:
        factor = grown(self.method, tried.error, state.error)
        factor = jnp.where(state.is_repeat, jnp.minimum(factor, 1.0), factor)
        end, audit, t = tried.end, state.audit, self.time(elapsed)
        q, v = jax.lax.stop_gradient((end.q, end.v))
        position, velocity = residuals(self.scheme, q, v, t, self.params)
        return replace(
            state,
            elapsed=elapsed,
            knot=end,
            before=state.knot,
            last=size,
            size=size * factor,
            error=jnp.maximum(tried.error, LEAST_ERROR),
            is_repeat=jnp.asarray(False),
            stiffness=self._stiffness(state.stiffness, tried.stiffness, t),
            audit=_Audit(
                jnp.maximum(audit.position, position),
                jnp.maximum(audit.velocity, velocity),
                jnp.minimum(audit.rank, tried.rank),
                audit.errors + jnp.abs(tried.errors),
                jnp.minimum(audit.low, q),
                jnp.maximum(audit.high, q),
                jnp.maximum(audit.fastest, jnp.abs(v)),
            ),
        )

    def _stiffness(self, before: _Stiffness, product: Array, t: Array) -> _Stiffness:
        """Hairer and Wanner, Solving Ordinary Differential Equations II, IV.2."""
        is_limited = product > self.method.pair.estimate.stable
        free = jnp.where(is_limited, 0, before.free + 1)
        limited = jnp.where(is_limited, before.limited + 1, before.limited)
        limited = jnp.where(free >= _CLEARED, 0, limited)
        is_suspected = limited >= _SUSPICIOUS
        is_new = is_suspected & jnp.isnan(before.t)
        t = jnp.where(is_new, jax.lax.stop_gradient(t), before.t)
        return _Stiffness(limited, free, is_suspected, t)

    def _ended(self, state: _State, tried: Attempt, size: Array) -> _State:
        """The state with its status."""
        counts, at = state.counts, jax.lax.stop_gradient(self.time(state.elapsed))
        largest = jnp.maximum(jnp.abs(self.t0), jnp.abs(self.t0 + self.span))
        shortest = 4 * jnp.finfo(at.dtype).eps * jax.lax.stop_gradient(largest)
        is_repeated = state.is_repeat & (state.size < shortest)
        is_over = counts.accepted + counts.rejected >= self.tolerance.max_steps
        is_over &= state.elapsed < jnp.abs(self.span)
        underflow = jnp.where(tried.status == Status.OK, int(Status.STEP_UNDERFLOW), tried.status)
        over = jnp.where(state.stiffness.is_suspected, int(Status.STIFF), int(Status.MAX_STEPS))
        status = jnp.where(is_over, over, int(Status.OK))
        status = jnp.where(is_repeated, underflow, status).astype(jnp.int32)
        failed = status != Status.OK
        return replace(state, status=status, t_failed=jnp.where(failed, at, state.t_failed))

    def within(self, state: _State, t: Array) -> tuple[Array, Array, Array]:
        """q and v in the last step, and whether they could be brought onto the constraints."""
        sign = jnp.sign(self.span)
        begin, h = self.time(state.elapsed - state.last), sign * state.last
        begin = jax.lax.stop_gradient(begin - self.t0) + self.t0
        if self.method.order > 5:
            tried = attempt(
                self.scheme, self.tolerance, state.before, begin, t - begin, self.params
            )
            return tried.end.q, tried.end.v, tried.status == Status.OK
        ends = [(x.q, x.v, x.qdd) for x in (state.before, state.knot)]
        q, v = interpolated((0.0, 1.0), ends, h, (t - begin) / h)
        by, system = self.scheme.stabilization, self.scheme.system
        if self.scheme.formulation.chart(system, q, v, t, self.params) is not None:
            by = by if isinstance(by, Projection) else Projection()
        return by.after_step(system, q, v, t, self.params)
