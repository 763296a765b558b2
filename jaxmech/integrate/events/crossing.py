"""The events within one step: their location, and the rest of the step after them.

An event lies where its function changes sign between two states; `step_search` brackets its time.
Every trial is a step of its own from the state that the motion last changed at, so that the state
at an event is on the constraints and as accurate as any other.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.compiler import with_row
from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.events.contacts import Contacts
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch, rates
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.events.log import EventState, Occurrences
from jaxmech.integrate.events.step_search import StepSearch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import StepInfo, StepState, is_finite, step
from jaxmech.status import Status
from jaxmech.system import Params

AT_ONCE = 1000  # events that change the motion and follow from one of them at the same time
ACCURACY = 2e-14  # [s], of the time of an event; not below 1e-9 of the step or rounding errors
ROUNDINGS = 4.0  # units of round-off of the time, to which an event is located
_APART = 4.0  # accuracies of the time between two occurrences of the same event
_AS_FAST = 0.999  # relative rate of functions that close equally fast
_SETTLING = 0.01  # fraction of a step after which an unknown sign is known


# A step of some size and parameters.
PartialStep = Callable[[StepState, Array, Params], tuple[StepState, StepInfo]]


def through_events(
    scheme: Scheme, event_set: EventSet, state: StepState, h: Array, params: Params,
    events: EventState, number: Array, dips: ExtremumSearch, happens: Array, log: Array,
    extents: Float[Array, " n"] | None, advance: PartialStep | None = None, with_qdd: bool = False,
) -> tuple[StepSearch, Array]:  # fmt: skip
    """A step from a state through all events on its way, if there are any, and the log with them.

    The result has the state at its end, or at a terminal event, in `q` and `v`. `number` is the
    number of the step in its segment. `advance` makes a step in place of the method of the scheme;
    then the step ends at the first event that changes the motion, with the state after it.
    `with_qdd` evaluates accelerations for the rates of the functions. Nothing is searched unless
    `happens` holds; this is not left to a `cond` around the loop, through which XLA would copy the
    log.
    """
    make_step, resume = advance or partial(step, scheme, extents=extents), advance is None
    t, accuracy = state.t, _accuracy(state.t, h)
    start = StepSearch.begin(event_set, state.q, state.v, events, dips, happens)
    # Between equal save times everything is at the same time.
    tolerance = jnp.where(h == 0, 1.0, accuracy / jnp.where(h == 0, 1.0, jnp.abs(h)))

    def trial(carry: tuple[StepSearch, Array]) -> tuple[StepSearch, Array]:
        search, log = carry
        active_params, contacts = event_set.params(params, search.events.active), None
        if event_set.has_transitions:
            search, contacts = _at_base(event_set, scheme, search, t, h, params, accuracy, extents)
        previous = search
        from_t, to_t = t + search.base_u * h, t + search.u * h
        # From the state at which the motion last changed, and not from the last trial: each trial
        # is one step, whose error does not depend on the search.
        size = (search.u - search.base_u) * h
        base = StepState(search.base_q, search.base_v, from_t)
        end, info = make_step(base, size, active_params)
        good = info.good & is_finite(search.base_q, search.base_v)
        q, v, info = end.q, end.v, replace(info, correction=(), good=good)
        values = event_set.values(scheme, q, v, to_t, active_params)
        qdd = scheme.law(q, v, to_t, active_params)[1].qdd if with_qdd else None
        slopes = rates(event_set, scheme, q, v, to_t, h, active_params, qdd)
        search = _with_first_signs(event_set, search, values)
        crossings = _crossed(event_set, search, contacts, to_t, values, slopes, h, accuracy)
        crossed = crossings.any()
        inside = ~search.searching & (search.u < 1)
        past = crossed | ~info.good
        ends, stays = ~search.searching & ~crossed & (search.u >= 1), inside & ~past
        # In a direction that is ignored, or after a root that has been found already.
        passes = event_set.opposite_signs(search.events.signs, values, search.events.active).any()
        passes = stays & (passes | (search.u == search.dips.stops).any())
        dips = _where(
            inside, search.dips.updated(search.u, values, slopes, search.events.signs), search.dips
        )
        moved = search.narrowed(q, v, values, info, crossings, ends, past)
        search = replace(_where(stays, search, moved), dips=dips)
        search = _where(passes, replace(search, low=search.u, at_low=values), search)
        search = _with_signs(event_set, search, contacts, values, ends, ends | passes)
        is_located = ~ends & ~stays & (search.high - search.low <= tolerance)
        search = replace(
            search, u=jnp.where(stays, dips.after(search.low), search.next_end(tolerance))
        )
        is_due = jnp.asarray(False)
        if contacts is not None:
            search, is_due, is_located = _with_due(
                event_set, previous, search, contacts, is_located, resume
            )

        def occurs() -> tuple[StepSearch, Array, Array]:
            return _occurred(
                scheme, event_set, search, contacts, is_due, t, h, params, number, resume, extents,
                accuracy,
            )  # fmt: skip

        nothing = search, jnp.zeros((), jnp.int32), jnp.zeros(event_set.words, t.dtype)
        next_search, row, outcome = jax.lax.cond(is_located, occurs, lambda: nothing)
        q_after, v_after = (
            (next_search.q, next_search.v) if event_set.has_transitions else (None, None)
        )
        end_t = t + search.high * h
        occurrence = Occurrences(end_t, search.q, search.v, q_after, v_after, outcome)
        return next_search, with_row(log, row, occurrence.packed(), is_located)

    return jax.lax.while_loop(lambda carry: ~carry[0].is_done, trial, (start, log))


def _with_first_signs(event_set: EventSet, search: StepSearch, values: Array) -> StepSearch:
    """The search with the signs after its base of events that have become possible there."""
    if not event_set.has_transitions:
        return search
    events = search.events
    signs = event_set.signs_at_start(events.signs, search.at_low, values, events.active)
    signs = jnp.where(search.searching, events.signs, signs)
    return replace(search, events=replace(events, signs=signs))


def _with_signs(
    event_set: EventSet, search: StepSearch, contacts: Contacts | None, values: Array, ends: Array,
    settles: Array,
) -> StepSearch:  # fmt: skip
    """The search with the signs after a trial that `settles` them, and with values at the end."""
    settled = event_set.continued_signs(search.events.signs, values, search.events.active)
    if contacts is not None:
        signs = search.events.signs
        settled = jnp.where(event_set.changes & contacts.touching(signs), signs, settled)
        search = replace(search, opened=search.opened | (signs * values > contacts.zero))
    may_settle = (search.events.signs != 0) | (1 - search.base_u > _SETTLING)
    signs = jnp.where(settles & may_settle, settled, search.events.signs)
    end_values = jnp.where(ends, values, search.events.values)
    events = replace(search.events, signs=signs, values=end_values)
    return replace(search, events=events, is_done=search.is_done | ends)


def _with_due(
    event_set: EventSet, previous: StepSearch, search: StepSearch, contacts: Contacts,
    is_located: Array, resume: bool,
) -> tuple[StepSearch, Array, Array]:  # fmt: skip
    """The search at an event that is due at its base, whether it is, and whether one is located."""
    due = _due(event_set, previous, contacts)
    # Without `resume` those that are due at the end of the step are left to the next one.
    is_due = due.any() & (resume | ~previous.ends_step)
    ended = previous.ends_step & ~is_due
    at_due_event = replace(previous, high=previous.base_u, crossed=due)
    stop = replace(
        previous, is_done=jnp.asarray(True), events=replace(previous.events, due=due.any())
    )
    search = _where(ended, stop, _where(is_due, at_due_event, search))
    return search, is_due, is_due | (is_located & ~ended)


def _where(
    condition: Array, yes: StepSearch | ExtremumSearch, no: StepSearch | ExtremumSearch
) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)


def _accuracy(t: Array, h: Array) -> Array:
    eps = float(jnp.finfo(t.dtype).eps)
    # Times closer than this are the same number.
    rounding = ROUNDINGS * eps * jnp.maximum(jnp.abs(t), jnp.abs(t + h))
    accuracy = jnp.minimum(ACCURACY, 1e-9 * jnp.abs(h))
    return jnp.maximum(jnp.maximum(accuracy, rounding), 4 * eps * jnp.abs(h))


def _at_base(
    event_set: EventSet, scheme: Scheme, search: StepSearch, t: Array, h: Array, params: Params,
    accuracy: Array, extents: Float[Array, " n"] | None,
) -> tuple[StepSearch, Contacts]:  # fmt: skip
    """The search with signs of all functions that are zero at its base, and these functions."""
    base_t, events = t + search.base_u * h, search.events
    # Several gaps may jump at once, and then open one after another.
    may_jump = events.due | (search.at_once > 0)
    opens, _ = event_set.jumps(
        scheme.system, search.base_q, base_t, params, events.active, extents, may_jump
    )
    contacts = Contacts.of(
        event_set, scheme, search.base_q, search.base_v, base_t, h,
        event_set.params(params, events.active), events.speeds, accuracy, opens,
    )  # fmt: skip
    # Elsewhere a sign that is unknown becomes known by a motion of its function, not by a change.
    may = search.interrupted & event_set.enabled(events.active)
    signs = jnp.where(may, contacts.signs(event_set, events.signs, at_start=False), events.signs)
    return replace(search, events=replace(events, signs=signs, due=jnp.asarray(False))), contacts


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


def _crossed(
    event_set: EventSet, search: StepSearch, contacts: Contacts | None, t: Array, values: Array,
    slopes: Array, h: Array, accuracy: Array,
) -> Bool[Array, " E"]:  # fmt: skip
    events = search.events
    # Right after an event its function is zero but for rounding errors.
    is_apart = jnp.abs(t - events.latest) > _APART * accuracy
    crossed = is_apart & event_set.crossed(events.signs, values, events.active)
    if contacts is None:
        return crossed
    # A function that stays zero crosses it by rounding errors all the time.
    moves = events.signs * slopes < -contacts.still * jnp.abs(h)
    return crossed & ~(event_set.changes & contacts.touching(events.signs) & ~moves)


def _occurred(
    scheme: Scheme, event_set: EventSet, search: StepSearch, contacts: Contacts | None,
    is_due: Array, t: Array, h: Array, params: Params, number: Array, resume: bool,
    extents: Float[Array, " n"] | None, accuracy: Array,
) -> tuple[StepSearch, Array, Array]:  # fmt: skip
    """Process the first of the events at the end of the bracket.

    Also the row in which it is kept, and what is decided about gaps.
    """
    event_state, to_t, crossed = search.events, t + search.high * h, search.crossed
    # Of events at the same time, to within the accuracy, the first in the order of the user; but
    # those that leave the state as it is come before those that change it.
    first = crossed & ~event_set.changes
    index = jnp.argmax(jnp.where(first.any(), first, crossed)).astype(jnp.int32)
    interrupts, terminal = event_set.interrupts(index), event_set.stops(index)
    row = _row(event_set, index, event_state.counts)
    q, v, values = search.q, search.v, search.values
    status, active = jnp.asarray(int(Status.OK), jnp.int32), event_state.active
    outcome, speeds = jnp.zeros(event_set.words, q.dtype), event_state.speeds
    if event_set.has_transitions:
        state = MotionState(q, v, to_t, speeds, h, accuracy)
        q, v, status, active, outcome, speeds, multipliers = event_set.after(
            scheme, index, state, params, event_state.active, extents=extents
        )
        values = event_set.values(scheme, q, v, to_t, event_set.params(params, active), multipliers)
        if event_set.gaps:
            values = jnp.where(interrupts, values, search.values)
    # Only a transition by a function can move the state anywhere, so only then is the side
    # computed.
    side = jnp.zeros_like(event_state.signs)
    if any(e.transition is not None and e.transition.fn is not None for e in event_set.events):
        side = event_set.sides(scheme, q, v, to_t, h, event_set.params(params, active))
    mine = jnp.arange(len(event_set.events)) == index
    pairs = ((search.q, search.v, event_state.active), (q, v, active))
    before, after = (
        jnp.abs(scheme.system.dynamics.speeds(x, rate, to_t, event_set.params(params, switches)))
        for x, rate, switches in pairs
    )
    events = replace(
        event_state,
        signs=_signs_after(event_set, search, contacts, values, index, active, side),
        values=values,
        counts=event_state.counts + mine,
        latest=jnp.where(mine, to_t, event_state.latest),
        active=active,
        stopped_by=jnp.where(terminal, index, event_state.stopped_by),
        smooth=jnp.where(interrupts, 0, event_state.smooth),
        speeds=jnp.maximum(speeds, jnp.maximum(before, after)),
        replay=event_state.replay.added(
            number, (search.high - search.base_u) * h, index, row, outcome
        ),
    )
    # Without a crossing the bracket has closed on a step that failed.
    met = status == Status.OK
    good = search.info.good & met & crossed.any() & is_finite(search.q, search.v) & is_finite(q, v)
    most = event_set.most_changes
    full = interrupts & jnp.where(is_due, search.at_once >= AT_ONCE, search.count >= most)
    rests = event_set.chosen(index, _resting(event_set, search, contacts, is_due))
    code = first_that_holds(
        (~search.info.good, search.info.status),
        (~met, status),
        (rests, Status.CONTACT_AT_REST),
        (~good | full, Status.TOO_MANY_EVENTS),
    )
    good &= ~(full | rests)

    info = replace(search.info, good=good, status=jnp.where(good, search.info.status, code))
    restarted = search.restarted(q, v, values, info, interrupts)
    is_last = ~interrupts & ~is_due & (search.high >= 1) & ~(crossed & ~mine).any()
    next_search = replace(
        restarted,
        events=events,
        count=search.count + (interrupts & ~is_due),
        at_once=jnp.where(is_due, search.at_once + 1, jnp.where(interrupts, 0, search.at_once)),
        interrupted=interrupts,
        # What a transition makes due occurs at the same time, and so before the end of the step.
        ends_step=jnp.where(
            is_due & ~interrupts, search.ends_step, interrupts & ((search.high >= 1) | (not resume))
        ),
        is_done=terminal | ~good | is_last,
    )
    return next_search, row, outcome


def _resting(
    event_set: EventSet, search: StepSearch, contacts: Contacts | None, is_due: Array
) -> Bool[Array, " E"]:
    if contacts is None:
        return jnp.zeros(len(event_set.events), bool)
    transitions = [event.transition for event in event_set.events]
    impacts = [x is not None and x.restitution is not None and not x.switches for x in transitions]
    signs = search.events.signs
    at_rest = contacts.touching(signs) & (signs * contacts.r <= contacts.still)
    return at_rest & ~search.opened & event_set.flags(impacts) & ~is_due


def _row(event_set: EventSet, index: Array, counts: Array) -> Array:
    capacities = jnp.asarray([event.kept for event in event_set.events], jnp.int32)
    starts = jnp.asarray(event_set.rows[:-1], jnp.int32)
    so_far = event_set.chosen(index, counts)
    row = event_set.chosen(index, starts) + so_far
    return jnp.where(so_far < event_set.chosen(index, capacities), row, -1).astype(jnp.int32)


def _signs_after(
    event_set: EventSet, search: StepSearch, contacts: Contacts | None, new_values: Array,
    index: Array, active: Array, side: Array,
) -> Array:  # fmt: skip
    event_state, crossed = search.events, search.crossed
    mine = jnp.arange(len(event_set.events)) == index
    passed = jnp.where(mine, -event_state.signs, event_state.signs)
    if contacts is None:
        return passed
    # After an impact the function is zero and returns to its previous sign.
    transitions = [event.transition for event in event_set.events]
    rebounds = event_set.flags([x is not None and x.restitution is not None for x in transitions])
    jumps = event_set.flags([x is not None and x.fn is not None for x in transitions])
    event_sign = jnp.where(rebounds, event_state.signs, jnp.where(jumps, side, passed))
    jumped = event_set.continued_signs(event_state.signs, new_values, active)
    # Others that are crossed at the same time come next, and a zero keeps the sign before it.
    stays = contacts.touching(event_state.signs) & (new_values == search.values)
    stays |= crossed | (jnp.abs(new_values) <= contacts.zero)
    other_signs = jnp.where(
        stays | ~event_set.chosen(index, event_set.changes), event_state.signs, jumped
    )
    newly = event_set.enabled(active) & ~event_set.enabled(event_state.active)
    signs = jnp.where(mine, event_sign, jnp.where(newly, 0, other_signs))
    return event_set.known_signs(signs, active)
