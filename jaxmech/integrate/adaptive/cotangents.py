"""Cotangents back along the recorded moves of a run, segment by segment."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.adaptive.moves import KeptRun, MoveProgram, Moves, moves_of, rates_at_saves
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.segment_parts import RolloutInputs


def cotangents_of(
    program: MoveProgram, x: RolloutInputs, kept: KeptRun, wanted: RolloutInputs,
    given: Sequence[Array | None],
) -> RolloutInputs:  # fmt: skip
    """Cotangents of the wanted inputs; None among the given ones is zero."""
    known, none = kept.known[:, None], jnp.zeros_like(kept.states)
    n = x.q0.size
    told = [none[:, :n] if ct is None else ct for ct in given[:2]]
    depends_on_nan = ((jnp.concatenate(told, axis=1) != 0) & ~known).any()
    saves = jnp.where(known, jnp.concatenate(told, axis=1), 0.0)
    if given[3] is not None:
        saves = saves + jnp.where(known, given[3], 0.0)
    starts = jnp.zeros_like(kept.record.starts) if given[2] is None else given[2]
    nonzero = (saves != 0).any() | (starts != 0).any()
    found = _backwards(program, x, kept, wanted, saves, starts)
    # After a failure the derivative is NaN if it depends on a saved NaN. If it does not, and all
    # cotangents are zero, it is 0 and not 0 times NaN.
    answer, is_found = jnp.where(depends_on_nan, jnp.nan, 0.0), nonzero & ~depends_on_nan
    return jax.tree.map(lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), found)


def _backwards(
    program: MoveProgram, x: RolloutInputs, kept: KeptRun, wanted: RolloutInputs, saves: Array,
    starts: Array,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    moves, record = moves_of(x, ()), kept.record
    first = jnp.concatenate([x.q0, x.v0])
    own = record.by_segment()
    # A segment without moves has no state: the initial one stands in for it, at which all functions
    # can be evaluated.
    segments = replace(own, starts=jnp.where((own.count > 0)[:, None], own.starts, first[None]))

    def one(carry: Any, segment: Any) -> tuple[Any, None]:
        own, wrt_start = segment

        def pulled() -> Any:
            wrt_state, *wrt = _through(program, own, moves, saves, shared, fixed, carry)
            return wrt_state + wrt_start, *wrt

        return jax.lax.cond(own.count > 0, pulled, lambda: carry), None

    end = jnp.zeros_like(first), jnp.zeros_like(moves.t0), jax.tree.map(jnp.zeros_like, shared)
    (wrt_state, wrt_t0, wrt_shared), _ = jax.lax.scan(one, end, (segments, starts), reverse=True)
    at_start = jnp.where((x.ts == x.ts[0])[:, None], saves, 0.0).sum(0)
    wrt_q, wrt_v = jnp.split(wrt_state + at_start, 2)
    return RolloutInputs(
        wrt_q if wanted.q0 else None,
        wrt_v if wanted.v0 else None,
        _wrt_times(program, x, kept, saves, wrt_t0) if wanted.ts else None,
        *wrt_shared,
    )


def _through(
    program: MoveProgram, own: StepRecord, moves: Moves, saves: Array, shared: Any, fixed: Any,
    given: Any,
) -> Any:  # fmt: skip
    """Cotangents through a segment: of the state before it, of the start time and of `shared`."""
    # By two loops and not by the derivative of one, which native code cannot do.
    numbers = jnp.arange(own.moves.size, dtype=jnp.int32)

    def move_at(number: Array, begin: Array) -> tuple[Move, Array]:
        move = own.move(number, begin, moves.usual)
        return move, (move.save == 0) & move.is_made

    def moved(state: Array, t0: Array, shared: Any, move: Move) -> Array:
        along = Moves(t0, moves.sign, moves.ts, eqx.combine(shared, fixed))
        return along.moved(program, state, move)

    def forward(carry: Any, number: Array) -> tuple[Any, Any]:
        state, begin = carry
        move, goes_on = move_at(number, begin)
        new = jax.lax.cond(goes_on, lambda: moved(state, moves.t0, shared, move), lambda: state)
        return (new, move.elapsed(goes_on)), carry

    def backward(carry: Any, each: Any) -> tuple[Any, None]:
        number, (state, begin) = each
        move, goes_on = move_at(number, begin)

        def pulled() -> Any:
            wrt_state, wrt_t0, wrt_shared = carry
            row = jax.lax.dynamic_index_in_dim(saves, move.save, keepdims=False)
            wrt_new = jnp.where(goes_on, wrt_state, row)
            _, pull = jax.vjp(partial(moved, move=move), state, moves.t0, shared)
            wrt, d_t0, more = pull(wrt_new)
            # A move to a save leads aside: the motion goes on from the same state as before it.
            wrt = jnp.where(goes_on, wrt, wrt_state + wrt)
            return wrt, wrt_t0 + d_t0, jax.tree.map(jnp.add, wrt_shared, more)

        return jax.lax.cond(move.is_made, pulled, lambda: carry), None

    _, before = jax.lax.scan(forward, (own.starts, own.begins), numbers)
    found, _ = jax.lax.scan(backward, given, (numbers, before), reverse=True)
    return found


def _wrt_times(
    program: MoveProgram, x: RolloutInputs, kept: KeptRun, saves: Array, wrt_t0: Array
) -> Array:
    """The cotangent of the save times."""
    later = x.ts != x.ts[0]
    each = jnp.where(later, (saves * rates_at_saves(program, x, kept)).sum(1), 0.0)
    is_first = jnp.arange(len(x.ts)) == 0
    return jnp.where(is_first, wrt_t0 - each.sum(), each)
