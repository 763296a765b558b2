"""The moves of a state along the recorded steps of a run, with events or without.

Steps keep their sizes. But where an event moves in time, all later moves are delayed as much: the
delay is a part of the state, whose value is always zero.
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

from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.derivatives.event_pieces import (
    EventPiece,
    Kind,
    PieceState,
    along_motion,
    at_event,
)
from jaxmech.integrate.derivatives.record import Move, StepRecord
from jaxmech.integrate.derivatives.run_rule import Part, RolloutInputs, completed, with_traced
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import AnyInterval, interval_at, sorted_ends, within
from jaxmech.integrate.step import step
from jaxmech.integrate.switches import with_outputs
from jaxmech.integrate.trajectory import Trajectory
from jaxmech.system import Params

Given = tuple[Any, Any]  # first time, and times at which a step ends; None if not differentiated


class KeptRun(eqx.Module):
    """The data of the forward run that its derivatives need."""

    record: StepRecord
    states: Float[Array, " T n2"]  # q, v and memory at the save times
    known: Bool[Array, " T"]  # which saves were reached, or follow a terminal event
    active: Bool[Array, " T C"]  # constraints that are on there
    counts: Int[Array, " E"]  # of the events

    @property
    def smooth(self) -> tuple[Any, Any]:
        """The states before the segments and at the saves."""
        return self.record.starts, self.states


@dataclass(frozen=True)
class MoveProgram:
    """The functions that make the moves of a run, with closed-over values as arguments."""

    event_set: EventSet
    plain: Kind  # a step of the pair: the state at its end
    # From a state (2 n,), t, active, interval and shared inputs to its time derivative.
    rates: Callable[[Array, Array, Array, AnyInterval, Any], Array]
    event: Kind | None = None  # an event there: the state after it, and its row


def move_program(
    scheme: Scheme, event_set: EventSet, segment: int, x: RolloutInputs
) -> tuple[RolloutInputs, Callable[..., tuple[Trajectory, KeptRun]], MoveProgram]:
    """The inputs with all closed-over values, the run and its move program."""
    by_pair, system = scheme.with_one_step(), scheme.system
    ends = np.cumsum([x.q0.size, x.v0.size]).tolist()

    def forward(x: RolloutInputs) -> tuple[Trajectory, KeptRun]:
        inputs = x.q0, x.v0, x.ts, x.params, x.memory, x.tolerance
        trajectory, record = adaptive_rollout(
            scheme, *inputs, segment=segment, event_set=event_set, times=x.times
        )
        saves = trajectory.saves
        states = jnp.concatenate([saves.q, saves.v, saves.memory], axis=1)
        is_known = ~jnp.isnan(states[:, 0])
        states = jnp.where(is_known[:, None], states, 0.0)
        kept = KeptRun(record, states, is_known, saves.active, trajectory.events.counts)
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
    interval, offset = interval_at(x.times, zero, zero, zero), no_offset(event_set, x)
    outcome = jnp.zeros(event_set.words, x.q0.dtype)
    piece = EventPiece(zero, zero, zero_count, zero_count, active, outcome, offset, interval)
    from_start = PieceState(x.q0, x.v0, x.memory, offset), piece, zero
    plain: Part = partial(_plain, by_pair, event_set)
    at_save = state, zero, active, interval
    parts: list[Part] = [plain, rates]
    examples: list[Any] = [from_start, at_save]
    if event_set:  # whose part closes over all that the others do, so it is the first
        parts, examples = [partial(_event, by_pair, event_set), *parts], [from_start, *examples]
    x, run, (*event, plain, slopes) = with_traced(forward, x, parts, examples)
    return x, run, MoveProgram(event_set, plain, slopes, *event)


def no_offset(event_set: EventSet, x: RolloutInputs) -> Float[Array, " k"]:
    """The offset at the start, if there are events, or times at which a step ends: (1,) or (0,)."""
    return jnp.zeros(int(bool(event_set) or x.times.size > 0), x.ts.dtype)


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


@dataclass(frozen=True)
class StepReplay:
    """The moves of a run."""

    program: MoveProgram
    ts: Array  # save times (T,); derivatives with respect to them are no part of a move
    times: Array  # at which a step ends (K,)
    held: Array  # the same in the run that was recorded
    none: Array  # the row of no event
    sizes: tuple[int, int, int]  # of q, v and memory
    ends: Array  # the times that were held, by `sorted_ends`

    @staticmethod
    def of(program: MoveProgram, x: RolloutInputs) -> "StepReplay":
        """Make the moves of a run with these inputs."""
        event_set = program.event_set
        empty_row = jnp.zeros(event_set.width(x.q0, x.v0), x.q0.dtype)
        held = jax.lax.stop_gradient(x.times)
        sizes = x.q0.size, x.v0.size, x.memory.size
        # Before the loops, because native code cannot sort; rounded as the beginnings of moves are.
        ends = sorted_ends(x.ts[0] + (held - x.ts[0]), x.ts[0], x.ts[-1])
        return StepReplay(program, x.ts, x.times, held, empty_row, sizes, ends)

    def start(self, row: Array) -> tuple[PieceState, Array]:
        """A state and its switches, from those before a segment as they are recorded."""
        end = len(row) - len(self.program.event_set.names)
        state = jnp.split(row, [*np.cumsum(self.sizes).tolist(), end])
        return PieceState(*state[:4]), state[4] > 0.5

    def at(
        self, state: PieceState, primal_times: Given, active: Array, move: Move
    ) -> tuple[EventPiece, Array]:
        """A move as a piece, and the size of its step.

        `primal_times` are the first time of the run and the times at which a step ends, None for
        those that are not differentiated.
        """
        t0, times = completed(primal_times, (self.ts[0], self.times))
        sign = jnp.sign(self.ts[-1] - self.ts[0])
        size, target = sign * move.size, jax.lax.dynamic_index_in_dim(self.ts, move.save, 0, False)
        recorded_begin = self.ts[0] + sign * move.begin
        remaining = target - recorded_begin - state.delay
        h, late = size, state.offset
        if self.times.size:
            is_end, is_time = self._ends(move)
            # Zero, but its derivative is that of the time at which the step ends.
            moved = (times - t0) - jax.lax.stop_gradient(self.held - self.ts[0])
            late = jnp.where(is_end, jnp.where(is_time, moved, 0.0).sum(), state.offset)
            h = size + (late - state.offset).sum()
        ends = self.ts[0] + sign * self._fixed()
        interval = interval_at(ends, recorded_begin, self.ts[0], self.ts[-1], self.ends)
        begin, event = t0 + sign * move.begin, (move.which, move.row)
        piece = EventPiece(begin, size, *event, active, move.outcome, late, interval)
        return piece, jnp.where(move.save > 0, remaining, h)

    def _fixed(self) -> Array:
        # Of the forward run, which has them without derivatives.
        recorded, first, last = jax.lax.stop_gradient((self.held, self.ts[0], self.ts[-1]))
        return jnp.sign(last - first) * (recorded - first)

    def _ends(self, move: Move) -> tuple[Array, Array]:
        """Whether a step has to end where a move ends, and the flags (K,) of that time."""
        first, last = jax.lax.stop_gradient((self.ts[0], self.ts[-1]))
        apart = jnp.abs(self._fixed() - (move.begin + move.size))
        near = 4 * jnp.finfo(first.dtype).eps * jnp.maximum(jnp.abs(first), jnp.abs(last))
        is_nearest = jnp.arange(apart.size) == jnp.argmin(apart)
        is_before = move.begin + move.size < jnp.abs(last - first) - near
        is_step = (move.save == 0) & (move.which < 0)
        return is_step & (apart.min() <= near) & is_before, is_nearest

    def elapsed(self, move: Move) -> Array:
        """The time since the start after a move."""
        end = move.elapsed(self.goes_on(move))
        if not self.times.size:
            return end
        is_end, is_time = self._ends(move)
        exact = jnp.where(is_time, self._fixed(), 0.0).sum()
        return jnp.where(is_end & self.goes_on(move), exact, end)

    def advance(
        self, state: PieceState, primal_times: Given, active: Array, move: Move, shared: Any
    ) -> tuple[PieceState, Array]:
        """The state after a move, and the row of an event."""
        piece, h = self.at(state, primal_times, active, move)

        def make() -> tuple[PieceState, Array]:
            end = self.program.plain(state, piece, h, shared)
            if self.program.event is None:
                return end, self.none
            event = partial(self.program.event, end, piece, h, shared)
            return jax.lax.cond(piece.which >= 0, event, lambda: (end, self.none))

        if not self.program.event_set:
            return make()
        return jax.lax.cond(move.is_made, make, lambda: (state, self.none))

    def pull_back(
        self, state: PieceState, primal_times: Given, active: Array, move: Move, shared: Any,
        fixed: Any, wrt_end: PieceState, row: Callable[[], Array],
    ) -> Any:  # fmt: skip
        """Cotangents of the state before a move, of the `primal_times` and of `shared`.

        `wrt_end` are those of the state after it; `row` returns that of the row of an event.
        """
        program = self.program

        def through(kind: Kind) -> Callable[..., Any]:
            def run(state: PieceState, primal_times: Given, shared: Any) -> Any:
                piece, h = self.at(state, primal_times, active, move)
                return kind(state, piece, h, eqx.combine(shared, fixed))

            return run

        end, pull = jax.vjp(through(program.plain), state, primal_times, shared)
        if program.event is None:
            return pull(wrt_end)
        # The step and the event are differentiated apart: the event is the rare case.
        event, zeros = through(program.event), jax.tree.map(jnp.zeros_like, (primal_times, shared))
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
        event_set = self.program.event_set
        if not event_set:
            return steps
        return steps & ((move.which < 0) | event_set.interrupts(move.which))

    def switched(self, active: Array, move: Move) -> Array:
        """The switches after a move."""
        if not self.program.event_set:
            return active
        switched = self.program.event_set.switched(move.which, active, move.outcome)
        return jnp.where(move.is_made & (move.which >= 0), switched, active)

    @property
    def usual(self) -> Array:
        """A length for moves that were not made."""
        # Any length at which the step can be computed: its result is not used, but must not be NaN.
        return jnp.abs(self.ts[1] - self.ts[0])


def rates_at_saves(program: MoveProgram, x: RolloutInputs, residuals: KeptRun) -> Array:
    """Rates of q, v and memory at the saves, shape (T, 2 n + c); zero after a terminal event."""

    def rate_at(_: None, save: Any) -> tuple[None, Array]:
        state, t, active, interval = save
        return None, program.rates(state, t, active, interval, x.shared)

    first = jnp.concatenate([x.q0, x.v0, x.memory])
    states = jnp.where(residuals.known[:, None], residuals.states, first[None])
    intervals = interval_at(x.times, x.ts, x.ts[0], x.ts[-1])
    _, rates = jax.lax.scan(rate_at, None, (states, x.ts, residuals.active, intervals))
    if not program.event_set:
        return rates
    return jnp.where(reached_saves(residuals)[:, None], rates, 0.0)


def reached_saves(residuals: KeptRun) -> Bool[Array, " T"]:
    """Flags of the saves that moves reached; the others may follow a terminal event."""
    return jnp.arange(len(residuals.known)) < residuals.record.saved
