"""Derivatives of a run with adaptive steps: through its steps, whose sizes are held fixed.

The forward run records its moves (`record`). The tangents go along with the moves. The cotangents
go backwards, segment by segment: each is run again from the state before it. Save times enter by
the speeds and accelerations at the saves, because a save is a state of the motion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.compiler import AbstractRule, Arrays, Flags, empty_rows, with_row
from jaxmech.integrate.derivatives.event_pieces import PieceState
from jaxmech.integrate.derivatives.record import SEGMENT, Move, StepRecord
from jaxmech.integrate.derivatives.run_rule import (
    AbstractRun,
    RolloutInputs,
    RunRule,
    SmoothResults,
    completed,
    of_parts,
    pulled_through,
    split_shared,
)
from jaxmech.integrate.derivatives.step_replay import (
    Given,
    KeptRun,
    MoveProgram,
    StepReplay,
    move_program,
    no_offset,
    rates_at_saves,
    reached_saves,
)
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.trajectory import Trajectory


def adaptive_trajectory(
    scheme: Scheme, x: RolloutInputs, event_set: EventSet, segment: int | None = None
) -> Trajectory:
    """The run as one operation with its derivatives."""
    x, run, program = move_program(scheme, event_set, segment or SEGMENT, x)
    return MovesRun(run, program).trajectory(x)


@dataclass(frozen=True)
class MovesRun(AbstractRun):
    """A run with adaptive steps; `program` defines its moves."""

    program: MoveProgram

    def tangents(
        self, x: RolloutInputs, residuals: KeptRun, changes: RolloutInputs, *,
        is_smooth: bool = False,
    ) -> SmoothResults:  # fmt: skip
        """Push tangents along the moves that were made.

        Those that are smooth come from loops of fixed length, which JAX can differentiate in
        reverse mode.
        """
        along = _along_all_moves if is_smooth else _along_moves
        program, record, event_set = self.program, residuals.record, self.program.event_set
        moves, (traced, fixed) = StepReplay.of(program, x), split_shared(x, changes)
        d_given = jax.tree.map(lambda rows: rows[0], changes.ts), changes.times
        given = of_parts(d_given, (x.ts[0], x.times))

        def push(before: _Pushed, number: Array) -> tuple[_Pushed, Move, Array, Array]:
            """Push through a move; also the move, and tangents of a save at its end and its row."""
            move = record.move(number, before.begin, moves.usual)

            def run(state: PieceState, times: Given, traced: Any) -> Any:
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

        first_state, offset = (x.q0, x.v0, x.memory), no_offset(event_set, x)
        zeros = jax.tree.map(jnp.zeros_like, first_state)
        d_first = completed((changes.q0, changes.v0, changes.memory), zeros)
        d_q, d_v, d_memory = d_first
        states = PieceState(*first_state, offset), PieceState(d_q, d_v, d_memory, offset)
        start = _Pushed(*states, residuals.active[0], jnp.zeros_like(x.ts[0]))
        end, saves, starts, log = along(push, record, event_set, len(x.ts), start)
        if event_set:
            log = jnp.where(event_set.is_kept(residuals.counts)[:, None], log, 0.0)
            is_reached = reached_saves(residuals)[:, None]
            saves = jnp.where(is_reached, saves, end.tangent()[None, : saves.shape[1]])
        first = x.ts == x.ts[0]
        saves = jnp.where(first[:, None], jnp.concatenate(d_first)[None], saves)
        if changes.ts is not None:
            # A save is a state of the motion, so a later save time moves it by (v, qdd).
            shift = jnp.where(first, 0.0, changes.ts - changes.ts[0])
            saves = saves + shift[:, None] * rates_at_saves(program, x, residuals)
        # Switches and times, which follow in the record, have no tangents.
        starts = jnp.pad(starts, ((0, 0), (0, record.starts.shape[1] - starts.shape[1])))
        is_segment = record.segment * jnp.arange(len(starts)) < record.count
        starts = jnp.where(is_segment[:, None], starts, 0.0)
        at_saves = jnp.where(residuals.known[:, None], saves, 0.0)
        q, v, memory = _parts(x, saves)
        return SmoothResults(q, v, memory, log, (starts, at_saves))

    def cotangents(
        self, x: RolloutInputs, residuals: KeptRun, needed: RolloutInputs, cotangents: SmoothResults
    ) -> RolloutInputs:
        """Run the segments again, from the last to the first, and pull the cotangents back."""
        program, record, event_set = self.program, residuals.record, self.program.event_set
        moves, (shared, fixed) = StepReplay.of(program, x), split_shared(x, needed)
        given_starts, at_saves = cotangents.states
        pairs = (
            (cotangents.q, x.q0), (cotangents.v, x.v0), (cotangents.memory, x.memory),
        )  # fmt: skip
        saves = jnp.concatenate(
            [completed(ct, jnp.zeros((len(x.ts), start.size), start.dtype)) for ct, start in pairs],
            axis=1,
        )
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
            first = PieceState(x.q0, x.v0, x.memory, no_offset(event_set, x)).packed()

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
            later = jnp.where(reached_saves(residuals)[:, None], 0.0, saves).sum(0)
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
            by_save = (saves * rates_at_saves(program, x, residuals)).sum(1)
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

    def rule(self, structure: Any, outs: Any) -> AbstractRule:
        """The derivatives, with loops of two kinds in forward mode."""
        return _MoveRule(self, structure, outs)


def _parts(x: RolloutInputs, states: Array) -> list[Array]:
    """q, v and memory of packed states."""
    return jnp.split(states, np.cumsum([x.q0.size, x.v0.size]).tolist(), axis=-1)


class _MoveRule(RunRule):
    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, needed: Flags, tangents: Arrays
    ) -> list[Array]:
        """Push tangents by loops of fixed length."""
        push = partial(self.program.tangents, is_smooth=True)
        return self.pushed(push, args, residuals, needed, tangents)


class _Pushed(eqx.Module):
    """A state between moves with its tangent."""

    state: PieceState
    d_state: PieceState
    active: Array  # constraints that are on
    begin: Array  # time since the start

    def tangent(self) -> Array:
        """The tangent packed into one array."""
        return self.d_state.packed()


# From a function that pushes tangents through a move, and the start of the first one, to the end
# and to the tangents of the saves (T, 2 n), of the states before the segments and of the log of
# events (R, w); undefined where there are none.
_Push = Callable[[_Pushed, Array], tuple[_Pushed, Move, Array, Array]]
_Tangents = tuple[_Pushed, Array, Array, Array]


def _along_moves(
    push: _Push, record: StepRecord, event_set: EventSet, save_count: int, start: _Pushed
) -> _Tangents:
    def push_move(carry: Any) -> Any:
        number, pushed, saves, starts, log = carry
        next_pushed, move, d_save, d_row = push(pushed, number)
        is_first = number % record.segment == 0
        saves = with_row(saves, move.save, d_save, move.save > 0)
        starts = with_row(starts, number // record.segment, pushed.tangent(), is_first)
        if event_set:
            log = with_row(log, move.row, d_row, move.which >= 0)
        return number + 1, next_pushed, saves, starts, log

    state = start.state.q, start.state.v, start.state.memory
    saves = empty_rows(save_count, jnp.concatenate(state))
    starts = empty_rows(len(record.starts), start.tangent(), sparse=True)
    log = event_set.log(start.state.q, start.state.v)
    carry = jnp.zeros((), jnp.int32), start, saves, starts, log
    _, end, saves, starts, log = jax.lax.while_loop(lambda c: c[0] < record.count, push_move, carry)
    return end, saves, starts, log


def _along_all_moves(
    push: _Push, record: StepRecord, event_set: EventSet, save_count: int, start: _Pushed
) -> _Tangents:
    # A loop of fixed length, so that JAX can transpose it.
    def push_move(pushed: _Pushed, number: Array) -> tuple[_Pushed, tuple[Any, ...]]:
        next_pushed, move, d_save, d_row = push(pushed, number)
        d_row = jnp.where(move.which >= 0, d_row, 0.0)
        return next_pushed, (pushed.tangent(), jnp.where(move.is_made, d_save, 0.0), move, d_row)

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
