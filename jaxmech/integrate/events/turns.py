"""Events that may hide within a step, because neither its ends nor their rates show them.

In a mechanism that constraints move, and in one that turns uniformly, a step may have no error and
be of any length, while the function of an event oscillates or has a short pulse. Between the ends
of a step the motion is that of a cubic; there the functions are sampled at points without
regularity, so that no oscillation can look slow at all of them, and at least `SAMPLES` of them in a
run, however long its steps are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch, step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo, StepState
from jaxmech.status import Status
from jaxmech.system import Params, System, reach

SAMPLES = 256  # of the functions of events in a run, at least: shorter pulses may be missed
_POINTS = (0.083, 0.211, 0.372, 0.457, 0.619, 0.738, 0.917)  # in every step, between its ends
_IRREGULAR = 0.7  # of the mean distance of two samples, within which each of them lies
_GOLDEN = 0.6180339887498949
_DEPTH = 1e-3  # relative to the ends of a step: smaller values may be errors of the cubic

State = tuple[Array, Array]  # q and v
_Values = Callable[[Array], Float[Array, " E"]]  # at a point of a step from 0 to 1


class Passes(NamedTuple):
    """The signs of the functions after some samples, and how often they crossed zero before."""

    signs: Int[Array, " E"]
    crossings: Int[Array, " E"]
    events: Int[Array, " E"]  # the crossings in the direction of the event

    def after(self, event_set: EventSet, values: Float[Array, " E"], depth: Array) -> "Passes":
        """Those after one more sample; smaller values than `depth` do not count."""
        directions = jnp.asarray([event.direction for event in event_set.events], jnp.int32)
        new = jnp.where(jnp.abs(values) > depth, jnp.sign(values), 0).astype(jnp.int32)
        crosses = self.signs * new < 0
        occurs = crosses & ((directions == 0) | (directions == new))
        signs = jnp.where(new == 0, self.signs, new)
        return Passes(signs, self.crossings + crosses, self.events + occurs)


class Looks(NamedTuple):
    """How the functions are sampled in the fixed steps of a run."""

    samples: int  # in a step between its ends
    least: Float[Array, " E"]  # values of the functions that count

    @staticmethod
    def of(
        event_set: EventSet, steps: int, q: Array, v: Array, t: Array, params: Params
    ) -> "Looks":  # fmt: skip
        """Those of a run with so many steps that starts at a state."""
        if not event_set:
            return Looks(0, jnp.zeros(0, q.dtype))
        samples = max(1, -(-SAMPLES // max(steps, 1)) - 1)
        return Looks(samples, least_values(event_set, q, v, t, event_set.plain(params)))


def step_turns(
    event_set: EventSet, system: System, start: State, end: State, t: Array, h: Array,
    params: Params, share: Array, has_rates: Array | None = None,
) -> tuple[Int[Array, " E"], Int[Array, " E"]]:  # fmt: skip
    """How often each function turns in a step, and how often it has an event, by samples.

    A function that crosses zero and comes back counts as turning twice, unless its rates at the
    ends of the step lead the search for an extremum to it; this search `has_rates` of all functions
    or of some. `share` is the length of the step as a fraction of the run. Functions of reactions
    do not count.
    """
    values = _between_ends(event_set, system, start, end, t, h, params)
    unit, is_sampled = jnp.ones_like(t), _is_sampled(event_set)
    least = least_values(event_set, *end, t + h, event_set.plain(params))

    def value_and_rate(u: Array) -> tuple[Array, Array]:
        return jax.jvp(values, (u,), (unit,))

    def compared(slopes: Array, rate: Array) -> tuple[Array, Array]:
        new = jnp.where(jnp.abs(rate) > least, jnp.sign(rate), 0).astype(jnp.int32)
        return jnp.where(new == 0, slopes, new), slopes * new < 0

    first, last = value_and_rate(0 * unit), value_and_rate(unit)
    depth = _depth(least, first[0], last[0])
    none = jnp.zeros(len(event_set.events), jnp.int32)

    def look(so_far: Any, u: Array) -> Any:
        slopes, turns, passes = so_far
        value, rate = value_and_rate(u)
        slopes, turns_here = compared(slopes, rate)
        return (slopes, turns + turns_here, passes.after(event_set, value, depth)), None

    begun = compared(none, first[1])[0], none, Passes(none, none, none)
    begun = (*begun[:2], begun[2].after(event_set, first[0], depth))
    (slopes, turns, passes), _ = jax.lax.scan(look, begun, jnp.asarray(_POINTS, t.dtype))
    turns += compared(slopes, last[1])[1]
    # In a long step the values at more points.
    count = jnp.ceil(SAMPLES * share).astype(jnp.int32) - len(_POINTS)
    denser = _sampled(event_set, values, begun[2], depth, jnp.maximum(count, 0))
    passes, denser = (x.after(event_set, last[0], depth) for x in (passes, denser))
    # The search for an extremum, from the rates at the ends.
    signs = jnp.sign(first[0]).astype(jnp.int32)
    dips = ExtremumSearch.of(signs, is_sampled, first, last).pending
    if has_rates is not None:
        dips &= has_rates
    is_hidden = (jnp.maximum(passes.crossings, denser.crossings) >= 2) & ~dips
    turns = jnp.where(is_hidden, jnp.maximum(turns, 2), turns)
    events = jnp.maximum(passes.events, denser.events)
    return jnp.where(is_sampled, turns, 0), jnp.where(is_sampled, events, 0)


def sampled_events(
    event_set: EventSet, system: System, start: State, end: State, t: Array, h: Array,
    params: Params, first: EventState, last: EventState, looks: Looks,
) -> Int[Array, " E"]:  # fmt: skip
    """How often each function has an event in a step, from one state of the events to another."""
    values = _between_ends(event_set, system, start, end, t, h, params)
    depth = _depth(looks.least, first.values, last.values)
    zeros = jnp.zeros_like(first.signs)
    passes = _sampled(event_set, values, Passes(first.signs, zeros, zeros), depth, looks.samples)
    # Gaps of bodies that touch are zero within round-off, which crosses nothing.
    least = jnp.where(event_set.one_sided, depth, 0.0) if event_set.gaps else 0 * depth
    events = passes.after(event_set, last.values, least).events
    return jnp.where(_is_sampled(event_set), events, 0)


def _sampled(
    event_set: EventSet, values: _Values, passes: Passes, depth: Array, count: int | Array
) -> Passes:
    """The passes through zero at so many points between the ends of a step."""
    dtype = depth.dtype

    def look(k: Array, passes: Passes) -> Passes:
        x = k.astype(dtype)
        point = (x + 1 + _IRREGULAR * ((_GOLDEN * x) % 1.0 - 0.5)) / (count + 1)
        return passes.after(event_set, values(point), depth)

    looked: Passes = jax.lax.fori_loop(0, count, look, passes)
    return looked


def _depth(least: Array, first: Array, last: Array) -> Array:
    """The values that count in a step between two."""
    return jnp.maximum(least, _DEPTH * jnp.maximum(jnp.abs(first), jnp.abs(last)))


def _is_sampled(event_set: EventSet) -> Bool[Array, " E"]:
    return event_set.flags([not event.needs_reactions for event in event_set.events])


def _between_ends(
    event_set: EventSet,
    system: System,
    start: State,
    end: State,
    t: Array,
    h: Array,
    params: Params,
) -> _Values:
    """The functions along a step, by a cubic; those of reactions are zero."""
    start, end, t, h, params = jax.lax.stop_gradient((start, end, t, h, params))
    plain = event_set.plain(params)
    first, last = (
        (q, system.dynamics.speeds(q, v, time, params))
        for (q, v), time in ((start, t), (end, t + h))
    )

    def values(u: Array) -> Float[Array, " E"]:
        time = t + u * h
        q, speeds = _between(first, last, h, u)
        v = system.dynamics.from_speeds(q, speeds, time, params)
        return _plain_values(event_set, q, v, time, plain)

    return values


def _plain_values(
    event_set: EventSet, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " E"]:
    zero = jnp.zeros_like(t)
    return jnp.stack(
        [
            zero if event.needs_reactions else event.value(q, v, t, params)
            for event in event_set.events
        ]
    )


def least_values(
    event_set: EventSet, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " E"]:
    """The values and rates below which those of the functions may be errors of the motion."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    in_q, in_v = jax.jacfwd(lambda q, v: _plain_values(event_set, q, v, t, params), (0, 1))(q, v)
    share = float(jnp.finfo(t.dtype).eps) ** 0.375
    return share * (reach(in_q, q) + reach(in_v, v))


def _between(start: State, end: State, h: Array, u: Array) -> State:
    """q and its rate at a fraction u of a step between two such pairs."""
    displacement, first, last = end[0] - start[0], h * start[1], h * end[1]
    second, third = 3 * displacement - 2 * first - last, first + last - 2 * displacement
    q = start[0] + u * (first + u * (second + u * third))
    return q, (first + u * (2 * second + 3 * u * third)) / jnp.where(h == 0, 1.0, h)


StepEnd = tuple[StepState, StepInfo]
StepEndWithEvents = tuple[StepState, StepInfo, EventState]


def with_events(
    scheme: Scheme, event_set: EventSet, start: StepState, without_events: StepEnd, running: Array,
    state: EventState, log: Array, h: Array, params: Params, number: Array,
    extents: Float[Array, " n"] | None, looks: Looks,
) -> tuple[StepEndWithEvents, Array]:  # fmt: skip
    """The result of a step with its events, from the one without, and the log with them.

    `number` is the number of the step in the segment.
    """
    if not event_set:
        return (*without_events, state), log
    (end, info), active_params = without_events, event_set.params(params, state.active)
    ends = (start.q, start.v, start.t, None), (end.q, end.v, end.t, None)
    state, passed, dips, happens = step_dips(scheme, event_set, state, *ends, h, active_params)
    sampled = sampled_events(
        event_set, scheme.system, (start.q, start.v), (end.q, end.v), start.t, h, active_params,
        state, passed, looks,
    )  # fmt: skip
    # Those to which the rates at the ends lead are sought, as far as the method resolves them.
    sampled = jnp.where(event_set.enabled(state.active) & ~dips.pending, sampled, 0)
    # The step that an event at its start makes void may fail.
    happens = running & (info.good | state.due) & happens
    search, log = through_events(
        scheme, event_set, start, h, params, state, number, dips, happens, log, extents
    )

    def rarely() -> StepEndWithEvents:
        is_nan = search.info.good & jnp.isnan(search.events.values).any()
        status = jnp.where(is_nan, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), search.info.status)
        info = replace(search.info, good=search.info.good & ~is_nan, status=status)
        end_t = jnp.where(search.events.stopped_by >= 0, start.t + search.high * h, end.t)
        # After an event that changes the motion, it is no longer the one that was sampled.
        missed = jnp.maximum(sampled - (search.events.counts - state.counts), 0)
        missed = state.missed + jnp.where(search.count > 0, 0, missed)
        events = replace(search.events, smooth=search.events.smooth + 1, missed=missed)
        return StepState(search.q, search.v, end_t), info, events

    def usually() -> StepEndWithEvents:
        return end, info, replace(passed, smooth=state.smooth + 1, missed=state.missed + sampled)

    return jax.lax.cond(happens, rarely, usually), log
