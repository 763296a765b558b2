"""Spans of time between the times at which steps end, and functions of a system within one.

A function such as `where(t < 1, 0, 1)` is smooth on either side of t = 1, but a step that ends
there evaluates it at t = 1 as well. Within a span it is evaluated at times on one side only: a
time at an end of the span is moved inside, by a few units of round-off.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.run_params import with_run
from jaxmech.system import Params
from jaxmech.utils.arrays import AnyArray, HostArray

KEPT_GRIDS = 4  # of known times
COMPARED = 256  # times that are compared one by one; more are searched
_APART = 8.0  # distance from the ends of a span, in units of round-off of the largest time
NO_TIMES: Any = np.zeros(0)  # at which a step ends


class StepInterval(eqx.Module):
    """The span of time in which a step lies, or those of several steps."""

    low: Float[Array, " *S"]  # its earliest time
    high: Float[Array, " *S"]  # its latest time
    # Whether the step begins where another one had to end, so that the motion may turn.
    turns: Bool[Array, " *S"]


AnyInterval = StepInterval | None  # none where no step has to end at a given time


def turning(interval: AnyInterval, condition: Array | HostArray) -> AnyInterval:
    """The same span; the motion may turn only under a condition."""
    return interval and replace(interval, turns=interval.turns & condition)


def within(interval: AnyInterval, params: Params) -> Params:
    """The parameters for steps within an interval."""
    return with_run(params, low=interval.low, high=interval.high) if interval else params


def interval_at(
    times: Float[AnyArray, " K"], instants: Float[Array, " *S"], first: Array, last: Array,
    ends: Float[AnyArray, " E"] = NO_TIMES, begins: Float[Array, " *S"] | None = None,
) -> AnyInterval:  # fmt: skip
    """The intervals of steps around some times of a run from `first` to `last`.

    A time at an end of a span belongs to the one that follows in the run; the run ends before the
    last time. The steps begin at `begins`, by default at the instants. `ends` are those of
    `sorted_ends`, for calls in a loop.
    """
    if not times.size:
        return None
    times, instants, first, last = jax.lax.stop_gradient((times, instants, first, last))
    sign = jnp.sign(last - first)
    positions, end = sign * instants[..., None], sign * last
    if times.size > COMPARED:
        ends = ends if ends.size else sorted_ends(times, first, last)
        # A batch with a recorded input for each trajectory searches in times of its own, for which
        # native code has no loop.
        method = "sort" if instants.ndim else "scan"
        before = jnp.searchsorted(ends, positions[..., 0], side="right", method=method)
        before = jnp.minimum(before, jnp.searchsorted(ends, end, side="left"))
        begin, finish = ends[before - 1], ends[before]
    else:
        ends = sign * times.reshape(*[1] * instants.ndim, -1)
        is_before = (ends <= positions) & (ends < end)
        begin = jnp.max(jnp.where(is_before, ends, -jnp.inf), axis=-1)
        finish = jnp.min(jnp.where(is_before, jnp.inf, ends), axis=-1)
    begins = instants if begins is None else jax.lax.stop_gradient(begins)
    low, high = _within_ends(begin, finish, sign, (first, last), jnp)
    return StepInterval(low, high, sign * begin == begins)


def _within_ends(begin: Any, finish: Any, sign: Any, run: tuple[Any, Any], xp: Any) -> Any:
    """The earliest and the latest time inside of two ends in the order of a run."""
    largest = xp.maximum(xp.abs(run[0]), xp.abs(run[1]))
    apart = _APART * np.finfo(begin.dtype).eps * largest
    start, stop = sign * (begin + apart), sign * (finish - apart)
    return xp.minimum(start, stop), xp.maximum(start, stop)


def sorted_ends(times: Float[AnyArray, " K"], first: Array, last: Array) -> Float[Array, " E"]:
    """Many times in the order of a run, between minus and plus infinity; nothing for few times."""
    if times.size <= COMPARED:
        return jnp.zeros(0, times.dtype)
    ordered = jnp.sort(jnp.sign(last - first) * jax.lax.stop_gradient(times))
    return jnp.pad(ordered, 1, constant_values=(-jnp.inf, jnp.inf))


def intervals_of(ts: Float[Array, " N"], times: "StepInterval | Array | HostArray") -> AnyInterval:
    """The intervals between save times, among which are the times at which a step ends.

    They may be known instead of these times.
    """
    if isinstance(times, StepInterval):
        return times
    return interval_at(times, (ts[:-1] + ts[1:]) / 2, ts[0], ts[-1], begins=ts[:-1])


class StepGrid(eqx.Module):
    """The save times of a run and the times at which a step ends, in their order.

    A time that is no time of the run takes the place of the first or the last one, with an interval
    of no length.
    """

    ts: Float[AnyArray, " N"]  # T + K of them
    rows: Any  # indices of the saves (T,); none if all times are saves
    intervals: AnyInterval = None  # between its times, where they are known before the run

    @staticmethod
    def known(ts: Any, times: Any, inserted: int) -> "StepGrid":
        """The grid of known times, of which the last ones are no saves, without a search in a run.

        XLA would sort many times in every run, and where they are constants while it compiles.
        """
        ts, times = np.asarray(ts), np.asarray(times)
        return _known_grid(ts.tobytes(), times.tobytes(), ts.dtype, inserted)

    @staticmethod
    def of(ts: Float[Array, " T"], times: Float[AnyArray, " K"]) -> "StepGrid":
        """Merge save times with times at which a step ends."""
        return StepGrid(*_merged(ts, times, jnp))

    @property
    def at_saves(self) -> AnyInterval:
        """The interval that follows each save, where they are known before the run."""
        intervals = jnp.minimum(self.rows, len(self.ts) - 2)
        following: AnyInterval = jax.tree.map(lambda x: x[intervals], self.intervals)
        return following


NO_GRID = StepGrid(NO_TIMES, np.zeros(0, np.int32))  # of a run whose steps end at saves alone


def _merged(ts: Any, times: Any, xp: Any) -> tuple[Any, Any]:
    """All times in the order of a run, and the indices of the saves (T,) among them."""
    sign = xp.sign(ts[-1] - ts[0])
    saves = sign * ts
    # A save at such a time follows it, and has the state after it.
    later = xp.concatenate([xp.clip(sign * times, saves[0], saves[-1]), saves[1:]])
    order = xp.argsort(later, stable=True)
    rows = xp.concatenate([xp.zeros(1, int), 1 + xp.argsort(order)[times.size :]])
    return sign * xp.concatenate([saves[:1], later[order]]), rows.astype(np.int32)


@lru_cache(maxsize=KEPT_GRIDS)
def _known_grid(saves: bytes, known: bytes, dtype: Any, inserted: int) -> StepGrid:
    ts, times = np.frombuffer(saves, dtype), np.frombuffer(known, dtype)
    grid, rows = _merged(ts, times[len(times) - inserted :], np)
    # As in `interval_at`.
    sign = np.sign(ts[-1] - ts[0])
    bounds = np.pad(np.sort(sign * times), 1, constant_values=(-np.inf, np.inf))
    before = np.searchsorted(bounds, sign * (grid[:-1] + grid[1:]) / 2, side="right")
    before = np.minimum(before, np.searchsorted(bounds, sign * ts[-1]))
    begin, finish = bounds[before - 1], bounds[before]
    low, high = _within_ends(begin, finish, sign, (ts[0], ts[-1]), np)
    with jax.ensure_compile_time_eval():  # no tracers, which would not outlive a trace
        low, high, turns = map(jnp.asarray, (low, high, sign * begin == grid[:-1]))
        intervals = StepInterval(low, high, turns)
        return StepGrid(jnp.asarray(grid), jnp.asarray(rows), intervals)


class StepSegments(eqx.Module):
    """The S segments, of the same number of steps, from ts[0] to ts[-1]; or one of them."""

    t: Float[Array, " *S"]  # save time before each segment
    h: Float[Array, " *S"]  # step in each segment
    done: Int[Array, " *S"]  # steps from that save time to the segment
    interval: AnyInterval  # of the first step of each segment


def segments(
    ts: Array, per_save: int, steps: int, times: StepInterval | Array | HostArray = NO_TIMES
) -> StepSegments:
    """The segments, of `steps` steps each, of a run with `per_save` steps per save interval.

    `times`, at which a step ends, are among the ts, or their intervals are known.
    """
    count = per_save // steps
    step_numbers = np.tile(np.arange(count) * steps, len(ts) - 1)
    interval: AnyInterval = jax.tree.map(lambda x: jnp.repeat(x, count), intervals_of(ts, times))
    return StepSegments(
        t=jnp.repeat(ts[:-1], count),
        h=jnp.repeat((ts[1:] - ts[:-1]) / per_save, count),
        done=jnp.asarray(step_numbers),
        interval=turning(interval, step_numbers == 0),
    )
