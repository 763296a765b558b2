"""Cotangents back along the recorded moves of a run, segment by segment."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.adaptive.moves import (
    KeptRun,
    MoveProgram,
    Moves,
    rates_at_saves,
    reached_saves,
)
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import EventPiece, PieceState
from jaxmech.integrate.run_rule import RolloutInputs, SmoothResults, or_zeros, split_shared


def cotangents_of(
    program: MoveProgram, x: RolloutInputs, kept: KeptRun, wanted: RolloutInputs,
    given: SmoothResults,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    (given_starts, at_saves), state = given.kept, jnp.zeros((len(x.ts), x.q0.size), x.q0.dtype)
    saves = jnp.concatenate([or_zeros(ct, state) for ct in (given.q, given.v)], axis=1)
    if at_saves is not None:
        saves = saves + jnp.where(kept.known[:, None], at_saves, 0.0)
    starts = or_zeros(given_starts, jnp.zeros_like(kept.record.starts))
    shared, fixed = split_shared(x, wanted)
    moves, found = Moves.of(program, x), or_zeros(given.found, program.nothing_found(x.q0))
    pull = _Pull(moves, saves, found, fixed)
    own, n = kept.record.by_segment(), x.q0.size
    # A segment without moves has no state: the initial one stands in for it, at which all functions
    # can be evaluated. Of a single trajectory native code computes what depends on `x.q0`; with
    # events that would take minutes to compile for second derivatives.
    first = kept.record.starts[0]
    if program.watch is None:
        first = jnp.concatenate([x.q0, x.v0])
    segments = replace(own, starts=jnp.where((own.count > 0)[:, None], own.starts, first[None]))

    def one(carry: Any, segment: Any) -> tuple[Any, None]:
        own, wrt_start = segment

        def pulled() -> Any:
            wrt_state, *wrt = pull.through(own, shared, carry)
            return jax.tree.map(jnp.add, wrt_state, moves.start(wrt_start)[0]), *wrt

        return jax.lax.cond(own.count > 0, pulled, lambda: carry), None

    end, t0 = jnp.zeros_like(first), jnp.zeros_like(x.ts[0])
    reached = reached_saves(program, kept)
    if reached is not None:
        later = jnp.where(reached[:, None], 0.0, saves).sum(0)
        end = jnp.concatenate([later, end[2 * n :]])
    last = moves.start(end)[0], t0 if wanted.ts else None, jax.tree.map(jnp.zeros_like, shared)
    (wrt, wrt_t0, wrt_shared), _ = jax.lax.scan(one, last, (segments, starts), reverse=True)
    at_start = jnp.where((x.ts == x.ts[0])[:, None], saves, 0.0).sum(0)
    wrt_params, wrt_traced = wrt_shared
    return RolloutInputs(
        wrt.q + at_start[:n] if wanted.q0 else None,
        wrt.v + at_start[n:] if wanted.v0 else None,
        None if wrt_t0 is None else _wrt_times(program, x, kept, saves, wrt_t0),
        wrt_params,
        traced=wrt_traced,
    )


@dataclass(frozen=True)
class _Pull:
    """The pullback of cotangents along the moves."""

    moves: Moves
    saves: Array  # cotangents of the saves, (T, 2 n)
    found: Occurrences | None  # cotangents of the kept events; None without events
    fixed: Any  # the shared inputs that are not differentiated

    def through(self, own: StepRecord, shared: Any, given: Any) -> Any:
        """Cotangents through a segment: of the state before it, of the start time and `shared`."""
        # By two loops and not by the derivative of one, which native code cannot do.
        numbers, t0 = jnp.arange(own.moves.size, dtype=jnp.int32), self.moves.ts[0]
        whole = eqx.combine(shared, self.fixed)

        def forward(carry: Any, number: Array) -> tuple[Any, Any]:
            state, active, begin = carry
            move = own.move(number, begin, self.moves.usual)
            goes_on = self.moves.goes_on(move)
            new = jax.lax.cond(
                goes_on,
                lambda: self.moves.advance(state, t0, active, move, whole)[0],
                lambda: state,
            )
            return (new, self.moves.switched(active, move), move.elapsed(goes_on)), carry

        def backward(carry: Any, each: Any) -> tuple[Any, None]:
            number, (state, active, begin) = each
            move = own.move(number, begin, self.moves.usual)

            def pulled() -> Any:
                return self._along(move, state, active, shared, carry)

            return jax.lax.cond(move.is_made, pulled, lambda: carry), None

        first = *self.moves.start(own.starts), own.begins
        _, before = jax.lax.scan(forward, first, numbers)
        found, _ = jax.lax.scan(backward, given, (numbers, before), reverse=True)
        return found

    def _along(
        self, move: Move, state: PieceState, active: Array | None, shared: Any, given: Any
    ) -> Any:
        """Pull cotangents back through a move."""
        (wrt_state, *wrt), is_save, n = given, move.save > 0, state.q.size
        row = jax.lax.dynamic_index_in_dim(self.saves, move.save, keepdims=False)
        late = jax.tree.map(jnp.zeros_like, state.offset)
        at_save = PieceState(row[:n], row[n:], late)
        wrt_new = jax.tree.map(lambda x, y: jnp.where(is_save, x, y), at_save, wrt_state)

        def at(state: PieceState, t0: Array | None) -> tuple[EventPiece, Array]:
            return self.moves.at(state, self.moves.ts[0] if t0 is None else t0, active, move)

        t0 = None if wrt[0] is None else self.moves.ts[0]
        own, *more = self.moves.program.pieces.pull_back(
            at, state, t0, shared, self.fixed, wrt_new, self.found
        )
        # A move to a save is a side branch: the motion continues from the state before it.
        own = jax.tree.map(lambda x, y: jnp.where(is_save, x + y, y), wrt_state, own)
        return own, *jax.tree.map(jnp.add, wrt, more)


def _wrt_times(
    program: MoveProgram, x: RolloutInputs, kept: KeptRun, saves: Array, wrt_t0: Array
) -> Array:
    """The cotangent of the save times."""
    later = x.ts != x.ts[0]
    each = jnp.where(later, (saves * rates_at_saves(program, x, kept)).sum(1), 0.0)
    is_first = jnp.arange(len(x.ts)) == 0
    return jnp.where(is_first, wrt_t0 - each.sum(), each)
