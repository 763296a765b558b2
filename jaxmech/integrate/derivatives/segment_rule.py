"""The derivatives of runs with fixed steps, segment by segment.

The forward run keeps the state at the end of every segment of steps, and no other; a derivative
runs each segment again from there and differentiates it. With segments of about the square root of
the number of steps, memory grows with that root, and a gradient costs one rollout more than with
every state kept.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.derivatives.run_rule import (
    AbstractRun,
    RolloutInputs,
    SmoothResults,
    completed,
    of_parts,
    pulled_through,
    split_shared,
    with_traced,
)
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.rollout import KeptSegments, SegmentEvents, rollout
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import StepSegments, segments, within
from jaxmech.integrate.step import StepState, step
from jaxmech.integrate.trajectory import Trajectory, at_saves
from jaxmech.state import Projection
from jaxmech.system import Params

Times = tuple[Array, Array]  # the save time before a segment, and its step size


class SegmentData(eqx.Module):
    """The fixed data of a segment."""

    own: StepSegments  # its time and step may have tangents elsewhere
    t_failed: Float[Array, ""]  # as in `Trajectory`
    events: SegmentEvents

    def segment(self, timed: Times) -> StepSegments:
        """The segment with a start time and a step size."""
        return replace(self.own, t=timed[0], h=timed[1])

    def complete(self, derivatives: Any) -> Any:
        """Set derivatives to NaN where there were more events than are kept for them."""
        replay = self.events.replay
        if not replay.step.size:
            return derivatives
        is_complete = replay.count <= replay.step.shape[-1]
        return jax.tree.map(lambda d: jnp.where(is_complete, d, jnp.nan), derivatives)


@dataclass(frozen=True)
class AbstractSegments(AbstractRun):
    """A run with fixed steps."""

    per_save: int  # steps per save interval
    steps: int  # steps of a segment
    event_set: EventSet

    @abc.abstractmethod
    def advance(
        self, data: SegmentData, state: list[Array], timed: Times, shared: Any
    ) -> tuple[list[Array], Any]:
        """q, v and memory after a segment, and the rows of its events in their order, (K, w)."""

    @abc.abstractmethod
    def pull_back(
        self, data: SegmentData, state: list[Array], timed: Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Any,
    ) -> tuple[list[Array], Times, Any]:  # fmt: skip
        """Cotangents of the state, the times and `shared`, from those of the end and the rows."""

    def tangents(
        self, x: RolloutInputs, residuals: KeptSegments, changes: RolloutInputs
    ) -> SmoothResults:
        """Push tangents from the first segment to the last."""
        traced, fixed = split_shared(x, changes)
        all_segments = self._segments(x)
        timed, d_timed = (all_segments.t, all_segments.h), (None, None)
        if changes.ts is not None:
            timed, d_timed = jax.jvp(self._times, (x.ts,), (changes.ts,))
        zeros = jax.tree.map(jnp.zeros_like, [x.q0, x.v0, x.memory])
        d_start = completed([changes.q0, changes.v0, changes.memory], zeros)

        # Only tangents are carried: the states at the starts of segments are known from the
        # forward run.
        def push_segment(d_state: list[Array], inputs: Any) -> tuple[list[Array], Any]:
            state, timed, segment, events, d_timed = inputs
            data = SegmentData(segment, residuals.t_failed, events)

            def run(state: list[Array], traced_times: Any, traced: Any) -> Any:
                times = completed(traced_times, timed)
                return self.advance(data, state, times, eqx.combine(traced, fixed))

            primal_times = of_parts(d_timed, timed)
            _, (d_state, d_rows) = jax.jvp(
                run, (state, primal_times, traced), (d_state, d_timed, changes.shared)
            )
            d_state = data.complete(d_state)
            return d_state, (d_state, d_rows)

        by_segment = _starts(x, residuals), timed, all_segments, residuals.events, d_timed
        _, (d_ends, d_rows) = jax.lax.scan(push_segment, d_start, by_segment)
        q, v, memory = self._saves(d_start, d_ends)
        return SmoothResults(q, v, memory, self._log(residuals, d_rows), d_ends)

    def cotangents(
        self,
        x: RolloutInputs,
        residuals: KeptSegments,
        needed: RolloutInputs,
        cotangents: SmoothResults,
    ) -> RolloutInputs:
        """Pull cotangents back from the last segment to the first."""
        shared, fixed = split_shared(x, needed)
        timed, pull_times = jax.vjp(self._times, x.ts)
        all_segments, rows = self._segments(x), self._rows(residuals, x, cotangents.occurrences)
        first, ends = [x.q0, x.v0, x.memory], list(residuals.smooth)
        saves, pull_saves = jax.vjp(self._saves, first, ends)
        zeros = jax.tree.map(jnp.zeros_like, (saves, ends))
        at_start, at_ends = pull_saves(
            completed([cotangents.q, cotangents.v, cotangents.memory], zeros[0])
        )
        added = jax.tree.map(jnp.add, at_ends, completed(list(cotangents.states), zeros[1]))

        def pull_segment(carry: Any, inputs: Any) -> tuple[Any, Times]:
            (wrt_state, wrt_shared), (replayed, added, rows) = carry, inputs
            # A save at the end of this segment depends on the same state as the segment after it.
            wrt_state = jax.tree.map(jnp.add, wrt_state, added)
            # Segments after a failure pull zeros back. Another one, which is finite, does the same;
            # results that are selected instead would hide NaN, and no product could be folded.
            is_needed = _has_nonzero((wrt_state, rows))
            replayed = jax.tree.map(lambda x, y: jnp.where(is_needed, x, y), replayed, at_first)
            state, timed, segment, events = replayed
            data = SegmentData(segment, residuals.t_failed, events)
            wrt_state, wrt_timed, wrt_more = self.pull_back(
                data, state, timed, shared, fixed, wrt_state, rows
            )
            wrt_state, wrt_more = data.complete((wrt_state, wrt_more))
            return (wrt_state, jax.tree.map(jnp.add, wrt_shared, wrt_more)), wrt_timed

        start = jax.tree.map(jnp.zeros_like, (first, shared))
        replays = _starts(x, residuals), timed, all_segments, residuals.events
        at_first = jax.tree.map(lambda rows: rows[0], replays)
        by_segment = replays, added, rows
        (wrt_start, wrt_shared), wrt_timed = jax.lax.scan(
            pull_segment, start, by_segment, reverse=True
        )
        wrt_q, wrt_v, wrt_memory = jax.tree.map(jnp.add, wrt_start, at_start)
        wrt_params, wrt_traced = wrt_shared
        return RolloutInputs(
            wrt_q if needed.q0 else None,
            wrt_v if needed.v0 else None,
            pull_times(wrt_timed)[0] if needed.ts else None,
            wrt_params,
            memory=wrt_memory if needed.memory else None,
            traced=wrt_traced,
        )

    def _segments(self, x: RolloutInputs) -> StepSegments:
        return segments(x.ts, self.per_save, self.steps, x.times)

    def _log(self, residuals: KeptSegments, rows: Array) -> Array:
        if not self.event_set:
            return rows[0]
        log_rows = _log_rows(residuals.events).ravel()
        # The events beyond those that a segment keeps for derivatives are unknown.
        unknown = jnp.where(self.event_set.is_kept(residuals.counts), jnp.nan, 0.0)[:, None]
        log = jnp.broadcast_to(unknown, (len(unknown), rows.shape[-1])).astype(rows.dtype)
        return log.at[jnp.where(log_rows < 0, len(log), log_rows)].set(
            rows.reshape(-1, rows.shape[-1]), mode="drop"
        )

    def _rows(self, residuals: KeptSegments, x: RolloutInputs, log: Array | None) -> Array:
        log_rows, width = _log_rows(residuals.events), self.event_set.width(x.q0, x.v0)
        if log is None or not self.event_set:
            return jnp.zeros((*log_rows.shape, width), x.q0.dtype)
        return jnp.where((log_rows >= 0)[..., None], log[log_rows], 0.0)

    def _saves(self, start: list[Array], ends: list[Array]) -> list[Array]:
        saves: list[Array] = at_saves(start, ends, self.per_save // self.steps)
        return saves

    def _times(self, ts: Array) -> Times:
        all_segments = segments(ts, self.per_save, self.steps)
        return all_segments.t, all_segments.h


def _has_nonzero(tree: Any) -> Bool[Array, ""]:
    return jnp.stack([(x != 0).any() for x in jax.tree.leaves(tree)]).any()


def _starts(x: RolloutInputs, residuals: KeptSegments) -> list[Array]:
    pairs = zip((x.q0, x.v0, x.memory), residuals.smooth, strict=True)
    return [jnp.concatenate([first[None], rows[:-1]]) for first, rows in pairs]


def _log_rows(events: SegmentEvents) -> Int[Array, " S K"]:
    # The rows of the log in which the events of each segment are kept, -1 for none.
    replay = events.replay
    is_known = jnp.arange(replay.row.shape[1])[None] < replay.count[:, None]
    return jnp.where(is_known, replay.row, -1)


@dataclass(frozen=True)
class PlainSegments(AbstractSegments):
    """A run without events; `step` has closed-over values as arguments."""

    step: Callable[..., tuple[Array, Array, Array]]

    def advance(
        self, data: SegmentData, state: list[Array], timed: Times, shared: Any
    ) -> tuple[list[Array], Array]:
        """Make the steps of a segment."""

        # Reverse mode over this then keeps states, not the intermediate values of steps. The loop
        # separates forward and backward pass already, so CSE cannot merge them.
        @partial(jax.checkpoint, prevent_cse=False)
        def make_step(state: list[Array], number: Array) -> tuple[list[Array], None]:
            return self._step(data, state, number, timed, shared), None

        end, _ = jax.lax.scan(make_step, state, self._numbers(data))
        return end, self.event_set.log(*state[:2])

    def pull_back(
        self, data: SegmentData, state: list[Array], timed: Times, shared: Any, fixed: Any,
        cotangents: list[Array], rows: Array,
    ) -> tuple[list[Array], Times, Any]:  # fmt: skip
        """Pull back step by step."""
        all_shared = eqx.combine(shared, fixed)

        def make_step(state: list[Array], number: Array) -> tuple[list[Array], list[Array]]:
            return self._step(data, state, number, timed, all_shared), state

        def pull_step(wrt: Any, state: list[Array], number: Array) -> Any:
            wrt_end, *wrt_inputs = wrt

            def run(state: list[Array], timed: Times, shared: Any) -> list[Array]:
                return self._step(data, state, number, timed, eqx.combine(shared, fixed))

            wrt_state, *wrt_more = jax.vjp(run, state, timed, shared)[1](wrt_end)
            return wrt_state, *jax.tree.map(jnp.add, wrt_inputs, wrt_more)

        end = cotangents, *jax.tree.map(jnp.zeros_like, (timed, shared))
        wrt: tuple[list[Array], Times, Any] = pulled_through(
            make_step, pull_step, state, self._numbers(data), end
        )
        return wrt

    def _numbers(self, data: SegmentData) -> Array:
        return jnp.arange(self.steps, dtype=data.own.done.dtype)

    def _step(
        self, data: SegmentData, state: list[Array], number: Array, timed: Times, shared: Any
    ) -> list[Array]:
        return list(self.step(*state, number, data.segment(timed), data.t_failed, shared))


def _bare_step(
    scheme: Scheme, q: Array, v: Array, memory: Array, number: Array, segment: StepSegments,
    t_failed: Array, params: Params,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """q, v and memory after a step of a segment, without the audit; nothing moves after `t_failed`.

    `number` is the number of the step in the segment.
    """
    params = within(segment.interval, params)
    t = segment.t + (segment.done + number) * segment.h
    interval = segment.interval.turning((number == 0) & ~(t_failed <= t))
    memory, params = scheme.sampled(memory, q, v, t, params, interval)
    q, v, _ = scheme.after_kink(q, v, t, params, interval)
    # Half a step is beyond round-off of t, and dividing by h serves runs backwards in time too.
    failed = (t_failed - t) / segment.h < 0.5  # false for NaN
    end, _ = step(scheme, StepState(q, v, t), segment.h, params)
    moved = checked_states(end.q, end.v, failed)
    return jnp.where(failed, q, moved[0]), jnp.where(failed, v, moved[1]), memory


def plain_trajectory(scheme: Scheme, steps: int, x: RolloutInputs) -> Trajectory:
    """The rollout in segments of some steps, as an operation with its derivatives."""
    undifferentiated = scheme
    if type(scheme.stabilization) is Projection:
        undifferentiated = replace(scheme, stabilization=scheme.stabilization.lazy())

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptSegments]:
        inputs = x.q0, x.v0, x.ts, x.params, x.memory
        return rollout(undifferentiated, *inputs, segment=steps, times=x.times)

    first_segment = segments(x.ts, steps, steps, x.times)
    first_segment = jax.tree.map(lambda rows: rows[0], first_segment)
    number = jnp.zeros_like(first_segment.done)
    example = x.q0, x.v0, x.memory, number, first_segment, x.ts[0]
    x, run, (step,) = with_traced(forward, x, [partial(_bare_step, scheme)], [example])
    return PlainSegments(run, scheme.per_save, steps, NO_EVENTS, step).trajectory(x)
