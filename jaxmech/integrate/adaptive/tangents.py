"""Tangents along the recorded moves of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.moves import (
    KeptRun,
    MoveProgram,
    Moves,
    rates_at_saves,
    reached_saves,
)
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import PieceState
from jaxmech.integrate.run_rule import RolloutInputs, SmoothResults, or_zeros, split_shared


def tangents_of(
    program: MoveProgram, along: "Along", x: RolloutInputs, kept: KeptRun, changes: RolloutInputs
) -> SmoothResults:
    """Tangents of the results; None is a zero tangent of an input."""
    moving, fixed = split_shared(x, changes)
    d_q, d_v = (or_zeros(d, jnp.zeros_like(s)) for s, d in ((x.q0, changes.q0), (x.v0, changes.v0)))
    zero, found = jnp.zeros_like(x.ts[0]), program.nothing_found(x.q0)
    offset, active = (None, None) if program.watch is None else (zero, program.watch.active())
    start = _Pushed(
        PieceState(x.q0, x.v0, offset), PieceState(d_q, d_v, offset), active, found, zero
    )
    push = _Push(Moves.of(program, x), kept.record, moving, fixed, changes)
    end, saves, starts = along(push, start)
    reached = reached_saves(program, kept)
    if reached is not None:
        saves = jnp.where(reached[:, None], saves, end.tangent()[None, : saves.shape[1]])
    first = x.ts == x.ts[0]
    saves = jnp.where(first[:, None], jnp.concatenate([d_q, d_v])[None], saves)
    if changes.ts is not None:
        # A save is a state of the motion, so a later save time moves it by (v, qdd).
        shift = jnp.where(first, 0.0, changes.ts - changes.ts[0])
        saves = saves + shift[:, None] * rates_at_saves(program, x, kept)
    # Switches, which follow in the record, have no tangents.
    starts = jnp.pad(starts, ((0, 0), (0, kept.record.starts.shape[1] - starts.shape[1])))
    begun = kept.record.segment * jnp.arange(len(starts)) < kept.record.count
    starts = jnp.where(begun[:, None], starts, 0.0)
    n = x.q0.size
    at_saves = jnp.where(kept.known[:, None], saves, 0.0)
    return SmoothResults(saves[:, :n], saves[:, n:], end.d_found, (starts, at_saves))


class _Pushed(eqx.Module):
    """A state between moves with its tangent."""

    state: PieceState
    d_state: PieceState
    active: Array | None  # constraints that are on; None without events
    d_found: Occurrences | None  # tangents of the kept events; None without events
    begin: Array  # time since the start

    def tangent(self) -> Array:
        """The tangent packed into one array."""
        return _packed(self.d_state)


def _packed(state: PieceState) -> Array:
    """q, v and, with events, the delay."""
    late = [] if state.offset is None else [state.offset[None]]
    return jnp.concatenate([state.q, state.v, *late])


@dataclass(frozen=True)
class _Push:
    """The pushforward of tangents along the moves."""

    moves: Moves
    record: StepRecord
    moving: Any  # the shared inputs that are differentiated
    fixed: Any  # the other shared inputs
    changes: RolloutInputs  # tangents of the inputs

    def __call__(self, at: _Pushed, number: Array) -> tuple[_Pushed, Move, Array]:
        """Push through a move; also the move, and the tangent of q and v at its end."""
        moves, d_ts = self.moves, self.changes.ts
        move = self.record.move(number, at.begin, moves.usual)

        def run(state: PieceState, t0: Array | None, moving: Any) -> Any:
            t0 = moves.ts[0] if t0 is None else t0
            return moves.advance(state, t0, at.active, move, eqx.combine(moving, self.fixed))

        t0, d_t0 = (None, None) if d_ts is None else (moves.ts[0], d_ts[0])
        (new, _), (d_new, d_own) = jax.jvp(
            run, (at.state, t0, self.moving), (at.d_state, d_t0, self.changes.shared)
        )
        goes_on = moves.goes_on(move)
        state, d_state = jax.tree.map(
            lambda x, y: jnp.where(goes_on, x, y), (new, d_new), (at.state, at.d_state)
        )
        d_found = at.d_found
        if d_found is not None:
            d_found = d_found.with_row(jnp.where(move.which >= 0, move.row, -1), d_own)
        active, begin = moves.switched(at.active, move), move.elapsed(goes_on)
        d_save = jnp.concatenate([d_new.q, d_new.v])
        return _Pushed(state, d_state, active, d_found, begin), move, d_save


# From the tangents of the start to those of the end, of the saves (T, 2 n) and of the states before
# the segments; undefined where there are none.
Along = Callable[[_Push, _Pushed], tuple[_Pushed, Array, Array]]


def along_moves(push: _Push, start: _Pushed) -> tuple[_Pushed, Array, Array]:
    """Push in a loop over the moves that were made."""
    record = push.record

    def one(carry: Any) -> Any:
        number, at, saves, starts = carry
        after, move, d_save = push(at, number)
        is_first = number % record.segment == 0
        saves = with_row(saves, move.save, d_save, move.save > 0)
        starts = with_row(starts, number // record.segment, at.tangent(), is_first)
        return number + 1, after, saves, starts

    saves = empty_rows(len(push.moves.ts), jnp.concatenate([start.state.q, start.state.v]))
    starts = empty_rows(len(record.starts), start.tangent())
    carry = jnp.zeros((), jnp.int32), start, saves, starts
    _, end, saves, starts = jax.lax.while_loop(lambda c: c[0] < record.count, one, carry)
    return end, saves, starts


def along_all_moves(push: _Push, start: _Pushed) -> tuple[_Pushed, Array, Array]:
    """Push in a loop over all possible moves, which JAX can transpose."""
    record, count = push.record, len(push.moves.ts)

    def one(at: _Pushed, number: Array) -> tuple[_Pushed, tuple[Array, Array, Array]]:
        after, move, d_save = push(at, number)
        return after, (at.tangent(), jnp.where(move.is_made, d_save, 0.0), move.save)

    place = jnp.arange(len(record.moves), dtype=jnp.int32)
    end, (before, after, saves) = jax.lax.scan(one, start, place)
    numbers = jnp.where(saves > 0, saves, count)
    at = jnp.zeros(count + 1, jnp.int32).at[numbers].set(place)[:-1]
    return end, after[at], before[:: record.segment]
