"""Pieces of a run between steps and events, through which its derivatives propagate.

At an event, the size s of its piece is the root of g(x(s)) = 0 that the run found, and has the
derivatives of the implicit function, ds = -dg / (dg/ds), of any order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.compiler import hoisted
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.methods import RK4, AbstractRungeKutta
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.system import Params


class PieceState(eqx.Module):
    """A state between pieces, as differentiated."""

    q: Array  # (n,)
    v: Array  # (n,)
    offset: Any  # time since the step began, or by which the motion is late; None without events


class EventPiece(eqx.Module):
    """The end of a piece."""

    t: Array  # start of its step [s]
    size: Array  # of the piece, if an event ends it [s]
    which: Array  # index of that event, -1 for the end of the step
    row: Array  # row in which the event is kept, -1 if it is not
    active: Any  # constraints that are on; None without events


Kind = Callable[..., Any]  # from a state, a piece, its size h and the shared inputs of all steps


@dataclass(frozen=True)
class PieceKinds:
    """The kinds of pieces."""

    plain: Kind  # to the end of a step: the state there
    event: Kind | None = None  # to an event: the state after it, and its kept data

    def advance(
        self, state: PieceState, piece: EventPiece, h: Array, shared: Any, none: Any
    ) -> tuple[PieceState, Any]:
        """The state after a piece, and the kept data of an event; `none` without an event."""

        def plain() -> tuple[PieceState, Any]:
            return self.plain(state, piece, h, shared), none

        if self.event is None:
            return plain()
        event = partial(self.event, state, piece, h, shared)
        return jax.lax.cond(piece.which >= 0, event, plain)

    def pull_back(
        self, place: Callable[..., tuple[EventPiece, Array]], state: PieceState, times: Any,
        shared: Any, fixed: Any, given: PieceState, found: Any,
    ) -> Any:  # fmt: skip
        """Cotangents of the state, the times and `shared`, from those of the next state and events.

        `place` returns the piece and its h from the state and the times.
        """

        # One kind of piece at a time is differentiated, and not the `cond` of both, which would
        # pass intermediate values of loops from one `cond` to another: native code cannot do that.
        def through(kind: Kind, given: Any) -> Any:
            def run(state: PieceState, times: Any, shared: Any) -> Any:
                return kind(state, *place(state, times), eqx.combine(shared, fixed))

            return jax.vjp(run, state, times, shared)[1](given)

        def plain() -> Any:
            return through(self.plain, given)

        if self.event is None:
            return plain()
        own, _ = place(state, times)
        event = partial(through, self.event)
        return jax.lax.cond(own.which >= 0, lambda: event((given, found.row(own.row))), plain)


def _part(
    scheme: Scheme, state: PieceState, t: Array, size: Array, h: Array, params: Params
) -> tuple[Array, Array]:
    """q and v after a part of a step of size h, which has no length where events coincide."""

    def by(scheme: Scheme, size: Array) -> tuple[Array, Array]:
        return step(scheme, state.q, state.v, t, size, params)[:2]

    if isinstance(scheme.method, AbstractRungeKutta):
        return by(scheme, size)
    # The rates of the state are those of the motion in any method, but other methods cannot make
    # steps of no length.
    is_none = size == 0
    none = by(replace(scheme, method=RK4(1)), jnp.where(is_none, size, h))
    return jax.tree.map(partial(jnp.where, is_none), none, by(scheme, jnp.where(is_none, h, size)))


def to_step_end(
    scheme: Scheme, watch: Watch, state: PieceState, piece: EventPiece, h: Array, params: Params
) -> PieceState:
    """The state at the end of the step."""
    now = watch.params(params, piece.active)
    q, v = _part(scheme, state, piece.t + state.offset, h - state.offset, h, now)
    return PieceState(q, v, jnp.zeros_like(state.offset))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(value: Callable[[Any, Array], Array], found: Array, data: Any) -> Array:
    """The root of value(data, size) found in the run, with its implicit derivative."""
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
    """The state from which the motion continues after an event, and the kept data of the event."""
    now, start = watch.params(params, piece.active), piece.t + state.offset

    def moved(size: Array) -> tuple[Array, Array]:
        return _part(scheme, state, start, size, h, now)

    def value(size: Array) -> Array:
        values = watch.values(scheme, *moved(size), start + size, now)
        return watch.chosen(piece.which, values)

    with_traced, traced = hoisted(value, piece.size)
    size = _root(with_traced, piece.size, traced)
    q, v = moved(size)
    t, q_after, v_after = start + size, q, v
    if watch.has_transitions:
        q_after, v_after, _ = watch.after(scheme, piece.which, q, v, t, params, piece.active)
    ended = PieceState(q_after, v_after, state.offset + size)
    cuts = watch.cuts(piece.which)
    state = jax.tree.map(lambda x, y: jnp.where(cuts, x, y), ended, state)
    more = (q_after, v_after) if watch.has_transitions else (None, None)
    return state, Occurrences(t, q, v, *more)
