"""The moves of a run from one step or event to the next, through which derivatives propagate.

At an event, the size s of the part of its step is the root of g(x(s)) = 0 that the run found, and
has the derivatives of the implicit function, ds = -dg / (dg/ds), of any order.
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
from jaxmech.integrate.events.log import Occurrences
from jaxmech.integrate.events.watch import EventSet
from jaxmech.integrate.methods import RK4, AbstractRungeKutta
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import step
from jaxmech.integrate.times.spans import within
from jaxmech.system import Params


class ReplayState(eqx.Module):
    """A state between moves, as differentiated."""

    q: Array  # (n,)
    v: Array  # (n,)
    # Time since the step began (fixed steps) or by which the motion is late, of value zero
    # (adaptive ones); None where no event or time at which a step ends can move.
    offset: Any

    def packed(self) -> Array:
        """All numbers as one row."""
        offset = [] if self.offset is None else [self.offset[None]]
        return jnp.concatenate([self.q, self.v, *offset])

    @staticmethod
    def unpacked(row: Array, n: int) -> "ReplayState":
        """The state in a row, in which other numbers may follow."""
        return ReplayState(row[:n], row[n : 2 * n], row[2 * n] if row.size > 2 * n else None)


class Move(eqx.Module):
    """A step, the part of a step up to an event, or the part up to a save."""

    t: Array  # start of its step [s]
    h: Array  # size of its step [s]
    is_made: Any  # whether there is one; None if there always is
    goes_on: Any  # whether the motion continues from its end; None if it always does
    save: Any = None  # number of the save that it leads to, 0 for none; None without such moves
    size: Any = None  # of the part up to an event [s]
    which: Any = None  # index of that event, -1 for none
    row: Any = None  # row in which the event is kept, -1 if it is not
    active: Any = None  # constraints that are on; None without events
    span: Any = None  # span of time of the move; None without times at which a step ends
    turns: Any = None  # whether it begins at such a time; None without them
    late: Any = None  # offset after a step; None if it stays
    extents: Any = None  # of the coordinates; None for those at its start

    def begun(
        self, scheme: Scheme, watch: EventSet | None, state: ReplayState, params: Params
    ) -> tuple[Array, Array, Array, Params]:
        """q, v, time and parameters with which the move begins."""
        t, params = self.t, within(self.span, params)
        if state.offset is not None:
            t = t + state.offset
        now = params if watch is None else watch.params(params, self.active)
        if self.turns is None:
            return state.q, state.v, t, now
        q, v, _ = scheme.turned(state.q, state.v, t, now, self.turns)
        return q, v, t, now


def _part(
    scheme: Scheme, q: Array, v: Array, t: Array, size: Array, h: Array, params: Params
) -> tuple[Array, Array]:
    """q and v after a part of a step of size h, which has no length where events coincide."""

    def by(scheme: Scheme, size: Array) -> tuple[Array, Array]:
        return step(scheme, q, v, t, size, params)[:2]

    if isinstance(scheme.method, AbstractRungeKutta):
        return by(scheme, size)
    # The rates of the state are those of the motion in any method, but other methods cannot make
    # steps of no length.
    is_none = size == 0
    none = by(replace(scheme, method=RK4()), jnp.where(is_none, size, h))
    return jax.tree.map(partial(jnp.where, is_none), none, by(scheme, jnp.where(is_none, h, size)))


def to_step_end(
    scheme: Scheme, watch: EventSet, state: ReplayState, move: Move, params: Params
) -> ReplayState:
    """The state at the end of a step of fixed size, in which events may have occurred."""
    q, v, t, now = move.begun(scheme, watch, state, params)
    q, v = _part(scheme, q, v, t, move.h - state.offset, move.h, now)
    return ReplayState(q, v, jnp.zeros_like(state.offset))


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


def along_motion(scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> "Motion":
    """The motion from a state near a size of zero, with derivatives up to the fourth."""

    @jax.jit
    def rates(state: list[Array]) -> list[Array]:
        q, v, t = state
        return [v, scheme.law(q, v, t, params)[1].qdd, jnp.ones_like(t)]

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
    scheme: Scheme, watch: EventSet, motion: Motion, found: Array, move: Move, params: Params
) -> tuple[Array, tuple[Array, Array], Array]:
    """The size of the motion up to an event, q and v after it, and its row in the log.

    The size is `found`, with the derivatives of the root.
    """
    now = watch.params(params, move.active)

    def value(size: Array) -> Array:
        return watch.chosen(move.which, watch.values(scheme, *motion(size), now))

    with_traced, traced = hoisted(value, found)
    size = _root(with_traced, found, traced)
    q, v, t = motion(size)
    after = q, v
    if watch.has_transitions:
        after = watch.after(scheme, move.which, q, v, t, params, move.active)[:2]
    more = after if watch.has_transitions else (None, None)
    return size, after, Occurrences(t, q, v, *more).packed()


def to_event(
    scheme: Scheme, watch: EventSet, state: ReplayState, move: Move, params: Params
) -> tuple[ReplayState, Array]:
    """The state from which the motion continues after an event in a step, and its row."""
    q, v, start, now = move.begun(scheme, watch, state, params)
    params = within(move.span, params)

    def motion(size: Array) -> tuple[Array, Array, Array]:
        return *_part(scheme, q, v, start, size, move.h, now), start + size

    size, after, row = at_event(scheme, watch, motion, move.size, move, params)
    ended, cuts = ReplayState(*after, state.offset + size), watch.cuts(move.which)
    begun = ReplayState(q, v, state.offset)
    return jax.tree.map(lambda x, y: jnp.where(cuts, x, y), ended, begun), row
