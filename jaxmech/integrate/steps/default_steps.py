"""The default number of steps between two saves."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate.error_estimate import STATES
from jaxmech.integrate.events import NO_EVENTS, Event, EventSet, event_set_of, with_gaps
from jaxmech.integrate.methods.runge_kutta import AbstractMethod
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.steps import AbstractSteps, FixedSteps
from jaxmech.integrate.steps.step_size import (
    MEMBERS,
    MOST_STEPS,
    UnknownValuesError,
    rounded_up,
    steps_needed,
    target_error,
    tried_steps,
)
from jaxmech.integrate.steps.step_times import ending_at_jumps, step_ends
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.system import Params, Subject, is_signal, thinned, with_params
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import as_numbers, is_known, require_finite, require_kind
from jaxmech.utils.jax_internals import Tracer
from jaxmech.utils.tracers import actual

_MOST_ENDS = 16  # times at which steps end in a trial with inputs
_MOST_SAMPLES = 32  # of an input in a trial without these times
_COARSE = 16.0  # targets from which on the error of a run calls for more steps
_MOST_GROWTH = 16.0


class StepWarning(UserWarning):
    """A step size could not be chosen from the motion, or is too coarse for it."""


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
    event_set = with_gaps(event_set_of(system, events, inactive), system, q0, ts, params)
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
        of_trials = replace(scheme, system=event_set.system(scheme.system), steps=steps)
        try:
            if values is None:
                raise UnknownValuesError
            per_save = _members_per_save(of_trials, event_set, *values)
        except UnknownValuesError:
            if throw:
                raise
            warn_caller(UNKNOWN_STEPS, StepWarning)
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


def as_times(ts: Any, dtype: Any) -> Array:
    """Convert to save times, or raise an error unless they are in order."""
    ts = as_numbers("ts", ts, half=True).astype(dtype)
    if ts.ndim != 1 or ts.size < 2:
        raise ValueError(
            f"Argument `ts` must have shape (T,) with T >= 2 save times, but has shape {ts.shape}."
        )
    if is_known(ts) and np.isfinite(ts).all():
        steps = np.diff(np.asarray(ts))
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise ValueError(
                "Argument `ts` must be strictly increasing or strictly decreasing, but is not; "
                "sort it and drop repeated times."
            )
    return ts


def _members_per_save(
    scheme: Scheme, event_set: EventSet, q: Any, v: Any, ts: np.ndarray, params: Params,
    times: np.ndarray,
) -> int:  # fmt: skip
    """Steps per save interval for the most demanding of up to `MEMBERS` members.

    All arguments have a leading axis of members.

    Raises:
        UnknownValuesError: if the system closes over tracers.
    """
    if not len(ts):  # an empty batch
        return 1
    step_count = members_need(scheme, q, v, ts, params, times, event_set)
    longest = _intervals(ts, times).max(1) / np.abs(ts[:, -1] - ts[:, 0])
    share = float(longest.max(initial=0.0, where=np.isfinite(longest)))
    # At a sample of a controller the motion has a kink, and its error is known from what is
    # between two of them.
    least = 1 if scheme.system.sampling is None else STATES - 1
    return max(rounded_up(share * step_count), least)


def refined(scheme: Scheme, event_set: EventSet, error: Any) -> FixedSteps | None:
    """More steps, where the error of a run calls for more than a trial without transitions did.

    None if there are enough of them, or the error is not known, as under `jax.jit`.
    """
    steps, errors = scheme.steps, actual(error, sys.maxsize) if event_set else None
    if errors is None or not isinstance(steps, FixedSteps):
        return None
    ratio = np.max(errors, initial=0.0, where=np.isfinite(errors))
    ratio /= target_error(scheme.method, np.asarray(errors).dtype)
    if ratio <= _COARSE:
        return None
    growth = min(ratio ** (1 / scheme.method.order), _MOST_GROWTH)
    return replace(steps, per_save=rounded_up(steps.count * growth))


def members_need(
    scheme: Scheme, q: Any, v: Any, ts: Any, params: Params, times: Any,
    event_set: EventSet = NO_EVENTS,
) -> int:  # fmt: skip
    """Equal steps from first to last time for the most demanding of up to `MEMBERS` members.

    All arguments have a leading axis of members.

    Raises:
        UnknownValuesError: if the system closes over tracers.
    """
    scheme = _with_open_gaps(scheme)
    if scheme.system.sampling is not None and times.shape[1] > _MOST_ENDS:
        return _controlled_need(scheme, q, v, ts, params, times, event_set)
    step_count = steps_needed(scheme, *_of_trials(q, v, ts, params, times), event_set)
    if step_count > MOST_STEPS:
        warn_caller(_TOO_MANY.format(step_count), StepWarning)
    step_count = min(step_count, MOST_STEPS)
    # A trial has no transitions: a body that is held, or sticks, would seem slow for good.
    free_params = event_set.released(params)
    if free_params is None:
        return step_count
    free_count = steps_needed(scheme, *_of_trials(q, v, ts, free_params, times), event_set)
    # A motion that the constraint keeps from going on may have no end.
    return max(step_count, free_count) if free_count <= MOST_STEPS else step_count


def _controlled_need(
    scheme: Scheme, q: Any, v: Any, ts: Any, params: Any, times: Any, event_set: EventSet
) -> int:
    """The steps of a run with many samples of controllers, by those of its first samples."""
    ordered = np.sort(np.clip(times, ts[:, :1], ts[:, -1:]), axis=1)
    apart = np.diff(ordered, axis=1, prepend=ts[:, :1]) > 0
    # The same number of them for all members, though the first times of some may coincide.
    last = np.minimum(apart.argmax(1) + _MOST_ENDS, ordered.shape[1] - 1)
    end = np.take_along_axis(ordered, last[:, None], axis=1)
    part = np.concatenate([ts[:, :1], end], axis=1)
    share = (part[:, 1] - part[:, 0]) / (ts[:, -1] - ts[:, 0])
    count = members_need(scheme, q, v, part, params, ordered[:, :_MOST_ENDS], event_set)
    return math.ceil(count / max(float(share.min()), 1e-12))


def members_error(
    scheme: Scheme, q: Any, v: Any, ts: Any, params: Any, times: Any, steps: int
) -> float:  # fmt: skip
    """The largest relative error of the members in so many equal steps, by a trial of them.

    The arguments and errors are those of `members_need`.
    """
    scheme = _with_open_gaps(scheme).with_one_step()
    trials = _of_trials(q, v, ts, params, times)
    return float(tried_steps(scheme, NO_EVENTS, *trials, steps).error.max())


def _with_open_gaps(scheme: Scheme) -> Scheme:
    # A trial has no transitions.
    system = scheme.system
    return replace(scheme, system=replace(system, unilateral=())) if system.unilateral else scheme


def _of_trials(
    q: Any, v: Any, ts: Any, params: Any, times: Any
) -> tuple[Any, Any, np.ndarray, Any, Any]:
    """The starts, first and last times, parameters and times of corners that trials have."""
    leaves = jax.tree.leaves(params, is_leaf=is_signal)
    if times.shape[1] > _MOST_ENDS and any(map(is_signal, leaves)):
        # Between its samples an input is a line, which asks for no shorter steps: its size is what
        # counts, and native code of so many ends would take long to compile.
        params, times = thinned(params, _MOST_SAMPLES, axis=1), times[:, :0]
    q, v, ts, params, times = jax.tree.map(_filled, (q, v, ts, params, times))
    ends = np.stack([ts[:, 0], ts[:, -1]], axis=1)
    return q, v, ends, params, times


def _filled(rows: Any) -> Any:
    # To one row or `MEMBERS` rows, so that few shapes are compiled.
    return rows if len(rows) == 1 else rows[np.minimum(np.arange(MEMBERS), len(rows) - 1)]


UNKNOWN_STEPS = (
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
