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
from jaxmech.integrate.adaptive.step_events import StepEvents, events_in_step
from jaxmech.integrate.counts import StepCounts
from jaxmech.integrate.error_estimate import relative
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.switches import Switched
from jaxmech.integrate.events.watch import Watch
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
        events: what is known of the events; None without any.
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
    events: EventState | None


_Rows = tuple[Array, MoveRows]


def adaptive_rollout(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, tolerance: Tolerance,
    *, segment: int, watch: Watch | None = None,
) -> tuple[Trajectory, StepRecord]:  # fmt: skip
    """The trajectory from (q0, v0) saved at ts, and its moves in segments of so many.

    With events, the system of the scheme is that of the watch.
    """
    elapsed = jnp.abs(jax.lax.stop_gradient(ts - ts[0]))
    run = _Run(scheme, tolerance, ts[0], jnp.sign(ts[-1] - ts[0]), elapsed, params, segment, watch)
    start = run.start(q0, v0)
    state, rows = jax.lax.while_loop(
        lambda carry: (carry[0].elapsed < elapsed[-1]) & (carry[0].status == Status.OK),
        run.advanced,
        (start, run.rows(q0)),
    )
    place = jnp.arange(len(ts))
    known = (place < state.saved) & jnp.isnan(start.t_failed)
    first = jnp.concatenate([q0, v0, jnp.stack([start.audit.position, start.audit.velocity])])
    switches = rows[0][:, len(first) :]
    at_start = (place < run.at_start)[:, None]
    saves = jnp.where(at_start, first[None], rows[0][:, : len(first)])
    events, active = state.events, None
    if events is not None and start.events is not None:
        # After a terminal event the trajectory stands still.
        is_later = ((place >= state.saved) & (events.stopped_by >= 0))[:, None]
        none = jnp.zeros(2, q0.dtype)
        saves = jnp.where(is_later, jnp.concatenate([state.knot.q, state.knot.v, none]), saves)
        known |= is_later[:, 0]
        active = jnp.where(at_start, start.events.active, switches > 0)
        active = jnp.where(is_later, events.active, active)
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
        events=events,
        active=active,
    )
    return trajectory, rows[1].record(
        state.counts.accepted + state.saved - run.at_start + run.observed_before(state)
    )


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
    watch: Watch | None = None

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
    def at_start(self) -> Array:
        """The number of save times at the start: one, or more if it is repeated."""
        return (self.elapsed <= 0).sum().astype(jnp.int32)

    @property
    def span(self) -> Array:
        """The time from the start to the end, not negative."""
        return self.elapsed[-1]

    def rows(self, q: Array) -> "_Rows":
        """What is written, yet empty: q, v and the two residuals at each save, and the moves."""
        times, state = len(self.elapsed), jnp.zeros(2 * q.size, q.dtype)
        switches = len(self.watch.names) if self.watch else 0
        saves = empty_rows(times, jnp.zeros(2 + 2 * q.size + switches, q.dtype))
        if self.watch is None:
            return saves, MoveRows.empty(self.method.max_steps + times - 1, self.segment, state)
        # Events that change nothing are moves of their own, as far as they are kept.
        most = self.method.max_steps + times - 1 + self.watch.rows[-1]
        state = jnp.zeros(2 * q.size + 1 + switches, q.dtype)
        return saves, MoveRows.empty(most, self.segment, state, columns=5)

    def time(self, elapsed: Array) -> Array:
        """The time after so much of it."""
        return self.t0 + self.sign * elapsed

    def start(self, q: Array, v: Array) -> _State:
        """The state before the first step."""
        scheme, t, params, events = self.scheme, self.t0, self.params, None
        if self.watch is not None:
            events = self.watch.start(scheme, q, v, t, params)
            params = self.watch.params(params, events.active)
        first = knot(scheme, q, v, t, params)
        status = start_status(scheme, q, v, t, params)
        status = jnp.where(status == Status.OK, first.status, status)
        if events is not None:
            bad = (status == Status.OK) & jnp.isnan(events.values).any()
            status = jnp.where(bad, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), status)
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
            saved=self.at_start,
            counts=StepCounts(none, none, none + 2, zero, nan),
            stiffness=_Stiffness(none, none, jnp.asarray(False), nan),
            audit=_Audit(
                *residuals(scheme, q, v, t, params), first.rank,
                jnp.zeros((2, *q.shape), q.dtype), fixed_q, fixed_q, jnp.abs(fixed_v),
            ),
            events=events,
        )  # fmt: skip

    def advanced(self, carry: tuple[_State, _Rows]) -> tuple[_State, _Rows]:
        """The state after one attempt, and what it wrote."""
        events = carry[0].events
        if self.watch is not None and events is not None and not isinstance(self.params, Switched):
            now = self.watch.params(self.params, events.active)
            if isinstance(now, Switched):
                return replace(self, params=now).advanced(carry)
        state, rows = carry
        left = self.span - state.elapsed
        is_last = _STRETCH * state.size >= left
        size = jax.lax.stop_gradient(jnp.where(is_last, left, state.size))
        t, h = self.time(state.elapsed), self.sign * size
        tried = attempt(self.scheme, self.tolerance, state.knot, t, h, self.params)
        computed = tried.status == Status.OK
        accepted = computed & (tried.error <= 1.0)
        elapsed = jnp.where(is_last, self.span, state.elapsed + size)
        proposed, event = size, None
        if self.watch is not None and state.events is not None:
            how = self.scheme, self.tolerance, self.watch
            event = events_in_step(
                *how, state.knot, state.events, tried, t, h, self.params, accepted
            )
            size = jnp.where(event.cut, event.share * size, size)
            elapsed = jnp.where(event.cut, state.elapsed + size, elapsed)
            tried = replace(tried, end=event.end)
        counts = state.counts
        counts = replace(
            counts,
            accepted=counts.accepted + accepted,
            rejected=counts.rejected + ~accepted,
            evaluations=counts.evaluations + self.evaluations,
            longest=jnp.where(accepted, jnp.maximum(counts.longest, size), counts.longest),
        )
        step = StepSpan(state.elapsed, elapsed, size, accepted)
        moved = self._accepted(state, tried, elapsed, proposed)
        error = jnp.where(computed, tried.error, jnp.inf)
        stays = replace(state, size=size * shrunk(self.method, error), is_repeat=jnp.asarray(True))
        after = jax.tree.map(lambda yes, no: jnp.where(accepted, yes, no), moved, stays)
        after = self._ended(replace(after, counts=counts), tried)
        after, (saves, moves) = self._saved(state, after, step, rows)
        if event is not None:
            after = self._after_event(after, event)
            moves = self._observed(state, after, step, event, moves)
        number = state.counts.accepted + after.saved - self.at_start + self.observed_before(after)
        made = self._move(step.begin, step.size, jnp.zeros_like(number), event)
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
        switches = [] if before.events is None else [before.events.active.astype(step.size.dtype)]

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
            row = jnp.concatenate([q, v, jnp.stack([position, velocity]), *switches])
            number = before.counts.accepted + place - self.at_start + self.observed_before(before)
            made = self._move(step.begin, jnp.zeros_like(t), place)
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

    def _move(
        self, begin: Array, size: Array, save: Array, event: StepEvents | None = None
    ) -> tuple[Array, ...]:
        """What is recorded of a move."""
        if self.watch is None:
            return begin, size, save
        none = jnp.zeros_like(save)
        if event is None:
            return begin, size, save, none, none
        which, row = (jnp.where(event.cut, x + 1, 0) for x in (event.which, event.row))
        return begin, size, save, which, row

    def observed_before(self, state: _State) -> Array:
        """How many events that changed nothing were recorded so far."""
        if self.watch is None or state.events is None:
            return jnp.zeros((), jnp.int32)
        kept = jnp.asarray([0 if e.cuts else e.keep for e in self.watch.events], jnp.int32)
        return jnp.minimum(state.events.counts, kept).sum()

    def _observed(
        self, before: _State, after: _State, step: "StepSpan", event: StepEvents, moves: MoveRows
    ) -> MoveRows:
        """The moves to the events in a step that changed nothing."""
        watch, replay = self.watch, event.events.replay
        assert watch is not None
        is_plain = watch.flags([not e.cuts for e in watch.events])
        first = before.counts.accepted + after.saved - self.at_start + self.observed_before(before)

        def add(carry: tuple[Array, Array, MoveRows]) -> tuple[Array, Array, MoveRows]:
            entry, number, moves = carry
            _, size, which, row = replay.at(entry)
            when = watch.chosen(which, is_plain) & (row >= 0)
            made = step.begin, jnp.abs(size), jnp.zeros_like(number), which + 1, row + 1
            moves = moves.with_move(number, made, _packed(before), when)
            return entry + 1, number + when, moves

        none = jnp.zeros((), jnp.int32)
        found: tuple[Array, Array, MoveRows] = jax.lax.while_loop(
            lambda carry: event.happened & (carry[0] < replay.count), add, (none, first, moves)
        )
        return found[2]

    def _after_event(self, state: _State, event: StepEvents) -> _State:
        """The state from which the motion goes on after the events of a step."""
        is_ok = state.status == Status.OK
        status = jnp.where(is_ok, event.status, state.status)
        failed = is_ok & (status != Status.OK) & (status != Status.STOPPED)
        at = jax.lax.stop_gradient(self.time(state.elapsed))
        return replace(
            state,
            knot=jax.tree.map(lambda x, y: jnp.where(event.cut, x, y), event.after, state.knot),
            status=status,
            t_failed=jnp.where(failed, at, state.t_failed),
            events=event.events,
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
    """q and v; with events also a shift of time, which is zero, and the switches."""
    q, v, events = state.knot.q, state.knot.v, state.events
    if events is None:
        return jnp.concatenate([q, v])
    return jnp.concatenate([q, v, jnp.zeros_like(q[:1]), events.active.astype(q.dtype)])
