"""Events that may hide within a step, because neither its ends nor their rates show them.

In a mechanism that constraints move, in one that turns uniformly, and in one that a lock, a stop or
friction holds, a step may have no error and be of any length, while the function of an event
oscillates or has a short pulse. Between the ends of a step the motion is that of a cubic; there the
functions are sampled at points without regularity, so that no oscillation can look slow at all of
them, and at least `SAMPLES` of them in a run, however long its steps are. Functions of reactions,
by which bodies slip and lift, are sampled with them: at every sample the law of motion is evaluated
where any of their events can occur.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch, may_dip, rates, step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo, StepState
from jaxmech.linalg import matvec
from jaxmech.status import Status
from jaxmech.system import Params

SAMPLES = 256  # of the functions of events in a run, at least: shorter pulses may be missed
_LEAST = 7  # samples between the ends of an adaptive step
_IRREGULAR = 0.7  # of the mean distance of two samples, within which each of them lies
_GOLDEN = 0.6180339887498949
_DEPTH = 1e-3  # relative to the largest so far in a step: smaller values may be errors of the cubic
_SWING = 0.1  # relative to the largest so far: a load that changes less does not turn
_NEAR = 0.2  # relative to a sample: an estimated extremum below which a load may reach zero

State = tuple[Array, Array]  # q and v


class _Passes(NamedTuple):
    """How often E functions have crossed zero so far, by samples in a step."""

    size: Float[Array, " E"]  # largest value
    sign: Int[Array, " E"]
    crossings: Int[Array, " E"]
    events: Int[Array, " E"]  # the crossings in the direction of the event

    @staticmethod
    def begin(g: Float[Array, " E"], sign: Int[Array, " E"]) -> "_Passes":
        return _Passes(jnp.abs(g), sign, jnp.zeros_like(sign), jnp.zeros_like(sign))

    def after(
        self, event_set: EventSet, g: Array, least: Array, is_exact: Any = False
    ) -> "_Passes":
        """After one more sample; values smaller than `least` do not count."""
        directions = jnp.asarray([event.direction for event in event_set.events], jnp.int32)
        size = jnp.maximum(self.size, jnp.abs(g))
        depth = jnp.where(is_exact, 0.0, _DEPTH * size)
        is_clear = jnp.abs(g) > jnp.maximum(least, depth)
        sign = jnp.where(is_clear, jnp.sign(g), 0).astype(jnp.int32)
        crosses = self.sign * sign < 0
        occurs = crosses & ((directions == 0) | (directions == sign))
        sign = jnp.where(sign == 0, self.sign, sign)
        return _Passes(size, sign, self.crossings + crosses, self.events + occurs)


class _Swings(NamedTuple):
    """How often E functions have turned so far, by samples in a step."""

    u: Float[Array, ""]  # the last sample
    g: Float[Array, " E"]
    before: tuple[Float[Array, ""], Float[Array, " E"]]  # the one before it
    extreme: Float[Array, " E"]  # of a load, since it turned
    slope: Int[Array, " E"]  # signs of the rates, or of the last swing of a load
    turns: Int[Array, " E"]
    nears: Bool[Array, " E"]  # whether a load may have an extremum beyond zero

    def after(
        self, u: Array, g: Array, rate: Array, least: Array, size: Array, is_load: Array
    ) -> "_Swings":
        """After one more sample; values and rates smaller than `least` do not count."""
        # The rates of loads are unknown: they turn where they come back by some part.
        swing = g - self.extreme
        swings = jnp.abs(swing) > jnp.maximum(least, _SWING * size)
        slope = jnp.where(is_load, jnp.sign(swing), jnp.sign(rate))
        counts = jnp.where(is_load, swings, jnp.abs(rate) > least)
        slope = jnp.where(counts, slope, 0).astype(jnp.int32)
        turned = self.slope * slope < 0
        slope = jnp.where(slope == 0, self.slope, slope)
        extreme = jnp.where(turned | (swing * slope > 0), g, self.extreme)
        # The least value of a parabola through three samples, all on the same side of zero.
        (first_u, first), side = self.before, jnp.sign(self.g)
        width, step = self.u - first_u, u - self.u
        fall, rise = (self.g - first) / jnp.where(width > 0, width, 1.0), (g - self.g) / step
        bend = (rise - fall) / (width + step)
        middle = fall + bend * width
        depth = middle**2 / (4 * jnp.where(bend == 0, 1.0, jnp.abs(bend)))
        lowest = jnp.minimum(jnp.minimum(side * first, side * g), jnp.abs(self.g))
        is_between = (side * (fall - bend * width) < 0) & (side * (rise + bend * step) > 0)
        is_between &= is_load & (lowest > least) & (width > 0)
        nears = is_between & (jnp.abs(self.g) - depth <= _NEAR * lowest)
        return _Swings(
            u, g, (self.u, self.g), extreme, slope, self.turns + turned, self.nears | nears
        )


class Looks(NamedTuple):
    """How the functions are sampled in the fixed steps of a run."""

    samples: int  # in a step between its ends
    loads: tuple[bool, ...]  # the functions of reactions that are sampled
    least: Float[Array, " E"]  # values of the functions that count

    @staticmethod
    def of(
        event_set: EventSet, steps: int, q: Array, v: Array, t: Array, params: Params
    ) -> "Looks":  # fmt: skip
        if not event_set:
            return Looks(0, (), jnp.zeros(0, q.dtype))
        samples = -(-SAMPLES // max(steps, 1)) - 1
        # In many steps their ends are enough: a sample of reactions is as dear as a stage.
        loads = tuple(samples > 0 and event.needs_reactions for event in event_set.events)
        least = least_values(event_set, q, v, t, params)
        return Looks(max(1, samples), loads, least)

    def flags(self, event_set: EventSet) -> Bool[Array, " E"]:
        """Flags of the functions that are sampled: all but some of those of reactions."""
        return event_set.flags(self.loads) | event_set.flags(event_set.of_motions)


def step_turns(
    event_set: EventSet, scheme: Scheme, start: State, end: State, t: Array, h: Array,
    params: Params, share: Array, values: Array | None = None, has_rates: Array | bool = True,
) -> tuple[Int[Array, " E"], Int[Array, " E"]]:  # fmt: skip
    """How often each function turns in a step, and how often it has an event, by samples.

    A function that crosses zero and comes back counts as turning twice, unless its rates at the
    ends of the step lead the search for an extremum to it; this search `has_rates` of all functions
    of motions or of some. So does a load that may have done so between two samples. `share` is the
    length of the step as a fraction of the run, and `values` are those at its start; without them
    the functions of contacts are not sampled.
    """
    own = len(event_set.own_events)
    loads = tuple(
        event.needs_reactions and (values is not None or k < own)
        for k, event in enumerate(event_set.events)
    )
    _, motion, sampled = _along(event_set, scheme, start, end, t, h, params, loads)
    least = least_values(event_set, *end, t + h, params)
    zero, unit = jnp.zeros_like(t), jnp.ones_like(t)
    first, last = (jax.jvp(motion, (u,), (unit,)) for u in (zero, unit))
    at_start = values
    if at_start is None:
        at_start = sampled(zero)[0] if any(loads) else first[0]
    is_load = event_set.flags(loads)
    slope = jnp.where(jnp.abs(first[1]) > least, jnp.sign(first[1]), 0).astype(jnp.int32)
    sign = jnp.where(jnp.abs(at_start) > least, jnp.sign(at_start), 0).astype(jnp.int32)
    count = jnp.maximum(jnp.ceil(SAMPLES * share).astype(jnp.int32), _LEAST)

    def look(k: Array, seen: tuple[_Passes, _Swings]) -> tuple[_Passes, _Swings]:
        passes, swings = seen
        u = jnp.where(k == count, unit, _point(k, count, t.dtype))
        g, rate, noise = sampled(u)
        noise = jnp.maximum(least, noise)
        passes = passes.after(event_set, g, noise, k == count)
        return passes, swings.after(u, g, rate, noise, passes.size, is_load)

    none, first_sample = jnp.zeros_like(slope), (zero, at_start)
    begin = _Swings(*first_sample, first_sample, at_start, slope, none, none > 0)
    passes, swings = jax.lax.fori_loop(0, count + 1, look, (_Passes.begin(at_start, sign), begin))
    # The search for an extremum, from the rates at the ends.
    is_of_motion, signs = event_set.flags(event_set.of_motions), jnp.sign(first[0])
    dips = ExtremumSearch.of(
        event_set.of_motions, signs.astype(jnp.int32), is_of_motion, first, last
    ).is_sought
    dips &= has_rates
    is_hidden = ((passes.crossings >= 2) & ~dips) | swings.nears
    turns = jnp.where(is_hidden, jnp.maximum(swings.turns, 2), swings.turns)
    counts = is_of_motion | _possible(event_set, params, loads)
    return jnp.where(counts, turns, 0), jnp.where(counts, passes.events, 0)


def sampled_events(
    event_set: EventSet, scheme: Scheme, start: State, end: State, t: Array, h: Array,
    params: Params, signs: Int[Array, " E"], values: Float[Array, " E"], looks: Looks,
    is_part: Array,
) -> Int[Array, " E"]:  # fmt: skip
    """How often each function has an event in a step, from given signs to given values.

    In a part of a step, at whose start signs are not known, samples tell them.
    """
    *_, sampled = _along(event_set, scheme, start, end, t, h, params, looks.loads)

    def look(k: Array, passes: _Passes) -> _Passes:
        u = _point(k, looks.samples, t.dtype)
        g, _, noise = sampled(jnp.where(k < 0, 0.0, u))
        seen = passes.after(event_set, g, jnp.maximum(looks.least, noise))
        return jax.tree.map(lambda x, y: jnp.where((k >= 0) | is_part, x, y), seen, passes)

    # A `while`, which native code does not unroll: it is rarely run.
    first = jnp.asarray(-1 if looks.samples > 1 else 0)
    _, passes = jax.lax.while_loop(
        lambda carry: carry[0] < looks.samples,
        lambda carry: (carry[0] + 1, look(*carry)),
        (first, _Passes.begin(values, signs)),
    )
    # Bodies that touch have gaps of the size of a rounding error, which cross nothing.
    passes = passes.after(event_set, values, looks.least, ~event_set.one_sided)
    return jnp.where(looks.flags(event_set), passes.events, 0)


def _point(k: Array, count: int | Array, dtype: Any) -> Float[Array, ""]:
    """One of so many points between the ends of a step, without regularity."""
    x = k.astype(dtype)
    turns = _GOLDEN * x  # whose remainder, by `%`, native code would not know to be finite
    return (x + 1 + _IRREGULAR * (turns - jnp.floor(turns) - 0.5)) / (count + 1)


def _possible(event_set: EventSet, params: Params, loads: tuple[bool, ...]) -> Bool[Array, " E"]:
    """Flags of the loads whose events can occur; `params` are those with switches."""
    active = params.active if event_set.names else event_set.active()
    return event_set.enabled(active) & event_set.flags(loads)


def _along(
    event_set: EventSet, scheme: Scheme, start: State, end: State, t: Array, h: Array,
    params: Params, loads: tuple[bool, ...],
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:  # fmt: skip
    """The motion in a step, by a cubic; functions of it; and all of them, with rates and noise.

    Loads are zero where none of their events can occur, and their rates are not known.
    """
    dynamics = scheme.system.dynamics
    start, end, t, h, params = jax.lax.stop_gradient((start, end, t, h, params))
    first, last = (
        h * dynamics.speeds(*state, time, params) for state, time in ((start, t), (end, t + h))
    )
    change = end[0] - start[0]
    second, third = 3 * change - 2 * first - last, first + last - 2 * change
    possible = _possible(event_set, params, loads)

    def state(u: Array) -> tuple[Array, Array, Array]:
        time, q = t + u * h, start[0] + u * (first + u * (second + u * third))
        # Divided by a positive number: native code must know that the speeds are finite.
        size = jnp.maximum(jnp.abs(h), float(jnp.finfo(t.dtype).tiny))
        speeds = jnp.sign(h) * (first + u * (2 * second + 3 * u * third)) / size
        return q, dynamics.from_speeds(q, speeds, time, params), time

    def motion(u: Array) -> Float[Array, " E"]:
        return event_set.functions(*state(u), params)

    def sampled(u: Array) -> tuple[Array, Array, Array]:
        g, rate = jax.jvp(motion, (u,), (jnp.ones_like(u),))
        none = jnp.zeros_like(g)
        if not any(loads):
            return g, rate, none
        values = partial(event_set.values_and_noise, scheme, *state(u), params)
        load, noise = jax.lax.cond(possible.any(), values, lambda: (none, none))
        return jnp.where(possible, load, g), rate, noise

    return state, motion, sampled


def least_values(
    event_set: EventSet, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " E"]:
    """The values and rates below which those of the functions may be errors of the motion."""
    q, v, t, params = jax.lax.stop_gradient((q, v, t, params))
    in_q, in_v = jax.jacfwd(lambda q, v: event_set.functions(q, v, t, params), (0, 1))(q, v)
    share = float(jnp.finfo(t.dtype).eps) ** 0.375
    # The largest effects of relative changes of every component.
    return share * (matvec(jnp.abs(in_q), 1 + jnp.abs(q)) + matvec(jnp.abs(in_v), 1 + jnp.abs(v)))


StepEnd = tuple[StepState, StepInfo]
StepEndWithEvents = tuple[StepState, StepInfo, EventState]


def with_events(
    scheme: Scheme, event_set: EventSet, start: StepState, without_events: StepEnd, running: Array,
    state: EventState, log: Array, h: Array, params: Params, number: Array,
    extents: Float[Array, " n"] | None, looks: Looks,
) -> tuple[StepEndWithEvents, Array]:  # fmt: skip
    """The result of a step with its events, from the one without, and the log with them.

    `number` is the number of the step in the segment. After a failure the events stay as they are.
    """
    if not event_set:
        return (*without_events, state), log
    (end, info), active_params = without_events, event_set.params(params, state.active)
    ends = (start.q, start.v), (end.q, end.v)
    slopes = tuple(
        rates(event_set, scheme, *q_and_v, t, h, active_params, None)
        for q_and_v, t in zip(ends, (start.t, end.t), strict=True)
    )

    # No event has occurred, and no sample shows one, where all functions have known signs at the
    # start, which those at the end and all samples have too, and where no minimum can be sought.
    enabled, signs = event_set.enabled(state.active), state.signs
    along, _, sampled = _along(event_set, scheme, *ends, start.t, h, active_params, looks.loads)
    count = looks.samples

    def keeps_sign(k: Array, keeps: Array) -> Array:
        g, _, _ = sampled(_point(k, count, h.dtype))
        return keeps & ((signs * g > 0) | ~looks.flags(event_set))

    def look(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        here, last = along(_point(k, count, h.dtype)), (end.q, end.v, end.t)
        q, v, time = (jnp.where(k == count, y, x) for x, y in zip(here, last, strict=True))
        g = event_set.values(scheme, q, v, time, active_params)
        return carry[0] & (signs * g > 0), g

    if any(looks.loads):  # then all are sampled, and loads at the end have the same code
        none = jnp.ones(signs.shape, bool), jnp.zeros_like(state.values)
        keeps, values = jax.lax.fori_loop(0, count + 1, look, none)
    else:
        values = event_set.values(scheme, *ends[1], end.t, active_params)
        keeps = jax.lax.fori_loop(0, count, keeps_sign, signs * values > 0)
    dips = may_dip(signs, enabled, (state.values, slopes[0]), (values, slopes[1]))
    keeps &= jnp.isfinite(values) & ~dips
    is_calm = (keeps | ~(enabled | jnp.isnan(values))).all()
    # The step that an event at its start makes void may fail.
    goes_on, may_happen = running & info.good, running & (state.due | (info.good & ~is_calm))
    usual = replace(
        state,
        values=jnp.where(goes_on, values, state.values),
        smooth=jnp.where(goes_on, state.smooth + 1, state.smooth),
    )

    # A loop that runs at most once: native code jumps over it, and it may write rows of the log.
    def once(
        carry: tuple[Array, StepEndWithEvents, Array],
    ) -> tuple[Array, StepEndWithEvents, Array]:
        before, passed, dips, happens = step_dips(
            scheme, event_set, state, ends, start.t, h, active_params, values, slopes
        )
        happens &= info.good | before.due
        search, log = through_events(
            scheme, event_set, start, h, params, before, number, dips, happens, carry[2], extents
        )

        def rarely() -> StepEndWithEvents:
            is_nan = search.info.good & jnp.isnan(search.events.values).any()
            status = jnp.where(is_nan, int(Status.EVENT_IS_NAN), search.info.status)
            checked = replace(
                search.info, good=search.info.good & ~is_nan, status=status.astype(jnp.int32)
            )
            stops = search.events.stopped_by >= 0
            end_t = jnp.where(stops, start.t + search.bracket.high * h, end.t)
            # Unless the motion has changed it stays as it is without events, to the bit.
            is_other = (search.count + search.at_once > 0) | stops
            q, v = (
                jnp.where(is_other, x, y)
                for x, y in zip((search.q, search.v), (end.q, end.v), strict=True)
            )
            return StepState(q, v, end_t), checked, search.events

        found = jax.lax.cond(happens, rarely, lambda: (end, info, passed))
        # Samples show what was missed since the motion last changed, if there are enough of them.
        events, changed = found[2], happens & (search.base_u > 0)
        hidden = sampled_events(
            event_set, scheme, (search.base_q, search.base_v), (found[0].q, found[0].v),
            start.t + search.base_u * h, (1 - search.base_u) * h,
            event_set.params(params, events.active), jnp.where(changed, 0, before.signs),
            events.values, looks, changed,
        )  # fmt: skip
        # Those to which the rates at the ends lead are sought, as far as the method resolves them.
        counts = event_set.enabled(events.active) & (changed | ~dips.is_sought)
        missed = jnp.maximum(jnp.where(counts, hidden, 0) - (events.counts - state.counts), 0)
        missed = jnp.where(events.stopped_by < 0, missed, 0)
        events = replace(events, smooth=events.smooth + 1, missed=state.missed + missed)
        events = jax.tree.map(lambda x, y: jnp.where(found[1].good, x, y), events, state)
        return jnp.asarray(False), (*found[:2], events), log

    begin = may_happen, (end, info, usual), log
    _, result, log = jax.lax.while_loop(lambda carry: carry[0], once, begin)
    return result, log
