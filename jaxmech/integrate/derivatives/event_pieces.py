"""Pieces of a run between steps and events, through which its derivatives propagate.

At an event, the size s of its piece is the root of g(x(s)) = 0 that the run found, and has the
derivatives of the implicit function, ds = -dg / (dg/ds), of any order. Where g jumps through zero,
as the load of a friction does when a controller gives out another number, s does not change.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import hoisted
from jaxmech.integrate.checks import checked_states
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.methods.runge_kutta import RK4, AbstractRungeKutta
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.spans import AnyInterval, within
from jaxmech.integrate.step import StepState, step
from jaxmech.system import Params


class PieceState(eqx.Module):
    """A state between pieces, as differentiated."""

    q: Array  # (n,)
    v: Array  # (k,), where k is n unless there are quasi-velocities
    memory: Array  # of controllers, (c,)
    offset: Array  # time since the step began, or by which the motion is late, (1,) or (0,)

    @property
    def delay(self) -> Array:
        """The offset, or zero in runs without events and times at which a step ends."""
        return self.offset.sum()

    def packed(self) -> Array:
        return jnp.concatenate([self.q, self.v, self.memory, self.offset])


class EventPiece(eqx.Module):
    """The end of a piece."""

    t: Array  # start of its step [s]
    size: Array  # of the piece, if an event ends it [s]
    which: Array  # index of that event, -1 for the end of the step
    row: Array  # row in which the event is kept, -1 if it is not
    active: Array  # constraints that are on, (C,)
    outcome: Array  # decisions about gaps at that event, (D,)
    late: Array  # offset after a plain piece
    interval: AnyInterval = None  # of the piece

    def start(
        self, scheme: Scheme, event_set: EventSet, state: PieceState, params: Params
    ) -> tuple[StepState, Array, Params]:
        """The state, the memory and the parameters, without switches, as the piece begins."""
        t, params = self.t + state.delay, within(self.interval, params)
        memory, params = scheme.sampled(state.memory, state.q, state.v, t, params, self.interval)
        active_params = event_set.params(params, self.active)
        q, v, _ = scheme.after_kink(state.q, state.v, t, active_params, self.interval)
        return StepState(q, v, t), memory, params


def _part(
    scheme: Scheme, start: StepState, size: Array, h: Array, params: Params
) -> tuple[Array, Array]:
    """q and v after a part of a step of size h, which has no length where events coincide."""

    def part_step(scheme: Scheme, size: Array) -> tuple[Array, Array]:
        end, _ = step(scheme, start, size, params)
        return end.q, end.v

    if isinstance(scheme.method, AbstractRungeKutta):
        return part_step(scheme, size)
    # The rates of the state are those of the motion in any method, but other methods cannot make
    # steps of no length.
    is_none = size == 0
    by_explicit = part_step(replace(scheme, method=RK4()), jnp.where(is_none, size, h))
    return jax.tree.map(
        partial(jnp.where, is_none), by_explicit, part_step(scheme, jnp.where(is_none, h, size))
    )


def to_step_end(
    scheme: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    is_over: Array, params: Params,
) -> PieceState:  # fmt: skip
    """The state at the end of the step, NaN if it is not finite unless the motion is over."""
    start, memory, params = piece.start(scheme, event_set, state, params)
    active_params = event_set.params(params, piece.active)
    q, v = _part(scheme, start, h - state.delay, h, active_params)
    q, v = checked_states(q, v, is_over)
    return PieceState(q, v, memory, piece.late)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _to_root(
    motion: Callable[..., Any], value: Callable[..., Array], size: Array, accuracy: Array,
    data: tuple[Any, Any],
) -> tuple[Array, Any]:  # fmt: skip
    """The size of a motion at whose end the value is zero, and the state there.

    Both functions have the values that they close over, `data`, as their first argument.
    """
    return size, motion(data[0], size)


# Not `jax.lax.custom_root`, which JAX 0.12 cannot compile within an operation. Cotangents go
# through the motion once: the state moves by its own change and along the motion by the size's.
@_to_root.defjvp
def _to_root_jvp(
    motion: Callable[..., Any], value: Callable[..., Array], primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
) -> tuple[Any, Any]:  # fmt: skip
    _, accuracy, (of_motion, of_value) = primals
    d_motion, d_value = tangents[2]
    size, _ = _to_root(motion, value, *primals)
    _, along = jax.jvp(partial(motion, of_motion), (size,), (jnp.ones_like(size),))
    state, moved = jax.jvp(lambda data: motion(data, size), (of_motion,), (d_motion,))
    g, g_along = jax.jvp(partial(value, of_value), (state,), (along,))
    _, g_moved = jax.jvp(value, (of_value, state), (d_value, moved))
    jumps = jnp.abs(g) > accuracy * jnp.abs(g_along)
    d_size = jnp.where(jumps, 0.0, -g_moved / jnp.where(jumps, 1.0, g_along))
    d_state = jax.tree.map(lambda x, y: x + y * d_size, moved, along)
    return (size, state), (d_size, d_state)


def along_motion(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> "Motion":
    """The motion from a state near a size of zero, with derivatives up to the fourth."""

    @jax.jit
    def rates(state: list[Array]) -> list[Array]:
        q, v, t = state
        speeds = scheme.system.dynamics.speeds(q, v, t, params)
        return [speeds, scheme.law(q, v, t, params)[1].qdd, jnp.ones_like(t)]

    def moved(state: list[Array], rate: list[Array], s: Array) -> list[Array]:
        return [x + s * rate for x, rate in zip(state, rate, strict=True)]

    def motion(s: Array) -> tuple[Array, Array, Array]:
        # The classical method: a size of zero that is known leaves only the first rates.
        state = [q, v, t]
        first = rates(state)
        second = rates(moved(state, first, s / 2))
        third = rates(moved(state, second, s / 2))
        fourth = rates(moved(state, third, s))
        for rate, weight in ((first, 6), (second, 3), (third, 3), (fourth, 6)):
            state = moved(state, rate, s / weight)
        return state[0], state[1], state[2]

    return motion


Motion = Callable[[Array], tuple[Array, Array, Array]]  # q, v and t as functions of a size


def at_event(
    scheme: Scheme, event_set: EventSet, motion: Motion, recorded_size: Array, piece: EventPiece,
    h: Array, params: Params,
) -> tuple[Array, tuple[Array, Array], Array]:  # fmt: skip
    """The size of the motion up to an event, q and v after it, and its row in the log.

    The size is `recorded_size`, with the derivatives of the root.
    """
    active_params = event_set.params(params, piece.active)

    def value(state: tuple[Array, Array, Array]) -> Array:
        return event_set.chosen(piece.which, event_set.values(scheme, *state, active_params))

    moved, of_motion = hoisted(motion, recorded_size)
    valued, of_value = hoisted(value, jax.eval_shape(motion, recorded_size))
    # Far above the accuracy of the search, and far below what a jump makes of a load.
    eps = float(jnp.finfo(h.dtype).eps)
    accuracy = jnp.maximum(1e-6 * jnp.abs(h), 1e4 * eps * jnp.abs(piece.t))
    accuracy = jax.lax.stop_gradient(accuracy)
    size, (q, v, t) = _to_root(moved, valued, recorded_size, accuracy, (of_motion, of_value))
    next_state, row = (q, v), [t[None], q, v]
    if event_set.has_transitions:
        state = MotionState(q, v, t, jnp.abs(q), jnp.zeros_like(t), jnp.zeros_like(t))
        after = event_set.after(scheme, piece.which, state, params, piece.active, piece.outcome)
        next_state = after.q, after.v
        row += next_state
    return size, next_state, jnp.concatenate([*row, jnp.zeros(event_set.words, q.dtype)])


def to_event(
    scheme: Scheme, event_set: EventSet, state: PieceState, piece: EventPiece, h: Array,
    params: Params,
) -> tuple[PieceState, Array]:  # fmt: skip
    """The state from which the motion continues after an event, and the row of the event."""
    start, memory, params = piece.start(scheme, event_set, state, params)
    active_params = event_set.params(params, piece.active)

    def motion(size: Array) -> tuple[Array, Array, Array]:
        return *_part(scheme, start, size, h, active_params), start.t + size

    size, next_state, row = at_event(scheme, event_set, motion, piece.size, piece, h, params)
    next_state = checked_states(*next_state, jnp.asarray(False))
    ended = PieceState(*next_state, memory, state.offset + size)
    interrupts = event_set.interrupts(piece.which)
    unchanged = PieceState(start.q, start.v, memory, state.offset)
    return jax.tree.map(lambda x, y: jnp.where(interrupts, x, y), ended, unchanged), row
