"""Derivatives of a run through its recorded steps: one rule for all kinds of steps.

The forward run records its steps in segments, and the state before each segment. Tangents go
forward through the steps of a segment, from that state. Cotangents go back from the last segment to
the first: the steps of each are run again, which gives the states between them, and are then pulled
back one by one. With segments of about the square root of the number of steps, memory grows with
that root, and a gradient costs one run more than with every state in memory.

`fixed` and `adaptive` say which moves a segment has.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.derivatives.event_moves import Move, ReplayState
from jaxmech.integrate.derivatives.run_rule import (
    RolloutInputs,
    SmoothResults,
    or_zeros,
    split_shared,
)
from jaxmech.integrate.events.watch import EventSet

Position = Any  # of a move in its segment, without derivatives
# From a state, a move and the shared inputs to the state after the move, and for an event its row.
MoveFunction = Callable[..., Any]


class RunRecord(eqx.Module):
    """The data of a forward run that its derivatives need.

    Attributes:
        starts: packed states before the S segments, (S, w).
        states: q and v at the save times, (T, 2 n); None where saves are starts of segments.
        steps: what is known of the steps in each segment besides.
        known: whether the state was good at each save time.
        t_failed: as in `Trajectory`; None where only moves that were made are recorded.
        active: constraints that are on at the save times; None without events.
        counts: numbers of events; None without events.
    """

    starts: Float[Array, "S w"]
    states: Float[Array, " T n2"] | None
    steps: Any
    known: Bool[Array, " T"]
    t_failed: Float[Array, ""] | None
    active: Bool[Array, " T C"] | None
    counts: Int[Array, " E"] | None

    @property
    def smooth(self) -> tuple[Any, Any]:
        """The states, through which derivatives of derivatives go."""
        return self.starts, self.states


class MovePlace(NamedTuple):
    """The place of a move: its segment, its number there, and what the moves before it led to."""

    x: RolloutInputs
    segment: Any
    number: Int[Array, ""]
    position: Position


class PushedRows(eqx.Module):
    """Tangents that the loops over moves collect; None where there are none."""

    starts: Any  # before the segments
    saves: Any  # q and v at the save times
    log: Any  # rows of events

    def with_move(self, move: Move, save: Array, row: Array | None) -> "PushedRows":
        """Write what a move leads to."""
        saves, log = self.saves, self.log
        if saves is not None:
            saves = with_row(saves, move.save, save, move.save > 0)
        if log is not None and row is not None:
            log = with_row(log, move.row, row, move.which >= 0)
        return PushedRows(self.starts, saves, log)


@dataclass(frozen=True)
class StepReplay(abc.ABC):
    """The recorded steps of a run, and their derivatives.

    Attributes:
        watch: the events; None without events.
        length: number of moves in a segment.
        plain: makes a step.
        event: processes an event; None without events.
    """

    watch: EventSet | None
    length: int
    plain: MoveFunction
    event: MoveFunction | None
    has_saves: ClassVar[bool] = False  # whether moves lead to saves

    @abc.abstractmethod
    def segments(self, x: RolloutInputs, record: RunRecord) -> Any:
        """The data of the segments, along a leading axis; `start` is the packed state."""

    @abc.abstractmethod
    def times(self, count: int, ts: Array | None, times: Array | None) -> Any:
        """The times on which each segment depends, along a leading axis; None for None."""

    @abc.abstractmethod
    def begin(self, x: RolloutInputs, segment: Any, shared: Any) -> tuple[ReplayState, Position]:
        """The state before a segment, and the position of its first move."""

    @abc.abstractmethod
    def move(self, place: MovePlace, state: ReplayState, times: Any) -> Move:
        """A move of a segment; `times` are those of the segment, None if not differentiated."""

    @abc.abstractmethod
    def after(self, place: MovePlace, move: Move) -> Position:
        """The position after a move."""

    @abc.abstractmethod
    def pulled_saves(
        self, x: RolloutInputs, record: RunRecord, saves: Array, wrt_starts: Array
    ) -> tuple[Array, Array, Array]:
        """Cotangents of the end, the starts of segments and the initial state, from the saves."""

    @abc.abstractmethod
    def results(
        self, x: RolloutInputs, record: RunRecord, changes: RolloutInputs, start: Array,
        end: Array, rows: PushedRows,
    ) -> SmoothResults:  # fmt: skip
        """The tangents of all results, from those that the loops have collected."""

    def made_segments(self, record: RunRecord) -> Array | None:
        """The number of segments that were made; None if it is all of them."""
        return None

    def is_made(self, segment: Any) -> Array | None:
        """Whether a segment has any moves; None if it always has."""
        return None

    def complete(self, segment: Any, derivatives: Any) -> Any:
        """The derivatives, NaN where a segment is not known completely."""
        return derivatives

    def pulled_times(
        self, x: RolloutInputs, record: RunRecord, saves: Array, wrt_ts: Array
    ) -> Array:
        """Cotangents of the save times, from those through the steps alone."""
        return wrt_ts

    # ----- the derivatives -----

    def tangents(
        self, x: RolloutInputs, record: RunRecord, changes: RolloutInputs, *, is_smooth: bool
    ) -> SmoothResults:
        """Push tangents from the first segment to the last.

        If `is_smooth`, by loops of fixed length without branches, which JAX can transpose.
        """
        traced, fixed = split_shared(x, changes)
        d_given = changes.ts, changes.times
        given = (None if changes.ts is None else x.ts), (None if changes.times is None else x.times)
        count = len(record.starts)
        times, d_times = jax.jvp(partial(self.times, count), given, d_given)
        zeros = jax.tree.map(jnp.zeros_like, (x.q0, x.v0))
        offset = jnp.zeros_like(x.ts[0]) if record.starts.shape[1] > 2 * x.q0.size else None
        d_q, d_v = or_zeros((changes.q0, changes.v0), zeros)
        d_first = ReplayState(d_q, d_v, offset)
        none = self.no_row(x.q0)

        def push_segment(
            d_start: ReplayState, rows: PushedRows | None, each: Any
        ) -> tuple[ReplayState, Any]:
            index, segment, times, d_times = each
            state, position = self.begin(x, segment, x.shared)

            def push_move(carry: Any, number: Array) -> tuple[Any, Any]:
                state, d_state, position, rows = carry
                place = MovePlace(x, segment, number, position)
                now = self.move(place, state, None)

                def run(state: ReplayState, times: Any, traced: Any) -> Any:
                    move = self.move(place, state, times)
                    return self._end(move, state, eqx.combine(traced, fixed), is_smooth)

                def pushed() -> Any:
                    return jax.jvp(run, (state, times, traced), (d_state, d_times, changes.shared))

                stays = (state, none), (d_state, none)
                if is_smooth or now.is_made is None:
                    (new, _), (d_new, d_row) = pushed()
                else:
                    (new, _), (d_new, d_row) = jax.lax.cond(now.is_made, pushed, lambda: stays)
                d_save = jnp.concatenate([d_new.q, d_new.v])
                if now.goes_on is not None:
                    new, d_new = _where(now.goes_on, (new, d_new), (state, d_state))
                after = new, d_new, self.after(place, now)
                if rows is not None:
                    return (*after, rows.with_move(now, d_save, d_row)), None
                save = None if now.save is None else (now.save, now.save > 0, d_save)
                event = None if now.which is None else (now.row, now.which >= 0, d_row)
                return (*after, None), (save, event)

            if rows is not None:
                starts = with_row(rows.starts, index, d_start.packed(), jnp.asarray(True))
                rows = replace(rows, starts=starts)
            numbers = jnp.arange(self.length, dtype=jnp.int32)
            carry = state, d_start, position, rows
            (_, d_end, _, rows), each = jax.lax.scan(push_move, carry, numbers)
            d_end = self.complete(segment, d_end)
            return d_end, (d_start.packed(), each) if rows is None else rows

        indices = jnp.arange(count, dtype=jnp.int32)
        each = indices, self.segments(x, record), times, d_times
        rows = self._rows(x, count, d_first)
        if is_smooth:
            d_end, (starts, (save, event)) = jax.lax.scan(
                lambda d_start, segment: push_segment(d_start, None, segment), d_first, each
            )
            rows = PushedRows(starts, _scattered(rows.saves, save), _scattered(rows.log, event))
        else:
            made = self.made_segments(record)
            d_end, rows = _over_segments(push_segment, (d_first, rows), each, made)
        return self.results(x, record, changes, d_first.packed(), d_end.packed(), rows)

    def cotangents(
        self, x: RolloutInputs, record: RunRecord, needed: RolloutInputs,
        cotangents: SmoothResults,
    ) -> RolloutInputs:  # fmt: skip
        """Pull cotangents back from the last segment to the first."""
        traced, fixed = split_shared(x, needed)
        given = (x.ts if needed.ts else None), (x.times if needed.times else None)
        times, pull_times = jax.vjp(partial(self.times, len(record.starts)), *given)
        wrt_starts, wrt_states = cotangents.kept
        n = x.q0.size
        states = jnp.zeros((len(x.ts), n), x.q0.dtype)
        saves = [or_zeros(ct, states) for ct in (cotangents.q, cotangents.v)]
        wrt_saves = jnp.concatenate(saves, axis=1)
        if wrt_states is not None:
            wrt_saves = wrt_saves + jnp.where(record.known[:, None], wrt_states, 0.0)
        wrt_starts = or_zeros(wrt_starts, jnp.zeros_like(record.starts))
        end, wrt_starts, first = self.pulled_saves(x, record, wrt_saves, wrt_starts)
        pull_move = partial(self._pull_move, (traced, fixed), (wrt_saves, cotangents.found))

        def pull_segment(carry: Any, each: Any) -> tuple[Any, Any]:
            segment, times, wrt_start = each

            def pulled() -> tuple[Any, Any]:
                wrt_end, wrt_traced = carry
                wrt, wrt_times, wrt_traced = self._pull_segment(
                    x, segment, times, pull_move, (wrt_end, wrt_traced)
                )
                wrt, wrt_traced = self.complete(segment, (wrt, wrt_traced))
                wrt = jax.tree.map(jnp.add, wrt, ReplayState.unpacked(wrt_start, n))
                return (wrt, wrt_traced), wrt_times

            is_made = self.is_made(segment)
            if is_made is None:
                return pulled()
            return jax.lax.cond(is_made, pulled, lambda: (carry, _zeros(times)))

        each = self.segments(x, record), times, wrt_starts
        (wrt, wrt_shared), wrt_times = jax.lax.scan(
            pull_segment, (ReplayState.unpacked(end, n), _zeros(traced)), each, reverse=True
        )
        wrt_ts, wrt_step_times = pull_times(wrt_times)
        wrt_params, wrt_traced = wrt_shared
        return RolloutInputs(
            wrt.q + first[:n] if needed.q0 else None,
            wrt.v + first[n : 2 * n] if needed.v0 else None,
            None if wrt_ts is None else self.pulled_times(x, record, wrt_saves, wrt_ts),
            wrt_params,
            times=wrt_step_times,
            traced=wrt_traced,
        )

    def _pull_segment(
        self, x: RolloutInputs, segment: Any, times: Any, pull_move: Callable[..., Any], wrt: Any
    ) -> Any:
        """Cotangents of the state before a segment, of its times and of the shared inputs."""
        # By two loops and not by the derivative of one: native code cannot pass what a branch has
        # computed from one loop to the other.
        numbers = jnp.arange(self.length, dtype=jnp.int32)

        def forward(carry: Any, number: Array) -> tuple[Any, Any]:
            state, position = carry
            place = MovePlace(x, segment, number, position)
            move = self.move(place, state, None)
            end = partial(self.made, move, state, x.shared)
            if move.is_made is None:
                new = _where(move.goes_on, end()[0], state)
            else:
                goes_on = move.is_made if move.goes_on is None else move.goes_on
                new = jax.lax.cond(goes_on, lambda: end()[0], lambda: state)
            return (new, self.after(place, move)), carry

        def backward(carry: Any, each: Any) -> tuple[Any, None]:
            number, (state, position) = each
            place = MovePlace(x, segment, number, position)
            move = self.move(place, state, None)
            pulled = partial(pull_move, place, move, (state, times), carry)
            if move.is_made is None:
                return pulled(), None
            return jax.lax.cond(move.is_made, pulled, lambda: carry), None

        _, before = jax.lax.scan(forward, self.begin(x, segment, x.shared), numbers)
        wrt_end, wrt_traced = wrt
        start = wrt_end, _zeros(times), wrt_traced
        return jax.lax.scan(backward, start, (numbers, before), reverse=True)[0]

    def _pull_move(
        self, shared: tuple[Any, Any], wrt_results: tuple[Array, Array | None], place: MovePlace,
        move: Move, inputs: tuple[ReplayState, Any], carry: Any,
    ) -> Any:  # fmt: skip
        """Pull cotangents back through a move."""
        (traced, fixed), (wrt_saves, wrt_log), (state, times) = shared, wrt_results, inputs
        wrt_state, *wrt = carry
        wrt_end = wrt_state
        if move.goes_on is not None:
            wrt_end = _where(move.goes_on, wrt_state, _zeros(wrt_state))
        if move.save is not None:
            row = jax.lax.dynamic_index_in_dim(wrt_saves, move.save, keepdims=False)
            n = state.q.size
            at_save = ReplayState(row[:n], row[n:], _zeros(state.offset))
            wrt_end = _where(move.save > 0, at_save, wrt_end)

        def row_of_event() -> Array:
            if wrt_log is None:
                return self.no_row(state.q)
            row = jax.lax.dynamic_index_in_dim(wrt_log, move.row, keepdims=False)
            return jnp.where(move.row >= 0, row, 0.0)

        def through(kind: MoveFunction) -> Callable[..., Any]:
            def run(state: ReplayState, times: Any, traced: Any) -> Any:
                return kind(state, self.move(place, state, times), eqx.combine(traced, fixed))

            return run

        wrt_before, *more = self.pull_through(
            through, move, (state, times, traced), wrt_end, row_of_event
        )
        # A move to a save, or to an event that changes nothing, is a side branch: the motion
        # continues from the state before it.
        if move.goes_on is not None:
            both = jax.tree.map(jnp.add, wrt_state, wrt_before)
            wrt_before = _where(move.goes_on, wrt_before, both)
        return wrt_before, *jax.tree.map(jnp.add, wrt, more)

    @abc.abstractmethod
    def pull_through(
        self, through: Callable[[MoveFunction], Callable[..., Any]], move: Move,
        inputs: tuple[ReplayState, Any, Any], wrt_end: ReplayState, wrt_row: Callable[[], Array],
    ) -> Any:  # fmt: skip
        """Cotangents of the inputs of a move; `through` makes functions of them."""

    @abc.abstractmethod
    def made(self, move: Move, state: ReplayState, shared: Any) -> tuple[ReplayState, Any]:
        """The state after a move, and the row of an event; None without events."""

    def no_row(self, q: Array) -> Any:
        """The row of no event; None without events."""
        return None if self.watch is None else jnp.zeros(self.watch.width(q), q.dtype)

    def _end(
        self, move: Move, state: ReplayState, shared: Any, is_smooth: bool
    ) -> tuple[ReplayState, Any]:
        made = partial(self.made, move, state, shared)
        if move.is_made is None or self.watch is None or not is_smooth:
            return made()
        return jax.lax.cond(move.is_made, made, lambda: (state, self.no_row(state.q)))

    def _rows(self, x: RolloutInputs, count: int, start: ReplayState) -> PushedRows:
        saves = empty_rows(len(x.ts), jnp.concatenate([x.q0, x.v0])) if self.has_saves else None
        log = None if self.watch is None else self.watch.log(x.q0)
        return PushedRows(empty_rows(count, start.packed()), saves, log)


def _over_segments(push: Callable[..., Any], carry: Any, segments: Any, made: Array | None) -> Any:
    """Loop over the segments that were made, or over all of them."""
    if made is None:
        return jax.lax.scan(lambda carry, each: (push(*carry, each), None), carry, segments)[0]

    def push_next(numbered: Any) -> Any:
        k, carry = numbered
        each = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, k, keepdims=False), segments)
        return k + 1, push(*carry, each)

    start = jnp.zeros((), jnp.int32), carry
    return jax.lax.while_loop(lambda numbered: numbered[0] < made, push_next, start)[1]


def _scattered(rows: Array | None, written: Any) -> Any:
    """The rows with those that were written by the moves of each segment."""
    if rows is None or written is None:
        return rows
    place, is_written, values = (x.reshape(-1, *x.shape[2:]) for x in written)
    place = jnp.where(is_written & (place >= 0), place, len(rows))
    return jnp.zeros_like(rows).at[place].set(values, mode="drop")


def _where(flag: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, flag), yes, no)


def _zeros(values: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, values)
