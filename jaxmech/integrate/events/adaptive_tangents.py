"""Tangents along the moves of a run with events and steps by a tolerance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import empty_rows, with_row
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.events.adaptive_moves import (
    EventMoves,
    EventWay,
    MoveResiduals,
    reached,
    way_of,
)
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import PieceState
from jaxmech.integrate.segment_parts import RolloutInputs


def event_tangents(
    program: EventMoves, along: "EventsAlong", x: RolloutInputs, kept: MoveResiduals,
    tangents: RolloutInputs,
) -> list[Array]:  # fmt: skip
    """Tangents of the smooth results; None is a zero tangent of an input."""
    way, record, rows = way_of(program, x), kept.record, program.watch.rows[-1]
    shared, some = (x.params, x.traced), (tangents.params, tangents.traced)
    wanted = jax.tree.map(lambda t: t is not None, some, is_leaf=lambda t: t is None)
    moving, fixed = eqx.partition(shared, wanted)
    d_q, d_v, d_ts = (
        jnp.zeros_like(s) if d is None else d
        for s, d in ((x.q0, tangents.q0), (x.v0, tangents.v0), (x.ts, tangents.ts))
    )
    zero = jnp.zeros_like(x.ts[0])
    unknown = Occurrences.none(rows, x.q0, program.watch.has_transitions)
    start = _Pushed(
        PieceState(x.q0, x.v0, zero), PieceState(d_q, d_v, zero), program.watch.active(),
        jax.tree.map(jnp.zeros_like, unknown), zero,
    )  # fmt: skip
    end, d_saves, d_starts = along(_Push(way, record, d_ts, moving, fixed, some), start)
    later = ~reached(record, len(kept.known))[:, None]
    saves = jnp.where(later, jnp.concatenate([end.d_state.q, end.d_state.v])[None], d_saves)
    saves = saves.at[0].set(jnp.concatenate([d_q, d_v]))
    saves = jnp.where(kept.known[:, None], saves, jnp.nan)
    switches = record.starts.shape[1] - d_starts.shape[1]
    d_starts = jnp.pad(d_starts, ((0, 0), (0, switches)))
    begun = record.segment * jnp.arange(len(d_starts)) < record.count
    d_starts = jnp.where(begun[:, None], d_starts, 0.0)
    n = x.q0.size
    return [saves[:, :n], saves[:, n:], *jax.tree.leaves(end.d_found), d_starts]


class _Pushed(eqx.Module):
    """A state between moves with its tangent.

    Attributes:
        state: the state.
        d_state: its tangent.
        active: which constraints are on.
        d_found: tangents of the occurrences.
        begin: time since the start.
    """

    state: PieceState
    d_state: PieceState
    active: Array
    d_found: Occurrences
    begin: Array

    def packed(self) -> Array:
        """The tangent as one array."""
        return jnp.concatenate([self.d_state.q, self.d_state.v, self.d_state.offset[None]])


@dataclass(frozen=True)
class _Push:
    """How tangents go along the moves; `moving` are the shared inputs that have some."""

    way: EventWay
    record: StepRecord
    d_ts: Array
    moving: Any
    fixed: Any
    some: Any

    def __call__(self, at: _Pushed, number: Array) -> tuple[_Pushed, Move, Array]:
        """After a move; with the move and the tangent of q and v at a save."""
        way, move = self.way, self.record.move(number, at.begin, self.way.usual)
        d_target = jax.lax.dynamic_index_in_dim(self.d_ts, move.save, keepdims=False)

        def run(state: PieceState, t0: Array, target: Array, shared: Any) -> Any:
            whole = eqx.combine(shared, self.fixed)
            return way.moved(state, at.active, move, t0, target, whole)

        (state, _, _), (d_state, d_save, d_own) = jax.jvp(
            run,
            (at.state, way.ts[0], way.target(move), self.moving),
            (at.d_state, self.d_ts[0], d_target, self.some),
        )
        here = (jnp.arange(len(at.d_found.t)) == move.row) & (move.which >= 0)
        d_found = jax.tree.map(
            lambda xs, x: jnp.where(here.reshape(-1, *[1] * x.ndim), x[None], xs),
            at.d_found, d_own,
        )  # fmt: skip
        active, begin = way.switched(at.active, move), way.elapsed(move)
        return _Pushed(state, d_state, active, d_found, begin), move, d_save


# From the tangents of the start to those of the end, of the saves (T, 2 n) and of the states before
# the segments (S, 2 n + 1).
EventsAlong = Callable[[_Push, _Pushed], tuple[_Pushed, Array, Array]]


def events_along(push: _Push, start: _Pushed) -> tuple[_Pushed, Array, Array]:
    """By a loop over the moves that were made."""
    record = push.record

    def one(carry: Any) -> Any:
        number, at, saves, starts = carry
        after, move, d_save = push(at, number)
        is_first = number % record.segment == 0
        saves = with_row(saves, move.save, d_save, move.save > 0)
        starts = with_row(starts, number // record.segment, at.packed(), is_first)
        return number + 1, after, saves, starts

    first = start.packed()
    rows = empty_rows(len(push.way.ts), first[:-1]), empty_rows(len(record.starts), first)
    carry = jnp.zeros((), jnp.int32), start, *rows
    _, end, saves, starts = jax.lax.while_loop(lambda c: c[0] < record.count, one, carry)
    return end, saves, starts


def events_along_all(push: _Push, start: _Pushed) -> tuple[_Pushed, Array, Array]:
    """By a loop over as many moves as there could have been, which JAX can transpose."""
    record, count = push.record, len(push.way.ts)

    def one(at: _Pushed, number: Array) -> tuple[_Pushed, tuple[Array, Array, Array]]:
        after, move, d_save = push(at, number)
        return after, (at.packed(), d_save, move.save)

    place = jnp.arange(len(record.moves), dtype=jnp.int32)
    end, (before, d_saves, saves) = jax.lax.scan(one, start, place)
    numbers = jnp.where(saves > 0, saves, count)
    at = jnp.zeros(count + 1, jnp.int32).at[numbers].set(place)[:-1]
    return end, d_saves[at], before[:: record.segment]
