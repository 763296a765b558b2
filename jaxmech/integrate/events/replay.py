"""A run with events as one JAX operation, and its derivatives.

The forward run keeps what `jaxmech.integrate.derivative` does, and where in each segment which
events occurred. A derivative runs through the segments again in pieces (`pieces`): from the end of
a step or an event to the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import Arrays, Flags, bind, hoisted, operation_of
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.pieces import EventPiece, PieceState, to_event, to_step_end
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.methods import AbstractFixedStep
from jaxmech.integrate.rollout import SegmentEvents, Trajectory, rollout, segments
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.segment_parts import (
    AbstractTreeRule,
    RolloutInputs,
    SegmentEnds,
    at_ends,
    plus,
    segment_starts,
    segment_times,
)
from jaxmech.system import Params


def event_trajectory(
    scheme: Scheme, watch: Watch, steps: int, q0: Array, v0: Array, ts: Array, params: Params
) -> Trajectory:
    """The rollout in segments of some steps, with events, as an operation with its derivatives."""
    program, traced = _program(scheme, watch, steps, q0, v0, ts, params)
    inputs = RolloutInputs(q0, v0, ts, params, traced)
    leaves, structure = jax.tree.flatten(inputs)

    def run(*leaves: Array) -> tuple[Trajectory, _EventResiduals]:
        trajectory, (q, v, events) = program.run(jax.tree.unflatten(structure, leaves))
        assert events is not None
        known = ~jnp.isnan(trajectory.q[:, 0])
        return trajectory, _EventResiduals(SegmentEnds(q, v), events, known, trajectory.t_failed)

    operation, outs = operation_of(run, leaves, partial(_EventRule, program, structure))
    return jax.tree.unflatten(outs, bind(operation, (), *leaves))[0]


class _EventResiduals(eqx.Module):
    """What the derivatives need of the forward run.

    Attributes:
        ends: the states at the ends of the segments.
        events: those of each segment.
        known: whether the state was good at each save time, shape (T,).
        t_failed: as in `Trajectory`.
    """

    ends: SegmentEnds
    events: SegmentEvents
    known: Bool[Array, " T"]
    t_failed: Float[Array, ""]


class _Along(eqx.Module):
    """Where in a segment the replay is, and how the motion goes on.

    Attributes:
        step: the step.
        entry: how many events have been replayed.
        active: which constraints are on.
        moving: whether the trajectory still moves.
    """

    step: Int[Array, ""]
    entry: Int[Array, ""]
    active: Bool[Array, " C"]
    moving: Bool[Array, ""]


@dataclass(frozen=True)
class _EventProgram:
    """The rollout and its two kinds of pieces, with closed-over values as arguments.

    Attributes:
        run: the rollout.
        plain: a piece up to the end of its step.
        event: a piece up to an event, and what is kept of it.
        watch: the events.
        substeps: steps per save interval.
        steps: steps of a segment.
    """

    run: Callable[..., Any]
    plain: Callable[..., PieceState]
    event: Callable[..., tuple[PieceState, Occurrences]]
    watch: Watch
    substeps: int
    steps: int


def _program(
    scheme: Scheme, watch: Watch, steps: int, q0: Array, v0: Array, ts: Array, params: Params
) -> tuple[_EventProgram, list[Array]]:
    """The program, and the traced values that the system and the events close over."""
    assert isinstance(scheme.method, AbstractFixedStep)
    run = partial(rollout, scheme, segment=steps, watch=watch)
    plain, event = partial(to_step_end, scheme, watch), partial(to_event, scheme, watch)
    zero, whole = jnp.zeros_like(ts[0]), jnp.zeros((), jnp.int32)
    example = (
        PieceState(q0, v0, zero),
        EventPiece(zero, zero, whole, whole, watch.active()),
        zero,
        params,
    )
    hoisted_run, traced = hoisted(run, q0, v0, ts, params)

    def with_traced(fn: Callable[..., Any]) -> Callable[..., Any]:
        if not traced:
            return lambda state, piece, h, shared: fn(state, piece, h, shared[0])
        hoisted_fn, some = hoisted(fn, *example)
        places = [next(k for k, x in enumerate(traced) if x is y) for y in some]
        return lambda state, piece, h, shared: hoisted_fn(
            [shared[1][k] for k in places], state, piece, h, shared[0]
        )

    @jax.jit
    def run_inputs(x: RolloutInputs) -> Any:
        args = x.q0, x.v0, x.ts, x.params
        return hoisted_run(x.traced, *args) if traced else run(*args)

    own = _EventProgram(
        run_inputs, with_traced(plain), with_traced(event), watch, scheme.method.count, steps
    )
    return own, traced


class _EventRule(AbstractTreeRule):
    """Derivatives piece by piece, without searching for the events.

    The smooth results are q and v at the save times, times and states of the events, and q and v at
    the ends of the segments, which derivatives of derivatives need.
    """

    def __init__(self, program: _EventProgram, structure: Any, outs: Any) -> None:
        trajectory, kept = jax.tree.unflatten(outs, range(outs.num_leaves))
        found = trajectory.events.found
        smooth = trajectory.q, trajectory.v, found, kept.ends.q, kept.ends.v
        super().__init__(program, structure, kept, smooth)
        self.found = jax.tree.structure(found)

    def jvp(self, args: Arrays, residuals: Arrays, wanted: Flags, tangents: Arrays) -> list[Array]:
        x, kept = self.trees(args, residuals)
        return _jvp(self.program, x, kept, self.changes(wanted, tangents))

    def vjp(
        self, args: Arrays, residuals: Arrays, wanted: Flags, cotangents: Sequence[Array | None]
    ) -> list[Array]:
        x, kept = self.trees(args, residuals)
        states = [*cotangents[:2], *cotangents[-2:]]
        rows = _rows(self.program.watch, x, self.found, cotangents[2:-2])
        return jax.tree.leaves(_vjp(self.program, x, kept, self.flags(wanted), states, rows))


def _rows(
    watch: Watch, x: RolloutInputs, structure: Any, given: Sequence[Array | None]
) -> Occurrences:
    """Cotangents of the occurrences, zeros in place of None."""
    shapes = jax.tree.leaves(Occurrences.none(watch.rows[-1], x.q0, watch.has_transitions))
    pairs = zip(given, shapes, strict=True)
    return jax.tree.unflatten(
        structure, [jnp.zeros_like(y) if ct is None else ct for ct, y in pairs]
    )


def _next(
    program: _EventProgram, place: _Along, t: Array, done: Array, h: Array, events: SegmentEvents,
    t_failed: Array,
) -> tuple[EventPiece, Array, _Along]:  # fmt: skip
    """The next piece of a segment, whether there is one, and the place after it."""
    watch, replay = program.watch, events.replay
    at, size, which, row = replay.at(place.entry)
    is_event = (place.entry < replay.count) & (at == place.step)
    t = t + (done + place.step) * h
    # As in `bare_segment`.
    failed = (t_failed - t) / h < 0.5  # false for NaN
    # After a terminal event, a failure or the last step the remaining pieces do nothing.
    goes_on = place.moving & (place.step < program.steps) & ~failed
    which = jnp.where(is_event, which, -1)
    piece = EventPiece(t, size, which, jnp.where(is_event, row, -1), place.active)
    is_terminal = watch.flags([event.terminal for event in watch.events])
    ended = is_event & watch.chosen(which, is_terminal)
    after = _Along(
        place.step + (goes_on & ~is_event),
        place.entry + (goes_on & is_event),
        jnp.where(goes_on & is_event, watch.switched(which, place.active), place.active),
        place.moving & ~ended,
    )
    return piece, goes_on, after


def _first(state: Sequence[Array], events: SegmentEvents, t: Array) -> tuple[PieceState, _Along]:
    """The beginning of a segment."""
    none = jnp.zeros((), jnp.int32)
    place = _Along(none, none, events.active, events.moving)
    return PieceState(state[0], state[1], jnp.zeros_like(t)), place


def _moved(
    program: _EventProgram, state: PieceState, piece: EventPiece, goes_on: Array, h: Array,
    shared: Any, none: Occurrences,
) -> tuple[PieceState, Occurrences]:  # fmt: skip
    """The state after a piece, and what is kept of an event; `none` where there is no event."""

    def event() -> tuple[PieceState, Occurrences]:
        return program.event(state, piece, h, shared)

    def plain() -> tuple[PieceState, Occurrences]:
        return program.plain(state, piece, h, shared), none

    def moved() -> tuple[PieceState, Occurrences]:
        return jax.lax.cond(piece.which >= 0, event, plain)

    return jax.lax.cond(goes_on, moved, lambda: (state, none))


def _pieces(program: _EventProgram, most: int) -> int:
    """The number of pieces of a segment with so many events at most."""
    # Every step ends with a piece, and every event adds one.
    return program.steps + most


def _jvp(
    program: _EventProgram, x: RolloutInputs, kept: _EventResiduals, tangents: RolloutInputs
) -> list[Array]:
    """Tangents of the smooth results; None is a zero tangent of an input."""
    some = tangents.params, tangents.traced
    wanted = jax.tree.map(lambda t: t is not None, some, is_leaf=lambda t: t is None)
    shared, fixed = eqx.partition((x.params, x.traced), wanted)
    own = segments(x.ts, program.substeps, program.steps)
    d_timed = jnp.zeros_like(own.t), jnp.zeros_like(own.h)
    if tangents.ts is not None:
        times = segment_times(program.substeps, program.steps)
        d_timed = jax.jvp(times, (x.ts,), (tangents.ts,))[1]
    d_start = [
        jnp.zeros_like(s) if d is None else d for s, d in ((x.q0, tangents.q0), (x.v0, tangents.v0))
    ]
    rows = program.watch.rows[-1]
    unknown = Occurrences.none(rows, x.q0, program.watch.has_transitions)
    d_found = jax.tree.map(jnp.zeros_like, unknown)
    none = jax.tree.map(lambda x: jnp.zeros_like(x[0]), d_found)

    def one(carry: Any, segment: Any) -> tuple[Any, Any]:
        (d_state, d_found), (state, t, h, done, (d_t, d_h), events) = carry, segment
        state, place = _first(state, events, t)

        def piece(carry: Any, _: Any) -> tuple[Any, None]:
            state, d_state, place, d_found = carry

            def run(state: PieceState, t: Array, h: Array, shared: Any) -> Any:
                own, goes_on, _ = _next(program, place, t, done, h, events, kept.t_failed)
                return _moved(program, state, own, goes_on, h, eqx.combine(shared, fixed), none)

            own, _, after = _next(program, place, t, done, h, events, kept.t_failed)
            (state, _), (d_state, d_own) = jax.jvp(
                run, (state, t, h, shared), (d_state, d_t, d_h, some)
            )
            here = jnp.arange(rows) == own.row
            d_found = jax.tree.map(
                lambda xs, x: jnp.where(here.reshape(-1, *[1] * x.ndim), x[None], xs),
                d_found, d_own,
            )  # fmt: skip
            return (state, d_state, after, d_found), None

        d_state = PieceState(d_state[0], d_state[1], jnp.zeros_like(t))
        start = state, d_state, place, d_found
        (_, d_state, _, d_found), _ = jax.lax.scan(
            piece, start, None, length=_pieces(program, len(events.replay.step))
        )
        d_ends = _known(events, [d_state.q, d_state.v])
        return (d_ends, d_found), d_ends

    each = segment_starts(x, kept.ends), own.t, own.h, own.done, d_timed, kept.events
    (_, d_found), d_ends = jax.lax.scan(one, (d_start, d_found), each)
    per_save = program.substeps // program.steps
    d_saves = [
        jnp.concatenate([first[None], rest[per_save - 1 :: per_save]])
        for first, rest in zip(d_start, d_ends, strict=True)
    ]
    saved = [jnp.where(kept.known[:, None], d, jnp.nan) for d in d_saves]
    return [*saved, *jax.tree.leaves(d_found), *d_ends]


def _known(events: SegmentEvents, derivatives: list[Array]) -> list[Array]:
    """NaN where a segment had more events than are kept for a derivative."""
    complete = events.replay.count <= events.replay.step.shape[-1]
    return [jnp.where(complete, d, jnp.nan) for d in derivatives]


def _vjp(
    program: _EventProgram, x: RolloutInputs, kept: _EventResiduals, wanted: RolloutInputs,
    given: Sequence[Array | None], rows: Occurrences,
) -> RolloutInputs:  # fmt: skip
    """Cotangents of the wanted inputs, from those of the smooth results; None is zero."""
    by_save = [(ct != 0).any(1) for ct in given[:2] if ct is not None]
    every = [*(ct for ct in given if ct is not None), *jax.tree.leaves(rows)]
    nonzero = [(ct != 0).any() for ct in every]
    cotangents = [ct if ct is None else jnp.where(kept.known[:, None], ct, 0.0) for ct in given[:2]]
    found = _backwards(program, x, kept, wanted, [*cotangents, *given[2:]], rows)
    depends_on_nan = sum(((flags & ~kept.known).any() for flags in by_save), jnp.asarray(False))
    answer = jnp.where(depends_on_nan, jnp.nan, 0.0)
    is_found = jnp.stack(nonzero).any() & ~depends_on_nan
    return jax.tree.map(lambda x: jnp.where(is_found, x, answer.astype(x.dtype)), found)


def _backwards(
    program: _EventProgram, x: RolloutInputs, kept: _EventResiduals, wanted: RolloutInputs,
    cotangents: Sequence[Array | None], rows: Occurrences,
) -> RolloutInputs:  # fmt: skip
    """Run the segments again, from the last to the first, and pull the cotangents back."""
    shared, fixed = eqx.partition((x.params, x.traced), (wanted.params, wanted.traced))
    times = segment_times(program.substeps, program.steps)
    _, pull_times = jax.vjp(times, x.ts)
    own = segments(x.ts, program.substeps, program.steps)
    saves = [at_ends(ct, len(own.done)) for ct in cotangents[:2]]
    added = [
        [ct for ct in pair if ct is not None] for pair in zip(saves, cotangents[2:], strict=True)
    ]

    def one(carry: Any, segment: Any) -> tuple[Any, Any]:
        (wrt_state, wrt_shared), (state, t, h, done, added, events) = carry, segment
        wrt_state = [sum(more, start=x) for x, more in zip(wrt_state, added, strict=True)]
        pull = _Pull(program, events, done, kept.t_failed, rows, fixed)
        wrt_state, wrt_timed, more = pull.segment(state, t, h, shared, wrt_state)
        wrt_state = _known(events, wrt_state)
        more = jax.tree.map(lambda x: _known(events, [x])[0], more)
        return (wrt_state, jax.tree.map(jnp.add, wrt_shared, more)), wrt_timed

    ends = [
        jnp.zeros_like(state) if ct is None else ct[-1]
        for ct, state in zip(cotangents, (x.q0, x.v0), strict=False)
    ]
    start = ends, jax.tree.map(jnp.zeros_like, shared)
    each = segment_starts(x, kept.ends), own.t, own.h, own.done, added, kept.events
    ((wrt_q, wrt_v), wrt_shared), wrt_timed = jax.lax.scan(one, start, each, reverse=True)
    return RolloutInputs(
        plus(wrt_q, cotangents[0]) if wanted.q0 else None,
        plus(wrt_v, cotangents[1]) if wanted.v0 else None,
        pull_times(wrt_timed)[0] if wanted.ts else None,
        *wrt_shared,
    )


@dataclass(frozen=True)
class _Pull:
    """Cotangents through one segment, piece by piece from its end.

    Attributes:
        program: the pieces.
        events: the events of the segment.
        done: steps from the save time before it to the segment.
        t_failed: as in `Trajectory`.
        rows: cotangents of the occurrences.
        fixed: parameters that are not differentiated.
    """

    program: _EventProgram
    events: SegmentEvents
    done: Array
    t_failed: Array
    rows: Occurrences
    fixed: Any

    def segment(
        self, start: list[Array], t: Array, h: Array, shared: Any, given: list[Array]
    ) -> tuple[list[Array], tuple[Array, Array], Any]:
        """Cotangents of the state, the times and the shared inputs, from those of its end."""
        none = jax.tree.map(lambda x: jnp.zeros_like(x[0]), self.rows)
        whole = eqx.combine(shared, self.fixed)

        def forward(carry: Any, _: Any) -> tuple[Any, Any]:
            state, place = carry
            piece, goes_on, after = self._next(place, t, h)
            moved, _ = _moved(self.program, state, piece, goes_on, h, whole, none)
            return (moved, after), carry

        def backward(carry: Any, before: Any) -> tuple[Any, None]:
            (wrt_state, wrt_t, wrt_h, wrt_shared), (state, place) = carry, before
            wrt_state, d_t, d_h, more = self._piece(state, place, t, h, shared, wrt_state)
            summed = jax.tree.map(jnp.add, wrt_shared, more)
            return (wrt_state, wrt_t + d_t, wrt_h + d_h, summed), None

        begin = _first(start, self.events, t)
        _, states = jax.lax.scan(
            forward, begin, None, length=_pieces(self.program, len(self.events.replay.step))
        )
        zero = jnp.zeros_like(t)
        last = (
            PieceState(given[0], given[1], zero),
            zero,
            zero,
            jax.tree.map(jnp.zeros_like, shared),
        )
        (wrt, wrt_t, wrt_h, wrt_shared), _ = jax.lax.scan(backward, last, states, reverse=True)
        return [wrt.q, wrt.v], (wrt_t, wrt_h), wrt_shared

    def _next(self, place: _Along, t: Array, h: Array) -> tuple[EventPiece, Array, _Along]:
        return _next(self.program, place, t, self.done, h, self.events, self.t_failed)

    def _piece(
        self, state: PieceState, place: _Along, t: Array, h: Array, shared: Any, given: PieceState
    ) -> tuple[PieceState, Array, Array, Any]:
        """Cotangents of what a piece depends on; one kind of piece at a time is differentiated."""
        # Not by the derivative of a `cond`, which would hand intermediate values of loops from one
        # `cond` to another: native code cannot do that.
        piece, goes_on, _ = self._next(place, t, h)

        def pulled(kind: Callable[..., Any], given: Any) -> Any:
            def run(state: PieceState, t: Array, h: Array, shared: Any) -> Any:
                own, _, _ = self._next(place, t, h)
                return kind(state, own, h, eqx.combine(shared, self.fixed))

            return jax.vjp(run, state, t, h, shared)[1](given)

        def event() -> Any:
            here = jnp.arange(len(self.rows.t)) == piece.row
            own = jax.tree.map(
                lambda x: jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0).sum(0),
                self.rows,
            )
            return pulled(self.program.event, (given, own))

        def nothing() -> Any:
            zero = jnp.zeros_like(t)
            return given, zero, zero, jax.tree.map(jnp.zeros_like, shared)

        def some() -> Any:
            return jax.lax.cond(piece.which >= 0, event, lambda: pulled(self.program.plain, given))

        return jax.lax.cond(goes_on, some, nothing)
