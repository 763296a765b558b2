"""The events within one step: their location, and the rest of the step after them.

An event lies where its function changes sign between two states. Its time is bracketed by false
position with halved weights (the Illinois method; Dowell and Jarratt, BIT 11, 1971, 168-174) and
bisection. Every trial is a step of its own from the state that the motion last changed at, so that
the state at an event is on the constraints and as accurate as any other.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import with_row
from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.events.contacts import Contacts
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.extremum_search import ExtremumSearch, rates
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.events.log import EventState, Occurrences
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


class StepSearch(eqx.Module):
    """The search for the events within a step from u = 0 to u = 1."""

    base_q: Float[Array, " n"]  # the state that the trials step from
    base_v: Float[Array, " k"]
    base_u: Float[Array, ""]  # its position in the step
    q: Float[Array, " n"]  # the state at `high`
    v: Float[Array, " k"]
    values: Float[Array, " E"]  # the functions there
    info: StepInfo  # checks of the step up to there
    low: Float[Array, ""]  # no event occurs before
    high: Float[Array, ""]  # an event occurs before
    at_low: Float[Array, " E"]  # the functions at `low`, weighted
    at_high: Float[Array, " E"]  # the functions at `high`, weighted
    side: Int[Array, ""]  # the end that was moved last, 1 for `high` and -1 for `low`
    tries: Int[Array, ""]  # trials for this event so far
    u: Float[Array, ""]  # end of the next trial
    searching: Bool[Array, ""]  # whether an event is known to exist
    crossed: Bool[Array, " E"]  # events that are known to occur before `high`
    opened: Bool[Array, " E"]  # functions that were not zero at some trial from the base
    events: EventState
    count: Int[Array, ""]  # events in this step so far that changed the motion
    at_once: Int[Array, ""]  # those that have followed at the time of the last of them
    end_q: Float[Array, " n"]  # the state at the last event, before its transition
    end_v: Float[Array, " k"]
    interrupted: Bool[Array, ""]  # whether the motion changed at that event
    ends_step: Bool[Array, ""]  # whether the step ends there
    is_done: Bool[Array, ""]  # whether the step is over
    dips: ExtremumSearch


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
    make_step, resume = advance or partial(step, scheme, extents=extents), advance is None
    t, changes, has_transitions = state.t, event_set.changes, event_set.has_transitions
    # Times closer than round-off are the same number.
    eps = float(jnp.finfo(t.dtype).eps)
    rounding = ROUNDINGS * eps * jnp.maximum(jnp.abs(t), jnp.abs(t + h))
    accuracy = jnp.minimum(ACCURACY, 1e-9 * jnp.abs(h))
    accuracy = jnp.maximum(jnp.maximum(accuracy, rounding), 4 * eps * jnp.abs(h))
    # Between equal save times everything is at the same time.
    tolerance = jnp.where(h == 0, 1.0, accuracy / jnp.where(h == 0, 1.0, jnp.abs(h)))

    def trial(carry: tuple[StepSearch, Array]) -> tuple[StepSearch, Array]:
        search, log = carry
        active_params, contacts = event_set.params(params, search.events.active), None
        if has_transitions:
            contacts = _contacts_at_base(scheme, event_set, search, t, h, params, accuracy, extents)
            # Elsewhere a sign that is unknown becomes known by a motion of its function, not by a
            # change.
            may = search.interrupted & event_set.enabled(search.events.active)
            signs = contacts.signs(event_set, search.events.signs, at_start=False)
            signs = jnp.where(may, signs, search.events.signs)
            at_base = replace(search.events, signs=signs, due=jnp.asarray(False))
            search = replace(search, events=at_base)
        at_start, u = search, search.u
        # From the state at which the motion last changed, and not from the last trial: each trial
        # is one step, whose error does not depend on the search.
        base = StepState(search.base_q, search.base_v, t + search.base_u * h)
        end, info = make_step(base, (u - search.base_u) * h, active_params)
        good = info.good & is_finite(search.base_q, search.base_v)
        q, v, info = end.q, end.v, replace(info, correction=(), good=good)
        to_t = t + u * h
        values = event_set.values(scheme, q, v, to_t, active_params)
        qdd = None if resume else scheme.law(q, v, to_t, active_params)[1].qdd
        slopes = rates(event_set, scheme, q, v, to_t, h, active_params, qdd)

        # What has crossed zero. Right after an event its function is zero but for rounding errors;
        # one that stays zero crosses it by rounding errors all the time.
        signs, active = search.events.signs, search.events.active
        if has_transitions:
            first_signs = event_set.signs_at_start(signs, search.at_low, values, active)
            signs = jnp.where(search.searching, signs, first_signs)
        crossed = event_set.crossed(signs, values, active)
        crossed &= jnp.abs(to_t - search.events.latest) > _APART * accuracy
        if contacts is not None:
            moves = signs * slopes < -contacts.still * jnp.abs(h)
            crossed &= ~(changes & contacts.touching(signs) & ~moves)
        past, inside = crossed.any() | ~info.good, ~search.searching & (u < 1)
        ends, stays = ~search.searching & ~crossed.any() & (u >= 1), inside & ~past
        # In a direction that is ignored, or after a root that has been found already.
        passes = event_set.opposite_signs(signs, values, active).any()
        passes = stays & (passes | (u == search.dips.stops).any())
        dips = _where(inside, search.dips.updated(u, values, slopes, signs), search.dips)

        # A trial that went past an event becomes the upper end of the bracket, another the lower
        # one. The weight of an end that stays twice in a row is halved, so that both ends move.
        is_upper, is_lower = ~ends & past, ~ends & ~past & ~stays
        again_up, again_down = is_upper & (search.side == 1), is_lower & (search.side == -1)
        new_q, new_v, new_values, info, crossed = _where(
            ends | is_upper, (q, v, values, info, crossed),
            (search.q, search.v, search.values, search.info, search.crossed),
        )  # fmt: skip
        at_low = jnp.where(again_up, search.at_low / 2, search.at_low)
        at_high = jnp.where(again_down, search.at_high / 2, search.at_high)
        settled = event_set.continued_signs(signs, values, active)
        opened = search.opened
        if contacts is not None:
            settled = jnp.where(changes & contacts.touching(signs), signs, settled)
            opened |= signs * values > contacts.zero
        settles = (ends | passes) & ((signs != 0) | (1 - search.base_u > _SETTLING))
        search = replace(
            search,
            q=new_q,
            v=new_v,
            values=new_values,
            info=info,
            crossed=crossed,
            at_low=jnp.where(is_lower | passes, values, at_low),
            at_high=jnp.where(is_upper, values, at_high),
            low=jnp.where(is_lower | passes, u, search.low),
            high=jnp.where(ends | is_upper, u, search.high),
            side=jnp.where(
                stays, search.side, jnp.where(is_upper, 1, jnp.where(is_lower, -1, 0))
            ).astype(jnp.int32),
            tries=search.tries + ~stays,
            searching=~ends & ~stays,
            opened=opened,
            events=replace(
                search.events,
                signs=jnp.where(settles, settled, signs),
                values=jnp.where(ends, values, search.events.values),
            ),
            is_done=search.is_done | ends,
            dips=dips,
        )
        is_located = ~ends & ~stays & (search.high - search.low <= tolerance)
        following = jnp.where(stays, dips.after(search.low), _next_end(search, tolerance))
        search = replace(search, u=following)

        is_due = jnp.asarray(False)
        if contacts is not None:
            due = _due(event_set, at_start, contacts)
            # Without `resume` those that are due at the end of the step are left to the next one.
            is_due = due.any() & (resume | ~at_start.ends_step)
            is_over = at_start.ends_step & ~is_due
            left = replace(at_start.events, due=due.any())
            over = replace(at_start, is_done=jnp.asarray(True), events=left)
            at_due = replace(at_start, high=at_start.base_u, crossed=due)
            search = _where(is_over, over, _where(is_due, at_due, search))
            is_located = is_due | (is_located & ~is_over)

        def occurs() -> tuple[StepSearch, Array, Array]:
            return _occurred(
                scheme, event_set, search, contacts, is_due, t, h, params, number, resume, extents,
                accuracy,
            )  # fmt: skip

        no_rows = jnp.full(len(event_set.events) if event_set.gaps else 1, -1, jnp.int32)
        nothing = search, no_rows, jnp.zeros(event_set.words, t.dtype)
        after, rows, outcome = jax.lax.cond(is_located, occurs, lambda: nothing)
        q_after, v_after = (after.q, after.v) if has_transitions else (None, None)
        to_t = t + search.high * h
        packed = Occurrences(to_t, search.q, search.v, q_after, v_after, outcome).packed()
        for row in jnp.unstack(rows):
            log = with_row(log, row, packed, is_located)
        return after, log

    zero, unit, count = jnp.zeros_like(h), jnp.ones_like(h), jnp.zeros((), jnp.int32)
    true, false, nowhere = (
        jnp.asarray(True),
        jnp.asarray(False),
        jnp.zeros(events.counts.shape, bool),
    )
    q, v, values = state.q, state.v, events.values
    begin = StepSearch(
        base_q=q, base_v=v, base_u=zero, q=q, v=v, values=values,
        info=StepInfo(true, count, count, true), low=zero, high=unit, at_low=values,
        at_high=values, side=count, tries=count, u=dips.after(zero), searching=false,
        crossed=nowhere, opened=nowhere, events=events, count=count, at_once=count, end_q=q,
        end_v=v, interrupted=false, ends_step=false, is_done=~happens, dips=dips,
    )  # fmt: skip
    return jax.lax.while_loop(lambda carry: ~carry[0].is_done, trial, (begin, log))


def _where(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), yes, no)


def _next_end(search: StepSearch, tolerance: Array) -> Array:
    """The end of the next trial in the bracket."""
    low, high, at_low, at_high = search.low, search.high, search.at_low, search.at_high
    middle = (low + high) / 2
    # Unknown values, and those of the wrong sign beside an event that has just occurred, are
    # bisected.
    usable = (at_low * at_high < 0) & jnp.isfinite(at_low) & jnp.isfinite(at_high)
    share = at_low / jnp.where(usable, at_low - at_high, 1.0)
    roots = jnp.where(usable, low + (high - low) * share, middle)
    root = jnp.min(jnp.where(search.crossed, roots, jnp.inf))
    edge = 0.9 * tolerance
    # Every third trial bisects, so that no function can make the search longer than 3 log2 trials.
    bisects = (search.tries % 3 == 0) | ~jnp.isfinite(root) | (high - low < 2 * edge)
    return jnp.where(bisects, middle, jnp.clip(root, low + edge, high - edge))


def _contacts_at_base(
    scheme: Scheme, event_set: EventSet, search: StepSearch, t: Array, h: Array, params: Params,
    accuracy: Array, extents: Float[Array, " n"] | None,
) -> Contacts:  # fmt: skip
    """The functions that are zero at the base of a search, with their rates."""
    base_t, events = t + search.base_u * h, search.events
    # Several gaps may jump at once, and then open one after another.
    may_jump = events.due | (search.at_once > 0)
    opens, _ = event_set.contact.jumps(
        scheme.system, search.base_q, base_t, params, events.active, extents, may_jump
    )
    return Contacts.of(
        event_set, scheme, search.base_q, search.base_v, base_t, h,
        event_set.params(params, events.active), events.speeds, accuracy, opens,
    )  # fmt: skip


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
    scheme: Scheme, event_set: EventSet, search: StepSearch, contacts: Contacts | None,
    is_due: Array, t: Array, h: Array, params: Params, number: Array, resume: bool,
    extents: Float[Array, " n"] | None, accuracy: Array,
) -> tuple[StepSearch, Array, Array]:  # fmt: skip
    """The search after the first of the events at the end of the bracket.

    Also the rows in which it is kept, or -1, and what is decided about gaps: each gap and friction
    that takes part has a row.
    """
    before, to_t, crossed = search.events, t + search.high * h, search.crossed
    # Of events at the same time, to within the accuracy, the first in the order of the user; but
    # those that leave the state as it is come before those that change it.
    changes = event_set.changes
    first = crossed & ~changes
    index = jnp.argmax(jnp.where(first.any(), first, crossed)).astype(jnp.int32)
    interrupts, terminal = event_set.interrupts(index), event_set.stops(index)
    mine = jnp.arange(len(event_set.events)) == index
    q, v, values = search.q, search.v, search.values
    status, active = jnp.asarray(int(Status.OK), jnp.int32), before.active
    outcome, speeds = jnp.zeros(event_set.words, q.dtype), before.speeds
    if event_set.has_transitions:
        state = MotionState(q, v, to_t, speeds, h, accuracy)
        q, v, status, active, outcome, speeds, multipliers = event_set.after(
            scheme, index, state, params, before.active, extents=extents
        )
        values = event_set.values(scheme, q, v, to_t, event_set.params(params, active), multipliers)
        if event_set.gaps:
            values = jnp.where(interrupts, values, search.values)
    # Each gap and friction that takes part has a row. A derivative knows the first of them, of
    # which the others are copies.
    take_part = event_set.taking_part(index, before.active, active, outcome)
    capacities = jnp.asarray([event.kept for event in event_set.events], jnp.int32)
    starts = jnp.asarray(event_set.rows[:-1], jnp.int32)
    rows = jnp.where(take_part & (before.counts < capacities), starts + before.counts, -1)
    rows = rows.astype(jnp.int32)
    row = jnp.where(rows >= 0, rows, rows.max()).min()
    if event_set.gaps:
        outcome = outcome.at[-1].set(row.astype(outcome.dtype))
    else:
        rows = row[None]
    for x, rate, switches in ((search.q, search.v, before.active), (q, v, active)):
        switched = event_set.params(params, switches)
        rates_of_q = scheme.system.dynamics.speeds(x, rate, to_t, switched)
        speeds = jnp.maximum(speeds, jnp.abs(rates_of_q))

    # The signs from there on: after an impact the function is zero and returns to its previous
    # sign, and only a jump can move the state anywhere. Others that are crossed at the same time
    # come next, a zero keeps the sign before it, and what has become possible has none yet.
    signs = jnp.where(mine, -before.signs, before.signs)
    rests = jnp.asarray(False)
    if contacts is not None:
        transitions = [event.transition for event in event_set.events]
        bounces = [x is not None and x.restitution is not None for x in transitions]
        jumps = [x is not None and x.fn is not None for x in transitions]
        rebounds = event_set.flags(bounces)
        side = jnp.zeros_like(signs)
        if any(jumps):
            side = event_set.sides(scheme, q, v, to_t, h, event_set.params(params, active))
        own = jnp.where(rebounds, before.signs, jnp.where(event_set.flags(jumps), side, signs))
        touching = contacts.touching(before.signs)
        stays = touching & (values == search.values)
        stays |= crossed | (jnp.abs(values) <= contacts.zero)
        jumped = event_set.continued_signs(before.signs, values, active)
        others = jnp.where(stays | ~event_set.chosen(index, changes), before.signs, jumped)
        newly = event_set.enabled(active) & ~event_set.enabled(before.active)
        signs = jnp.where(mine, own, jnp.where(newly, 0, others))
        signs = event_set.known_signs(signs, active)
        # An impact without a motion is of bodies that are pressed together at rest.
        impacts = rebounds & event_set.flags([not (x and x.switches) for x in transitions])
        at_rest = touching & (before.signs * contacts.r <= contacts.still)
        rests = event_set.chosen(index, at_rest & ~search.opened & impacts & ~is_due)

    # Without a crossing the bracket has closed on a step that failed.
    met = status == Status.OK
    good = search.info.good & met & crossed.any() & is_finite(search.q, search.v) & is_finite(q, v)
    most = event_set.most_changes
    full = interrupts & jnp.where(is_due, search.at_once >= AT_ONCE, search.count >= most)
    code = first_that_holds(
        (~search.info.good, search.info.status),
        (~met, status),
        (rests, Status.CONTACT_AT_REST),
        (~good | full, Status.TOO_MANY_EVENTS),
    )
    good &= ~(full | rests)
    is_last = ~interrupts & ~is_due & (search.high >= 1) & ~(crossed & ~mine).any()
    dips, zero = search.dips.without(interrupts), jnp.zeros_like(search.tries)
    base_q, base_v, base_u = _where(
        interrupts, (q, v, search.high), (search.base_q, search.base_v, search.base_u)
    )
    after = replace(
        search,
        base_q=base_q,
        base_v=base_v,
        base_u=base_u,
        q=q,
        v=v,
        values=values,
        info=replace(search.info, good=good, status=jnp.where(good, search.info.status, code)),
        low=search.high,
        high=jnp.ones_like(search.high),
        at_low=values,
        at_high=values,
        side=zero,
        tries=zero,
        u=dips.after(search.high),
        dips=dips,
        searching=jnp.zeros_like(search.searching),
        crossed=jnp.zeros_like(crossed),
        opened=search.opened & ~interrupts,
        end_q=search.q,
        end_v=search.v,
        events=replace(
            before,
            signs=signs,
            values=values,
            counts=before.counts + take_part,
            latest=jnp.where(mine | take_part, to_t, before.latest),
            active=active,
            stopped_by=jnp.where(terminal, index, before.stopped_by),
            smooth=jnp.where(interrupts, 0, before.smooth),
            speeds=speeds,
            replay=before.replay.added(
                number, (search.high - search.base_u) * h, index, row, outcome
            ),
        ),
        count=search.count + (interrupts & ~is_due),
        at_once=jnp.where(is_due, search.at_once + 1, jnp.where(interrupts, 0, search.at_once)),
        interrupted=interrupts,
        # What a transition makes due occurs at the same time, and so before the end of the step.
        ends_step=jnp.where(
            is_due & ~interrupts, search.ends_step, interrupts & ((search.high >= 1) | (not resume))
        ),
        is_done=terminal | ~good | is_last,
    )
    return after, rows, outcome
