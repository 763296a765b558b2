"""Spans of time between the times at which steps end, and functions of a system within one.

A function such as `where(t < 1, 0, 1)` is smooth on either side of t = 1, but a step that ends
there evaluates it at t = 1 as well. Within a `Span` it is evaluated at times on one side only: a
time at an end of the span is moved inside, by a few units of round-off.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.system import Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by

KEPT = 32  # systems
KEPT_GRIDS = 4  # of known times
COMPARED = 256  # times that are compared one by one; more are searched
_APART = 8.0  # distance from the ends of a span, in units of round-off of the largest time


class Span(eqx.Module):
    """An interval of time, or several of them."""

    low: Float[Array, " *S"]  # earliest time
    high: Float[Array, " *S"]  # latest time


class Timed(eqx.Module):
    """The parameters of a system within a span of time."""

    params: Params  # those of the functions of the system
    span: Span


def within(span: Span | None, params: Params) -> Params:
    """The parameters for steps within a span."""
    return params if span is None else Timed(params, span)


@kept_by(KEPT)
def within_spans(system: System) -> System:
    """The system with `Timed` parameters."""

    def inside(fn: Callable[..., Any], role: str) -> Callable[..., Any]:
        def value(*args: Any) -> Any:
            *state, t, timed = args
            with naming_missing(role, timed.params):
                return fn(*state, _inside(t, timed.span), timed.params)

        return value

    timed = system.with_functions(inside)
    if system.sampling is None:
        return timed
    update = system.sampling.update

    def sampled(q: Array, v: Array, t: Array, params: Timed) -> Array:
        inner = jax.lax.stop_gradient(_inside(t, params.span))
        return update(q, v, inner, params.params, inner - jax.lax.stop_gradient(t))

    return replace(timed, sampling=replace(system.sampling, update=sampled))


def _inside(t: Array, span: Span) -> Array:
    # A time within a span, with the derivative of the given one.
    return t + jax.lax.stop_gradient(jnp.clip(t, span.low, span.high) - t)


def span_at(
    times: Float[Array, " K"], instants: Float[Array, " *S"], first: Array, last: Array,
    ends: Float[Array, " E"] | None = None,
) -> tuple[Span, Float[Array, " *S"]]:  # fmt: skip
    """The spans around some times of a run from `first` to `last`, and where each of them begins.

    A time at an end of a span belongs to the one that follows in the run; the run ends before the
    last time. Where a span begins is minus infinity, in the direction of the run, if no step ends
    there. `ends` are those of `sorted_ends`, for calls in a loop.
    """
    times, instants, first, last = jax.lax.stop_gradient((times, instants, first, last))
    sign = jnp.sign(last - first)
    positions, end = sign * instants[..., None], sign * last
    if times.size > COMPARED:
        if ends is None:
            ends = sorted_ends(times, first, last)
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
    apart = _APART * jnp.finfo(times.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
    start, stop = sign * (begin + apart), sign * (finish - apart)
    return Span(jnp.minimum(start, stop), jnp.maximum(start, stop)), sign * begin


def sorted_ends(times: Float[Array, " K"], first: Array, last: Array) -> Float[Array, " E"]:
    """The times in the order of a run, between minus and plus infinity."""
    ordered = jnp.sort(jnp.sign(last - first) * jax.lax.stop_gradient(times))
    return jnp.pad(ordered, 1, constant_values=(-jnp.inf, jnp.inf))


class Intervals(eqx.Module):
    """The intervals between the save times of a run.

    Attributes:
        span: span of time of each interval.
        turns: whether it begins at a time at which a step ends.
    """

    span: Span
    turns: Bool[Array, " S"]

    @staticmethod
    def of(ts: Float[Array, " N"], times: "Intervals | Array") -> "Intervals":
        """Those of the times at which a step ends, which are among the ts."""
        if isinstance(times, Intervals):
            return times
        span, begins = span_at(times, (ts[:-1] + ts[1:]) / 2, ts[0], ts[-1])
        return Intervals(span, begins == jax.lax.stop_gradient(ts[:-1]))


class StepGrid(eqx.Module):
    """The save times of a run and the times at which a step ends, in their order.

    A time that is no time of the run takes the place of the first or the last one, with an interval
    of no length.
    """

    ts: Float[Array, " N"]  # T + K of them
    rows: Int[Array, " T"]  # indices of the saves
    intervals: "Intervals | None" = None  # between its times, where they are known before the run

    @staticmethod
    def known(ts: Any, times: Any, inserted: int) -> "StepGrid":
        """The grid of known times, of which the last ones are no saves, without a search in a run.

        XLA would sort many times in every run, and where they are constants while it compiles.
        """
        ts, times = np.asarray(ts), np.asarray(times)
        return _known_grid(ts.tobytes(), times.tobytes(), ts.dtype, inserted)

    @staticmethod
    def of(ts: Float[Array, " T"], times: Float[Array, " K"]) -> "StepGrid":
        """Merge save times with times at which a step ends."""
        sign = jnp.sign(ts[-1] - ts[0])
        saves = sign * ts
        # A save at such a time follows it, and has the state after it.
        later = jnp.concatenate([jnp.clip(sign * times, saves[0], saves[-1]), saves[1:]])
        order = jnp.argsort(later, stable=True)
        count = jnp.arange(1, 1 + later.size, dtype=jnp.int32)
        rows = jnp.zeros(later.size, jnp.int32).at[order].set(count)
        grid = jnp.concatenate([saves[:1], later[order]])
        first = jnp.zeros(1, jnp.int32)
        return StepGrid(sign * grid, jnp.concatenate([first, rows[times.size :]]))

    @property
    def at_saves(self) -> Span | None:
        """The span that follows each save, where they are known before the run."""
        if self.intervals is None:
            return None
        intervals = jnp.minimum(self.rows, len(self.ts) - 2)
        return jax.tree.map(lambda x: x[intervals], self.intervals.span)


@lru_cache(maxsize=KEPT_GRIDS)
def _known_grid(saves: bytes, known: bytes, dtype: Any, inserted: int) -> StepGrid:
    ts, times = np.frombuffer(saves, dtype), np.frombuffer(known, dtype)
    sign, count = np.sign(ts[-1] - ts[0]), len(times) - inserted
    positions = sign * ts
    later = np.concatenate(
        [np.clip(sign * times[count:], positions[0], positions[-1]), positions[1:]]
    )
    order = np.argsort(later, kind="stable")
    places: Any = np.zeros(later.size, np.int32)
    places[order] = np.arange(1, 1 + later.size)
    grid = sign * np.concatenate([positions[:1], later[order]])
    rows: Any = np.concatenate([np.zeros(1, np.int32), places[inserted:]])
    bounds = np.pad(np.sort(sign * times), 1, constant_values=(-np.inf, np.inf))
    middles = sign * (grid[:-1] + grid[1:]) / 2
    before = np.searchsorted(bounds, middles, side="right")
    before = np.minimum(before, np.searchsorted(bounds, positions[-1]))
    begin, finish = bounds[before - 1], bounds[before]
    apart = ts.dtype.type(_APART * np.finfo(ts.dtype).eps * np.abs(ts[[0, -1]]).max())
    start, stop = sign * (begin + apart), sign * (finish - apart)
    ends = np.minimum(start, stop), np.maximum(start, stop)
    with jax.ensure_compile_time_eval():  # no tracers, which would not outlive a trace
        low, high, turns = map(jnp.asarray, (*ends, sign * begin == grid[:-1]))
        intervals = Intervals(Span(low, high), turns)
        return StepGrid(jnp.asarray(grid), jnp.asarray(rows), intervals)


class EvenSteps(eqx.Module):
    """About `many` steps from a first to a last time; one ends at each of K times between them.

    Attributes:
        first: first time.
        h: size of a step where no step has to end.
        begins: times before the K + 1 parts of the run; None without such times.
        sizes: sizes of the steps in each part.
        numbers: number of steps before each part.
        spans: span of time of each part.
        turns: whether a step ends there and the motion turns.
        total: number of all steps.
    """

    first: Float[Array, ""]
    h: Float[Array, ""]
    begins: Float[Array, " parts"] | None = None
    sizes: Float[Array, " parts"] | None = None
    numbers: Int[Array, " parts"] | None = None
    spans: Span | None = None
    turns: Bool[Array, " parts"] | None = None
    total: Int[Array, ""] | None = None

    @staticmethod
    def of(
        ts: Float[Array, "2"], times: Float[Array, " K"] | None, step_count: Array
    ) -> "EvenSteps":
        """Divide the run."""
        first, last = ts
        duration = last - first
        if times is None:
            return EvenSteps(first, duration / step_count)
        sign = jnp.sign(duration)
        inner_times = sign * jnp.sort(jnp.clip(sign * times, sign * first, sign * last))
        begins = jnp.concatenate([first[None], inner_times])
        lengths = jnp.concatenate([inner_times, last[None]]) - begins
        counts = jnp.ceil(jnp.abs(lengths / duration) * step_count).astype(int)
        spans, span_begins = span_at(times, begins + lengths / 2, first, last)
        return EvenSteps(
            first, duration / step_count, begins, lengths / jnp.maximum(counts, 1),
            jnp.cumsum(counts) - counts, spans, (span_begins == begins) & (counts > 0),
            counts.sum(),
        )  # fmt: skip

    def most(self, step_count: Any) -> Any:
        """The number of steps, at most, for so many without the times."""
        return step_count if self.begins is None else step_count + len(self.begins)

    def is_within(self, k: Array, step_count: Array) -> Array:
        """Whether there is such a step, and it is one of the first `step_count`."""
        is_early = k < self.most(step_count)
        return is_early if self.total is None else is_early & (k < self.total)

    def step(self, k: Array) -> tuple[Array, Array, Span | None, Array | None]:
        """Start and size of a step, its span, and whether the motion turns at its start."""
        if self.begins is None or self.sizes is None or self.numbers is None:
            return self.first + k * self.h, self.h, None, None
        assert self.spans is not None
        assert self.turns is not None
        # The last part that begins at the step has its steps; those before it have none.
        is_part = jnp.arange(len(self.begins)) == (self.numbers <= k).sum() - 1

        def entry(rows: Array) -> Array:
            return jnp.where(is_part, rows, jnp.zeros_like(rows)).sum().astype(rows.dtype)

        number, size = entry(self.numbers), entry(self.sizes)
        span = jax.tree.map(lambda x: jnp.max(jnp.where(is_part, x, -jnp.inf)), self.spans)
        turns = (is_part & self.turns).any() & (k == number)
        return entry(self.begins) + (k - number) * size, size, span, turns


class StepSegments(eqx.Module):
    """The S segments, of the same number of steps, from ts[0] to ts[-1]; or one of them.

    Attributes:
        t: save time before each segment, shape (S,).
        h: step in each segment, shape (S,).
        done: steps from that save time to the segment, shape (S,).
        span: span of time of each segment; None without times at which a step ends.
        turns: whether each segment begins at such a time, shape (S,); None without them.
    """

    t: Float[Array, " *S"]
    h: Float[Array, " *S"]
    done: Int[Array, " *S"]
    span: Span | None = None
    turns: Bool[Array, " *S"] | None = None


def segments(
    ts: Array, per_save: int, steps: int, times: Intervals | Array | None = None
) -> StepSegments:
    """The segments, of `steps` steps each, of a run with `per_save` steps per save interval.

    `times`, at which a step ends, are among the ts, or their intervals are known.
    """
    count = per_save // steps
    step_numbers = np.tile(np.arange(count) * steps, len(ts) - 1)
    span, turns = None, None
    if times is not None:
        intervals = Intervals.of(ts, times)
        span = jax.tree.map(lambda x: jnp.repeat(x, count), intervals.span)
        turns = jnp.repeat(intervals.turns, count) & (step_numbers == 0)
    return StepSegments(
        t=jnp.repeat(ts[:-1], count),
        h=jnp.repeat((ts[1:] - ts[:-1]) / per_save, count),
        done=jnp.asarray(step_numbers),
        span=span,
        turns=turns,
    )
