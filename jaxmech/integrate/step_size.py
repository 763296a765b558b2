"""The number of steps of a run between two saves, by default from trials with step doubling.

Each step of a trial is repeated as two half steps; their difference, by Richardson extrapolation,
is the error of the step (Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I,
II.4). The errors of a trial are added up relative to the motion, as in
`Solution.integration_error`; the order of the method tells how many steps reduce them to the
target.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import batched_closure, unchecked, unoptimized, why_not
from jaxmech.integrate.error_estimate import STATES, StepErrors, largest, rest_motion, spread
from jaxmech.integrate.events.event import Event
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.turns import step_turns
from jaxmech.integrate.methods.runge_kutta import AbstractMethod
from jaxmech.integrate.run_params import in_run, plain, with_outputs
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import interval_at, turning, within
from jaxmech.integrate.step import StepState, step
from jaxmech.integrate.steps import AbstractSteps, FixedSteps, ending_at_jumps, step_ends
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.system import Drive, Params, Signal, Subject, extents_at, with_params
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import as_times, require_finite, require_kind
from jaxmech.utils.jax_internals import Tracer
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import actual, outside_traces

MEMBERS = 16  # number of members of a batch in a trial
_MOST_STEPS = 1_000_000  # that are chosen for a run
_TRIED = 20_000  # steps of a trial
_FIRST = 16  # steps from the first to the last time in the first trial
_TRIALS = 10
_MOVED = 1e-3  # of the displacements by the projection: motions without freedom have no other error
_REFINED = 4.0  # factor after a failed trial
_HOPELESS = 10_000  # steps of a trial that fails at the same time as the one before for good
_RESOLVED = 1e-3  # error below which the motion is resolved, so that the order of the method shows
_MOST_ENDS = 16  # times at which steps end in a trial with inputs
_MOST_SAMPLES = 32  # of an input in a trial without these times
_COARSE = 16.0  # targets from which on the error of a run calls for more steps
_MOST_GROWTH = 16.0


class StepWarning(UserWarning):
    """A step size could not be chosen from the motion, or is too coarse for it."""


class UnknownValuesError(Exception):
    """A trial needs values that are not known under `jax.jit`."""


def choose_steps(
    system: Subject,
    q0: Any,
    v0: Any,
    ts: Any,
    params: Params = None,
    *,
    method: AbstractMethod | None = None,
    steps: FixedSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    events: Event | Sequence[Event] = (),
    inactive: str | Sequence[str] = (),
) -> FixedSteps:
    """The fixed steps that `simulate` would choose from the motion, for its argument `steps`.

    Use it for functions under `jax.jit`, where a step size cannot be chosen because values are
    unknown. The arguments are those of `simulate` for one trajectory; for several trajectories that
    share a step size, take the result with the largest `per_save`.

    The target is a relative error over the run of 1e-6 (1e-4 for methods below order 4, and at
    least 1000 eps), as in `Solution.integration_error`. The step size is found by a trial of up to
    20,000 steps, each repeated as two half steps. Trials have no transitions of events, so that
    `simulate` takes more steps where an impact turns out to need them; constraints that an event
    may switch off are on in one trial and off in another.

    Raises:
        ValueError: if the values of the arguments are not known, or are invalid as in `simulate`.
        TypeError: if a policy is of the wrong kind; `Adaptive` has no number of steps.
    """
    system, params = with_params(system, params)
    scheme = Scheme.of(system, method, steps, projection, formulation)
    require_kind("steps", scheme.steps, FixedSteps, "FixedSteps()")
    assert isinstance(scheme.steps, FixedSteps)
    q0, v0, _, params = system.arguments(q0, v0, 0.0, params, ("q0", "v0"))
    ts = as_times(ts, q0.dtype)
    require_finite(q0=q0, v0=v0, ts=ts, params=params)
    event_set = EventSet.of(system, events, inactive).with_gaps(system, q0, ts, params)
    scheme = replace(scheme, steps=replace(scheme.steps, per_save=None))
    try:
        chosen, _, _ = chosen_steps(scheme, q0, v0, ts, params, event_set, ts, throw=True)
        assert isinstance(chosen, FixedSteps)
        return chosen
    except UnknownValuesError:
        raise ValueError(
            "Argument `q0` and the others must have known values, but under `jax.jit` they have "
            "none; call `analysis.choose_steps` outside of it."
        ) from None


def chosen_steps(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Params, event_set: EventSet,
    saves: Any, *, throw: bool = False,
) -> tuple[AbstractSteps, Any, int]:  # fmt: skip
    """The steps of a run, the times at which they end, and how many of these are no save times.

    Fixed steps have a number, which is chosen from the motion if it is not set. Where values are
    unknown it is one, with a warning, or an `UnknownValuesError` if `throw`. The `saves` are the
    ts, as known numbers where they are known.
    """
    steps = ending_at_jumps(scheme.system, scheme.steps, q0, v0, ts, params)
    times, inserted = step_ends(scheme.system, steps, q0, v0, ts, params, saves)
    if not isinstance(steps, FixedSteps):
        return steps, times, inserted
    ends = jnp.asarray(times)
    least, per_save = _least(steps.max_step, ts, ends), steps.per_save
    if per_save is None:
        switched = event_set.params(params, event_set.active())
        values = actual((q0, v0, ts, switched, ends), MEMBERS)
        of_trials = replace(scheme, steps=steps)
        try:
            if values is None:
                raise UnknownValuesError
            saved, ended = values[2], values[4]
            per_save = 1
            if len(saved):  # no empty batch
                count = members_need(of_trials, values, event_set)
                longest = _intervals(saved, ended).max(1) / np.abs(saved[:, -1] - saved[:, 0])
                share = float(longest.max(initial=0.0, where=np.isfinite(longest)))
                # At a sample of a controller the motion has a kink, and its error is known from
                # what is between two of them.
                fewest = 1 if of_trials.system.sampling is None else STATES - 1
                per_save = max(rounded_up(share * count), fewest)
        except UnknownValuesError:
            if throw:
                raise
            warn_caller(_UNKNOWN, StepWarning)
            per_save = 1
    steps = replace(steps, per_save=max(per_save, least), max_step=None)
    return steps, times, inserted


def _least(max_step: float | None, ts: Any, times: Array) -> int:
    """The fewest steps per save of which none is longer."""
    if max_step is None:
        return 1
    values = actual((ts, times), MEMBERS)
    if values is None or isinstance(max_step, Tracer):
        raise ValueError(
            "Argument `max_step` must go with known save times, but under `jax.jit` their values "
            "are not known; give `per_save` instead, or use `Adaptive(max_step=...)`."
        )
    longest = _intervals(*values).max(initial=0.0)
    return max(1, math.ceil(float(longest) / float(max_step) * (1 - 1e-6)))


def _intervals(ts: np.ndarray, times: np.ndarray) -> np.ndarray:
    low, high = ts.min(1, keepdims=True), ts.max(1, keepdims=True)
    ends = np.concatenate([ts, np.clip(times, low, high)], axis=1)
    return np.asarray(np.diff(np.sort(ends, axis=1)))


def resolved(scheme: Scheme, q0: Any, v0: Any, ts: Any, params: Params) -> Scheme:
    """The scheme with the number of fixed steps that `simulate` would use."""
    if not isinstance(scheme.steps, FixedSteps):
        return scheme
    q0, v0, _, params = scheme.system.arguments(q0, v0, 0.0, params, ("q0", "v0"))
    ts = as_times(ts, q0.dtype)
    return replace(scheme, steps=chosen_steps(scheme, q0, v0, ts, params, NO_EVENTS, ts)[0])


def refined(
    scheme: Scheme, event_set: EventSet, error: Any, resolution: Any
) -> FixedSteps | None:  # fmt: skip
    """More steps, where the error of a run calls for more than a trial without transitions did.

    None if there are enough of them, or the error is not known, as under `jax.jit`.
    """
    steps = scheme.steps
    values = actual((error, resolution), sys.maxsize) if event_set else None
    if values is None or not isinstance(steps, FixedSteps):
        return None
    errors, hidden = values  # round-off calls for no more steps
    ratio = np.max(errors, initial=0.0, where=np.isfinite(errors) & (errors > hidden))
    ratio /= scheme.method.target_error(np.asarray(errors).dtype)
    if ratio <= _COARSE:
        return None
    growth = min(ratio ** (1 / scheme.method.order), _MOST_GROWTH)
    return replace(steps, per_save=rounded_up(steps.count * growth))


# q, v, save times, parameters and times at which a step ends, with a leading axis of members.
Members = tuple[Any, Any, Any, Params, Any]


def members_need(scheme: Scheme, members: Members, event_set: EventSet = NO_EVENTS) -> int:
    """Equal steps from first to last time for the most demanding of up to `MEMBERS` members.

    Raises:
        UnknownValuesError: if the system closes over tracers.
    """
    q, v, ts, params, times = members
    if scheme.system.sampling is not None and times.shape[1] > _MOST_ENDS:
        # Of a run with many samples of controllers the first ones tell.
        ordered = np.sort(np.clip(times, ts[:, :1], ts[:, -1:]), axis=1)
        apart = np.diff(ordered, axis=1, prepend=ts[:, :1]) > 0
        # The same number of them for all members, though the first times of some may coincide.
        last = np.minimum(apart.argmax(1) + _MOST_ENDS, ordered.shape[1] - 1)
        end = np.take_along_axis(ordered, last[:, None], axis=1)
        part = np.concatenate([ts[:, :1], end], axis=1)
        share = (part[:, 1] - part[:, 0]) / (ts[:, -1] - ts[:, 0])
        count = members_need(scheme, (q, v, part, params, ordered[:, :_MOST_ENDS]), event_set)
        return math.ceil(count / max(float(share.min()), 1e-12))
    step_count = steps_needed(scheme, _of_trials(members), event_set)
    if step_count > _MOST_STEPS:
        warn_caller(_TOO_MANY.format(step_count), StepWarning)
    step_count = min(step_count, _MOST_STEPS)
    # A trial has no transitions: a body that is held, or sticks, would seem slow for good.
    free_params = event_set.released(params)
    if free_params is None:
        return step_count
    free_count = steps_needed(scheme, _of_trials((q, v, ts, free_params, times)), event_set)
    # A motion that the constraint keeps from going on may have no end.
    return max(step_count, free_count) if free_count <= _MOST_STEPS else step_count


def members_error(scheme: Scheme, members: Members, steps: int) -> float:
    """The largest relative error of the members in so many equal steps, by a trial of them."""
    return float(_tried_steps(scheme, NO_EVENTS, _of_trials(members), steps).error.max())


def _of_trials(members: Members) -> Members:
    """The members of trials: to first and last times, with the corners that trials have."""
    q, v, ts, params, times = members
    if times.shape[1] > _MOST_ENDS and Signal.all_in(params):
        # Between its samples an input is a line, which asks for no shorter steps: its size is what
        # counts, and native code of so many ends would take long to compile.
        params = Signal.mapped(lambda signal: signal.thinned(_MOST_SAMPLES, axis=1), params)
        times = times[:, :0]
    # One row or `MEMBERS` rows, so that few shapes are compiled.
    rows = np.minimum(np.arange(MEMBERS if len(q) > 1 else 1), len(q) - 1)
    ends = np.stack([ts[:, 0], ts[:, -1]], axis=1)
    filled: Members = jax.tree.map(lambda x: x[rows], (q, v, ends, params, times))
    return filled


def steps_needed(scheme: Scheme, members: Members, event_set: EventSet = NO_EVENTS) -> int:
    """The number of equal steps from ts[:, 0] to ts[:, 1] with which all errors meet the target.

    The functions of events do not turn more than once in a step.

    Raises:
        UnknownValuesError: if the system closes over tracers.
    """
    q, order = members[0], scheme.method.order
    target = scheme.method.target_error(q.dtype)
    steps, before, result, is_settled = _FIRST, None, np.zeros(len(q)), np.zeros(len(q), bool)
    foreseen = np.full(len(q), float(_FIRST))  # the steps needed according to the trial before
    for _ in range(_TRIALS):
        trial = _tried_steps(scheme, event_set, members, steps)
        is_estimated = np.isfinite(trial.error)
        # Events cannot hide in the steps, or there are too many steps already.
        is_fine = (trial.turns < 2) | (steps > _HOPELESS)
        # The error of a whole run, which round-off may hide, falls with the order of the method.
        ratio = (np.maximum(trial.error, trial.resolution) / target) ** (1 / order)
        near = trial.good & (ratio <= 2.0) & is_fine
        if before is None:
            # Between the samples of a first trial events may hide.
            least = np.full(len(q), float(steps) if event_set else 1.0)
        else:
            # A trial that only covers the first part of a run does not revoke the one before. If
            # there were too few steps before, as many as here.
            was_fine = before.good & ((before.turns < 2) | (before.steps > _HOPELESS))
            overcome = np.where(~was_fine & trial.good, steps, 1.0)
            least = np.where(was_fine & np.isfinite(before.error), before.steps, overcome)
            # A resolved motion whose error does not fall with the order of the method is not
            # smooth; more trials would not help. Nor would they if both failed at the same time.
            resolved = is_estimated & (np.maximum(trial.error, before.error) < _RESOLVED)
            rough = resolved & (trial.error > before.error / (steps / before.steps) ** 1.5)
            shift = abs(trial.made_steps / steps - before.made_steps / before.steps) * before.steps
            ended = ~trial.good & ~before.good & (shift <= 2.0) & (steps > _HOPELESS)
            ended &= (trial.error < _RESOLVED) | (trial.made_steps == 0)
            near |= (rough & trial.good & is_fine) | ended
        step_counts = np.maximum(np.where(is_estimated, steps * ratio, 1.0), least)
        # Errors that vanish in round-off, as they do early in float32, tell less than the larger
        # ones of longer steps.
        is_blind = trial.good & (trial.resolution > np.maximum(trial.error, target))
        step_counts = np.where(is_blind, np.maximum(foreseen, least), step_counts)
        # Of the first trial that settles a member: the errors of much shorter steps, which other
        # members need, are round-off.
        result = np.where(is_settled, result, step_counts)
        is_settled |= near | is_blind
        if is_settled.all() or steps >= _MOST_STEPS:
            break
        # An unknown error only means that more steps are needed.
        growth = np.where(trial.good, np.where(is_estimated, ratio, np.inf), _REFINED)
        growth = np.where(is_fine, growth, np.maximum(growth, _REFINED))
        growth = np.clip(growth, 2.0, 8.0)[~is_settled].max()
        steps, before, foreseen = int(np.ceil(steps * growth)), trial, step_counts
    return int(np.ceil(min(result.max(), 1e15)))


class _Trial(NamedTuple):
    """The result of a trial, of each member (M,)."""

    steps: int  # from the first to the last time
    error: np.ndarray  # relative error of the whole run, infinite where it is unknown
    resolution: np.ndarray  # largest relative error of the whole run that round-off may hide
    made_steps: np.ndarray
    good: np.ndarray  # whether no step failed
    turns: np.ndarray  # how often the function of an event turned in a step, at most


def _tried_steps(scheme: Scheme, event_set: EventSet, members: Members, steps: int) -> _Trial:
    """The errors of the first of so many equal steps, by step doubling; as in `steps_needed`."""
    # A trial is the same for all policies of the length of steps.
    scheme = scheme.with_one_step()
    # Compiled even under `jax.disable_jit()`, by which users step through their functions.
    # It runs once, and optimizing its code takes far longer than the trial. A NaN that it hides
    # only leads to another number of steps: the run itself reports it.
    with jax.disable_jit(False), unoptimized(), unchecked():
        results = outside_traces(
            _trial, scheme, event_set, members, np.asarray(steps), np.asarray(min(steps, _TRIED))
        )
    if results is None:
        raise UnknownValuesError
    error, hidden, made_steps, good, turns = (np.asarray(x) for x in results)
    error = np.where(np.isnan(error), np.inf, error)
    # What the first steps have lost, extended to the whole run.
    scale = steps / np.maximum(made_steps, 1)
    error = np.where((made_steps == 0) & ~good, np.inf, error * scale)
    return _Trial(steps, error, hidden * scale, made_steps, good, turns)


class _TrialState(eqx.Module):
    q: Array
    v: Array
    memory: Array  # of controllers
    errors: StepErrors
    turns: Array  # of the function of an event in a step, at most
    made_steps: Array
    good: Array


@jit_of("scheme", "event_set", is_frame=True)
def _trial(
    scheme: Scheme, event_set: EventSet, members: Members, steps: Array, tried: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The error of the first steps, what round-off hides, their number, and whether all succeeded.

    Last, how often a function of an event turned in one of them. Each has a value for every
    member (M,).
    """
    first_member = jax.tree.map(lambda x: x[0], members)
    first_q, first_v, first, first_params, first_times = first_member
    # A trial has no transitions.
    system = event_set.system(in_run(scheme.system) if first_times.size else scheme.system)
    system = replace(system, unilateral=()) if system.unilateral else system
    scheme = replace(scheme, system=system)
    at_start = interval_at(first_times, first[0], first[0], first[1])
    memory = scheme.system.memory_at(first, plain(first_params))
    first_params = with_outputs(scheme.system, within(at_start, first_params), memory)
    scheme = scheme.at(first_q, first_v, first[0], first_params)
    system, dynamics = scheme.system, scheme.system.dynamics

    def try_member(
        q: Array, v: Array, ts: Array, params: Any, times: Array, tried: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        # About as many even steps as wanted; each of the parts between the times, at which a step
        # ends, is rounded up, and round-off may add another step.
        t_first, t_last = ts
        sign = jnp.sign(t_last - t_first)
        inner_times = sign * jnp.sort(jnp.clip(sign * times, sign * t_first, sign * t_last))
        begins = jnp.concatenate([t_first[None], inner_times])
        lengths = jnp.concatenate([inner_times, t_last[None]]) - begins
        counts = jnp.ceil(jnp.abs(lengths / (t_last - t_first)) * steps).astype(int)
        intervals = interval_at(times, begins + lengths / 2, t_first, t_last, begins=begins)
        intervals = turning(intervals, counts > 0)
        sizes, numbers = lengths / jnp.maximum(counts, 1), jnp.cumsum(counts) - counts
        total, more = counts.sum(), 2 * (len(begins) - 1)
        memory = system.memory_at(ts, plain(params))
        start_params = with_outputs(system, within(at_start, params), memory)
        has_rates: Any = None  # of the functions of events: fixed steps know no accelerations
        if event_set:
            has_rates = event_set.flags(event_set.of_positions(q, v, ts[0], start_params))

        def moved_by(k: Array, walk: _TrialState) -> _TrialState:
            """The state after a step, or before one that fails."""
            # The last part that begins at the step has its steps; those before it have none.
            is_part = jnp.arange(len(begins)) == (numbers <= k).sum() - 1

            def entry(rows: Array) -> Array:
                return jnp.where(is_part, rows, jnp.zeros_like(rows)).sum().astype(rows.dtype)

            number, h = entry(numbers), entry(sizes)
            interval = turning(jax.tree.map(entry, intervals), k == number)
            t = entry(begins) + (k - number) * h
            step_params = within(interval, params)
            memory, step_params = scheme.sampled(
                walk.memory, walk.q, walk.v, t, step_params, interval
            )
            q, v, _ = scheme.after_kink(walk.q, walk.v, t, step_params, interval)
            new_q, new_v, (in_q, in_v), went_well = _doubled(scheme, q, v, t, h, step_params)
            speeds = dynamics.speeds(new_q, new_v, t + h, step_params)
            turns = walk.turns
            if event_set:
                of_each, _ = step_turns(
                    event_set, scheme, (q, v), (new_q, new_v), t, h, step_params,
                    h / (ts[1] - ts[0]), has_rates=has_rates,
                )  # fmt: skip
                turns = jnp.maximum(turns, of_each.max())
            moved = _TrialState(
                q=new_q,
                v=new_v,
                memory=memory,
                errors=walk.errors.after(
                    new_q, speeds, in_q, in_v, _rounding(new_q, dynamics.n_states)[0]
                ),
                turns=turns,
                made_steps=walk.made_steps + 1,
                good=went_well,
            )
            return jax.lax.cond(went_well, lambda: moved, lambda: replace(walk, good=went_well))

        def step_or_rest(k: Array, walk: _TrialState) -> _TrialState:
            goes_on = walk.good & (k < tried + more) & (k < total)
            return jax.lax.cond(goes_on, lambda: moved_by(k, walk), lambda: walk)

        errors = StepErrors.none(q, dynamics.speeds(q, v, ts[0], start_params))
        none, made = jnp.zeros((), jnp.int32), jnp.zeros((), int)
        start = _TrialState(q, v, memory, errors, none, made, jnp.asarray(True))
        # Native code compiles a loop of known length in half the time, and skips the steps in which
        # all lanes rest.
        count = more + (_TRIED if why_not() is None else tried)
        end = jax.lax.fori_loop(0, count, step_or_rest, start)
        duration = (ts[1] - ts[0]) * end.made_steps / steps
        rest = rest_motion(system, extents_at(system, q, v, ts[0], start_params))
        error = end.errors.relative(duration, rest, dynamics.n_states)
        hidden = end.errors.resolution(rest, dynamics.n_states)
        return error, hidden, end.made_steps, end.good, end.turns

    alone = batched_closure(try_member, *first_member, tried)
    return jax.vmap(lambda *member: alone(*member, tried))(*members)


def _doubled(
    scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Any
) -> tuple[Array, Array, list[Array], Array]:
    """q and v after two half steps, the errors of one whole step, and whether all succeeded.

    The errors are those of q and of its rate. The former includes a part of the displacement by the
    projection, where there is a drive.
    """

    def part(k: Array, carry: Any) -> Any:  # a loop, so that the step is compiled once
        whole_step, state, moves, good = carry
        end, info = step(scheme, state, jnp.where(k == 0, h, h / 2), params)
        keep = partial(jax.tree.map, partial(jnp.where, k == 0))
        # Half steps agree with the whole one along constraints that move a system on their own.
        if info.correction:
            moves = keep(jnp.abs(jnp.stack(info.correction)).sum(0), moves)
        return keep(end, whole_step), keep(state, end), moves, good & info.good

    begin = StepState(q, v, t)
    start = begin, begin, jnp.zeros_like(q), jnp.asarray(True)
    whole_step, halves, moves, good = jax.lax.fori_loop(0, 3, part, start)
    # An error E of the whole step becomes 2^-p E in two halves, so their difference is (1 - 2^-p)
    # E.
    factor = 1 / (1 - 0.5**scheme.method.order)

    def error(whole_step: Array, halves: Array) -> Array:
        size = jnp.abs(whole_step - halves) * factor
        least = _rounding(halves, scheme.system.dynamics.n_states)
        return jnp.where(size > spread(least, size.size), size, 0.0)

    rates = [scheme.system.dynamics.speeds(x.q, x.v, t + h, params) for x in (whole_step, halves)]
    share = 1.0 if scheme.drive == Drive.VELOCITIES else _MOVED
    finite = jnp.isfinite(halves.q.sum() + halves.v.sum())
    errors = [error(whole_step.q, halves.q) + share * moves, error(*rates)]
    return halves.q, halves.v, errors, good & finite


def _rounding(x: Array, states: int) -> Array:
    # The difference of two results (n,) that counts as round-off, as by `largest`.
    return 16 * jnp.finfo(x.dtype).eps * largest(x, states)


def rounded_up(number: float) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, ...: few different ones, with many divisors."""
    power = 1
    while power < number:
        if power >= 2 and number <= power * 3 // 2:
            return power * 3 // 2
        power *= 2
    return power


_UNKNOWN = (
    "no step size could be chosen, because under `jax.jit` the values of the initial state and the "
    "parameters are not known; one step per save interval is made. Give "
    "`steps=FixedSteps(per_save=...)`; `jaxmech.analysis.choose_steps` finds the number outside of "
    "`jax.jit`."
)
_TOO_MANY = (
    "a relative error of 1e-6 would need {:,} steps, more than the limit of 1,000,000 on the "
    "default: the system is stiff, or not smooth. Look at `integration_error`, and set the "
    "number with `steps=FixedSteps(per_save=...)` (`steps.per_save`)."
)
