"""A whole trajectory in steps of the size that a tolerance asks for."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.attempt import Attempt, Knot, attempt, knot
from jaxmech.integrate.adaptive.control import LEAST_ERROR, first_step, grown, shrunk
from jaxmech.integrate.adaptive.dense import interpolated
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import MoveRows, StepRecord
from jaxmech.integrate.counts import StepCounts
from jaxmech.integrate.error_estimate import relative
from jaxmech.integrate.rollout import Trajectory, residuals, start_status
from jaxmech.integrate.scheme import Scheme
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
        size: of the next attempt.
        error: of the last step, for the control.
        is_repeat: whether the last attempt was rejected.
        status: `Status` so far.
        t_failed: as in `Trajectory`.
        saved: number of the next save time.
    """

    elapsed: Float[Array, ""]
    knot: Knot
    size: Float[Array, ""]
    error: Float[Array, ""]
    is_repeat: Bool[Array, ""]
    status: Int[Array, ""]
    t_failed: Float[Array, ""]
    saved: Int[Array, ""]
    counts: StepCounts
    stiffness: _Stiffness
    audit: _Audit


_Rows = tuple[Array, MoveRows]


def adaptive_rollout(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance,
    *, segment: int,
) -> tuple[Trajectory, StepRecord]:  # fmt: skip
    """The trajectory from (q0, v0) saved at ts, and its moves in segments of so many."""
    elapsed = jnp.abs(jax.lax.stop_gradient(ts - ts[0]))
    run = _Run(scheme, tolerance, ts[0], jnp.sign(ts[-1] - ts[0]), elapsed, params, segment)
    start = run.start(q0, v0)
    state, rows = jax.lax.while_loop(
        lambda carry: (carry[0].elapsed < elapsed[-1]) & (carry[0].status == Status.OK),
        run.advanced,
        (start, run.rows(q0)),
    )
    place = jnp.arange(len(ts))
    known = (place < state.saved) & jnp.isnan(start.t_failed)
    first = jnp.concatenate([q0, v0, jnp.stack([start.audit.position, start.audit.velocity])])
    saves = jnp.where((place == 0)[:, None], first[None], rows[0])
    saves = jnp.where(known[:, None], saves, jnp.nan)
    n, audit = q0.size, state.audit
    in_q, in_v = audit.errors
    error = relative(in_q, in_v, audit.low, audit.high, audit.fastest, state.elapsed)
    error = jnp.where(state.counts.accepted > 0, error, jnp.nan)
    trajectory = Trajectory(
        q=saves[:, :n],
        v=saves[:, n : 2 * n],
        position_residual=saves[:, -2],
        velocity_residual=saves[:, -1],
        rank=audit.rank,
        status=state.status,
        t_failed=state.t_failed,
        error=error,
        counts=replace(state.counts, t_stiff=state.stiffness.t),
    )
    return trajectory, rows[1].record(state.counts.accepted + state.saved - 1)


@dataclass(frozen=True, eq=False)
class _Run:
    """What stays the same during a run; `elapsed` are the save times from the start."""

    scheme: Scheme
    tolerance: Tolerance
    t0: Array
    sign: Array
    elapsed: Array
    params: Params
    segment: int

    @property
    def method(self) -> Adaptive:
        """The method of the scheme."""
        assert isinstance(self.scheme.method, Adaptive)
        return self.scheme.method

    @property
    def evaluations(self) -> int:
        """Evaluations of the law of motion in an attempt."""
        return self.method.pair.evaluations

    @property
    def span(self) -> Array:
        """The time from the start to the end, not negative."""
        return self.elapsed[-1]

    def rows(self, q: Array) -> "_Rows":
        """What is written, yet empty: q, v and the two residuals at each save, and the moves."""
        times, state = len(self.elapsed), jnp.zeros(2 * q.size, q.dtype)
        saves = empty_rows(times, jnp.zeros(2 + 2 * q.size, q.dtype))
        return saves, MoveRows.empty(self.method.max_steps + times - 1, self.segment, state)

    def time(self, elapsed: Array) -> Array:
        """The time after so much of it."""
        return self.t0 + self.sign * elapsed

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
            size=first_step(scheme, self.tolerance, first, t, self.sign * self.span, params),
            error=jnp.full_like(t, LEAST_ERROR),
            is_repeat=jnp.asarray(False),
            status=status,
            t_failed=jnp.where(status == Status.OK, nan, at),
            saved=none + 1,
            counts=StepCounts(none, none, none + 2, zero, nan),
            stiffness=_Stiffness(none, none, jnp.asarray(False), nan),
            audit=_Audit(
                *residuals(scheme, q, v, t, params), first.rank,
                jnp.zeros((2, *q.shape), q.dtype), fixed_q, fixed_q, jnp.abs(fixed_v),
            ),
        )  # fmt: skip

    def advanced(self, carry: tuple[_State, _Rows]) -> tuple[_State, _Rows]:
        """The state after one attempt, and what it wrote."""
        state, rows = carry
        left = self.span - state.elapsed
        is_last = _STRETCH * state.size >= left
        size = jax.lax.stop_gradient(jnp.where(is_last, left, state.size))
        t, h = self.time(state.elapsed), self.sign * size
        tried = attempt(self.scheme, self.tolerance, state.knot, t, h, self.params)
        computed = tried.status == Status.OK
        accepted = computed & (tried.error <= 1.0)
        elapsed = jnp.where(is_last, self.span, state.elapsed + size)
        counts = state.counts
        counts = replace(
            counts,
            accepted=counts.accepted + accepted,
            rejected=counts.rejected + ~accepted,
            evaluations=counts.evaluations + self.evaluations,
            longest=jnp.where(accepted, jnp.maximum(counts.longest, size), counts.longest),
        )
        step = StepSpan(state.elapsed, elapsed, size, accepted)
        moved = self._accepted(state, tried, elapsed, size)
        error = jnp.where(computed, tried.error, jnp.inf)
        stays = replace(state, size=size * shrunk(self.method, error), is_repeat=jnp.asarray(True))
        after = jax.tree.map(lambda yes, no: jnp.where(accepted, yes, no), moved, stays)
        after = self._ended(replace(after, counts=counts), tried)
        after, (saves, moves) = self._saved(state, after, step, rows)
        number = state.counts.accepted + after.saved - 1
        made = step.begin, step.size, jnp.zeros_like(number)
        return after, (saves, moves.with_move(number, made, _packed(state), accepted))

    def _saved(
        self, before: _State, after: _State, step: "StepSpan", rows: _Rows
    ) -> tuple[_State, _Rows]:
        """What an accepted step saves."""
        last = len(self.elapsed) - 1

        def target(saved: Array) -> Array:
            at = jnp.minimum(saved, last)
            return jax.lax.dynamic_index_in_dim(self.elapsed, at, keepdims=False)

        def is_within(saved: Array) -> Array:
            return step.accepted & (saved <= last) & (target(saved) <= step.end)

        states = self._states(before, after, step, target(after.saved))

        def save(carry: tuple[_State, _Rows]) -> tuple[_State, _Rows]:
            state, (saves, moves) = carry
            elapsed, place = target(state.saved), state.saved
            t = self.time(elapsed)
            at = jnp.where(elapsed < step.end, (elapsed - step.begin) / step.size, 1.0)
            q, v, reached = self._within(before, step, states, at, t)
            audit = state.audit
            position, velocity = residuals(self.scheme, q, v, t, self.params)
            position = jnp.maximum(audit.position, position)
            velocity = jnp.maximum(audit.velocity, velocity)
            row = jnp.concatenate([q, v, jnp.stack([position, velocity])])
            number = before.counts.accepted + place - 1
            made = step.begin, jnp.zeros_like(t), place
            moves = moves.with_move(number, made, _packed(before), reached)
            saves = with_row(saves, place, row, reached)
            none = jnp.zeros_like(position)
            failed = ~reached
            code = jnp.asarray(Status.PROJECTION_FAILED, jnp.int32)
            state = replace(
                state,
                saved=place + reached,
                audit=replace(audit, position=none, velocity=none),
                status=jnp.where(failed, code, state.status),
                t_failed=jnp.where(failed, self.time(step.begin), state.t_failed),
            )
            return state, (saves, moves)

        return jax.lax.while_loop(
            lambda carry: is_within(carry[0].saved) & (carry[0].status == Status.OK),
            save,
            (after, rows),
        )

    @property
    def places(self) -> tuple[float, ...]:
        """Fractions of a step between whose states saves are interpolated."""
        return (0.0, 0.5, 1.0) if self.method.order > 5 else (0.0, 1.0)

    def _states(
        self, before: _State, after: _State, step: "StepSpan", target: Array
    ) -> list[tuple[Array, Array, Array]]:
        """(q, v, qdd) at these places."""
        ends = [(x.knot.q, x.knot.v, x.knot.qdd) for x in (before, after)]
        if len(self.places) == 2:
            return ends

        def middle() -> tuple[Array, Array, Array]:
            t, h = self.time(step.begin), self.sign * step.size / 2
            half = attempt(self.scheme, self.tolerance, before.knot, t, h, self.params).end
            return half.q, half.v, half.qdd

        needed = step.accepted & (target < step.end)
        return [ends[0], jax.lax.cond(needed, middle, lambda: ends[0]), ends[1]]

    def _within(
        self,
        before: _State,
        step: "StepSpan",
        states: list[tuple[Array, Array, Array]],
        at: Array,
        t: Array,
    ) -> tuple[Array, Array, Array]:
        """The state at a fraction of a step, and whether it could be brought onto the constraints.

        Accelerations of stiff systems are too sensitive to interpolate with: a shorter step is
        made there.
        """
        if self.method.pair.interpolates:
            q, v = interpolated(self.places, states, self.sign * step.size, at)
            return self._projected(q, v, t)
        h = self.sign * at * step.size
        found = attempt(
            self.scheme, self.tolerance, before.knot, self.time(step.begin), h, self.params
        )
        return found.end.q, found.end.v, found.status == Status.OK

    def _projected(self, q: Array, v: Array, t: Array) -> tuple[Array, Array, Array]:
        """An interpolated state on the constraints, and whether it could be brought there."""
        by, system = self.scheme.stabilization, self.scheme.system
        if self.scheme.formulation.chart(system, q, v, t, self.params) is not None:
            by = by if isinstance(by, Projection) else Projection()
        return by.after_step(system, q, v, t, self.params)

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
        is_limited = product > self.method.pair.control.stable
        free = jnp.where(is_limited, 0, before.free + 1)
        limited = jnp.where(is_limited, before.limited + 1, before.limited)
        limited = jnp.where(free >= _CLEARED, 0, limited)
        is_suspected = limited >= _SUSPICIOUS
        is_new = is_suspected & jnp.isnan(before.t)
        t = jnp.where(is_new, jax.lax.stop_gradient(t), before.t)
        return _Stiffness(limited, free, is_suspected, t)

    def _ended(self, state: _State, tried: Attempt) -> _State:
        """The state with its status."""
        counts, at = state.counts, jax.lax.stop_gradient(self.time(state.elapsed))
        largest = jnp.maximum(jnp.abs(self.t0), jnp.abs(self.time(self.span)))
        shortest = 4 * jnp.finfo(at.dtype).eps * jax.lax.stop_gradient(largest)
        is_repeated = state.is_repeat & (state.size < shortest)
        is_over = counts.accepted + counts.rejected >= self.method.max_steps
        is_over &= state.elapsed < self.span
        underflow = jnp.where(tried.status == Status.OK, int(Status.STEP_UNDERFLOW), tried.status)
        over = jnp.where(state.stiffness.is_suspected, int(Status.STIFF), int(Status.MAX_STEPS))
        status = jnp.where(is_over, over, int(Status.OK))
        status = jnp.where(is_repeated, underflow, status).astype(jnp.int32)
        failed = status != Status.OK
        return replace(state, status=status, t_failed=jnp.where(failed, at, state.t_failed))


class StepSpan(eqx.Module):
    """An attempted step: times since the start, its size, and whether it was accepted."""

    begin: Float[Array, ""]
    end: Float[Array, ""]
    size: Float[Array, ""]
    accepted: Bool[Array, ""]


def _packed(state: _State) -> Array:
    """q and v."""
    return jnp.concatenate([state.knot.q, state.knot.v])
