"""Derivatives of a run with adaptive steps: through its steps, whose sizes are held fixed.

The forward run records its moves (`trajectory.StepRecord`). The tangents go along with the moves.
The cotangents go backwards, segment by segment: each is run again from the state before it. Save
times enter by the speeds and accelerations at the saves, because a save is a state of the motion.
Where an event moves in time, all later moves are delayed as much: the delay is a part of the state,
whose value is always zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import Arrays, Flags, empty_rows, with_row
from jaxmech.integrate.adaptive_rollout import adaptive_rollout
from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.derivatives.run_rule import (
    AbstractRun,
    EventPiece,
    PieceState,
    RolloutInputs,
    RunRule,
    SmoothResults,
    along_motion,
    at_event,
    of_parts,
    pulled_through,
    split_shared,
    with_traced,
)
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.run_params import with_outputs
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import AnyInterval, interval_at, sorted_ends, within
from jaxmech.integrate.step import step
from jaxmech.integrate.trajectory import Move, StepRecord, Trajectory
from jaxmech.system import Params

# The first time, and times at which a step ends; None if not differentiated.
_Given = tuple[Any, Any]


class _KeptRun(eqx.Module):
    record: StepRecord
    states: Float[Array, " T n2"]  # q, v and memory at the save times
    known: Bool[Array, " T"]  # which saves were reached, or follow a terminal event
    active: Bool[Array, " T C"]  # constraints that are on there
    counts: Int[Array, " E"]  # of the events

    @property
    def smooth(self) -> tuple[Any, Any]:
        """The states before the segments and at the saves."""
        return self.record.starts, self.states


class _MoveRule(RunRule):
    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays
    ) -> list[Array]:
        return self.pushed(args, residuals, needed, tangents, is_smooth=True)


@dataclass(frozen=True)
class _MovesRun(AbstractRun):
    """A run with adaptive steps, by functions with closed-over values as arguments."""

    rule = _MoveRule
    event_set: EventSet
    # From a state, a piece, its size and the shared inputs to the state after a step of the pair.
    plain: Callable[..., PieceState]
    # From a state (2 n,), t, active, interval and shared inputs to its time derivative.
    rates: Callable[..., Array]
    # An event at the end of such a step: the state after it, and its row.
    event: Callable[..., tuple[PieceState, Array]] | None = None

    def tangents(
        self, x: RolloutInputs, residuals: _KeptRun, changes: RolloutInputs, is_smooth: bool
    ) -> SmoothResults:
        along = _along_all_moves if is_smooth else _along_moves
        record, event_set = residuals.record, self.event_set
        moves, (traced, fixed) = _Replay.of(self, x), split_shared(x, changes)
        d_given = jax.tree.map(lambda rows: rows[0], changes.ts), changes.times
        given = of_parts(d_given, (x.ts[0], x.times))

        def push(before: _Pushed, number: Array) -> tuple[_Pushed, Move, Array, Array]:
            """Push through a move; also the move, and tangents of a save at its end and its row."""
            move = record.move(number, before.begin, moves.usual)

            def run(state: PieceState, times: _Given, traced: Any) -> Any:
                shared = eqx.combine(traced, fixed)
                return moves.advance(state, times, before.active, move, shared)

            (new, _), (d_new, d_row) = jax.jvp(
                run, (before.state, given, traced), (before.d_state, d_given, changes.shared)
            )
            goes_on = moves.goes_on(move)
            state, d_state = jax.tree.map(
                lambda x, y: jnp.where(goes_on, x, y), (new, d_new), (before.state, before.d_state)
            )
            active, begin = moves.switched(before.active, move), moves.elapsed(move)
            d_save = jnp.concatenate([d_new.q, d_new.v, d_new.memory])
            return _Pushed(state, d_state, active, begin), move, d_save, d_row

        first_state, offset = (x.q0, x.v0, x.memory), _no_offset(event_set, x)
        zeros = jax.tree.map(jnp.zeros_like, first_state)
        d_first = eqx.combine((changes.q0, changes.v0, changes.memory), zeros)
        d_q, d_v, d_memory = d_first
        states = PieceState(*first_state, offset), PieceState(d_q, d_v, d_memory, offset)
        start = _Pushed(*states, residuals.active[0], jnp.zeros_like(x.ts[0]))
        end, saves, starts, log = along(push, record, event_set, len(x.ts), start)
        if event_set:
            log = jnp.where(event_set.is_kept(residuals.counts)[:, None], log, 0.0)
            is_reached = _reached_saves(residuals)[:, None]
            saves = jnp.where(is_reached, saves, end.d_state.packed()[None, : saves.shape[1]])
        first = x.ts == x.ts[0]
        saves = jnp.where(first[:, None], jnp.concatenate(d_first)[None], saves)
        if changes.ts is not None:
            # A save is a state of the motion, so a later save time moves it by (v, qdd).
            shift = jnp.where(first, 0.0, changes.ts - changes.ts[0])
            saves = saves + shift[:, None] * self._rates_at_saves(x, residuals)
        # Switches and times, which follow in the record, have no tangents.
        starts = jnp.pad(starts, ((0, 0), (0, record.starts.shape[1] - starts.shape[1])))
        is_segment = record.segment * jnp.arange(len(starts)) < record.count
        starts = jnp.where(is_segment[:, None], starts, 0.0)
        at_saves = jnp.where(residuals.known[:, None], saves, 0.0)
        q, v, memory = _parts(x, saves)
        return SmoothResults(q, v, memory, log, (starts, at_saves))

    def cotangents(
        self, x: RolloutInputs, residuals: _KeptRun, needed: RolloutInputs,
        cotangents: SmoothResults,
    ) -> RolloutInputs:  # fmt: skip
        """Run the segments again, from the last to the first, and pull the cotangents back."""
        record, event_set = residuals.record, self.event_set
        moves, (shared, fixed) = _Replay.of(self, x), split_shared(x, needed)
        given_starts, at_saves = cotangents.states
        first_state = x.q0, x.v0, x.memory
        zeros = tuple(jnp.zeros((len(x.ts), part.size), part.dtype) for part in first_state)
        wrt_saves = cotangents.q, cotangents.v, cotangents.memory
        saves = jnp.concatenate(eqx.combine(wrt_saves, zeros), axis=1)
        if at_saves is not None:
            saves = saves + jnp.where(residuals.known[:, None], at_saves, 0.0)

        def wrt_save(move: Move) -> Array:
            return jax.lax.dynamic_index_in_dim(saves, move.save, keepdims=False)

        def wrt_row(move: Move) -> Array:
            if cotangents.occurrences is None:
                return jnp.zeros_like(moves.none)
            row = jax.lax.dynamic_index_in_dim(cotangents.occurrences, move.row, keepdims=False)
            return jnp.where(move.row >= 0, row, 0.0)

        def make_move(before: Any, number: Array) -> Any:
            state, active, begin = before
            move, all_shared = record.move(number, begin, moves.usual), eqx.combine(shared, fixed)
            new = jax.lax.cond(
                moves.goes_on(move),
                lambda: moves.advance(state, (None, None), active, move, all_shared)[0],
                lambda: state,
            )
            return (new, moves.switched(active, move), moves.elapsed(move)), before

        def pull_move(wrt_end: Any, before: Any, number: Array) -> Any:
            (state, active, begin), (wrt_state, *wrt) = before, wrt_end
            move = record.move(number, begin, moves.usual)

            def pulled() -> Any:
                is_save, goes_on = move.save > 0, moves.goes_on(move)
                row = jnp.pad(wrt_save(move), (0, state.offset.size + active.size))
                wrt_new = jax.tree.map(
                    lambda x, y: jnp.where(is_save, x, jnp.where(goes_on, y, 0.0)),
                    moves.start(row)[0],
                    wrt_state,
                )
                given = of_parts(wrt[0], (x.ts[0], x.times))
                wrt_start, *wrt_shared = moves.pull_back(
                    state, given, active, move, shared, fixed, wrt_new, partial(wrt_row, move)
                )
                # A move to a save, or to an event that changes nothing, is a side branch: the
                # motion continues from the state before it.
                wrt_start = jax.tree.map(
                    lambda x, y: jnp.where(goes_on, y, x + y), wrt_state, wrt_start
                )
                return wrt_start, *jax.tree.map(jnp.add, wrt, wrt_shared)

            # A save is a step of its own, often without a use.
            is_side_branch = (move.save > 0) & (move.which < 0)
            matters = move.is_made & ~(is_side_branch & (wrt_save(move) == 0).all())
            return jax.lax.cond(matters, pulled, lambda: wrt_end)

        # A segment without moves has no state: the initial one stands in for it, at which all
        # functions can be evaluated. Of a single trajectory native code computes what depends on
        # `x.q0`; with events that would take minutes to compile for second derivatives.
        first = record.starts[0, :-1]
        if not event_set:
            first = PieceState(*first_state, _no_offset(event_set, x)).packed()

        def pull_segment(wrt_end: Any, segment: Any) -> tuple[Any, None]:
            number, wrt_start = segment
            is_begun = number * record.segment < record.count
            start, begin = record.start(number)
            start, begin = jnp.where(is_begun, start, first), jnp.where(is_begun, begin, 0.0)
            numbers = number * record.segment + jnp.arange(record.segment, dtype=jnp.int32)

            def pulled() -> Any:
                before = *moves.start(start), begin
                wrt_state, *wrt = pulled_through(make_move, pull_move, before, numbers, wrt_end)
                if wrt_start is not None:
                    given = moves.start(wrt_start[:-1])[0]
                    wrt_state = jax.tree.map(jnp.add, wrt_state, given)
                return wrt_state, *wrt

            return jax.lax.cond(is_begun, pulled, lambda: wrt_end), None

        end, t0 = jnp.zeros_like(first), jnp.zeros_like(x.ts[0])
        if event_set:
            later = jnp.where(_reached_saves(residuals)[:, None], 0.0, saves).sum(0)
            end = jnp.concatenate([later, end[later.size :]])
        start = t0 if needed.ts else None, jnp.zeros_like(x.times) if needed.times else None
        last = moves.start(end)[0], start, jax.tree.map(jnp.zeros_like, shared)
        numbers = jnp.arange(len(record.starts), dtype=jnp.int32)
        (wrt, (wrt_t0, wrt_times), wrt_shared), _ = jax.lax.scan(
            pull_segment, last, (numbers, given_starts), reverse=True
        )
        at_start = jnp.where((x.ts == x.ts[0])[:, None], saves, 0.0).sum(0)
        start_q, start_v, start_memory = _parts(x, at_start)
        wrt_ts = None
        if wrt_t0 is not None:
            by_save = (saves * self._rates_at_saves(x, residuals)).sum(1)
            by_save = jnp.where(x.ts != x.ts[0], by_save, 0.0)
            wrt_ts = jnp.where(jnp.arange(len(x.ts)) == 0, wrt_t0 - by_save.sum(), by_save)
        wrt_params, wrt_traced = wrt_shared
        return RolloutInputs(
            wrt.q + start_q if needed.q0 else None,
            wrt.v + start_v if needed.v0 else None,
            wrt_ts,
            wrt_params,
            times=wrt_times,
            memory=wrt.memory + start_memory if needed.memory else None,
            traced=wrt_traced,
        )

    def _rates_at_saves(self, x: RolloutInputs, residuals: _KeptRun) -> Array:
        """Rates of q, v and memory at the saves, (T, 2 n + c); zero after a terminal event."""

        def rate_at(_: None, save: Any) -> tuple[None, Array]:
            state, t, active, interval = save
            return None, self.rates(state, t, active, interval, x.shared)

        first = jnp.concatenate([x.q0, x.v0, x.memory])
        states = jnp.where(residuals.known[:, None], residuals.states, first[None])
        intervals = interval_at(x.times, x.ts, x.ts[0], x.ts[-1])
        _, rates = jax.lax.scan(rate_at, None, (states, x.ts, residuals.active, intervals))
        if not self.event_set:
            return rates
        return jnp.where(_reached_saves(residuals)[:, None], rates, 0.0)


def _parts(x: RolloutInputs, states: Array) -> list[Array]:
    """q, v and memory of packed states."""
    return jnp.split(states, np.cumsum([x.q0.size, x.v0.size]).tolist(), axis=-1)


class _Pushed(eqx.Module):
    state: PieceState
    d_state: PieceState
    active: Array  # constraints that are on
    begin: Array  # time since the start


def _along_moves(
    push: Callable[..., Any], record: StepRecord, event_set: EventSet, save_count: int,
    start: _Pushed,
) -> tuple[_Pushed, Array, Array, Array]:  # fmt: skip
    """The end of all moves from a start, given a function that pushes through one.

    Also the tangents of the saves (T, 2 n), of the states before the segments and of the log of
    events (R, w), undefined where there are none.
    """

    def push_move(carry: Any) -> Any:
        number, pushed, saves, starts, log = carry
        next_pushed, move, d_save, d_row = push(pushed, number)
        is_first = number % record.segment == 0
        saves = with_row(saves, move.save, d_save, move.save > 0)
        starts = with_row(starts, number // record.segment, pushed.d_state.packed(), is_first)
        if event_set:
            log = with_row(log, move.row, d_row, move.which >= 0)
        return number + 1, next_pushed, saves, starts, log

    state = start.state.q, start.state.v, start.state.memory
    saves = empty_rows(save_count, jnp.concatenate(state))
    starts = empty_rows(len(record.starts), start.d_state.packed(), sparse=True)
    log = event_set.log(start.state.q, start.state.v)
    carry = jnp.zeros((), jnp.int32), start, saves, starts, log
    _, end, saves, starts, log = jax.lax.while_loop(lambda c: c[0] < record.count, push_move, carry)
    return end, saves, starts, log


def _along_all_moves(
    push: Callable[..., Any], record: StepRecord, event_set: EventSet, save_count: int,
    start: _Pushed,
) -> tuple[_Pushed, Array, Array, Array]:  # fmt: skip
    """The same by a loop of fixed length, so that JAX can transpose it."""

    def push_move(pushed: _Pushed, number: Array) -> tuple[_Pushed, tuple[Any, ...]]:
        next_pushed, move, d_save, d_row = push(pushed, number)
        d_row = jnp.where(move.which >= 0, d_row, 0.0)
        tangents = pushed.d_state.packed(), jnp.where(move.is_made, d_save, 0.0)
        return next_pushed, (*tangents, move, d_row)

    order = jnp.arange(len(record.moves), dtype=jnp.int32)
    end, (tangents_before, tangents_after, move_rows, rows) = jax.lax.scan(push_move, start, order)

    def moves_at(numbers: Array, is_known: Array, count: int) -> Array:
        """The move that leads to each save or row."""
        indices = jnp.zeros(count + 1, jnp.int32)
        return indices.at[jnp.where(is_known, numbers, count)].set(order)[:-1]

    log = event_set.log(start.state.q, start.state.v)
    if event_set:
        is_known = (move_rows.which >= 0) & (move_rows.row >= 0)
        log = rows[moves_at(move_rows.row, is_known, event_set.rows[-1])]
    saves = tangents_after[moves_at(move_rows.save, move_rows.save > 0, save_count)]
    return end, saves, tangents_before[:: record.segment], log


@dataclass(frozen=True)
class _Replay:
    """The moves of a run, to be made again."""

    run: _MovesRun
    x: RolloutInputs  # derivatives with respect to its save times are no part of a move
    fixed: Array  # times from the start at which a step ends (K,), as in the run that was recorded
    ends: Array  # these times by `sorted_ends`

    @staticmethod
    def of(run: _MovesRun, x: RolloutInputs) -> "_Replay":
        # Without derivatives, which the forward run had not; before the loops, because native code
        # cannot sort; and rounded as the beginnings of moves are.
        held, first, last = jax.lax.stop_gradient((x.times, x.ts[0], x.ts[-1]))
        ends = sorted_ends(first + (held - first), first, last)
        return _Replay(run, x, jnp.sign(last - first) * (held - first), ends)

    @property
    def none(self) -> Array:
        """The row of no event."""
        return jnp.zeros(self.run.event_set.width(self.x.q0, self.x.v0), self.x.q0.dtype)

    def start(self, row: Array) -> tuple[PieceState, Array]:
        """A state and its switches, from those before a segment as they are recorded."""
        end = len(row) - len(self.run.event_set.names)
        sizes = self.x.q0.size, self.x.v0.size, self.x.memory.size
        state = jnp.split(row, [*np.cumsum(sizes).tolist(), end])
        return PieceState(*state[:4]), state[4] > 0.5

    def at(
        self, state: PieceState, primal_times: _Given, active: Array, move: Move
    ) -> tuple[EventPiece, Array]:
        """A move as a piece, and the size of its step.

        `primal_times` are the first time of the run and the times at which a step ends, None for
        those that are not differentiated.
        """
        ts, held = self.x.ts, self.x.times
        t0, times = eqx.combine(primal_times, (ts[0], held))
        sign = jnp.sign(ts[-1] - ts[0])
        size, target = sign * move.size, jax.lax.dynamic_index_in_dim(ts, move.save, 0, False)
        recorded_begin = ts[0] + sign * move.begin
        remaining = target - recorded_begin - state.delay
        h, late = size, state.offset
        if held.size:
            is_end, is_time = self._ends(move)
            # Zero, but its derivative is that of the time at which the step ends.
            moved = (times - t0) - jax.lax.stop_gradient(held - ts[0])
            late = jnp.where(is_end, jnp.where(is_time, moved, 0.0).sum(), state.offset)
            h = size + (late - state.offset).sum()
        ends = ts[0] + sign * self.fixed
        interval = interval_at(ends, recorded_begin, ts[0], ts[-1], self.ends)
        begin, event = t0 + sign * move.begin, (move.which, move.row)
        piece = EventPiece(begin, size, *event, active, move.outcome, late, interval)
        return piece, jnp.where(move.save > 0, remaining, h)

    def _ends(self, move: Move) -> tuple[Array, Array]:
        """Whether a step has to end where a move ends, and the flags (K,) of that time."""
        first, last = jax.lax.stop_gradient((self.x.ts[0], self.x.ts[-1]))
        apart = jnp.abs(self.fixed - (move.begin + move.size))
        near = 4 * jnp.finfo(first.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
        is_nearest = jnp.arange(apart.size) == jnp.argmin(apart)
        is_before = move.begin + move.size < jnp.abs(last - first) - near
        is_step = (move.save == 0) & (move.which < 0)
        return is_step & (apart.min() <= near) & is_before, is_nearest

    def elapsed(self, move: Move) -> Array:
        end = jnp.where(self.goes_on(move), move.begin + move.size, move.begin)
        if not self.fixed.size:
            return end
        is_end, is_time = self._ends(move)
        exact = jnp.where(is_time, self.fixed, 0.0).sum()
        return jnp.where(is_end & self.goes_on(move), exact, end)

    def advance(
        self, state: PieceState, primal_times: _Given, active: Array, move: Move, shared: Any
    ) -> tuple[PieceState, Array]:
        piece, h = self.at(state, primal_times, active, move)

        def make() -> tuple[PieceState, Array]:
            end = self.run.plain(state, piece, h, shared)
            if self.run.event is None:
                return end, self.none
            event = partial(self.run.event, end, piece, h, shared)
            return jax.lax.cond(piece.which >= 0, event, lambda: (end, self.none))

        if not self.run.event_set:
            return make()
        return jax.lax.cond(move.is_made, make, lambda: (state, self.none))

    def pull_back(
        self, state: PieceState, primal_times: _Given, active: Array, move: Move, shared: Any,
        fixed: Any, wrt_end: PieceState, row: Callable[[], Array],
    ) -> Any:  # fmt: skip
        """Cotangents of the state before a move, of the `primal_times` and of `shared`.

        `wrt_end` are those of the state after it; `row` returns that of the row of an event.
        """

        def through(kind: Callable[..., Any]) -> Callable[..., Any]:
            def run(state: PieceState, primal_times: _Given, shared: Any) -> Any:
                piece, h = self.at(state, primal_times, active, move)
                return kind(state, piece, h, eqx.combine(shared, fixed))

            return run

        end, pull = jax.vjp(through(self.run.plain), state, primal_times, shared)
        if self.run.event is None:
            return pull(wrt_end)
        # The step and the event are differentiated apart: the event is the rare case.
        event, zeros = through(self.run.event), jax.tree.map(jnp.zeros_like, (primal_times, shared))
        wrt_end, *wrt = jax.lax.cond(
            move.which >= 0,
            lambda: jax.vjp(event, end, primal_times, shared)[1]((wrt_end, row())),
            lambda: (wrt_end, *zeros),
        )
        wrt_start, *wrt_inputs = pull(wrt_end)
        return wrt_start, *jax.tree.map(jnp.add, wrt, wrt_inputs)

    def goes_on(self, move: Move) -> Array:
        """Whether the motion continues from the state after a move, and not from the one before."""
        steps = move.is_made & (move.save == 0)
        event_set = self.run.event_set
        if not event_set:
            return steps
        return steps & ((move.which < 0) | event_set.interrupts(move.which))

    def switched(self, active: Array, move: Move) -> Array:
        if not self.run.event_set:
            return active
        switched = self.run.event_set.switched(move.which, active, move.outcome)
        return jnp.where(move.is_made & (move.which >= 0), switched, active)

    @property
    def usual(self) -> Array:
        """A length for moves that were not made."""
        # Any length at which the step can be computed: its result is not used, but must not be NaN.
        return jnp.abs(self.x.ts[1] - self.x.ts[0])


def _no_offset(event_set: EventSet, x: RolloutInputs) -> Float[Array, " k"]:
    """The offset at the start, if there are events, or times at which a step ends: (1,) or (0,)."""
    return jnp.zeros(int(bool(event_set) or x.times.size > 0), x.ts.dtype)


def _reached_saves(residuals: _KeptRun) -> Bool[Array, " T"]:
    """Flags of the saves that moves reached; the others may follow a terminal event."""
    return jnp.arange(len(residuals.known)) < residuals.record.saved


def _plain(
    by_pair: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    params: Params,
) -> PieceState:  # fmt: skip
    """The state after a recorded step that is made again."""
    start, memory, params = piece.start(by_pair, event_set, state, params)
    end, _ = step(by_pair, start, h, event_set.params(params, piece.active))
    q, v = checked_states(end.q, end.v, jnp.asarray(False))
    return PieceState(q, v, memory, piece.late)


def _event(
    by_pair: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    params: Params
) -> tuple[PieceState, Array]:  # fmt: skip
    params = with_outputs(by_pair.system, within(piece.interval, params), state.memory)
    t, active_params = piece.t + state.delay + h, event_set.params(params, piece.active)
    # As at a save, the derivative by the time of an event is that of the motion: that of the step
    # by its size is the same to within the tolerance, but would be a second step to differentiate.
    motion = along_motion(by_pair, state.q, state.v, t, active_params)
    size = jnp.zeros_like(h)
    delay, next_state, row = at_event(by_pair, event_set, motion, size, piece, h, params)
    return PieceState(*next_state, state.memory, state.offset + delay), row


def adaptive_trajectory(
    scheme: Scheme, event_set: EventSet, segment: int, x: RolloutInputs
) -> Trajectory:
    """The run in segments of some moves, as an operation with its derivatives."""
    by_pair, system = scheme.with_one_step(), scheme.system
    ends = np.cumsum([x.q0.size, x.v0.size]).tolist()

    def forward(x: RolloutInputs) -> tuple[Trajectory, _KeptRun]:
        inputs = x.q0, x.v0, x.ts, x.params, x.memory, x.tolerance
        trajectory, record = adaptive_rollout(
            scheme, *inputs, segment=segment, event_set=event_set, times=x.times
        )
        saves = trajectory.saves
        states = jnp.concatenate([saves.q, saves.v, saves.memory], axis=1)
        is_known = ~jnp.isnan(states[:, 0])
        states = jnp.where(is_known[:, None], states, 0.0)
        kept = _KeptRun(record, states, is_known, saves.active, trajectory.events.counts)
        return trajectory, kept

    def rates(
        state: Array, t: Array, active: Array, interval: AnyInterval, params: Params
    ) -> Array:
        q, v, memory = jnp.split(state, ends)
        held = with_outputs(system, within(interval, params), memory)
        active_params = event_set.params(held, active)
        _, law = scheme.law(q, v, t, active_params)
        speeds = system.dynamics.speeds(q, v, t, active_params)
        return jnp.concatenate([speeds, law.qdd, jnp.zeros_like(memory)])

    zero, zero_count = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    active, state = event_set.active(), jnp.concatenate([x.q0, x.v0, x.memory])
    interval, offset = interval_at(x.times, zero, zero, zero), _no_offset(event_set, x)
    outcome = event_set.gaps.undecided(x.q0.dtype)
    piece = EventPiece(zero, zero, zero_count, zero_count, active, outcome, offset, interval)
    from_start = PieceState(x.q0, x.v0, x.memory, offset), piece, zero
    parts: list[Any] = [partial(_plain, by_pair, event_set), rates]
    examples: list[Any] = [from_start, (state, zero, active, interval)]
    if event_set:  # whose part closes over all that the others do, so it is the first
        parts, examples = [partial(_event, by_pair, event_set), *parts], [from_start, *examples]
    x, run, (*event, plain, slopes) = with_traced(forward, x, parts, examples)
    return _MovesRun(run, event_set, plain, slopes, *event).trajectory(x)
