"""The events within one step: their location, and the rest of the step after them.

An event lies where its function changes sign between two states. Its time is bracketed by false
position with halved weights (the Illinois method; Dowell and Jarratt, BIT 11, 1971, 168-174) and
bisection. Every trial is a step of its own from the state that the motion last changed at, so that
the state at an event is on the constraints and as accurate as any other.

A gap that is zero to within round-off has no sign to compare. Where its rate takes it to the other
side, which the impact of other bodies can bring about in an instant, its event occurs at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import with_row
from jaxmech.integrate.checks import finite_states, first_that_holds
from jaxmech.integrate.events.contact_events import After
from jaxmech.integrate.events.event_set import MOST, MOST_OF_GAPS, ROUNDINGS, EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch, rates
from jaxmech.integrate.events.impacts import MotionState, rounded
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo, StepState, is_finite, step
from jaxmech.status import Status
from jaxmech.system import Params

AT_ONCE = 1000  # events that change the motion and follow from one of them at the same time
ACCURACY = 2e-14  # [s], of the time of an event; not below 1e-9 of the step or rounding errors
_APART = 4.0  # accuracies of the time between two occurrences of the same event
_AS_FAST = 0.999  # relative rate of functions that close equally fast
_SETTLING = 0.01  # fraction of a step after which an unknown sign is known

# A step of some size and parameters.
PartialStep = Callable[[StepState, Array, Params], tuple[StepState, StepInfo]]


class Contacts(eqx.Module):
    """The functions of q and t, whose rates are known, of E events at a state; NaN for others."""

    g: Float[Array, " E"]  # the functions
    r: Float[Array, " E"]  # their rates in the direction of the run
    zero: Float[Array, " E"]  # size of a function that counts as zero
    still: Float[Array, " E"]  # size of a rate that counts as zero

    @staticmethod
    def of(
        event_set: EventSet, scheme: Scheme, q: Array, v: Array, t: Array, ahead: Array,
        params: Params, speeds: Array, accuracy: Array, opens: Bool[Array, " G"] | None = None,
    ) -> "Contacts":  # fmt: skip
        """The functions at a state of a run whose time changes with the sign of `ahead`.

        Round-off of q and v is that of the largest `speeds` so far; `accuracy` is that of t. Gaps
        that a jump `opens` are about to do so.
        """
        is_plain = event_set.of_positions(q, v, t, params)
        velocities = scheme.system.dynamics.speeds(q, v, t, params)

        def values(q: Array, t: Array) -> Array:
            return event_set.functions(q, v, t, params, is_plain)[np.flatnonzero(is_plain)]

        g, zero, still, _ = rounded(values, q, t, speeds, accuracy)
        rate = jax.jvp(values, (q, t), (jnp.sign(ahead) * velocities, jnp.sign(ahead)))[1]
        rows = jnp.pad(jnp.stack([g, rate, zero, still]), ((0, 0), (0, 1)), constant_values=jnp.nan)
        rows = rows[:, np.where(is_plain, np.cumsum(is_plain) - 1, -1)]
        if opens is not None and opens.size:
            first = len(event_set.own_events) + opens.size
            flags = jnp.pad(opens, (first, len(is_plain) - first - opens.size))
            rows = jnp.where(flags, np.array([[0.0], [-1.0], [0.0], [0.0]]), rows)
        return Contacts(*jax.lax.stop_gradient(rows.astype(q.dtype)))

    def touching(self, signs: Int[Array, " E"]) -> Bool[Array, " E"]:
        """Flags of the functions that are zero, or beyond it by an error, on the side of a sign."""
        return (signs != 0) & (signs * self.g <= self.zero)

    def closing(self, signs: Int[Array, " E"]) -> Bool[Array, " E"]:
        """Flags of those of them whose rate takes them to the other side."""
        return self.touching(signs) & (signs * self.r < -self.still)

    def signs(
        self, event_set: EventSet, signs: Int[Array, " E"], at_start: bool
    ) -> Int[Array, " E"]:
        """The signs, where those that are unknown and of zeros are decided.

        A contact that touches is on the side from which it can close. At the start so are impacts,
        whatever has led to them; later also other functions that are about to cross zero.
        """
        side = -jnp.asarray([event.direction for event in event_set.events], signs.dtype)
        presses = event_set.flags([event.is_contact for event in event_set.events])
        # Contacts of both sides: a gap is positive while bodies are apart.
        side = jnp.where(presses & (side == 0), 1, side)
        is_zero = jnp.abs(self.g) <= self.zero
        if at_start:
            return jnp.where(is_zero & presses, side, signs).astype(signs.dtype)
        leaves = presses | (side * self.r < -self.still)
        return jnp.where((signs == 0) & is_zero & leaves, side, signs).astype(signs.dtype)


class Bracket(eqx.Module):
    """Where the next event lies in a step from u = 0 to u = 1."""

    low: Float[Array, ""]  # no event occurs before
    high: Float[Array, ""]  # an event occurs before, once there were trials
    at_low: Float[Array, " E"]  # the functions at `low`, weighted
    at_high: Float[Array, " E"]  # the functions at `high`, weighted
    side: Int[Array, ""]  # the end that was moved last, 1 for `high` and -1 for `low`
    tries: Int[Array, ""]  # trials for this event so far; without any no event is known

    @staticmethod
    def after(u: Array, values: Float[Array, " E"]) -> "Bracket":
        """The rest of the step, of which nothing is known."""
        count = jnp.zeros((), jnp.int32)
        return Bracket(u, jnp.ones_like(u), values, values, count, count)

    def with_end(self, u: Array, values: Array, is_upper: Array, is_lower: Array) -> "Bracket":
        """With a trial as one of its ends."""
        # The weight of an end that stays twice in a row is halved, so that both ends move.
        again_up, again_down = is_upper & (self.side == 1), is_lower & (self.side == -1)
        at_low = jnp.where(again_up, self.at_low / 2, self.at_low)
        at_high = jnp.where(again_down, self.at_high / 2, self.at_high)
        return Bracket(
            jnp.where(is_lower, u, self.low),
            jnp.where(is_upper, u, self.high),
            jnp.where(is_lower, values, at_low),
            jnp.where(is_upper, values, at_high),
            jnp.where(is_upper, 1, jnp.where(is_lower, -1, self.side)).astype(jnp.int32),
            self.tries + (is_upper | is_lower),
        )

    def trial(self, crossed: Bool[Array, " E"], tolerance: Array) -> Float[Array, ""]:
        """The next trial for the first of the events that have crossed zero."""
        low, high, at_low, at_high = self.low, self.high, self.at_low, self.at_high
        middle = (low + high) / 2
        # Unknown values, and those of the wrong sign beside an event that has just occurred, are
        # bisected.
        usable = (at_low * at_high < 0) & jnp.isfinite(at_low) & jnp.isfinite(at_high)
        share = at_low / jnp.where(usable, at_low - at_high, 1.0)
        roots = jnp.where(usable, low + (high - low) * share, middle)
        root = jnp.min(jnp.where(crossed, roots, jnp.inf))
        edge = 0.9 * tolerance
        # Every third trial bisects, so that no function can make the search longer than 3 log2
        # trials.
        bisects = (self.tries % 3 == 0) | ~jnp.isfinite(root) | (high - low < 2 * edge)
        return jnp.where(bisects, middle, jnp.clip(root, low + edge, high - edge))


class StepSearch(eqx.Module):
    """The search for the events within a step from u = 0 to u = 1."""

    base_q: Float[Array, " n"]  # the state that the trials step from, where the motion changed
    base_v: Float[Array, " k"]
    base_u: Float[Array, ""]  # its position in the step
    q: Float[Array, " n"]  # the state at the upper end of the bracket
    v: Float[Array, " k"]
    values: Float[Array, " E"]  # the functions there
    info: StepInfo  # checks of the step up to there
    crossed: Bool[Array, " E"]  # events that are known to occur before it
    bracket: Bracket
    dips: ExtremumSearch
    opened: Bool[Array, " E"]  # functions that were not zero at some trial from the base
    events: EventState
    count: Int[Array, ""]  # events in this step so far that changed the motion
    at_once: Int[Array, ""]  # those that have followed at the time of the last of them
    event_q: Float[Array, " n"]  # the state at the last event, before its transition
    event_v: Float[Array, " k"]
    interrupted: Bool[Array, ""]  # whether the motion changed at that event
    ends_step: Bool[Array, ""]  # whether the step ends there
    is_done: Bool[Array, ""]  # whether the step is over


@dataclass(frozen=True)
class _Step:
    """What does not change in the search for the events of a step."""

    scheme: Scheme
    event_set: EventSet
    make: PartialStep
    resume: bool  # whether the step goes on after an event that changes the motion
    t: Array
    h: Array
    params: Params
    extents: Float[Array, " n"] | None
    number: Array  # of the step in its segment
    accuracy: Float[Array, ""]  # of the time of an event [s]


def through_events(
    scheme: Scheme, event_set: EventSet, state: StepState, h: Array, params: Params,
    events: EventState, number: Array, dips: ExtremumSearch, happens: Array, log: Array,
    extents: Float[Array, " n"] | None, advance: PartialStep | None = None,
) -> tuple[StepSearch, Array]:  # fmt: skip
    """A step from a state through all events on its way, if there are any, and the log with them.

    The result has the state at its end, or at a terminal event, in `q` and `v`. `number` is the
    number of the step in its segment. `advance` makes a step in place of the method of the scheme;
    then accelerations give the rates of all functions, and the step ends at the first event that
    changes the motion, with the state after it. Nothing is searched unless `happens` holds; this is
    not left to a `cond` around the loop, through which XLA would copy the log.
    """
    # Steps of trials are rare, and their code need not be fast.
    rare = replace(scheme, is_compact=bool(event_set.contact))
    make_step = advance or partial(step, rare, extents=extents)
    # Times closer than round-off are the same number.
    eps = float(jnp.finfo(h.dtype).eps)
    rounding = ROUNDINGS * eps * jnp.maximum(jnp.abs(state.t), jnp.abs(state.t + h))
    accuracy = jnp.minimum(ACCURACY, 1e-9 * jnp.abs(h))
    accuracy = jnp.maximum(jnp.maximum(accuracy, rounding), 4 * eps * jnp.abs(h))
    whole = _Step(
        scheme, event_set, make_step, advance is None, state.t, h, params, extents, number, accuracy
    )
    zero, count = jnp.zeros_like(h), jnp.zeros((), jnp.int32)
    true, false = jnp.asarray(True), jnp.asarray(False)
    nowhere, q, v, values = jnp.zeros(events.counts.shape, bool), state.q, state.v, events.values
    begin = StepSearch(
        base_q=q, base_v=v, base_u=zero, q=q, v=v, values=values,
        info=StepInfo(true, count, count, true), crossed=nowhere,
        bracket=Bracket.after(zero, values), dips=dips, opened=nowhere, events=events, count=count,
        at_once=count, event_q=q, event_v=v, interrupted=false, ends_step=false, is_done=~happens,
    )  # fmt: skip
    advanced = partial(_after_trial, whole)
    end, log = jax.lax.while_loop(lambda carry: ~carry[0].is_done, advanced, (begin, log))
    return _with_finite_states(end), log


def _with_finite_states(search: StepSearch) -> StepSearch:
    """The search, which fails if its states are not finite, with zeros in their place."""

    def states(x: Any) -> tuple[Any, ...]:  # of a search, or the places of its leaves
        base = x.base_q, x.base_v, x.base_u
        return x.q, x.v, *base, x.event_q, x.event_v, x.events.speeds

    before = states(search)
    finite, are_finite = finite_states(before, jax.tree.map(jnp.zeros_like, before))
    status = jnp.where(are_finite | ~search.info.good, search.info.status, int(Status.NONFINITE))
    info = replace(search.info, good=search.info.good & are_finite, status=status.astype(jnp.int32))
    return eqx.tree_at(lambda x: (*states(x), x.info), search, (*finite, info))


def _after_trial(step: _Step, carry: tuple[StepSearch, Array]) -> tuple[StepSearch, Array]:
    """The search after one more trial, and after the event that it may have located."""
    (search, log), event_set = carry, step.event_set
    # An event after which the state is not finite has ended the search.
    search = _with_finite_states(search)
    contacts: Contacts | None = None
    if event_set.has_transitions:
        # The functions that are zero at the base of the search, with their rates. Several gaps may
        # jump at once, and then open one after another.
        base_t, before, system = step.t + search.base_u * step.h, search.events, step.scheme.system
        place, may_jump = (search.base_q, base_t, step.params), before.due | (search.at_once > 0)
        opens, _ = event_set.contact.jumps(system, *place, before.active, step.extents, may_jump)
        contacts = Contacts.of(
            event_set, step.scheme, search.base_q, search.base_v, base_t, step.h,
            event_set.params(step.params, before.active), before.speeds, step.accuracy, opens,
        )  # fmt: skip
        # Elsewhere a sign that is unknown becomes known by a motion of its function, not by a
        # change.
        may = search.interrupted & event_set.enabled(search.events.active)
        signs = contacts.signs(event_set, search.events.signs, at_start=False)
        signs = jnp.where(may, signs, search.events.signs)
        at_base = replace(search.events, signs=signs, due=jnp.asarray(False))
        search = replace(search, events=at_base)
    at_start, is_due = search, jnp.asarray(False)
    search, is_located = _tried(step, search, contacts)
    if contacts is not None:
        due = _due(event_set, at_start, contacts)
        # Without `resume` those that are due at the end of the step are left to the next one.
        is_due = due.any() & (step.resume | ~at_start.ends_step)
        is_over = at_start.ends_step & ~is_due
        left = replace(at_start.events, due=due.any())
        over = replace(at_start, is_done=jnp.asarray(True), events=left)
        base = replace(at_start.bracket, high=at_start.base_u)
        at_due = replace(at_start, bracket=base, crossed=due)
        search = _where(is_over, over, _where(is_due, at_due, search))
        is_located = is_due | (is_located & ~is_over)

    def occurs() -> tuple[StepSearch, Array, Array]:
        return _occurred(step, search, contacts, is_due)

    no_rows = jnp.full(len(event_set.events) if event_set.contact else 1, -1, jnp.int32)
    nothing = search, no_rows, event_set.gaps.undecided(step.t.dtype)
    after, rows, outcome = jax.lax.cond(is_located, occurs, lambda: nothing)
    to_t = step.t + search.bracket.high * step.h
    then = (after.q, after.v) if event_set.has_transitions else ()
    occurrence = jnp.concatenate([to_t[None], search.q, search.v, *then, outcome])

    def written(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        (log, last) = carry
        row = following(last)
        return with_row(log, row, occurrence, row >= 0), row

    def following(last: Array) -> Array:
        return jnp.max(jnp.where(rows < last, rows, -1))

    # A loop, since most events have one row: native code for each of them would be long.
    begin = log, jnp.where(is_located, event_set.rows[-1], -1).astype(rows.dtype)
    log, _ = jax.lax.while_loop(lambda carry: following(carry[1]) >= 0, written, begin)
    return after, log


def _tried(step: _Step, search: StepSearch, contacts: Contacts | None) -> tuple[StepSearch, Array]:
    """The search after one trial, and whether an event is located."""
    event_set, events, bracket, dips = step.event_set, search.events, search.bracket, search.dips
    # Between equal save times everything is at the same time.
    accuracy = step.accuracy
    tolerance = jnp.where(step.h == 0, 1.0, accuracy / jnp.where(step.h == 0, 1.0, jnp.abs(step.h)))
    searching, active = bracket.tries > 0, events.active
    u = jnp.where(searching, bracket.trial(search.crossed, tolerance), dips.after(bracket.low))
    # From the state at which the motion last changed, and not from the last trial: each trial is
    # one step, whose error does not depend on the search.
    params = event_set.params(step.params, active)
    base = StepState(search.base_q, search.base_v, step.t + search.base_u * step.h)
    end, info = step.make(base, (u - search.base_u) * step.h, params)
    info = replace(info, correction=())
    q, v, to_t = end.q, end.v, step.t + u * step.h
    values = event_set.values(step.scheme, q, v, to_t, params)
    qdd = None if step.resume else step.scheme.law(q, v, to_t, params)[1].qdd
    slopes = rates(event_set, step.scheme, q, v, to_t, step.h, params, qdd)

    # What has crossed zero. Right after an event its function is zero but for rounding errors; one
    # that stays zero crosses it by rounding errors all the time.
    signs = events.signs
    if contacts is not None:
        first_signs = event_set.signs_at_start(signs, bracket.at_low, values, active)
        signs = jnp.where(searching, signs, first_signs)
    crossed = event_set.crossed(signs, values, active)
    crossed &= jnp.abs(to_t - events.latest) > _APART * accuracy
    settled, opened = event_set.continued_signs(signs, values, active), search.opened
    if contacts is not None:
        touches = event_set.changes & contacts.touching(signs)
        crossed &= ~(touches & ~(signs * slopes < -contacts.still * jnp.abs(step.h)))
        settled = jnp.where(touches, signs, settled)
        opened |= signs * values > contacts.zero

    # A trial that went past an event becomes the upper end of the bracket. Before any did, one
    # within the step shows that there is none up to a minimum, and one at its end that it is over;
    # later it becomes the lower end.
    past, inside = crossed.any() | ~info.good, ~searching & (u < 1)
    ends, stays = ~searching & ~crossed.any() & (u >= 1), inside & ~past
    is_upper, is_lower = ~ends & past, ~ends & ~past & ~stays
    # In a direction that is ignored, or after a root that has been found already.
    passes = ((jnp.sign(values) == -signs) & (signs != 0) & event_set.enabled(active)).any()
    passes = stays & (passes | (u == dips.stops).any())
    settles = (ends | passes) & ((signs != 0) | (1 - search.base_u > _SETTLING))
    q, v, new_values, info, crossed = _where(
        ends | is_upper, (q, v, values, info, crossed),
        (search.q, search.v, search.values, search.info, search.crossed),
    )  # fmt: skip
    bracket = bracket.with_end(u, values, is_upper, is_lower)
    passed = replace(
        bracket,
        low=jnp.where(passes, u, bracket.low),
        at_low=jnp.where(passes, values, bracket.at_low),
    )
    search = replace(
        search, q=q, v=v, values=new_values, info=info, crossed=crossed, bracket=passed,
        dips=_where(inside, dips.updated(u, values, slopes, signs), dips),
        opened=opened,
        events=replace(
            events,
            signs=jnp.where(settles, settled, signs),
            values=jnp.where(ends, values, events.values),
        ),
        is_done=search.is_done | ends,
    )  # fmt: skip
    return search, (is_upper | is_lower) & (bracket.high - bracket.low <= tolerance)


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)


def _due(event_set: EventSet, search: StepSearch, contacts: Contacts) -> Bool[Array, " E"]:
    """Flags of the next events that occur at the base: one with a transition, and others first."""
    signs = search.events.signs
    closing = contacts.closing(signs) & event_set.allowed(signs, search.events.active)
    due, unchanging = closing & event_set.changes, closing & ~event_set.changes
    # As if all gaps were small and equal. In another order plastic impacts would take far longer to
    # end. Round-off does not decide between those that are equally fast.
    speeds = jnp.where(due, -signs * contacts.r / contacts.still, 0.0)
    fastest = due & (speeds >= _AS_FAST * jnp.max(speeds))
    return jnp.where(due.any() & unchanging.any(), unchanging, fastest)


def _occurred(
    step: _Step, search: StepSearch, contacts: Contacts | None, is_due: Array
) -> tuple[StepSearch, Array, Array]:
    """The search after the first of the events at the end of the bracket.

    Also the rows in which it is kept, or -1, and what is decided about gaps: each gap and friction
    that takes part has a row.
    """
    event_set, before = step.event_set, search.events
    crossed, u = search.crossed, search.bracket.high
    to_t = step.t + u * step.h
    # Of events at the same time, to within the accuracy, the first in the order of the user; but
    # those that leave the state as it is come before those that change it.
    first = crossed & ~event_set.changes
    index = jnp.argmax(jnp.where(first.any(), first, crossed)).astype(jnp.int32)
    mine = jnp.arange(len(event_set.events)) == index
    interrupts, terminal = event_set.interrupts(index), event_set.stops(index)
    ok, outcome = jnp.asarray(int(Status.OK), jnp.int32), event_set.gaps.undecided(u.dtype)
    after = After(search.q, search.v, ok, before.active, outcome, before.speeds)
    values = search.values
    if event_set.has_transitions:
        state = MotionState(search.q, search.v, to_t, before.speeds, step.h, step.accuracy)
        after = event_set.after(
            step.scheme, index, state, step.params, before.active, extents=step.extents
        )
        params = event_set.params(step.params, after.active)
        values = event_set.values(step.scheme, after.q, after.v, to_t, params, after.multipliers)
        if event_set.contact:
            values = jnp.where(interrupts, values, search.values)
    take_part = mine
    if event_set.contact:
        changes = event_set.chosen(index, event_set.changes)
        take_part = event_set.contact.taking_part(
            index, before.active, after.active, after.outcome, changes
        )
    rows, row, outcome = _rows_of(event_set, take_part, before.counts, after.outcome)
    speeds = after.speeds
    for q, v, active in ((search.q, search.v, before.active), (after.q, after.v, after.active)):
        params = event_set.params(step.params, active)
        speeds_of_q = step.scheme.system.dynamics.speeds(q, v, to_t, params)
        speeds = jnp.maximum(speeds, jnp.abs(speeds_of_q))

    signs, rests = jnp.where(mine, -before.signs, before.signs), jnp.asarray(False)
    if contacts is not None:
        signs = _signs_after(step, search, contacts, index, after, values)
        # An impact without a motion is of bodies that are pressed together at rest.
        transitions = [event.transition for event in event_set.events]
        impacts = [bool(x and x.restitution is not None and not x.switches) for x in transitions]
        at_rest = contacts.touching(before.signs) & (before.signs * contacts.r <= contacts.still)
        at_rest &= ~search.opened & event_set.flags(impacts) & ~is_due
        rests = event_set.chosen(index, at_rest)

    # Without a crossing the bracket has closed on a step that failed.
    met = after.status == Status.OK
    good = search.info.good & met & crossed.any()
    good &= is_finite(search.q, search.v) & is_finite(after.q, after.v)
    most = MOST_OF_GAPS if event_set.contact else MOST
    is_full = jnp.where(is_due, search.at_once >= AT_ONCE, search.count >= most)
    full = interrupts & is_full
    code = first_that_holds(
        (~search.info.good, search.info.status), (~met, after.status),
        (rests, Status.CONTACT_AT_REST), (~good | full, Status.TOO_MANY_EVENTS),
    )  # fmt: skip
    good &= ~(full | rests)
    is_last = ~interrupts & ~is_due & (u >= 1) & ~(crossed & ~mine).any()
    base_q, base_v, base_u = _where(
        interrupts, (after.q, after.v, u), (search.base_q, search.base_v, search.base_u)
    )
    size = (u - search.base_u) * step.h
    events = replace(
        before,
        signs=signs,
        values=values,
        counts=before.counts + take_part,
        latest=jnp.where(mine | take_part, to_t, before.latest),
        active=after.active,
        stopped_by=jnp.where(terminal, index, before.stopped_by),
        smooth=jnp.where(interrupts, 0, before.smooth),
        speeds=speeds,
        replay=before.replay.added(step.number, size, index, row, outcome),
    )
    # What a transition makes due occurs at the same time, and so before the end of the step.
    may_end = interrupts & ((u >= 1) | (not step.resume))
    return (
        StepSearch(
            base_q, base_v, base_u, after.q, after.v, values,
            info=replace(search.info, good=good, status=jnp.where(good, search.info.status, code)),
            crossed=jnp.zeros_like(crossed),
            bracket=Bracket.after(u, values),
            dips=search.dips.without(interrupts),
            opened=search.opened & ~interrupts,
            events=events,
            count=search.count + (interrupts & ~is_due),
            at_once=jnp.where(
                is_due, search.at_once + 1, jnp.where(interrupts, 0, search.at_once)
            ),
            event_q=search.q,
            event_v=search.v,
            interrupted=interrupts,
            ends_step=jnp.where(is_due & ~interrupts, search.ends_step, may_end),
            is_done=terminal | ~good | is_last,
        ),
        rows,
        outcome,
    )  # fmt: skip


def _rows_of(
    event_set: EventSet, take_part: Bool[Array, " E"], counts: Int[Array, " E"],
    outcome: Float[Array, " D"],
) -> tuple[Int[Array, " R"], Int[Array, ""], Float[Array, " D"]]:  # fmt: skip
    """The rows in which an event is kept, -1 where it is not; the first; and it in the outcome.

    Each gap and friction that takes part has a row. A derivative knows the first of them, of which
    the others are copies.
    """
    capacities = jnp.asarray([event.kept for event in event_set.events], jnp.int32)
    starts = jnp.asarray(event_set.rows[:-1], jnp.int32)
    rows = jnp.where(take_part & (counts < capacities), starts + counts, -1).astype(jnp.int32)
    row = jnp.where(rows >= 0, rows, rows.max()).min()
    if event_set.contact:
        return rows, row, outcome.at[-1].set(row.astype(outcome.dtype))
    return row[None], row, outcome


def _signs_after(
    step: _Step, search: StepSearch, contacts: Contacts, index: Array, after: After, values: Array
) -> Int[Array, " E"]:
    """The signs from an event on.

    After an impact the function is zero and returns to its previous sign, and only a jump can move
    the state anywhere. Others that are crossed at the same time come next, a zero keeps the sign
    before it, and what has become possible has none yet.
    """
    event_set, before = step.event_set, search.events
    mine = jnp.arange(len(search.crossed)) == index
    transitions = [event.transition for event in event_set.events]
    jumps = [x is not None and x.fn is not None for x in transitions]
    rebounds = event_set.flags([x is not None and x.restitution is not None for x in transitions])
    side = jnp.zeros_like(before.signs)
    if any(jumps):
        params = event_set.params(step.params, after.active)
        to_t = step.t + search.bracket.high * step.h
        side = event_set.sides(step.scheme, after.q, after.v, to_t, step.h, params)
    own = jnp.where(event_set.flags(jumps), side, -before.signs)
    own = jnp.where(rebounds, before.signs, own)
    stays = contacts.touching(before.signs) & (values == search.values)
    stays |= search.crossed | (jnp.abs(values) <= contacts.zero)
    stays |= ~event_set.chosen(index, event_set.changes)
    jumped = event_set.continued_signs(before.signs, values, after.active)
    newly = event_set.enabled(after.active) & ~event_set.enabled(before.active)
    others = jnp.where(newly, 0, jnp.where(stays, before.signs, jumped))
    return event_set.known_signs(jnp.where(mine, own, others), after.active)
