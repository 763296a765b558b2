"""Pieces of a run between steps and events, which its derivatives go through.

At an event, the size s of its piece is the root of g(x(s)) = 0 that the run found, and has the
derivatives of the implicit function, ds = -dg / (dg/ds), of any order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import hoisted
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.system import Params


class PieceState(eqx.Module):
    """A state within a segment: what derivatives go through.

    Attributes:
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        offset: time since the step began.
    """

    q: Array
    v: Array
    offset: Array


class EventPiece(eqx.Module):
    """What ends a piece.

    Attributes:
        t: when its step began [s].
        size: of the piece, if an event ends it [s].
        which: the number of that event, -1 for the end of the step.
        row: where the event is kept, -1 if it is not.
        active: which constraints are on.
    """

    t: Array
    size: Array
    which: Array
    row: Array
    active: Array


def to_step_end(
    scheme: Scheme, watch: Watch, state: PieceState, piece: EventPiece, h: Array, params: Params
) -> PieceState:
    """The state at the end of the step."""
    now = watch.params(params, piece.active)
    q, v, _ = step(scheme, state.q, state.v, piece.t + state.offset, h - state.offset, now)
    return PieceState(q, v, jnp.zeros_like(state.offset))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(value: Callable[[Any, Array], Array], found: Array, data: Any) -> Array:
    """The root of value(data, size) that the run found, with the derivative of the implicit one."""
    return found


# Not `jax.lax.custom_root`, which JAX 0.12 cannot compile within an operation.
@_root.defjvp
def _root_jvp(
    value: Callable[[Any, Array], Array], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    found, data = primals
    size = _root(value, found, data)
    _, along = jax.jvp(partial(value, data), (size,), (jnp.ones_like(size),))
    _, moved = jax.jvp(lambda data: value(data, size), (data,), (tangents[1],))
    return size, -moved / along


def to_event(
    scheme: Scheme, watch: Watch, state: PieceState, piece: EventPiece, h: Array, params: Params
) -> tuple[PieceState, Occurrences]:
    """The state from which the motion goes on after an event, and what is kept of the event."""
    now, start = watch.params(params, piece.active), piece.t + state.offset

    def moved(size: Array) -> tuple[Array, Array]:
        return step(scheme, state.q, state.v, start, size, now)[:2]

    def value(size: Array) -> Array:
        values = watch.values(scheme, *moved(size), start + size, now)
        return watch.chosen(piece.which, values)

    with_traced, traced = hoisted(value, piece.size)
    size = _root(with_traced, piece.size, traced)
    q, v = moved(size)
    t, q_after, v_after = start + size, q, v
    if watch.has_transitions:
        q_after, v_after, _ = watch.after(scheme, piece.which, q, v, t, params, piece.active)
    cuts = watch.chosen(piece.which, watch.flags([e.cuts for e in watch.events]))
    ended = PieceState(q_after, v_after, state.offset + size)
    state = jax.tree.map(lambda x, y: jnp.where(cuts, x, y), ended, state)
    more = (q_after, v_after) if watch.has_transitions else (None, None)
    return state, Occurrences(t, q, v, *more)
