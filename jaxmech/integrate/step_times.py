"""The times at which a step of a run ends: given ones, the samples of inputs, and jumps.

Jumps are found by samples of the functions of a system, at one state, for one member of a batch,
where the values are known. A jump at a save time becomes a time at which a step ends; of jumps and
short pulses elsewhere a `TimesWarning` says that steps may go over them.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.integrate.spans import NO_TIMES
from jaxmech.integrate.steps import AbstractSteps
from jaxmech.system import Params, Signal, System
from jaxmech.utils.arrays import AnyArray
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.checks import is_known
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import actual, cached_by_shapes, depends_on, outside_traces

_MEMBERS = 1024  # of a batch, for which samples are counted


def step_times(
    system: System, given_times: Float[AnyArray, " G"], ts: Float[Array, " T"], params: Params,
    saves: Any,
) -> Any:  # fmt: skip
    """The times at which a step ends, shape (K,): given ones and the knots of inputs.

    Knots outside of the run are left out where the values are known. Last are the times of
    controllers, by the `saves`, which are the ts where these are not known under `jit`.
    """
    parts: list[Any] = [given_times]
    signals = [x for x in Signal.all_in(params) if x.interpolation != "cubic"]
    if signals:
        knots = _knots(signals, ts)
        parts.append(knots[_inside(ts, knots)])
    if system.sampling is not None:
        times = system.sampling.times(saves, params, ts.dtype)
        times = np.asarray(times) if is_known(times) else jnp.asarray(times[_inside(ts, times)])
        parts.append(times.astype(ts.dtype))
    parts = [times for times in parts if times.size] or [given_times]
    if len(parts) == 1:
        return parts[0]
    # Known times of controllers stay known under `jit`.
    xp: Any = np if system.sampling is not None and is_known((saves, parts)) else jnp
    return xp.concatenate(parts)


@jit_of()
def _knots(signals: list[Signal], ts: Float[Array, " T"]) -> Float[Array, " K"]:
    """The times at which the inputs jump, or have a corner."""
    times = [jax.lax.stop_gradient(signal.ts) + signal.delay for signal in signals]
    return jnp.concatenate(times).astype(ts.dtype)


def _inside(ts: Any, knots: Any) -> np.ndarray:
    """The numbers of the knots that are in the run, of any member of a batch."""
    values = actual((ts, knots), _MEMBERS)
    if values is None or len(values[0]) == _MEMBERS:
        return np.arange(knots.size)
    saves, times = values
    low, high = saves.min(1, keepdims=True), saves.max(1, keepdims=True)
    return np.flatnonzero(((low <= times) & (times <= high)).any(0))


_SAMPLES = 512  # intervals of a run
_APART = 8.0  # distance from a save time, in units of round-off of the largest time
_ABRUPT = 0.2  # second difference, relative to the range
_RARE = 0.05  # largest part of the run in which changes are abrupt
_ROUNDING = 1e3  # range of numbers that vary, in units of round-off of their size
_JUMP = 32.0  # at a save time, relative to the range, in units of the root of round-off
_NAMED = 3  # times in a message


class TimesWarning(UserWarning):
    """The functions of a system change abruptly at a time at which no step ends."""


def ending_at_jumps(
    system: System, steps: AbstractSteps, q: Array, v: Array, ts: Array, params: Params
) -> AbstractSteps:
    """The policy with steps that end at the save times at which a function jumps.

    Warns of abrupt changes elsewhere. A policy with `times` or `max_step` is returned as it is.
    """
    if system.sampling is not None:
        system = replace(system, sampling=None)  # steps end where controllers change anything
    is_set = steps.max_step is not None or steps.end_at_saves or np.size(steps.times)
    if is_set or not _depends_on_time(system, q, v, _time(ts), params):
        return steps
    values = actual((q, v, ts, params), 1)
    if values is None or not len(values[2]):
        return steps
    run = jax.tree.map(lambda rows: rows[0], values)
    samples = outside_traces(_sampled, system, *run)
    if samples is None:
        return steps
    sides, sample_times, numbers = (np.asarray(x, float) for x in samples)
    saves, eps = run[2], float(np.finfo(ts.dtype).eps)
    low, high = (x.min(0) for x in (sides, numbers)), (x.max(0) for x in (sides, numbers))
    low, high = np.minimum(*low), np.maximum(*high)
    width, size = high - low, np.maximum(np.abs(low), np.abs(high))
    varies = width > _ROUNDING * eps * size  # neither constant nor NaN
    sides, numbers = (x[:, varies] / width[varies] for x in (sides, numbers))
    jumps = (np.abs(np.diff(sides.reshape(2, len(saves), -1), axis=0)[0]) > _JUMP * eps**0.5).any(1)
    times = saves[jumps].astype(float)
    knots = step_times(system, NO_TIMES, jnp.asarray(saves), run[3], saves)
    ends = np.concatenate([times, np.asarray(knots, float)])
    abrupt = _abrupt(sample_times, numbers, ends)
    if abrupt.size:
        named = ", ".join(f"{t:.4g}" for t in abrupt[:_NAMED])
        more = ", ..." if abrupt.size > _NAMED else ""
        warn_caller(_BETWEEN.format(named + more), TimesWarning)
    return replace(steps, times=tuple(times.tolist())) if times.size else steps


def step_ends(
    system: System, steps: AbstractSteps, q: Array, v: Array, ts: Array, params: Params, saves: Any
) -> tuple[Any, int]:
    """The times at which a step ends, and how many of them, at their end, are no save times."""
    if steps.end_at_saves and system.sampling is None:
        return ts, 0
    times = step_times(system, steps.step_times(q.dtype), ts, params, saves)
    if not times.size:
        return times, 0
    known = ts if system.sampling is None else saves  # saves are known under `jit`, too
    # A corner of a constraint moves velocities, for which a save is repeated from its other side.
    if not is_known((known, times)) or _constraints_move(system, q, v, _time(ts), params):
        return times, times.size
    is_save = np.isin(np.asarray(times), np.asarray(known, times.dtype))
    if is_save.all():
        return times, 0
    if system.sampling is None:
        return times, times.size
    return np.concatenate([times[is_save], times[~is_save]]), int((~is_save).sum())


@cached_by_shapes
def _constraints_move(system: System, q: Any, v: Any, t: Any, params: Params) -> bool:
    return depends_on(lambda t: _residuals(system, q, v, t, params), (t,))


@cached_by_shapes
def _depends_on_time(system: System, q: Any, v: Any, t: Any, params: Params) -> bool:
    return depends_on(lambda t: system.function_values(q, v, t, params), (t,))


def _time(ts: Any) -> Any:
    # Of the type of the times: XLA would compile a program to take one of them.
    return np.zeros((), jnp.result_type(ts))


@jit_of("system")
def _sampled(
    system: System, q: Array, v: Array, ts: Float[Array, " T"], params: Params
) -> tuple[Float[Array, "B N"], Float[Array, " S"], Float[Array, "S N"]]:
    """The numbers before and after each save time, and at evenly spaced times of the run."""
    # Beside the start, where a stiffness exerts a force.
    q, v = (x + jnp.linspace(0.31, 0.57, x.size, dtype=x.dtype) for x in (q, v))
    first, last = ts[0], ts[-1]
    apart = _APART * jnp.finfo(ts.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
    sample_times = first + (last - first) * jnp.linspace(0.0, 1.0, _SAMPLES + 1, dtype=ts.dtype)

    def numbers(t: Array) -> Array:
        def levels(t: Array) -> Array:
            return _residuals(system, q, v, t, params)

        speeds = _rate(levels)
        parts = [*system.function_values(q, v, t, params), levels(t), speeds(t), _rate(speeds)(t)]
        return jnp.concatenate([jnp.ravel(x).astype(ts.dtype) for x in parts])

    sides = jnp.concatenate([ts - apart, ts + apart])
    return jax.vmap(numbers)(sides), sample_times, jax.vmap(numbers)(sample_times)


def _residuals(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    rows = [c.residual(q, v, v, t, params) for c in system.constraints]
    return jnp.concatenate([jnp.zeros(0, q.dtype), *rows])


def _rate(fn: Any) -> Any:
    return lambda t: jax.jvp(fn, (t,), (jnp.ones_like(t),))[1]


def _abrupt(sample_times: np.ndarray, numbers: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The times of abrupt changes, except those near a time at which a step ends."""
    change = np.abs(numbers[2:] - 2 * numbers[1:-1] + numbers[:-2])
    is_abrupt = (change > _ABRUPT).any(1)
    if is_abrupt.mean() > _RARE:
        return np.zeros(0)
    times, spacing = sample_times[1:-1][is_abrupt], abs(sample_times[1] - sample_times[0])
    far = (np.abs(times[:, None] - ends) > 2 * spacing).all(1)
    times = times[far]
    return times[np.abs(np.diff(times, prepend=np.inf)) > 2 * spacing]


_BETWEEN = (
    "the functions of the system change abruptly with time near t = {} s, between two save times, "
    "and a step may go over that. Give the times of jumps, and the start and the end of pulses, as "
    "times at which a step ends, such as `FixedSteps(times=(1.0, 2.0))` or `Adaptive(times=...)`, "
    "or a longest step `max_step`."
)
