"""Dense output: the states of a simulated motion at any time between its first and its last one.

From the last known state before a time, which is a save or the state after a transition, the motion
is computed again, up to that time, by the method, the steps and the projection of the run. So a
state is on the constraints, and as accurate as the states at the save times.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.derivatives.run_rule import RolloutInputs
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.log import Events
from jaxmech.integrate.motion import Program, Run, with_samples
from jaxmech.integrate.steps import Tolerance
from jaxmech.system import Params
from jaxmech.utils.checks import as_numbers
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import actual


class _Knots(eqx.Module):
    """States, or one, to compute the motion from: those after transitions, and the saves."""

    elapsed: Float[Array, " *N"]  # times from the start, in the direction of the run
    q: Float[Array, " *N n"]
    v: Float[Array, " *N k"]
    memory: Float[Array, " *N c"]  # of controllers
    active: Bool[Array, " *N C"]  # constraints with a switch that are on


def states_at(
    run: Run, saves: tuple[Array, ...], t_failed: Array, events: Events | None, t: Any
) -> tuple[Array, Array, Array, Array]:
    """Times t, and q, v and memory there, of one trajectory with these saves: times and states.

    Where values are known, other times are errors; elsewhere the states are NaN.
    """
    ts = saves[0]
    t = jnp.asarray(as_numbers("t", t, half=True)).astype(ts.dtype)
    known = actual((ts, t.ravel()), sys.maxsize)
    if known is not None:
        low, high = known[0].min(1, keepdims=True), known[0].max(1, keepdims=True)
        is_outside = ~((low <= known[1]) & (known[1] <= high))
        for member, number in np.argwhere(is_outside)[:1]:
            raise ValueError(
                f"Argument `t` must lie in the run, from {low[member, 0]:g} s to "
                f"{high[member, 0]:g} s, but {known[1][member, number]:g} s does not; simulate up "
                "to that time."
            )
    numbers = run.params, run.tolerance, run.times
    new_states, is_lost = _states(run.program, numbers, saves, t_failed, events, t.ravel())
    known = actual((is_lost, t.ravel()), sys.maxsize)
    if known is not None and known[0].any():
        raise ValueError(
            f"Argument `t` must not be later than the last transition that is kept, but t = "
            f"{known[1][known[0]][0]:g} s is; give the events of the run a larger `keep`."
        )
    q, v, memory = (x.reshape(*t.shape, x.shape[-1]) for x in new_states)
    return t, q, v, memory


@jit_of("program", is_frame=True)
def _states(
    program: Program, numbers: tuple[Params, Tolerance | None, Array], saves: tuple[Array, ...],
    t_failed: Array, events: Events | None, t: Array,
) -> tuple[tuple[Array, Array, Array], Array]:  # fmt: skip
    """q, v and memory at times t (K,), and whether transitions before them are not known."""
    (params, tolerance, times), (ts, q, v, memory) = numbers, saves
    system, event_set = program.scheme.system, program.event_set
    sign, first = jax.lax.stop_gradient(jnp.sign(ts[-1] - ts[0])), ts[0]
    knots = _knots(event_set, events, ts, (q, v, memory), sign)
    last, kept = sign * (ts[-1] - first), [jnp.full_like(first, jnp.inf)]
    if events is not None:
        last = sign * (events.t_end - first)
        for record in (events[e.name] for e in event_set.events if e.transition is not None):
            is_full = record.count > len(record.t)
            kept.append(jnp.where(is_full, sign * (record.t[-1] - first), jnp.inf))
    known_until = jax.lax.stop_gradient(jnp.stack(kept).min())
    switched = replace(program.scheme, system=event_set.system(system))
    between = replace(program, scheme=switched, event_set=NO_EVENTS)

    def moved(knot: _Knots, span: Array) -> tuple[Array, Array, Array]:
        """The end of a motion from a knot in which no event changes it."""
        active_params = event_set.params(params, knot.active)
        inputs = RolloutInputs(knot.q, knot.v, span, active_params, tolerance, times, knot.memory)
        saves = between.trajectory(inputs)[0].saves
        return saves.q[-1], saves.v[-1], saves.memory[-1]

    def state_at(t: Array) -> tuple[tuple[Array, Array, Array], Array]:
        # After a terminal event the state stays as it is.
        elapsed = jnp.minimum(sign * (t - first), last)
        before = jnp.where(knots.elapsed < elapsed, knots.elapsed, -jnp.inf)
        knot = jax.tree.map(lambda x: x[jnp.argmax(before)], knots)
        is_start = elapsed <= 0
        begin = jnp.where(is_start, jnp.zeros_like(first), knot.elapsed)
        to = jnp.where(is_start, sign * (ts[1] - first), elapsed)
        span = first + sign * jnp.stack([begin, to])
        knot = jax.tree.map(lambda x, y: jnp.where(is_start, y, x), knot, start)
        is_lost = elapsed > known_until
        failed = (sign * (t - t_failed) > 0) | is_lost | ~(sign * (t - first) >= 0)
        failed |= sign * (ts[-1] - t) < 0
        state = knot.q, knot.v, knot.memory
        ends = jax.tree.map(partial(jnp.where, is_start), state, moved(knot, span))
        return jax.tree.map(lambda x: jnp.where(failed, jnp.nan, x), ends), is_lost

    start = jax.tree.map(lambda x: x[len(knots.elapsed) - len(ts)], knots)
    if system.sampling is not None and event_set.has_transitions:
        knots = _with_memory(knots, len(ts), first, sign, moved)
    (new_q, new_v, memory), is_lost = jax.vmap(state_at)(t)
    rows = new_q, new_v, memory, t
    memory = with_samples(system, rows, (ts[0], ts[-1]), params, times, events)
    return (new_q, new_v, memory), is_lost


def _with_memory(
    knots: _Knots, saves: int, first: Array, sign: Array,
    moved: Callable[[_Knots, Array], tuple[Array, Array, Array]],
) -> _Knots:  # fmt: skip
    """The knots with what controllers keep after transitions, the first ones before the saves.

    Records of events do not have it: it is that at the end of the motion from the knot before.
    """
    count = len(knots.elapsed) - saves
    order = jnp.argsort(knots.elapsed, stable=True)  # a save at the time of a transition last
    start = jax.tree.map(lambda x: x[count], knots)

    def following(before: _Knots, number: Array) -> tuple[_Knots, Array]:
        knot = jax.tree.map(lambda x: x[number], knots)
        span = first + sign * jnp.stack([before.elapsed, knot.elapsed])
        is_unknown = (number < count) & jnp.isfinite(knot.elapsed)
        is_unknown &= knot.elapsed > before.elapsed
        memory = jax.lax.cond(is_unknown, lambda: moved(before, span)[2], lambda: before.memory)
        memory = jnp.where(number < count, memory, knot.memory)
        return replace(knot, memory=memory), memory

    _, memories = jax.lax.scan(following, start, order)
    return replace(knots, memory=memories[jnp.argsort(order)])


def _knots(
    event_set: EventSet, events: Events | None, ts: Array, states: tuple[Array, Array, Array],
    sign: Array,
) -> _Knots:  # fmt: skip
    """The states after the transitions that are kept, in their order, and then the saves.

    Other transitions are at infinity.
    """
    active = jnp.zeros((len(ts), 0), bool)
    if events is not None and events.active:
        # By name, since JAX sorts the keys of a dictionary.
        active = jnp.stack([events.active[name] for name in event_set.names], axis=-1)
    saves = _Knots(sign * (ts - ts[0]), *states, active)
    if events is None or not event_set.has_transitions:
        return saves
    records = [
        (k, events[e.name]) for k, e in enumerate(event_set.events) if e.transition is not None
    ]
    rows = [(record.t, record.q_after, record.v_after, record.outcome) for _, record in records]
    t, q, v, outcome = (jnp.concatenate(column) for column in zip(*rows, strict=True))
    index = np.concatenate([np.full(record.t.shape, k) for k, record in records])
    elapsed = jnp.where(jnp.isnan(t), jnp.inf, sign * (t - ts[0]))
    order = jnp.argsort(elapsed, stable=True)

    def switched(active: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        number, time, outcome = row
        active = jnp.where(jnp.isfinite(time), event_set.switched(number, active, outcome), active)
        return active, active

    ordered = jnp.asarray(index)[order], elapsed[order], outcome[order]
    _, after = jax.lax.scan(switched, active[0], ordered)
    memory = jnp.zeros((len(order), states[2].shape[1]), states[2].dtype)
    transitions = _Knots(ordered[1], q[order], v[order], memory, after)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), transitions, saves)
