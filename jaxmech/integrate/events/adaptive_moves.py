"""The moves of a run with events and steps by a tolerance, and how a state goes along them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxmech.compiler import hoisted
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import EventPiece, PieceState, to_event
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import RolloutInputs
from jaxmech.integrate.step import step
from jaxmech.system import Params

SEGMENT = 64  # moves


class EventInputs(eqx.Module):
    """What a run depends on."""

    motion: RolloutInputs
    tolerance: Any


class MoveResiduals(eqx.Module):
    """What the derivatives need of the forward run: its moves, and which saves are known (T,)."""

    record: StepRecord
    known: Bool[Array, " T"]


@dataclass(frozen=True)
class EventMoves:
    """The run and its two kinds of moves, with closed-over values as arguments.

    Attributes:
        run: the rollout.
        plain: from a state, a piece, its size and shared inputs to the next state.
        event: the same up to an event, and what is kept of it.
        watch: the events.
    """

    run: Callable[[EventInputs], tuple[Trajectory, StepRecord]]
    plain: Callable[..., PieceState]
    event: Callable[..., tuple[PieceState, Occurrences]]
    watch: Watch


def event_program(
    scheme: Scheme, watch: Watch, q0: Array, v0: Array, ts: Array, params: Params,
    tolerance: Tolerance,
) -> tuple[EventMoves, list[Array]]:  # fmt: skip
    """The program, and the traced values that the system and the events close over."""
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))

    def run(q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance) -> Any:
        return adaptive_rollout(scheme, q0, v0, ts, params, tolerance, segment=SEGMENT, watch=watch)

    def plain(state: PieceState, piece: EventPiece, h: Array, params: Params) -> PieceState:
        now = watch.params(params, piece.active)
        q, v, _ = step(by_pair, state.q, state.v, piece.t + state.offset, h, now)
        return PieceState(q, v, state.offset)

    def event(
        state: PieceState, piece: EventPiece, h: Array, params: Params
    ) -> tuple[PieceState, Occurrences]:
        after, found = to_event(by_pair, watch, state, piece, h, params)
        cuts = watch.chosen(piece.which, watch.flags([e.cuts for e in watch.events]))
        later = state.offset + (found.t - (piece.t + state.offset) - piece.size)
        shift = jnp.where(cuts, later, state.offset)
        return PieceState(after.q, after.v, shift), found

    zero, whole = jnp.zeros_like(ts[0]), jnp.zeros((), jnp.int32)
    piece = EventPiece(zero, zero, whole, whole, watch.active())
    hoisted_run, traced = hoisted(run, q0, v0, ts, params, tolerance)

    def with_traced(fn: Callable[..., Any]) -> Callable[..., Any]:
        if not traced:
            return lambda state, piece, h, shared: fn(state, piece, h, shared[0])
        hoisted_fn, some = hoisted(fn, PieceState(q0, v0, zero), piece, zero, params)
        places = [next(k for k, x in enumerate(traced) if x is y) for y in some]
        return lambda state, piece, h, shared: hoisted_fn(
            [shared[1][k] for k in places], state, piece, h, shared[0]
        )

    @jax.jit
    def run_inputs(x: EventInputs) -> Any:
        m = x.motion
        args = m.q0, m.v0, m.ts, m.params, x.tolerance
        return hoisted_run(m.traced, *args) if traced else run(*args)

    return EventMoves(run_inputs, with_traced(plain), with_traced(event), watch), traced


@dataclass(frozen=True)
class EventWay:
    """How states go along the moves.

    Attributes:
        program: the moves.
        sign: of the direction in time.
        ts: save times, shape (T,).
        none: what is kept of no event.
    """

    program: EventMoves
    sign: Array
    ts: Array
    none: Occurrences

    def moved(
        self, state: PieceState, active: Array, move: Move, t0: Array, target: Array, shared: Any
    ) -> tuple[PieceState, Array, Occurrences]:
        """The state after a move, q and v at a save, and what is kept of an event."""
        piece = self.piece(active, move, t0)
        h = self.size(state, move, piece, target)

        def event() -> tuple[PieceState, Occurrences]:
            return self.program.event(state, piece, h, shared)

        def plain() -> tuple[PieceState, Occurrences]:
            return self.program.plain(state, piece, h, shared), self.none

        def made() -> tuple[PieceState, Occurrences]:
            return jax.lax.cond(move.which >= 0, event, plain)

        new, found = jax.lax.cond(move.is_made, made, lambda: (state, self.none))
        is_save = move.save > 0
        after = jax.tree.map(lambda x, y: jnp.where(is_save, x, y), state, new)
        return after, jnp.concatenate([new.q, new.v]), found

    def piece(self, active: Array, move: Move, t0: Array) -> EventPiece:
        """A move as a piece."""
        begin, size = t0 + self.sign * move.begin, self.sign * move.size
        return EventPiece(begin, size, move.which, move.row, active)

    def size(self, state: PieceState, move: Move, piece: EventPiece, target: Array) -> Array:
        """Of the step that a move makes."""
        return jnp.where(move.save > 0, target - piece.t - state.offset, piece.size)

    def target(self, move: Move) -> Array:
        """The time of the save that a move leads to."""
        found: Array = jax.lax.dynamic_index_in_dim(self.ts, move.save, keepdims=False)
        return found

    @property
    def usual(self) -> Array:
        """A length for moves that were not made."""
        return jnp.abs(self.ts[1] - self.ts[0])

    def elapsed(self, move: Move) -> Array:
        """The time since the start after a move."""
        watch = self.program.watch
        cuts = watch.chosen(move.which, watch.flags([e.cuts for e in watch.events]))
        return move.elapsed(move.is_made & (move.save == 0) & ((move.which < 0) | cuts))

    def switched(self, active: Array, move: Move) -> Array:
        """The switches after a move."""
        is_event = move.is_made & (move.which >= 0)
        return jnp.where(is_event, self.program.watch.switched(move.which, active), active)


def way_of(program: EventMoves, x: RolloutInputs) -> EventWay:
    """The way of a run."""
    unknown = Occurrences.none(1, x.q0, program.watch.has_transitions)
    none = jax.tree.map(lambda rows: jnp.zeros_like(rows[0]), unknown)
    return EventWay(program, jnp.sign(x.ts[-1] - x.ts[0]), x.ts, none)


def reached(record: StepRecord, count: int) -> Array:
    """Which saves the moves reached; the later ones hold the state at a terminal event, (T,)."""
    return jnp.arange(count) < record.saved
