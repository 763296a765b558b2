"""A run with events and steps by a tolerance as one JAX operation, and its derivatives.

The forward run records its moves (`jaxmech.integrate.adaptive.record`): steps, parts of steps up to
a save, and parts up to an event. Derivatives go through the moves. The sizes of the steps are held,
but where an event moves in time, all that follows is shifted with it: the shift is a part of the
state, whose value is always zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import AbstractRule, Arrays, Flags, bind, hoisted, operation_of
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import EventPiece, PieceState, to_event
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import RolloutInputs
from jaxmech.integrate.step import step
from jaxmech.system import Params

_SEGMENT = 64  # moves


def adaptive_event_trajectory(
    scheme: Scheme, watch: Watch, q0: Array, v0: Array, ts: Array, params: Params,
    tolerance: Tolerance,
) -> Trajectory:  # fmt: skip
    """The trajectory with its events."""
    program, traced = _program(scheme, watch, q0, v0, ts, params, tolerance)
    inputs = _EventInputs(RolloutInputs(q0, v0, ts, params, traced), tolerance)
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, _MoveResiduals]:
        trajectory, record = program.run(jax.tree.unflatten(structure, leaves))
        known = ~jnp.isnan(trajectory.q[:, 0])
        return trajectory, _MoveResiduals(record, known)

    operation, outs = operation_of(run, leaves, partial(_EventMoveRule, program, structure))
    found: Trajectory = jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]
    return found


class _EventInputs(eqx.Module):
    motion: RolloutInputs
    tolerance: Any


class _MoveResiduals(eqx.Module):
    """What the derivatives need of the forward run: its moves, and which saves are known (T,)."""

    record: StepRecord
    known: Bool[Array, " T"]


class _Move(eqx.Module):
    """A move, or all of them.

    Attributes:
        begin: time since the start, not negative.
        size: of the step or up to the event, not negative.
        save: number of the save, 0 if it is none.
        which: number of the event, -1 if it is none.
        row: where it is kept, -1 if it is not.
        is_made: whether there is such a move.
    """

    begin: Float[Array, " *E"]
    size: Float[Array, " *E"]
    save: Int[Array, " *E"]
    which: Int[Array, " *E"]
    row: Int[Array, " *E"]
    is_made: Bool[Array, " *E"]


@dataclass(frozen=True)
class _EventMoves:
    """The run and its two kinds of moves, with closed-over values as arguments.

    Attributes:
        run: the rollout.
        plain: from a state, a piece, its size and shared inputs to the next state.
        event: the same up to an event, and what is kept of it.
        watch: the events.
    """

    run: Callable[[_EventInputs], tuple[Trajectory, StepRecord]]
    plain: Callable[..., PieceState]
    event: Callable[..., tuple[PieceState, Occurrences]]
    watch: Watch


def _program(
    scheme: Scheme, watch: Watch, q0: Array, v0: Array, ts: Array, params: Params,
    tolerance: Tolerance,
) -> tuple[_EventMoves, list[Array]]:  # fmt: skip
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))

    def run(q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance) -> Any:
        return adaptive_rollout(
            scheme, q0, v0, ts, params, tolerance, segment=_SEGMENT, watch=watch
        )

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
    def run_inputs(x: _EventInputs) -> Any:
        m = x.motion
        args = m.q0, m.v0, m.ts, m.params, x.tolerance
        return hoisted_run(m.traced, *args) if traced else run(*args)

    return _EventMoves(run_inputs, with_traced(plain), with_traced(event), watch), traced


class _EventMoveRule(AbstractRule):
    """Derivatives move by move.

    The smooth results are q and v at the save times, times and states of the events, and the states
    before the segments of moves, which derivatives of derivatives need.
    """

    def __init__(self, program: _EventMoves, structure: Any, outs: Any) -> None:
        self.program, self.structure = program, structure
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        self.residuals = tuple(jax.tree.leaves(kept))
        found = trajectory.events.found
        smooth = trajectory.q, trajectory.v, found, kept.record.starts
        self.smooth = tuple(jax.tree.leaves(smooth))
        self.kept_structure, self.found = jax.tree.structure(kept), jax.tree.structure(found)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Along all moves."""
        inputs, kept = self._trees(args, residuals)
        given = iter(tangents)
        whole = [next(given) if flag else None for flag in wanted]
        changes = jax.tree.unflatten(self.structure, whole).motion
        return _jvp(self.program, inputs.motion, kept, changes)

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Segment by segment, from the last to the first."""
        inputs, kept = self._trees(args, residuals)
        flags = jax.tree.unflatten(self.structure, wanted)
        x, rows = inputs.motion, self.program.watch.rows[-1]
        none = Occurrences.none(rows, x.q0, self.program.watch.has_transitions)
        pairs = zip(cotangents[2:-1], jax.tree.leaves(none), strict=True)
        found = jax.tree.unflatten(
            self.found, [jnp.zeros_like(y) if ct is None else ct for ct, y in pairs]
        )
        saves = jnp.concatenate(
            [jnp.zeros((len(x.ts), x.q0.size), x.q0.dtype) if ct is None else ct
             for ct in cotangents[:2]], axis=1
        )  # fmt: skip
        starts = cotangents[-1]
        starts = jnp.zeros_like(kept.record.starts) if starts is None else starts
        wrt = _vjp(self.program, x, kept, flags.motion, saves, found, starts)
        held = [jnp.zeros_like(x) for x, flag in zip(
            jax.tree.leaves(inputs.tolerance), jax.tree.leaves(flags.tolerance), strict=True
        ) if flag]  # fmt: skip
        return [*jax.tree.leaves(wrt), *held]

    def _trees(self, args: Arrays, residuals: Arrays) -> tuple[_EventInputs, _MoveResiduals]:
        return (
            jax.tree.unflatten(self.structure, args),
            jax.tree.unflatten(self.kept_structure, residuals),
        )


def _listed(x: RolloutInputs, record: StepRecord) -> _Move:
    """All moves."""
    assert record.which is not None
    assert record.row is not None
    is_made = jnp.arange(len(record.saves)) < record.count
    # A move that was not made must have a length, or its derivative could be 0 / 0.
    sizes = jnp.where(is_made, record.sizes, jnp.abs(x.ts[1] - x.ts[0]))
    which = jnp.where(is_made, record.which, -1)
    return _Move(record.begins, sizes, record.saves, which, record.row, is_made)


def _reached(record: StepRecord, count: int) -> Array:
    """Which saves the moves reached; the later ones hold the state at a terminal event, (T,)."""
    numbers = jnp.where(record.saves > 0, record.saves, count)
    return jnp.zeros(count + 1, bool).at[numbers].set(True)[:-1].at[0].set(True)


@dataclass(frozen=True)
class _Way:
    """How states go along the moves; `sign` is that of the direction in time."""

    program: _EventMoves
    sign: Array
    none: Occurrences

    def moved(
        self, state: PieceState, active: Array, move: _Move, t0: Array, target: Array, shared: Any
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

    def piece(self, active: Array, move: _Move, t0: Array) -> EventPiece:
        """A move as a piece."""
        begin, size = t0 + self.sign * move.begin, self.sign * move.size
        return EventPiece(begin, size, move.which, move.row, active)

    def size(self, state: PieceState, move: _Move, piece: EventPiece, target: Array) -> Array:
        """Of the step that a move makes."""
        return jnp.where(move.save > 0, target - piece.t - state.offset, piece.size)

    def switched(self, active: Array, move: _Move) -> Array:
        """The switches after a move."""
        is_event = move.is_made & (move.which >= 0)
        return jnp.where(is_event, self.program.watch.switched(move.which, active), active)


def _way(program: _EventMoves, x: RolloutInputs) -> _Way:
    unknown = Occurrences.none(1, x.q0, program.watch.has_transitions)
    none = jax.tree.map(lambda rows: jnp.zeros_like(rows[0]), unknown)
    return _Way(program, jnp.sign(x.ts[-1] - x.ts[0]), none)


def _jvp(
    program: _EventMoves, x: RolloutInputs, kept: _MoveResiduals, tangents: RolloutInputs
) -> list[Array]:
    """Tangents of the smooth results; None is a zero tangent of an input."""
    way, record, rows = _way(program, x), kept.record, program.watch.rows[-1]
    moves, shared = _listed(x, record), (x.params, x.traced)
    some = tangents.params, tangents.traced
    wanted = jax.tree.map(lambda t: t is not None, some, is_leaf=lambda t: t is None)
    moving, fixed = eqx.partition(shared, wanted)
    d_q, d_v, d_ts = (
        jnp.zeros_like(s) if d is None else d
        for s, d in ((x.q0, tangents.q0), (x.v0, tangents.v0), (x.ts, tangents.ts))
    )
    zero = jnp.zeros_like(x.ts[0])
    unknown = Occurrences.none(rows, x.q0, program.watch.has_transitions)

    def one(carry: Any, each: Any) -> tuple[Any, Any]:
        (state, d_state, active, d_found), (move, target, d_target) = carry, each

        def run(state: PieceState, t0: Array, target: Array, shared: Any) -> Any:
            return way.moved(state, active, move, t0, target, eqx.combine(shared, fixed))

        (after, _, _), (d_after, d_save, d_own) = jax.jvp(
            run, (state, x.ts[0], target, moving), (d_state, d_ts[0], d_target, some)
        )
        here = (jnp.arange(rows) == move.row) & (move.which >= 0)
        d_found = jax.tree.map(
            lambda xs, x: jnp.where(here.reshape(-1, *[1] * x.ndim), x[None], xs), d_found, d_own
        )
        told = d_save, jnp.concatenate([d_state.q, d_state.v, d_state.offset[None]])
        return (after, d_after, way.switched(active, move), d_found), told

    start = PieceState(x.q0, x.v0, zero), PieceState(d_q, d_v, zero)
    each = moves, x.ts[moves.save], d_ts[moves.save]
    first = *start, program.watch.active(), jax.tree.map(jnp.zeros_like, unknown)
    (_, d_end, _, d_found), (d_saves, before) = jax.lax.scan(one, first, each)
    place, count = jnp.arange(len(record.saves), dtype=jnp.int32), len(kept.known)
    numbers = jnp.where(record.saves > 0, record.saves, count)
    at = jnp.zeros(count + 1, jnp.int32).at[numbers].set(place)[:-1]
    later = ~_reached(record, count)[:, None]
    saves = jnp.where(later, jnp.concatenate([d_end.q, d_end.v])[None], d_saves[at])
    saves = saves.at[0].set(jnp.concatenate([d_q, d_v]))
    saves = jnp.where(kept.known[:, None], saves, jnp.nan)
    switches = record.starts.shape[1] - before.shape[1]
    d_starts = jnp.pad(before[::_SEGMENT], ((0, 0), (0, switches)))
    begun = _SEGMENT * jnp.arange(len(d_starts)) < record.count
    d_starts = jnp.where(begun[:, None], d_starts, 0.0)
    n = x.q0.size
    return [saves[:, :n], saves[:, n:], *jax.tree.leaves(d_found), d_starts]


def _vjp(
    program: _EventMoves, x: RolloutInputs, kept: _MoveResiduals, wanted: RolloutInputs,
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
    program: _EventMoves, x: RolloutInputs, kept: _MoveResiduals, wanted: RolloutInputs,
    saves: Array, found: Occurrences, starts: Array,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    way, record, n = _way(program, x), kept.record, x.q0.size
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    moves, count = _listed(x, record), len(kept.known)
    by_move = jnp.where((record.saves > 0)[:, None], saves[record.saves], 0.0)
    begun = _SEGMENT * jnp.arange(len(record.starts)) < record.count
    each = jax.tree.map(
        lambda y: y.reshape(len(begun), _SEGMENT, *y.shape[1:]),
        (moves, x.ts[moves.save], by_move),
    )
    pull = _MovePull(way, x.ts[0], found, fixed)

    def one(carry: Any, segment: Any) -> tuple[Any, Array]:
        row, wrt_start, is_begun, own = segment

        def pulled() -> Any:
            state, active = PieceState(row[:n], row[n : 2 * n], row[2 * n]), row[2 * n + 1 :] > 0.5
            (wrt, wrt_t0, wrt_shared), wrt_targets = pull.segment(state, active, own, shared, carry)
            more = PieceState(wrt_start[:n], wrt_start[n : 2 * n], wrt_start[2 * n])
            return (jax.tree.map(jnp.add, wrt, more), wrt_t0, wrt_shared), wrt_targets

        return jax.lax.cond(is_begun, pulled, lambda: (carry, jnp.zeros_like(own[1])))

    later = jnp.where(_reached(record, count)[:, None], 0.0, saves).sum(0)
    zero = jnp.zeros_like(x.ts[0])
    end = PieceState(later[:n], later[n:], zero), zero, jax.tree.map(jnp.zeros_like, shared)
    (wrt, wrt_t0, wrt_shared), wrt_targets = jax.lax.scan(
        one, end, (record.starts, starts, begun, each), reverse=True
    )
    wrt_ts = None
    if wanted.ts:
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
class _MovePull:
    """Cotangents through a segment of moves, from its end.

    Attributes:
        way: the moves.
        t0: time of the start.
        found: cotangents of the occurrences.
        fixed: parameters that are not differentiated.
    """

    way: _Way
    t0: Array
    found: Occurrences
    fixed: Any

    def segment(
        self, state: PieceState, active: Array, each: Any, shared: Any, carry: Any
    ) -> tuple[Any, Array]:
        """Cotangents of the state before it, of the start time and of the shared inputs.

        And of the save times, one for each move.
        """
        whole = eqx.combine(shared, self.fixed)

        def forward(carry: Any, own: Any) -> tuple[Any, Any]:
            (state, active), (move, target, _) = carry, own
            after, _, _ = self.way.moved(state, active, move, self.t0, target, whole)
            return (after, self.way.switched(active, move)), carry

        def backward(carry: Any, own: Any) -> tuple[Any, Array]:
            wrt, wrt_t0, wrt_shared = carry
            wrt, more_t0, wrt_target, more = self._move(own[0], own[1], shared, wrt)
            summed = jax.tree.map(jnp.add, wrt_shared, more)
            return (wrt, wrt_t0 + more_t0, summed), wrt_target

        _, before = jax.lax.scan(forward, (state, active), each)
        found: tuple[Any, Array] = jax.lax.scan(backward, carry, (before, each), reverse=True)
        return found

    def _move(
        self, before: tuple[PieceState, Array], own: tuple[_Move, Array, Array], shared: Any,
        given: PieceState,
    ) -> tuple[PieceState, Array, Array, Any]:  # fmt: skip
        """Through one move; one kind at a time is differentiated, as in `replay`."""
        (state, active), (move, target, wrt_save) = before, own
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
