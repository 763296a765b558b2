"""The times at which a step of a run ends: given ones, and those of corners of the functions."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.times.corners import Corners, corners_at
from jaxmech.integrate.times.pulses import pulse_times
from jaxmech.system import Params, System
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import cached_by_shapes, generic, outside_traces
from jaxmech.utils.tracers import actual

MOST = 256  # times of corners in a run
_SAMPLES = 2048  # intervals of a run in each of which one zero is searched
_HALVINGS = 60
_MEMBERS = 1024  # of a batch, in which corners are counted


class TimesWarning(UserWarning):
    """A function has corners in time at which no step ends."""


@dataclass(frozen=True)
class _Chosen:
    """The corners at which a step ends."""

    affine: tuple[int, ...]  # of those that are affine in time
    others: tuple[tuple[int, int], ...]  # of the others, with the number of zeros of each


def step_times(
    system: System, given_times: Float[Array, " G"] | None, q: Any, v: Any, ts: Any, params: Params,
    max_step: Any = None, with_knots: bool = True,
) -> Float[Array, " K"] | None:  # fmt: skip
    """The times at which a step ends: given ones, corners and pulses; None if there are none.

    Corners at the knots of tables count only `with_knots`.

    A corner that is not affine in time, and a pulse, is searched where the values of the save times
    and the parameters are known; elsewhere a `TimesWarning` names the function, unless there are
    given times or a longest step.
    """
    # Only the shape and type of the state count, so it need not have a value.
    state: Any = np.zeros(q.shape, q.dtype)
    parts = [] if given_times is None else [given_times]
    corners = _corner_times_of(system, given_times, state, state, ts, params, max_step, with_knots)
    if corners is not None:
        parts.append(corners)
    times = jnp.concatenate(parts) if parts else None
    # Steps end at the samples of inputs in any case: what is there is no pulse.
    known = times if with_knots else jnp.concatenate([ts, *parts])
    pulses = pulse_times(system, state, state, ts, params, known)
    if pulses is None:
        sharp = [
            source.label
            for source in corners_at(system, state, state, ts, params)
            if source.is_sharp
        ]
        if sharp and given_times is None and max_step is None:
            warn_caller(_UNSEEN.format(" and ".join(sharp)), TimesWarning)
    if pulses is None or not pulses.size:
        return times
    around = jnp.asarray(pulses, ts.dtype)
    return around if times is None else jnp.concatenate([times, around])


def _corner_times_of(
    system: System, given_times: Float[Array, " G"] | None, q: Any, v: Any, ts: Any, params: Params,
    max_step: Any, with_knots: bool,
) -> Float[Array, " K"] | None:  # fmt: skip
    corners = corners_at(system, q, v, ts, params)
    if not any(source.has_some for source in corners):
        return None
    chosen, problems = _chosen(system, corners, q, v, ts, params, with_knots)
    for message in problems if given_times is None and max_step is None else ():
        warn_caller(message, TimesWarning)
    if not (chosen.affine or chosen.others):
        return None
    times: Float[Array, " K"] = _corner_times(system, chosen, q, v, ts, params)
    return times


@cached_by_shapes
def _distinct(system: System, q: Any, v: Any, ts: Any, params: Params) -> tuple[int, ...]:
    """Affine corners that are not at the same time as another one, for any parameters."""
    corners = corners_at(system, q, v, ts, params)
    rows = []
    for seed in (21, 22):
        times = outside_traces(_affine_times, system, q, v, *generic((ts, params), seed))
        if times is None:
            return tuple(range(sum(source.affine + source.knots for source in corners)))
        rows.append(np.asarray(times))
    _, first = np.unique(np.stack(rows), axis=1, return_index=True)
    return tuple(sorted(first.tolist()))


def _chosen(
    system: System, corners: list[Corners], q: Any, v: Any, ts: Any, params: Params,
    with_knots: bool,
) -> tuple[_Chosen, list[str]]:  # fmt: skip
    """The corners at which a step ends, in a known run those in it; and what was not found."""
    problems = [_HIDDEN.format(source.label) for source in corners if source.is_hidden]
    affine, curved = _distinct(system, q, v, ts, params), sum(source.others for source in corners)
    first_knot = sum(source.affine for source in corners)
    if not with_knots:
        affine = tuple(k for k in affine if k < first_knot)
    values = actual((ts, params), _MEMBERS)
    counted = None if values is None else outside_traces(_counts, system, q, v, *values)
    if counted is None:
        if curved:
            problems.append(_UNKNOWN.format(_names(corners)))
        return _Chosen(affine, ()), problems
    is_inside, zeros = (np.asarray(x) for x in counted)
    if len(is_inside) < _MEMBERS:
        affine = tuple(k for k in affine if is_inside[:, k].any())
    counts = zeros.max(0, initial=0)
    curved_corners = tuple((k, int(count)) for k, count in enumerate(counts) if count)
    # The knots of tables do not count: a recorded input has thousands.
    count = sum(counts) + sum(k < first_knot for k in affine)
    if count > MOST:
        names = _names(corners, all_of_them=True)
        return _Chosen((), ()), [*problems, _TOO_MANY.format(count, names)]
    return _Chosen(affine, curved_corners), problems


def _names(corners: list[Corners], all_of_them: bool = False) -> str:
    return " and ".join(source.label for source in corners if source.others or all_of_them)


@jit_of("system", "chosen")
def _corner_times(
    system: System, chosen: _Chosen, q: Any, v: Any, ts: Any, params: Params
) -> Float[Array, " K"]:
    corners = corners_at(system, q, v, ts, params)
    affine = _affine_zeros(corners, ts, params)[jnp.asarray(chosen.affine, int)]
    curved = [_zeros(partial(_other, corners, k), count, ts, params) for k, count in chosen.others]
    return jnp.concatenate([affine, *curved])


@jit_of("system")
def _affine_times(system: System, q: Any, v: Any, ts: Any, params: Params) -> Float[Array, " A"]:
    return _affine_zeros(corners_at(system, q, v, ts, params), ts, params)


@jit_of("system")
def _counts(
    system: System, q: Any, v: Any, ts: Any, params: Params
) -> tuple[Bool[Array, " M A"], Int[Array, " M G"]]:
    def count_in_run(ts: Array, params: Params) -> tuple[Array, Array]:
        corners = corners_at(system, q, v, ts, params)
        times = _affine_zeros(corners, ts, params)
        low, high = jnp.minimum(ts[0], ts[-1]), jnp.maximum(ts[0], ts[-1])
        values = jax.vmap(lambda t: _others(corners, t, params))(_sampled(ts))
        return (low <= times) & (times <= high), _passes(values).sum(0)

    counts: tuple[Array, Array] = jax.vmap(count_in_run)(ts, params)
    return counts


def _affine_zeros(corners: list[Corners], ts: Array, params: Params) -> Float[Array, " A"]:
    middle = (ts[0] + ts[-1]) / 2

    def numbers(t: Array) -> Array:
        return jnp.concatenate(
            [jnp.zeros(0, t.dtype), *(source.fn(t, params)[0] for source in corners)]
        )

    value, slope = jax.jvp(numbers, (middle,), (jnp.ones_like(middle),))
    changes = slope != 0
    safe = jnp.where(changes, slope, 1.0)
    zeros = middle - value / safe
    # Once more from there, where the number has no large part that cancels.
    remainder = jax.vmap(numbers)(zeros)
    zeros = zeros - jnp.diagonal(remainder) / safe
    zeros = jnp.where(changes & jnp.isfinite(zeros), zeros, jnp.inf)
    return jnp.concatenate([zeros, *_knot_times(corners, middle, params)])


def _knot_times(corners: list[Corners], middle: Array, params: Params) -> list[Array]:
    """The times at which tables are read at their knots, for each table."""

    def places(t: Array) -> Array:
        return jnp.concatenate(
            [jnp.zeros(0, t.dtype), *(source.fn(t, params).places for source in corners)]
        )

    knots = [rows for source in corners for rows in source.fn(middle, params).knots]
    value, slope = jax.jvp(places, (middle,), (jnp.ones_like(middle),))
    safe = jnp.where(slope != 0, slope, 1.0)
    times = []
    for k, rows in enumerate(knots):
        guess = middle + (rows - value[k]) / safe[k]
        exact = guess + (rows - jax.vmap(places)(guess)[:, k]) / safe[k]
        is_time = (slope[k] != 0) & jnp.isfinite(exact)
        times.append(jnp.where(is_time, exact, jnp.inf))
    return times


def _others(corners: list[Corners], t: Array, params: Params) -> Float[Array, " G"]:
    return jnp.concatenate(
        [jnp.zeros(0, t.dtype), *(source.fn(t, params)[1] for source in corners)]
    )


def _other(corners: list[Corners], k: int, t: Array, params: Params) -> Array:
    return _others(corners, t, params)[k]


def _signs(x: Array) -> Array:
    return jnp.where(x < 0, -1, 1)


def _sampled(ts: Array) -> Float[Array, " samples"]:
    # Both ends twice: a number that is zero there passes zero in an interval of no length.
    share = np.pad(np.linspace(0.0, 1.0, _SAMPLES + 1), 1, mode="edge")
    return ts[0] + (ts[-1] - ts[0]) * jnp.asarray(share, ts.dtype)


def _passes(x: Float[Array, " samples ..."]) -> Bool[Array, " intervals ..."]:
    """The intervals in which a number passes zero; those of no length if it is zero there."""
    changes, is_zero = _signs(x[1:]) != _signs(x[:-1]), x[1:] == 0
    return changes.at[0].set(is_zero[0]).at[-1].set(is_zero[-1])


def _zeros(number: Any, count: int, ts: Array, params: Params) -> Float[Array, " count"]:
    places, fixed = _sampled(ts), jax.lax.stop_gradient(params)
    values = jax.vmap(lambda t: number(t, fixed))(places)
    last = len(places) - 1
    (intervals,) = jnp.nonzero(_passes(values), size=count, fill_value=last)
    is_there, intervals = intervals < last, jnp.minimum(intervals, last - 1)

    def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        is_low = jax.vmap(lambda t: _signs(number(t, fixed)))(middle) == _signs(values[intervals])
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    ends = jax.lax.stop_gradient((places[intervals], places[intervals + 1]))
    _, roots = jax.lax.stop_gradient(jax.lax.fori_loop(0, _HALVINGS, halved, ends))

    def moved(t: Array) -> Array:
        """The zero with its derivative by the parameters."""
        slope = jax.jvp(lambda t: number(t, fixed), (t,), (jnp.ones_like(t),))[1]
        slope = jax.lax.stop_gradient(slope)
        value = number(t, params)
        change = value - jax.lax.stop_gradient(value)
        return t - jnp.where(slope != 0, change / jnp.where(slope != 0, slope, 1.0), 0.0)

    return jnp.where(is_there, jax.vmap(moved)(roots), jnp.inf)


_REMEDY = (
    "Give those that matter as times at which a step ends, such as "
    "`FixedSteps(times=(1.0, 2.0))` or `Adaptive(times=...)`, or a longest step `max_step`."
)
_HIDDEN = "{} may have corners in time inside of a loop, where they are not found. " + _REMEDY
_UNKNOWN = (
    "{} has corners at times that have to be searched, but under `jax.jit` the values of the "
    "parameters are not known; steps go over them. " + _REMEDY
)
_UNSEEN = (
    "{} may have short pulses or steep changes in time, which are sought by samples of the run, "
    "but under `jax.jit` the values of the parameters are not known; a step may go over them. "
) + _REMEDY
_TOO_MANY = "the run has {:,} corners in time, of {}; steps go over them. " + _REMEDY
