"""Derivatives of a run with steps by a tolerance: through its steps, whose sizes are held.

The forward run records its moves (`record`). The tangents go along with the moves. The cotangents
go backwards, segment by segment: each is run again from the state before it. Save times enter by
the speeds and accelerations at the saves, because a save is a state of the motion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import (
    AbstractRule,
    Arrays,
    Flags,
    bind,
    empty_rows,
    hoisted,
    operation_of,
    with_row,
)
from jaxmech.integrate.adaptive.method import Adaptive, Tolerance
from jaxmech.integrate.adaptive.record import StepRecord
from jaxmech.integrate.adaptive.rollout import adaptive_rollout
from jaxmech.integrate.rollout import Trajectory
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import RolloutInputs
from jaxmech.integrate.step import step

SEGMENT = 64  # moves; with the default of `max_steps` about as many segments


class _Inputs(eqx.Module):
    motion: RolloutInputs
    tolerance: Any


class _Kept(eqx.Module):
    """What the derivatives need of the forward run.

    Attributes:
        record: its moves.
        states: q and v at the save times, shape (T, 2 n).
        known: which of them were reached, shape (T,).
    """

    record: StepRecord
    states: Float[Array, " T n2"]
    known: Bool[Array, " T"]


@dataclass(frozen=True)
class _MoveProgram:
    """The run, a step of the pair and the rates at a state, with closed-over values as arguments.

    Attributes:
        run: from all inputs to the trajectory and the record.
        step: (state, t, h, shared) to the next state; `shared` are parameters and closed-over
            values.
        rates: (state, t, shared) to its time derivative.
        segment: moves in a segment.
    """

    run: Callable[[_Inputs], tuple[Trajectory, StepRecord]]
    step: Callable[[Array, Array, Array, Any], Array]
    rates: Callable[[Array, Array, Any], Array]
    segment: int


def adaptive_trajectory(
    scheme: Scheme, q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance,
    segment: int | None = None,
) -> Trajectory:  # fmt: skip
    """The run as one operation with its JVP and its VJP."""
    program, traced = _program(scheme, segment or SEGMENT, q0, v0, ts, params, tolerance)
    inputs = _Inputs(RolloutInputs(q0, v0, ts, params, traced), tolerance)
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, _Kept]:
        trajectory, record = program.run(jax.tree.unflatten(structure, leaves))
        states = jnp.concatenate([trajectory.q, trajectory.v], axis=1)
        known = ~jnp.isnan(states[:, 0])
        return trajectory, _Kept(record, jnp.where(known[:, None], states, 0.0), known)

    operation, outs = operation_of(run, leaves, partial(_MoveRule, program, structure))
    return jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]


def _program(
    scheme: Scheme, segment: int, q0: Array, v0: Array, ts: Array, params: Any,
    tolerance: Tolerance,
) -> tuple[_MoveProgram, list[Array]]:  # fmt: skip
    assert isinstance(scheme.method, Adaptive)
    by_pair = replace(scheme, method=replace(scheme.method.pair, substeps=1))

    def run(q0: Array, v0: Array, ts: Array, params: Any, tolerance: Tolerance) -> Any:
        return adaptive_rollout(scheme, q0, v0, ts, params, tolerance, segment=segment)

    def moved(state: Array, t: Array, h: Array, params: Any) -> Array:
        q, v = jnp.split(state, 2)
        q, v, _ = step(by_pair, q, v, t, h, params)
        return jnp.concatenate([q, v])

    def rates(state: Array, t: Array, params: Any) -> Array:
        q, v = jnp.split(state, 2)
        _, law = scheme.law(q, v, t, params)
        return jnp.concatenate([v, law.qdd])

    state, h = jnp.concatenate([q0, v0]), ts[1] - ts[0]
    _, traced = hoisted(moved, state, ts[0], h, params)
    if traced:
        # The run holds the values of the others, but in an order of its own.
        run_hoisted, traced = hoisted(run, q0, v0, ts, params, tolerance)
        moved_hoisted, in_step = hoisted(moved, state, ts[0], h, params)
        rates_hoisted, in_rates = hoisted(rates, state, ts[0], params)
        of_step, of_rates = (
            [next(k for k, x in enumerate(traced) if x is y) for y in some]
            for some in (in_step, in_rates)
        )

    @jax.jit  # so that it is traced once, for a single trajectory and for a batch
    def run_inputs(x: _Inputs) -> tuple[Trajectory, StepRecord]:
        m = x.motion
        args = m.q0, m.v0, m.ts, m.params, x.tolerance
        return run_hoisted(m.traced, *args) if traced else run(*args)

    def step_inputs(state: Array, t: Array, h: Array, shared: Any) -> Array:
        params, values = shared
        if not traced:
            return moved(state, t, h, params)
        return moved_hoisted([values[k] for k in of_step], state, t, h, params)

    def rates_inputs(state: Array, t: Array, shared: Any) -> Array:
        params, values = shared
        if not traced:
            return rates(state, t, params)
        return rates_hoisted([values[k] for k in of_rates], state, t, params)

    return _MoveProgram(run_inputs, step_inputs, rates_inputs, segment), traced


class _MoveRule(AbstractRule):
    """Derivatives by the moves alone.

    The smooth results are q and v at the save times, the same as kept, and the states before the
    segments, which derivatives of derivatives need.
    """

    def __init__(self, program: _MoveProgram, structure: Any, outs: Any) -> None:
        self.program, self.structure = program, structure
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        self.residuals = tuple(jax.tree.leaves(kept))
        self.smooth = (trajectory.q, trajectory.v, kept.record.starts, kept.states)
        self.kept_structure = jax.tree.structure(kept)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        """Along the moves, as many as there were."""
        return self._tangents(_along_moves, args, residuals, wanted, tangents)

    def smooth_jvp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        """The same in loops of fixed length, which JAX can differentiate in reverse mode."""
        return self._tangents(_along_all_moves, args, residuals, wanted, tangents)

    def _tangents(
        self, along: "_Along", args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays
    ) -> list[Array]:
        inputs, kept = self._trees(args, residuals)
        given = iter(tangents)
        whole = [next(given) if flag else None for flag in wanted]
        changes = jax.tree.unflatten(self.structure, whole).motion
        return _jvp(self.program, along, inputs.motion, kept, changes)

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        """Segment by segment, from the last to the first."""
        inputs, kept = self._trees(args, residuals)
        flags = jax.tree.unflatten(self.structure, wanted)
        found = _vjp(self.program, inputs.motion, kept, flags.motion, cotangents)
        held = [jnp.zeros_like(x) for x, flag in zip(
            jax.tree.leaves(inputs.tolerance), jax.tree.leaves(flags.tolerance), strict=True
        ) if flag]  # fmt: skip
        return [*jax.tree.leaves(found), *held]

    def _trees(self, args: Arrays, residuals: Arrays) -> tuple[_Inputs, _Kept]:
        return (
            jax.tree.unflatten(self.structure, args),
            jax.tree.unflatten(self.kept_structure, residuals),
        )


class _Moves(eqx.Module):
    """How a state moves along.

    Attributes:
        t0: time of the start.
        sign: of the direction in time.
        ts: save times, shape (T,), which do not move with the start.
        shared: parameters and closed-over values.
    """

    t0: Array
    sign: Array
    ts: Array
    shared: Any

    def moved(
        self, program: _MoveProgram, state: Array, begin: Array, size: Array, target: Array,
        is_save: Array,
    ) -> Array:  # fmt: skip
        """The state after a move."""
        start = jax.lax.stop_gradient(self.t0) + self.sign * begin
        h = jnp.where(is_save, target - start, self.sign * size)
        return program.step(state, self.t0 + self.sign * begin, h, self.shared)


# From the tangents of the start, of its time and of `shared` to those of the saves (T, 2 n) and of
# the states before the segments (S, 2 n); undefined where there are none.
_Along = Callable[[_MoveProgram, _Kept, _Moves, _Moves, Array, Array], tuple[Array, Array]]


def _jvp(
    program: _MoveProgram, along: _Along, x: RolloutInputs, kept: _Kept, tangents: RolloutInputs
) -> list[Array]:
    """Tangents of q, v, the starts and the kept states; None is a zero tangent of an input."""
    moves = _moves(x, (x.params, x.traced))
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
    d_moves = _Moves(d_t0, zero, jnp.zeros_like(x.ts), change)
    start = jnp.concatenate([x.q0, x.v0])
    saves, starts = along(program, kept, moves, d_moves, start, d_start)
    first = (x.ts == x.ts[0])[:, None]
    saves = jnp.where(first, d_start[None], saves)
    if tangents.ts is not None:
        shift = jnp.where(first[:, 0], 0.0, tangents.ts - d_t0)
        saves = saves + shift[:, None] * _rates(program, x, kept)
    before = program.segment * jnp.arange(len(starts)) < kept.record.count
    starts = jnp.where(before[:, None], starts, 0.0)
    told = jnp.where(kept.known[:, None], saves, jnp.nan)
    n = x.q0.size
    return [told[:, :n], told[:, n:], starts, jnp.where(kept.known[:, None], saves, 0.0)]


def _moves(x: RolloutInputs, shared: Any) -> _Moves:
    return _Moves(x.ts[0], jnp.sign(x.ts[-1] - x.ts[0]), jax.lax.stop_gradient(x.ts), shared)


def _rates(program: _MoveProgram, x: RolloutInputs, kept: _Kept) -> Array:
    """Speeds and accelerations at the saves, shape (T, 2 n)."""

    def one(_: None, save: tuple[Array, Array]) -> tuple[None, Array]:
        return None, program.rates(*save, (x.params, x.traced))

    first = jnp.concatenate([x.q0, x.v0])
    states = jnp.where(kept.known[:, None], kept.states, first[None])
    return jax.lax.scan(one, None, (states, x.ts))[1]


def _along_moves(
    program: _MoveProgram, kept: _Kept, moves: _Moves, d_moves: _Moves, start: Array, d_start: Array
) -> tuple[Array, Array]:
    """By a loop over the moves that were made."""
    record = kept.record

    def one(carry: Any) -> Any:
        number, state, d_state, saves, starts = carry
        begin, size, save = (
            jax.lax.dynamic_index_in_dim(row, number, keepdims=False)
            for row in (record.begins, record.sizes, record.saves)
        )
        target = jax.lax.dynamic_index_in_dim(moves.ts, save, keepdims=False)
        new, d_new = _pushed(program, moves, d_moves, (state, d_state), begin, size, target, save)
        is_save = save > 0
        is_first = number % program.segment == 0
        saves = with_row(saves, save, d_new, is_save)
        starts = with_row(starts, number // program.segment, d_state, is_first)
        state, d_state = jnp.where(is_save, state, new), jnp.where(is_save, d_state, d_new)
        return number + 1, state, d_state, saves, starts

    rows = (empty_rows(len(x), d_start) for x in (kept.known, record.starts))
    first = jnp.zeros((), jnp.int32), start, d_start, *rows
    _, _, _, saves, starts = jax.lax.while_loop(lambda c: c[0] < record.count, one, first)
    return saves, starts


def _pushed(
    program: _MoveProgram, moves: _Moves, d_moves: _Moves, state: tuple[Array, Array], begin: Array,
    size: Array, target: Array, save: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """A state and its tangent after a move."""

    def moved(state: Array, t0: Array, shared: Any) -> Array:
        own = _Moves(t0, moves.sign, moves.ts, shared)
        return own.moved(program, state, begin, size, target, save > 0)

    given, change = (moves.t0, moves.shared), (d_moves.t0, d_moves.shared)
    found: tuple[Array, Array] = jax.jvp(moved, (state[0], *given), (state[1], *change))
    return found


def _along_all_moves(
    program: _MoveProgram, kept: _Kept, moves: _Moves, d_moves: _Moves, start: Array, d_start: Array
) -> tuple[Array, Array]:
    """By a loop over as many moves as there could have been."""
    record = kept.record

    def one(carry: Any, move: Any) -> tuple[Any, tuple[Array, Array]]:
        state, d_state = carry
        begin, size, save, target, is_made = move
        new, d_new = _pushed(program, moves, d_moves, carry, begin, size, target, save)
        stays = (save > 0) | ~is_made
        after = jnp.where(stays, state, new), jnp.where(stays, d_state, d_new)
        return after, (d_state, jnp.where(is_made, d_new, 0.0))

    xs = _listed(record, moves)
    _, (before, after) = jax.lax.scan(one, (start, d_start), xs)
    place = jnp.arange(len(record.saves), dtype=jnp.int32)
    numbers = jnp.where(record.saves > 0, record.saves, len(kept.known))
    at = jnp.zeros(len(kept.known) + 1, jnp.int32).at[numbers].set(place)[:-1]
    return after[at], before[:: program.segment]


def _listed(record: StepRecord, moves: _Moves) -> tuple[Array, ...]:
    """Begin, size, number of the save, save time, and whether it was made, of all moves (E,)."""
    is_made = jnp.arange(len(record.saves)) < record.count
    # A move that was not made must have a length, or its derivative could be 0 / 0.
    sizes = jnp.where(is_made, record.sizes, jnp.abs(moves.ts[1] - moves.ts[0]))
    return record.begins, sizes, record.saves, moves.ts[record.saves], is_made


def _vjp(
    program: _MoveProgram, x: RolloutInputs, kept: _Kept, wanted: RolloutInputs,
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
    program: _MoveProgram, x: RolloutInputs, kept: _Kept, wanted: RolloutInputs, saves: Array,
    starts: Array,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    moves, record, each = _moves(x, ()), kept.record, program.segment
    listed = _listed(record, moves)
    by_move = jnp.where((record.saves > 0)[:, None], saves[record.saves], 0.0)
    first = jnp.concatenate([x.q0, x.v0])
    begun = each * jnp.arange(len(record.starts)) < record.count
    states = jnp.where(begun[:, None], record.starts, first[None])
    segments = jax.tree.map(lambda y: y.reshape(len(states), each, *y.shape[1:]), (listed, by_move))

    def run(own: Any, state: Array, t0: Array, shared: Any) -> tuple[Array, Array]:
        along = _Moves(t0, moves.sign, moves.ts, eqx.combine(shared, fixed))

        @partial(jax.checkpoint, prevent_cse=False)
        def one(state: Array, move: Any) -> tuple[Array, Array]:
            begin, size, save, target, is_made = move
            new = along.moved(program, state, begin, size, target, save > 0)
            stays = (save > 0) | ~is_made
            return jnp.where(stays, state, new), jnp.where(is_made, new, 0.0)

        return jax.lax.scan(one, state, own)

    def one(carry: Any, segment: Any) -> tuple[Any, None]:
        state, is_begun, wrt_start, (own, wrt_saves) = segment

        def pulled() -> Any:
            wrt_state, wrt_t0, wrt_shared = carry
            _, pull = jax.vjp(partial(run, own), state, moves.t0, shared)
            wrt_state, d_t0, more = pull((wrt_state, wrt_saves))
            return wrt_state + wrt_start, wrt_t0 + d_t0, jax.tree.map(jnp.add, wrt_shared, more)

        return jax.lax.cond(is_begun, pulled, lambda: carry), None

    end = jnp.zeros_like(first), jnp.zeros_like(moves.t0), jax.tree.map(jnp.zeros_like, shared)
    (wrt_state, wrt_t0, wrt_shared), _ = jax.lax.scan(
        one, end, (states, begun, starts, segments), reverse=True
    )
    at_start = jnp.where((x.ts == x.ts[0])[:, None], saves, 0.0).sum(0)
    wrt_q, wrt_v = jnp.split(wrt_state + at_start, 2)
    return RolloutInputs(
        wrt_q if wanted.q0 else None,
        wrt_v if wanted.v0 else None,
        _wrt_times(program, x, kept, saves, wrt_t0) if wanted.ts else None,
        *wrt_shared,
    )


def _wrt_times(
    program: _MoveProgram, x: RolloutInputs, kept: _Kept, saves: Array, wrt_t0: Array
) -> Array:
    """The cotangent of the save times."""
    later = x.ts != x.ts[0]
    each = jnp.where(later, (saves * _rates(program, x, kept)).sum(1), 0.0)
    is_first = jnp.arange(len(x.ts)) == 0
    return jnp.where(is_first, wrt_t0 - each.sum(), each)
