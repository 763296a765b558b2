"""A whole trajectory: steps between the save times, and an audit of every step."""

from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import residuals
from jaxmech.integrate.error_estimate import (
    STATES,
    Corrections,
    Recent,
    StepErrors,
    rest_motion,
    step_errors,
    steps_apart,
)
from jaxmech.integrate.events.crossing import Contacts
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.log import EventState, Replay
from jaxmech.integrate.events.turns import Looks, with_events
from jaxmech.integrate.run_params import plain, with_outputs
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import NO_TIMES, StepInterval, StepSegments, segments, turning, within
from jaxmech.integrate.step import StepState, step
from jaxmech.integrate.trajectory import SavedStates, Trajectory, at_saves
from jaxmech.state import Projection
from jaxmech.status import Status
from jaxmech.system import Drive, Levels, Params, extents_at, on_constraints
from jaxmech.utils.arrays import AnyArray


class SegmentEvents(eqx.Module):
    """The data of the events of a segment, or of S of them, that a derivative needs."""

    active: Bool[Array, " *S C"]  # flags of the constraints that are on at its start
    is_moving: Bool[Array, " *S"]  # whether the trajectory was moving at its start
    replay: Replay  # the events in it


class _RolloutState(eqx.Module):
    q: Array
    v: Array
    memory: Array  # of controllers
    position_residual: Array
    velocity_residual: Array
    rank: Array
    status: Array
    t_failed: Array
    recent: Recent
    corrections: Corrections
    events: EventState


_RARELY = 16  # steps from one estimate of the error to the next, in a long run
_FEWEST = 16  # estimates in a shorter one, if it has three steps for each


class KeptSegments(eqx.Module):
    """The data of a run of S segments that its derivatives need."""

    smooth: tuple[Array, Array, Array]  # q, v and memory at the ends of the segments, (S, n)
    events: SegmentEvents  # of each segment
    known: Bool[Array, " T"]  # whether the state was good at each save time
    t_failed: Float[Array, ""]  # as in `Trajectory`
    counts: Int[Array, " E"]  # of the events


def rollout(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, memory: Array, *,
    segment: int | None = None, event_set: EventSet = NO_EVENTS,
    times: StepInterval | AnyArray = NO_TIMES,
) -> tuple[Trajectory, KeptSegments]:  # fmt: skip
    """The trajectory from (q0, v0) saved at ts, and the data of its segments.

    A segment has `segment` steps, a divisor of those per save, by default all. With events, the
    system of the scheme is that of `event_set`. `times` (K,), at which a step ends, are among the
    ts; the system then has spans.
    """
    system, per_save, states = scheme.system, scheme.per_save, scheme.system.dynamics.n_states
    steps, total = segment or per_save, per_save * (len(ts) - 1)
    all_segments = segments(ts, per_save, steps, times)
    interval = jax.tree.map(lambda x: x[0], all_segments.interval)
    # What sticks at the start depends on what controllers give out from then on.
    _, first_params = scheme.sampled(
        memory, q0, v0, ts[0], within(interval, params), interval if event_set else None
    )
    # The error is estimated at the ends of some segments, from states `apart` steps from each
    # other. Every state is used in one estimate at most, and in a long run not all are: estimates
    # are to cost little beside the steps.
    window = max(STATES - 1, min(_RARELY, total // _FEWEST))
    apart = min(steps_apart(scheme.method, total, q0.dtype), window // (STATES - 1))
    reach = apart * (STATES - 1)  # steps from the first of these states to the last
    count, stride = total // steps, -(-window // steps)
    # From the start of each segment to the next estimate, which counts for `weight` steps.
    steps_to_estimate = jnp.asarray(steps * (stride - np.arange(count) % stride))
    weight = total / max(count // stride, 1)
    start, extents = _start(
        scheme, event_set, q0, v0, memory, ts, first_params, same_steps=steps >= reach
    )
    looks = Looks.of(event_set, total, q0, v0, ts[0], first_params)
    # A projection either converges, to residuals of round-off, or ends the run. After an event that
    # ends the run, time goes on without the state.
    checks_every_step = bool(event_set) or not isinstance(scheme.stabilization, Projection)

    def speeds_at(state: _RolloutState, t: Array, params: Params) -> Float[Array, " n"]:
        active_params = event_set.params(params, state.events.active)
        return system.dynamics.speeds(state.q, state.v, t, active_params)

    def saved_of(state: _RolloutState) -> SavedStates:
        residuals = state.position_residual, state.velocity_residual
        return SavedStates(state.q, state.v, state.memory, *residuals, state.events.active)

    def scan_segment(
        carry: tuple[_RolloutState, tuple[StepErrors, Array], Array],
        x: tuple[StepSegments, Array],
    ) -> tuple[tuple[_RolloutState, tuple[StepErrors, Array], Array], tuple[Any, ...]]:
        """The carry after a segment, what is saved at its end, and what its derivative needs."""
        (state, errors, log), (segment, steps_left) = carry, x
        segment_params, h = within(segment.interval, params), segment.h
        if checks_every_step:
            state = replace(
                state,
                position_residual=jnp.where(segment.done == 0, 0.0, state.position_residual),
                velocity_residual=jnp.where(segment.done == 0, 0.0, state.velocity_residual),
            )
        begin = _after_kink(scheme, event_set, state, segment, segment_params, extents)
        empty = event_set.replay(begin.q.dtype)
        state = replace(begin, events=replace(begin.events, replay=empty))
        segment_params = with_outputs(system, segment_params, state.memory)

        def make_step(k: Array, carry: tuple[_RolloutState, Array]) -> tuple[_RolloutState, Array]:
            state, log = carry
            # Not by adding up steps: a derivative that repeats a segment gets the same times, to
            # the bit.
            t = segment.t + (segment.done + k) * h
            moved, log = _advance(
                scheme, event_set, state, log, t, h, segment_params, k, extents, looks,
                checks_every_step=checks_every_step,
            )  # fmt: skip
            # Moving these states in every step would cost up to a third of the run.
            recent, is_used = state.recent, steps_left - k <= reach
            if apart > 1:
                is_used &= (steps_left - k) % apart == 0
                recent = recent.longer(h)

            def with_state() -> Recent:
                return state.recent.after(state.q, speeds_at(state, t, segment_params), h)

            recent = jax.lax.cond(is_used, with_state, lambda: recent)
            return replace(moved, recent=recent), log

        state, log = jax.lax.fori_loop(0, steps, make_step, (state, log))
        end_t = segment.t + (segment.done + steps) * h
        if not checks_every_step:
            position, velocity = residuals(scheme, state.q, state.v, end_t, segment_params)
            state = replace(state, position_residual=position, velocity_residual=velocity)

        def estimate() -> tuple[StepErrors, Array]:
            (so_far, seen), speeds = errors, speeds_at(state, end_t, segment_params)
            q, speeds = jax.lax.stop_gradient((state.q, speeds))
            of_step = step_errors(
                state.recent, q, speeds, h, scheme.method, apart, states,
                coupled=bool(system.constraints),
            )  # fmt: skip
            return so_far.after(q, speeds, *(weight * x for x in of_step)), seen + 1

        is_smooth = state.events.smooth >= reach + 1
        is_smooth &= (state.corrections.smooth >= reach + 1).all()
        is_smooth = is_smooth & state.recent.is_smooth & (h != 0)
        is_due = (steps_left == steps) & (state.status == Status.OK) & is_smooth
        errors = jax.lax.cond(is_due, estimate, lambda: errors)
        is_moving = begin.events.stopped_by < 0
        events = SegmentEvents(begin.events.active, is_moving, state.events.replay)
        saved = saved_of(state).known(jnp.isnan(state.t_failed))
        return (state, errors, log), (saved, (state.q, state.v, state.memory), events)

    first = jax.lax.stop_gradient((q0, speeds_at(start, ts[0], first_params)))
    no_errors = StepErrors.none(*first), jnp.zeros((), jnp.int32)  # and how many estimates
    (end, (errors, seen), log), (saved, ends, segment_events) = jax.lax.scan(
        scan_segment,
        (start, no_errors, event_set.log(q0, v0)),
        (all_segments, steps_to_estimate),
    )
    duration = jax.lax.stop_gradient(ts[-1] - ts[0])
    rest = jax.lax.stop_gradient(rest_motion(system, extents))
    error = errors.relative(duration, rest, states)
    resolution = errors.resolution(rest, states)
    error = jnp.where(seen > 0, jnp.maximum(error, resolution), jnp.nan)
    if scheme.drive != Drive.NONE:
        # Given velocities do not move q by the projection: all of what they miss is an error.
        keeps_q = scheme.drive == Drive.VELOCITIES
        h = jax.lax.stop_gradient(jnp.abs(ts[1:] - ts[:-1]).max()) / per_save
        error += errors.delay(end.corrections, h, duration, states, keeps_q=keeps_q)
    saves = at_saves(saved_of(start), saved, per_save // steps)
    trajectory = Trajectory(
        saves, end.rank, end.status, end.t_failed, error, resolution, end.events, log
    )
    is_known = ~jnp.isnan(saves.q[:, 0])
    return trajectory, KeptSegments(ends, segment_events, is_known, end.t_failed, end.events.counts)


def _after_kink(
    scheme: Scheme, event_set: EventSet, state: _RolloutState, segment: StepSegments,
    params: Params, extents: Float[Array, " n"],
) -> _RolloutState:  # fmt: skip
    t, events = segment.t, state.events
    interval = turning(segment.interval, state.status == Status.OK)
    if interval is None:
        return state
    memory, params = scheme.sampled(state.memory, state.q, state.v, t, params, interval)
    opens, closes = event_set.contact.jumps(
        scheme.system, state.q, t, params, events.active, extents, interval.turns
    )
    params = event_set.params(params, event_set.contact.without(events.active, opens))
    q, v, reached = scheme.after_kink(state.q, state.v, t, params, interval)
    failed = interval.turns & (~reached | closes)
    code = jnp.where(closes, int(Status.GAP_JUMPED), int(Status.PROJECTION_FAILED))
    return replace(
        state,
        q=q,
        v=v,
        memory=memory,
        events=replace(events, due=events.due | opens.any()),
        status=jnp.where(failed, code, state.status).astype(jnp.int32),
        t_failed=jnp.where(failed, jax.lax.stop_gradient(t), state.t_failed),
        recent=state.recent.ended(interval.turns),
    )


def _start(
    scheme: Scheme, event_set: EventSet, q: Array, v: Array, memory: Array, ts: Array,
    params: Params, *, same_steps: bool,
) -> tuple[_RolloutState, Float[Array, " n"]]:  # fmt: skip
    t = ts[0]
    ahead, ordered = jnp.sign(ts[-1] - t), jnp.isfinite(ts).all()
    if event_set:
        # A motion with impacts cannot turn back.
        ordered &= (ahead * (ts[1:] - ts[:-1]) >= 0).all()
        ordered &= not event_set.gaps or ahead >= 0
    active_params, events, status, extents = begin_run(
        scheme, event_set, q, v, t, ahead, params, ordered
    )
    rows = sum(scheme.system.dynamics.sizes(q, v, t, active_params))
    speeds = scheme.system.dynamics.speeds(q, v, t, active_params)
    corrections = Corrections.none(q, scheme.drive != Drive.NONE)
    state = _RolloutState(
        q, v, memory, *residuals(scheme, q, v, t, active_params), jnp.asarray(rows, jnp.int32),
        status,
        jnp.where(status == Status.OK, jnp.nan, jax.lax.stop_gradient(t)),
        Recent.none(q, speeds, same_steps), corrections, events,
    )  # fmt: skip
    return state, extents


def begin_run(
    scheme: Scheme, event_set: EventSet, q: Array, v: Array, t: Array, ahead: Array,
    params: Params, times: Array,
) -> tuple[Params, EventState, Int[Array, ""], Float[Array, " n"]]:  # fmt: skip
    """Parameters with switches, events, whether a run can begin, and the extents of coordinates.

    Time goes on in the direction of `ahead`; `times` is whether the save times are in order. The
    extents are those with all constraints switched on.
    """
    if event_set.gaps:

        def start(carry: None, _: None) -> tuple[None, tuple[EventState, Array]]:
            events, status = event_set.start(scheme, q, v, t, params)
            # Native code folds products with zero where NaN would show.
            is_finite = jnp.isfinite(q.sum() + v.sum())
            status = jnp.where(is_finite, status, jnp.asarray(Status.NONFINITE, jnp.int32))
            return carry, (events, status)

        # As a loop that runs once it is native code as a whole, and not loop by loop, with XLA
        # between them.
        _, once = jax.lax.scan(start, None, None, length=1)
        events, of_contact = jax.tree.map(lambda x: x[0], once)
    else:
        events, of_contact = event_set.start(scheme, q, v, t, params)
    all_params = event_set.params(params, jnp.ones_like(events.active))
    extents = extents_at(scheme.system, q, v, t, all_params)
    user_params, params = params, event_set.params(params, events.active)
    if event_set.has_transitions:
        # Bodies may begin in contact.
        zero, speeds = jnp.zeros_like(t), events.speeds
        contacts = Contacts.of(event_set, scheme, q, v, t, ahead, params, speeds, zero)
        signs = contacts.signs(event_set, events.signs, at_start=True)
        signs = jnp.where(event_set.enabled(events.active), signs, events.signs)
        presses = event_set.flags([event.is_contact for event in event_set.events])
        due = contacts.closing(signs) & presses & event_set.allowed(signs, events.active)
        events = replace(events, signs=signs, due=due.any())
    levels = Levels.at(scheme.system, q, v, t, params)
    consistent = on_constraints(scheme.system, q, v, t, params, extents, levels=levels)
    # An infinite Jacobian would make `near` true, since every level is below infinity.
    slopes = jnp.stack([jnp.abs(A).sum() for A in (levels.A_position, levels.A_velocity)])
    numbers = jnp.concatenate([q, v, levels.position, levels.velocity, slopes])
    status = jnp.where(consistent, Status.OK, Status.INCONSISTENT)
    is_finite = jnp.isfinite(extents).all() & times & jnp.isfinite(numbers).all()
    status = jnp.where(is_finite, status, Status.NONFINITE).astype(jnp.int32)
    if not event_set:
        return params, events, status, extents
    is_apart = event_set.contact.are_met(scheme.system, q, t, user_params, events.active, extents)
    status = jnp.where(is_apart, status, jnp.asarray(Status.INCONSISTENT, jnp.int32))
    status = jnp.where(status == Status.OK, of_contact, status)
    lawful = event_set.gaps.are_lawful(plain(params), q.dtype)
    status = jnp.where(lawful, status, jnp.asarray(Status.CONTACT_VALUE, jnp.int32))
    bad = (status == Status.OK) & jnp.isnan(events.values).any()
    status = jnp.where(bad, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), status)
    return params, events, status, extents


def _advance(
    scheme: Scheme, event_set: EventSet, state: _RolloutState, log: Array, t: Array, h: Array,
    params: Params, number: Array, extents: Float[Array, " n"], looks: Looks, *,
    checks_every_step: bool,
) -> tuple[_RolloutState, Array]:  # fmt: skip
    """The next state, or the same one forever after a failure, and the log of events.

    `number` is the number of the step in its segment.
    """
    events, running = state.events, state.status == Status.OK
    active_params = event_set.params(params, events.active)
    start = StepState(state.q, state.v, t)
    end, info = step(scheme, start, h, active_params, extents)
    corrections = state.corrections
    if info.correction:
        dynamics = scheme.system.dynamics
        speeds = dynamics.speeds(end.q, end.v, end.t, active_params)[: dynamics.mechanical]
        corrected = corrections.after(info.correction, speeds, h)
        # An event at the start of the step makes it void.
        corrections = jax.tree.map(partial(jnp.where, events.due), corrections, corrected)
    info = replace(info, correction=())
    (end, info, events), log = with_events(
        scheme, event_set, start, (end, info), running, events, log, h, params, number, extents,
        looks,
    )  # fmt: skip
    active_params, is_over = event_set.params(params, events.active), events.stopped_by >= 0
    moved = replace(
        state,
        q=end.q,
        v=end.v,
        rank=jnp.minimum(state.rank, info.rank),
        status=jnp.where(is_over, jnp.asarray(Status.STOPPED, jnp.int32), state.status),
        corrections=corrections,
        events=events,
    )
    if checks_every_step:
        position, velocity = residuals(scheme, moved.q, moved.v, end.t, active_params)
        moved = replace(
            moved,
            position_residual=jnp.maximum(state.position_residual, position),
            velocity_residual=jnp.maximum(state.velocity_residual, velocity),
        )

    def stays() -> _RolloutState:
        return replace(
            state,
            rank=jnp.where(running & info.computed, moved.rank, state.rank),
            status=jnp.where(running, info.status, state.status),
            t_failed=jnp.where(running, jax.lax.stop_gradient(t), state.t_failed),
            events=events,  # which stay by themselves
        )

    # Asked once per step and not number by number: native code skips `stays` where no lane needs
    # it.
    return jax.lax.cond(~(running & info.good), stays, lambda: moved), log
