"""Cotangents back along the moves of a run with events and steps by a tolerance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

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


def event_cotangents(
    program: EventMoves, x: RolloutInputs, kept: MoveResiduals, wanted: RolloutInputs,
    saves: Array, found: Occurrences, starts: Array,
) -> RolloutInputs:  # fmt: skip
    """Cotangents of the wanted inputs."""
    known = kept.known[:, None]
    depends_on_nan = ((saves != 0) & ~known).any()
    saves = jnp.where(known, saves, 0.0)
    every = [saves, starts, *jax.tree.leaves(found)]
    nonzero = jnp.stack([(ct != 0).any() for ct in every]).any()
    wrt = _backwards(program, x, kept, wanted, saves, found, starts)
    answer = jnp.where(depends_on_nan, jnp.nan, 0.0)
    is_found = nonzero & ~depends_on_nan
    return jax.tree.map(lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), wrt)


def _backwards(
    program: EventMoves, x: RolloutInputs, kept: MoveResiduals, wanted: RolloutInputs,
    saves: Array, found: Occurrences, starts: Array,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    way, record, n = way_of(program, x), kept.record, x.q0.size
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    pull = MovePull(way, x.ts[0], saves, found, fixed)

    def one(carry: Any, segment: Any) -> tuple[Any, Array | None]:
        own, wrt_start = segment
        row, none = own.starts, jnp.zeros_like(own.moves)

        def pulled() -> Any:
            state, active = PieceState(row[:n], row[n : 2 * n], row[2 * n]), row[2 * n + 1 :] > 0.5
            (wrt, wrt_t0, wrt_shared), wrt_targets = pull.segment(state, active, own, shared, carry)
            more = PieceState(wrt_start[:n], wrt_start[n : 2 * n], wrt_start[2 * n])
            return (jax.tree.map(jnp.add, wrt, more), wrt_t0, wrt_shared), wrt_targets

        carry, wrt_targets = jax.lax.cond(own.count > 0, pulled, lambda: (carry, none))
        return carry, wrt_targets if wanted.ts else None

    later = jnp.where(reached(record, len(kept.known))[:, None], 0.0, saves).sum(0)
    zero = jnp.zeros_like(x.ts[0])
    end = PieceState(later[:n], later[n:], zero), zero, jax.tree.map(jnp.zeros_like, shared)
    (wrt, wrt_t0, wrt_shared), wrt_targets = jax.lax.scan(
        one, end, (record.by_segment(), starts), reverse=True
    )
    wrt_ts = None
    if wanted.ts and wrt_targets is not None:
        is_save = record.saves > 0
        wrt_ts = (
            jnp.zeros_like(x.ts)
            .at[record.saves]
            .add(jnp.where(is_save, wrt_targets.reshape(-1), 0.0))
        )
        wrt_ts = wrt_ts.at[0].add(wrt_t0)
    return RolloutInputs(
        wrt.q + saves[0, :n] if wanted.q0 else None,
        wrt.v + saves[0, n:] if wanted.v0 else None,
        wrt_ts,
        *wrt_shared,
    )


@dataclass(frozen=True)
class MovePull:
    """Cotangents through a segment of moves, from its end.

    Attributes:
        way: the moves.
        t0: time of the start.
        saves: cotangents of the saves, shape (T, 2 n).
        found: cotangents of the occurrences.
        fixed: parameters that are not differentiated.
    """

    way: EventWay
    t0: Array
    saves: Array
    found: Occurrences
    fixed: Any

    def segment(
        self, state: PieceState, active: Array, own: StepRecord, shared: Any, carry: Any
    ) -> tuple[Any, Array]:
        """Cotangents of the state before it, of the start time and of the shared inputs.

        And of the save times, one for each move.
        """
        whole = eqx.combine(shared, self.fixed)

        def forward(carry: Any, number: Array) -> tuple[Any, Any]:
            state, active, begin = carry
            move = own.move(number, begin, self.way.usual)
            target = self.way.target(move)
            after, _, _ = self.way.moved(state, active, move, self.t0, target, whole)
            return (after, self.way.switched(active, move), self.way.elapsed(move)), carry

        def backward(carry: Any, each: Any) -> tuple[Any, Array]:
            (wrt, wrt_t0, wrt_shared), (number, (*before, begin)) = carry, each
            move = own.move(number, begin, self.way.usual)
            wrt, more_t0, wrt_target, more = self._move(before, move, shared, wrt)
            summed = jax.tree.map(jnp.add, wrt_shared, more)
            return (wrt, wrt_t0 + more_t0, summed), wrt_target

        numbers = jnp.arange(own.moves.size, dtype=jnp.int32)
        _, before = jax.lax.scan(forward, (state, active, own.begins), numbers)
        found: tuple[Any, Array] = jax.lax.scan(backward, carry, (numbers, before), reverse=True)
        return found

    def _move(
        self, before: Any, move: Move, shared: Any, given: PieceState
    ) -> tuple[PieceState, Array, Array, Any]:  # fmt: skip
        """Through one move; one kind at a time is differentiated, as in `replay`."""
        (state, active), target = before, self.way.target(move)
        wrt_save = jax.lax.dynamic_index_in_dim(self.saves, move.save, keepdims=False)
        is_save, n = move.save > 0, state.q.size

        def pulled(kind: Callable[..., Any], given: Any) -> Any:
            def run(state: PieceState, t0: Array, target: Array, shared: Any) -> Any:
                piece = self.way.piece(active, move, t0)
                h = self.way.size(state, move, piece, target)
                return kind(state, piece, h, eqx.combine(shared, self.fixed))

            return jax.vjp(run, state, self.t0, target, shared)[1](given)

        def event() -> Any:
            here = jnp.arange(len(self.found.t)) == move.row
            kept = jax.tree.map(
                lambda x: jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0).sum(0),
                self.found,
            )
            return pulled(self.way.program.event, (given, kept))

        def plain() -> Any:
            at_save = PieceState(wrt_save[:n], wrt_save[n:], jnp.zeros_like(state.offset))
            own = jax.tree.map(lambda x, y: jnp.where(is_save, x, y), at_save, given)
            wrt, *more = pulled(self.way.program.plain, own)
            stays = jax.tree.map(lambda x, y: jnp.where(is_save, x + y, y), given, wrt)
            return stays, *more

        def nothing() -> Any:
            zero = jnp.zeros_like(self.t0)
            return given, zero, zero, jax.tree.map(jnp.zeros_like, shared)

        def some() -> Any:
            return jax.lax.cond(move.which >= 0, event, plain)

        found: tuple[PieceState, Array, Array, Any] = jax.lax.cond(move.is_made, some, nothing)
        return found
