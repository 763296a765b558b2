"""Tangents along the recorded moves of a run."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.moves import KeptRun, MoveProgram, Moves, moves_of, rates_at_saves
from jaxmech.integrate.adaptive.record import Move
from jaxmech.integrate.segment_parts import RolloutInputs

# From the tangents of the start, of its time and of `shared` to those of the saves (T, 2 n) and of
# the states before the segments (S, 2 n); undefined where there are none.
Along = Callable[[MoveProgram, KeptRun, Moves, Moves, Array, Array], tuple[Array, Array]]


def tangents_of(
    program: MoveProgram, along: Along, x: RolloutInputs, kept: KeptRun, tangents: RolloutInputs
) -> list[Array]:
    """Tangents of q, v, the starts and the kept states; None is a zero tangent of an input."""
    moves = moves_of(x, (x.params, x.traced))
    some = tangents.params, tangents.traced
    change = jax.tree.map(
        lambda t, x: jnp.zeros_like(x) if t is None else t,
        some, (x.params, x.traced), is_leaf=lambda t: t is None,
    )  # fmt: skip
    d_start = jnp.concatenate([
        jnp.zeros_like(s) if d is None else d for s, d in ((x.q0, tangents.q0), (x.v0, tangents.v0))
    ])  # fmt: skip
    zero = jnp.zeros_like(x.ts[0])
    d_t0 = zero if tangents.ts is None else tangents.ts[0]
    d_moves = Moves(d_t0, zero, jnp.zeros_like(x.ts), change)
    start = jnp.concatenate([x.q0, x.v0])
    saves, starts = along(program, kept, moves, d_moves, start, d_start)
    first = (x.ts == x.ts[0])[:, None]
    saves = jnp.where(first, d_start[None], saves)
    if tangents.ts is not None:
        # A save is a state of the motion, so a later save time moves it by (v, qdd).
        shift = jnp.where(first[:, 0], 0.0, tangents.ts - d_t0)
        saves = saves + shift[:, None] * rates_at_saves(program, x, kept)
    before = kept.record.segment * jnp.arange(len(starts)) < kept.record.count
    starts = jnp.where(before[:, None], starts, 0.0)
    told = jnp.where(kept.known[:, None], saves, jnp.nan)
    n = x.q0.size
    return [told[:, :n], told[:, n:], starts, jnp.where(kept.known[:, None], saves, 0.0)]


def along_moves(
    program: MoveProgram, kept: KeptRun, moves: Moves, d_moves: Moves, start: Array, d_start: Array
) -> tuple[Array, Array]:
    """By a loop over the moves that were made."""
    record = kept.record

    def one(carry: Any) -> Any:
        number, begin, state, d_state, saves, starts = carry
        move = record.move(number, begin, moves.usual)
        new, d_new = _pushed(program, moves, d_moves, (state, d_state), move)
        is_save = move.save > 0
        is_first = number % record.segment == 0
        saves = with_row(saves, move.save, d_new, is_save)
        starts = with_row(starts, number // record.segment, d_state, is_first)
        state, d_state = jnp.where(is_save, state, new), jnp.where(is_save, d_state, d_new)
        return number + 1, move.elapsed(~is_save), state, d_state, saves, starts

    rows = (empty_rows(len(x), d_start) for x in (kept.known, record.starts))
    zero = jnp.zeros((), jnp.int32), jnp.zeros_like(moves.t0)
    *_, saves, starts = jax.lax.while_loop(
        lambda c: c[0] < record.count, one, (*zero, start, d_start, *rows)
    )
    return saves, starts


def _pushed(
    program: MoveProgram, moves: Moves, d_moves: Moves, state: tuple[Array, Array], move: Move
) -> tuple[Array, Array]:
    """A state and its tangent after a move."""

    def moved(state: Array, t0: Array, shared: Any) -> Array:
        return Moves(t0, moves.sign, moves.ts, shared).moved(program, state, move)

    given, change = (moves.t0, moves.shared), (d_moves.t0, d_moves.shared)
    found: tuple[Array, Array] = jax.jvp(moved, (state[0], *given), (state[1], *change))
    return found


def along_all_moves(
    program: MoveProgram, kept: KeptRun, moves: Moves, d_moves: Moves, start: Array, d_start: Array
) -> tuple[Array, Array]:
    """By a loop over as many moves as there could have been, which JAX can transpose."""
    record = kept.record
    count, most = len(kept.known), len(record.moves)

    def one(carry: Any, number: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        state, d_state, begin = carry
        move = record.move(number, begin, moves.usual)
        new, d_new = _pushed(program, moves, d_moves, (state, d_state), move)
        goes_on = (move.save == 0) & move.is_made
        after = jnp.where(goes_on, new, state), jnp.where(goes_on, d_new, d_state)
        told = d_state, jnp.where(move.is_made, d_new, 0.0), move.save
        return (*after, move.elapsed(goes_on)), told

    first = start, d_start, jnp.zeros_like(moves.t0)
    place = jnp.arange(most, dtype=jnp.int32)
    _, (before, after, saves) = jax.lax.scan(one, first, place)
    numbers = jnp.where(saves > 0, saves, count)
    at = jnp.zeros(count + 1, jnp.int32).at[numbers].set(place)[:-1]
    return after[at], before[:: record.segment]
