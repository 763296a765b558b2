"""The moves of a state along the recorded steps of a run, with events or without.

Steps keep their sizes. But where an event moves in time, all later moves are delayed as much: the
delay is a part of the state, whose value is always zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.adaptive.method import Adaptive
from jaxmech.integrate.adaptive.record import Move, StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.events.pieces import (
    EventPiece,
    Kind,
    PieceState,
    along_motion,
    at_event,
)
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.run_rule import Part, RolloutInputs, with_traced
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.system import Params


class KeptRun(eqx.Module):
    """The data of the forward run that its derivatives need."""

    record: StepRecord
    states: Float[Array, " T n2"]  # q and v at the save times
    known: Bool[Array, " T"]  # which saves were reached, or follow a terminal event
    active: Bool[Array, " T C"] | None  # constraints that are on there; None without events
    counts: Int[Array, " E"] | None  # of the events; None without events

    @property
    def smooth(self) -> tuple[Any, Any]:
        """The states before the segments and at the saves."""
        return self.record.starts, self.states


@dataclass(frozen=True)
class MoveProgram:
    """The functions that make the moves of a run, with closed-over values as arguments."""

    plain: Kind  # a step of the pair: the state at its end
    event: Kind | None  # an event there: the state after it, and its row; None without events
    # From a state (2 n,), t, active and shared inputs to its time derivative.
    rates: Callable[[Array, Array, Array | None, Any], Array]
    watch: Watch | None


def move_program(
    scheme: Scheme, watch: Watch | None, segment: int, x: RolloutInputs
) -> tuple[RolloutInputs, Callable[..., tuple[Trajectory, KeptRun]], MoveProgram]:
    """The inputs with all closed-over values, the run and its move program."""
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptRun]:
        given = x.q0, x.v0, x.ts, x.params, x.tolerance
        trajectory, record = adaptive_rollout(scheme, *given, segment=segment, watch=watch)
        states = jnp.concatenate([trajectory.q, trajectory.v], axis=1)
        known = ~jnp.isnan(states[:, 0])
        states = jnp.where(known[:, None], states, 0.0)
        counts = None if trajectory.events is None else trajectory.events.counts
        return trajectory, KeptRun(record, states, known, trajectory.active, counts)

    def rates(state: Array, t: Array, active: Array | None, params: Params) -> Array:
        q, v = jnp.split(state, 2)
        now = params if watch is None or active is None else watch.params(params, active)
        _, law = scheme.law(q, v, t, now)
        return jnp.concatenate([v, law.qdd])

    zero, whole = jnp.zeros_like(x.ts[0]), jnp.zeros((), jnp.int32)
    active, state = None if watch is None else watch.active(), jnp.concatenate([x.q0, x.v0])
    piece = EventPiece(zero, zero, whole, whole, active)
    from_start = PieceState(x.q0, x.v0, None if watch is None else zero), piece, zero
    plain, at_save = partial(_plain, by_pair, watch), (state, zero, active)
    if watch is None:
        x, run, found = with_traced(forward, x, [plain, rates], [from_start, at_save])
        return x, run, MoveProgram(found[0], None, found[1], None)
    parts: list[Part] = [partial(_event, by_pair, watch), plain, rates]
    x, run, (event, *found) = with_traced(forward, x, parts, [from_start, from_start, at_save])
    return x, run, MoveProgram(found[0], event, found[1], watch)


def _plain(
    by_pair: Scheme, watch: Watch | None, state: PieceState, piece: EventPiece, h: Array,
    params: Params,
) -> PieceState:  # fmt: skip
    """Make a step."""
    t = piece.t
    if watch is not None and piece.active is not None:
        t, params = t + state.offset, watch.params(params, piece.active)
    q, v, _ = step(by_pair, state.q, state.v, t, h, params)
    return PieceState(q, v, state.offset)


def _event(
    by_pair: Scheme, watch: Watch, state: PieceState, piece: EventPiece, h: Array, params: Params
) -> tuple[PieceState, Array]:  # fmt: skip
    """Process an event at the end of a step of size h; also the row of the event."""
    t, now = piece.t + state.offset + h, watch.params(params, piece.active)
    # As at a save, the derivative by the time of an event is that of the motion: that of the step
    # by its size is the same to within the tolerance, but would be a second step to differentiate.
    motion = along_motion(by_pair, state.q, state.v, t, now)
    late, after, row = at_event(by_pair, watch, motion, jnp.zeros_like(h), piece, params)
    return PieceState(*after, state.offset + late), row


@dataclass(frozen=True)
class Moves:
    """The moves of a run."""

    program: MoveProgram
    ts: Array  # save times (T,); derivatives with respect to them are no part of a move
    none: Array | None  # the row of no event; None without events

    @staticmethod
    def of(program: MoveProgram, x: RolloutInputs) -> "Moves":
        """Make the moves of a run with these inputs."""
        watch = program.watch
        none = None if watch is None else jnp.zeros(watch.width(x.q0), x.q0.dtype)
        return Moves(program, x.ts, none)

    def start(self, row: Array) -> tuple[PieceState, Array | None]:
        """A state and its switches, from those before a segment as they are recorded."""
        if self.program.watch is None:
            n = len(row) // 2
            return PieceState(row[:n], row[n:], None), None
        n = (len(row) - 1 - len(self.program.watch.names)) // 2
        return PieceState(row[:n], row[n : 2 * n], row[2 * n]), row[2 * n + 1 :] > 0.5

    def at(
        self, state: PieceState, t0: Array, active: Array | None, move: Move
    ) -> tuple[EventPiece, Array]:
        """A move of a run from t0 as a piece, and the size of its step."""
        sign = jnp.sign(self.ts[-1] - self.ts[0])
        size, target = sign * move.size, jax.lax.dynamic_index_in_dim(self.ts, move.save, 0, False)
        left = target - (self.ts[0] + sign * move.begin)
        if state.offset is not None:
            left = left - state.offset
        piece = EventPiece(t0 + sign * move.begin, size, move.which, move.row, active)
        return piece, jnp.where(move.save > 0, left, size)

    def advance(
        self, state: PieceState, t0: Array, active: Array | None, move: Move, shared: Any
    ) -> tuple[PieceState, Array | None]:
        """The state after a move, and the row of an event."""
        piece, h = self.at(state, t0, active, move)

        def made() -> tuple[PieceState, Array | None]:
            end = self.program.plain(state, piece, h, shared)
            if self.program.event is None:
                return end, self.none
            event = partial(self.program.event, end, piece, h, shared)
            return jax.lax.cond(piece.which >= 0, event, lambda: (end, self.none))

        if self.program.watch is None:
            return made()
        return jax.lax.cond(move.is_made, made, lambda: (state, self.none))

    def pull_back(
        self, state: PieceState, t0: Array | None, active: Array | None, move: Move, shared: Any,
        fixed: Any, given: PieceState, row: Callable[[], Array],
    ) -> Any:  # fmt: skip
        """Cotangents of the state before a move, of t0 and `shared`, from those of the state after.

        `row` returns the cotangent of the row of an event.
        """
        program = self.program

        def at(state: PieceState, t0: Array | None) -> tuple[EventPiece, Array]:
            return self.at(state, self.ts[0] if t0 is None else t0, active, move)

        def through(kind: Kind) -> Callable[..., Any]:
            return lambda state, t0, shared: kind(state, *at(state, t0), eqx.combine(shared, fixed))

        end, pull = jax.vjp(through(program.plain), state, t0, shared)
        if program.event is None:
            return pull(given)
        # The step and the event are differentiated apart: the event is the rare case.
        event, still = through(program.event), jax.tree.map(jnp.zeros_like, (t0, shared))
        given, *wrt = jax.lax.cond(
            move.which >= 0,
            lambda: jax.vjp(event, end, t0, shared)[1]((given, row())),
            lambda: (given, *still),
        )
        own, *more = pull(given)
        return own, *jax.tree.map(jnp.add, wrt, more)

    def goes_on(self, move: Move) -> Array:
        """Whether the motion continues from the state after a move, and not from the one before."""
        steps = move.is_made & (move.save == 0)
        watch = self.program.watch
        return steps if watch is None else steps & ((move.which < 0) | watch.cuts(move.which))

    def switched(self, active: Array | None, move: Move) -> Array | None:
        """The switches after a move."""
        if self.program.watch is None or active is None:
            return None
        switched = self.program.watch.switched(move.which, active)
        return jnp.where(move.is_made & (move.which >= 0), switched, active)

    @property
    def usual(self) -> Array:
        """A length for moves that were not made."""
        # Any length at which the step can be computed: its result is not used, but must not be NaN.
        return jnp.abs(self.ts[1] - self.ts[0])


def rates_at_saves(program: MoveProgram, x: RolloutInputs, kept: KeptRun) -> Array:
    """Speeds and accelerations at the saves, shape (T, 2 n); zero after a terminal event."""

    def one(_: None, save: tuple[Array, Array, Array | None]) -> tuple[None, Array]:
        return None, program.rates(*save, x.shared)

    first = jnp.concatenate([x.q0, x.v0])
    states = jnp.where(kept.known[:, None], kept.states, first[None])
    _, rates = jax.lax.scan(one, None, (states, x.ts, kept.active))
    reached = reached_saves(program, kept)
    return rates if reached is None else jnp.where(reached[:, None], rates, 0.0)


def reached_saves(program: MoveProgram, kept: KeptRun) -> Array | None:
    """Flags of the saves that moves reached; the others may follow a terminal event."""
    return None if program.watch is None else jnp.arange(len(kept.known)) < kept.record.saved
