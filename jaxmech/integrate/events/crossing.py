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
from jaxmech.integrate.events.dips import Dips, rates
from jaxmech.integrate.events.log import EventState, Occurrences
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import Health, step
from jaxmech.status import Status
from jaxmech.system import Params

MOST = 8  # events in a step that change the motion; each of the others occurs once between them
AT_ONCE = 1000  # events that change the motion and follow from one of them at the same time
ACCURACY = 2e-14  # [s], of the time of an event; not below 1e-9 of the step or rounding errors
_APART = 4.0  # accuracies of the time between two occurrences of the same event
_AS_FAST = 0.999  # relative rate of functions that close equally fast
_SETTLING = 0.01  # fraction of a step after which an unknown sign is known


# A step: from q, v, t, h and parameters to q, v and whether it went well.
PartialStep = Callable[[Array, Array, Array, Array, Params], tuple[Array, Array, Health]]


class StepSearch(eqx.Module):
    """The search for the events within a step from u = 0 to u = 1."""

    base_q: Float[Array, " n"]  # the state that the trials step from
    base_v: Float[Array, " n"]
    base_u: Float[Array, ""]  # its position in the step
    q: Float[Array, " n"]  # the state at `high`
    v: Float[Array, " n"]
    values: Float[Array, " E"]  # the functions there
    health: Health  # checks of the step up to there
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
    end_v: Float[Array, " n"]
    cut: Bool[Array, ""]  # whether the motion changed at that event
    over: Bool[Array, ""]  # whether the step ends there
    done: Bool[Array, ""]  # whether the step is over
    dips: Dips


def through_events(
    scheme: Scheme, watch: Watch, q: Array, v: Array, t: Array, h: Array, params: Params,
    events: EventState, place: Array, dips: Dips, happens: Array, log: Array,
    extents: Float[Array, " n"] | None, advance: PartialStep | None = None, with_qdd: bool = False,
) -> tuple[StepSearch, Array]:  # fmt: skip
    """A step from (q, v) through all events on its way, if there are any, and the log with them.

    The result has the state at its end, or at a terminal event, in `q` and `v`. `place` is the
    number of the step in its segment. `advance` makes a step in place of the method of the scheme;
    then the step ends at the first event that changes the motion, with the state after it.
    `with_qdd` evaluates accelerations for the rates of the functions. Nothing is searched unless
    `happens` holds; this is not left to a `cond` around the loop, through which XLA would copy the
    log.
    """
    by, resume = advance or partial(step, scheme, extents=extents), advance is None
    zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
    true, false, none = jnp.asarray(True), jnp.asarray(False), jnp.zeros((), jnp.int32)
    nowhere = jnp.zeros(len(watch.events), bool)
    start = StepSearch(
        base_q=q, base_v=v, base_u=zero, q=q, v=v, values=events.values,
        health=Health(true, none, none, true), low=zero, high=one, at_low=events.values,
        at_high=events.values, side=none, tries=none, u=dips.after(zero), searching=false,
        crossed=nowhere, opened=nowhere, events=events,
        count=none, at_once=none, end_q=q, end_v=v, cut=false, over=false, done=~happens, dips=dips,
    )  # fmt: skip
    accuracy = _accuracy(t, h)
    # Between equal save times everything is at the same time.
    tolerance = jnp.where(h == 0, one, accuracy / jnp.where(h == 0, one, jnp.abs(h)))

    def trial(carry: tuple[StepSearch, Array]) -> tuple[StepSearch, Array]:
        at, log = carry
        now, contacts = watch.params(params, at.events.active), None
        if watch.has_transitions:
            at, contacts = _at_base(watch, at, t, h, now, accuracy)
        before = at
        from_t, to_t = t + at.base_u * h, t + at.u * h
        # From the state at which the motion last changed, and not from the last trial: each trial
        # is one step, whose error does not depend on the search.
        size = (at.u - at.base_u) * h
        q, v, health = by(at.base_q, at.base_v, from_t, size, now)
        health = replace(health, correction=None)
        values = watch.values(scheme, q, v, to_t, now)
        qdd = scheme.law(q, v, to_t, now)[1].qdd if with_qdd else None
        slopes = rates(watch, q, v, to_t, h, now, qdd)
        crossings = _crossed(watch, at, contacts, to_t, values, slopes, h, accuracy)
        crossed = crossings.any()
        inside = ~at.searching & (at.u < 1)
        past = crossed | ~health.good
        ends, stays = ~at.searching & ~crossed & (at.u >= 1), inside & ~past
        # In a direction that is ignored, or after a root that has been found already.
        passes = watch.opposite_signs(at.events.signs, values, at.events.active).any()
        passes = stays & (passes | (at.u == at.dips.stops).any())
        dips = _where(inside, at.dips.updated(at.u, values, slopes, at.events.signs), at.dips)
        moved = _narrowed(at, q, v, values, health, crossings, ends, past)
        at = replace(_where(stays, at, moved), dips=dips)
        at = _where(passes, replace(at, low=at.u, at_low=values), at)
        settled = watch.continued_signs(at.events.signs, values, at.events.active)
        if contacts is not None:
            signs = at.events.signs
            settled = jnp.where(watch.changes & contacts.touching(signs), signs, settled)
            at = replace(at, opened=at.opened | (signs * values > contacts.zero))
        may_settle = (at.events.signs != 0) | (1 - at.base_u > _SETTLING)
        signs = jnp.where((ends | passes) & may_settle, settled, at.events.signs)
        kept = jnp.where(ends, values, at.events.values)
        at = replace(at, events=replace(at.events, signs=signs, values=kept), done=at.done | ends)
        found = ~ends & ~stays & (at.high - at.low <= tolerance)
        at = replace(at, u=jnp.where(stays, dips.after(at.low), _next(at, tolerance)))
        is_due = false
        if contacts is not None:
            due = _due(watch, before, contacts)
            # Without `resume` those that are due at the end of the step are left to the next one.
            is_due = due.any() & (resume | ~before.over)
            ended = before.over & ~is_due
            here = replace(before, high=before.base_u, crossed=due)
            stop = replace(before, done=true, events=replace(before.events, due=due.any()))
            at = _where(ended, stop, _where(is_due, here, at))
            found = is_due | (found & ~ended)

        def occurs() -> tuple[StepSearch, Array]:
            return _occurred(
                scheme, watch, at, contacts, is_due, t, h, params, place, resume, extents
            )

        after, row = jax.lax.cond(found, occurs, lambda: (at, none))
        states = (after.q, after.v) if watch.has_transitions else (None, None)
        occurrence = Occurrences(t + at.high * h, at.q, at.v, *states)
        return after, with_row(log, row, occurrence.packed(), found)

    return jax.lax.while_loop(lambda carry: ~carry[0].done, trial, (start, log))


def _where(when: Array, yes: StepSearch | Dips, no: StepSearch | Dips) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(when, x, y), yes, no)


def _accuracy(t: Array, h: Array) -> Array:
    """The width of the last bracket [s]."""
    eps = float(jnp.finfo(t.dtype).eps)
    # Times closer than this are the same number.
    rounding = 4 * eps * jnp.maximum(jnp.abs(t), jnp.abs(t + h))
    wanted = jnp.minimum(ACCURACY, 1e-9 * jnp.abs(h))
    return jnp.maximum(jnp.maximum(wanted, rounding), 4 * eps * jnp.abs(h))


def _at_base(
    watch: Watch, at: StepSearch, t: Array, h: Array, params: Params, accuracy: Array
) -> tuple[StepSearch, Contacts]:
    """The search with signs of all functions that are zero at its base, and these functions."""
    base_t, events = t + at.base_u * h, at.events
    contacts = Contacts.of(watch, at.base_q, at.base_v, base_t, h, params, events.speeds, accuracy)
    # Elsewhere a sign that is unknown becomes known by a motion of its function, not by a change.
    may = at.cut & watch.enabled(events.active)
    signs = jnp.where(may, contacts.signs(watch, events.signs, at_start=False), events.signs)
    return replace(at, events=replace(events, signs=signs, due=jnp.asarray(False))), contacts


def _due(watch: Watch, at: StepSearch, contacts: Contacts) -> Bool[Array, " E"]:
    """Flags of the next events that occur at the base: one with a transition, and others first."""
    signs = at.events.signs
    closing = contacts.closing(signs) & watch.allowed(signs, at.events.active)
    due, others = closing & watch.changes, closing & ~watch.changes
    # As if all gaps were small and equal. In another order plastic impacts would take far longer to
    # end. Round-off does not decide between those that are equally fast.
    speeds = jnp.where(due, -signs * contacts.r / contacts.still, 0.0)
    fastest = due & (speeds >= _AS_FAST * jnp.max(speeds))
    return jnp.where(due.any() & others.any(), others, fastest)


def _crossed(
    watch: Watch, at: StepSearch, contacts: Contacts | None, t: Array, values: Array,
    slopes: Array, h: Array, accuracy: Array,
) -> Bool[Array, " E"]:  # fmt: skip
    """Flags of the events that occur before a time at which the functions have these values."""
    events = at.events
    # Right after an event its function is zero but for rounding errors.
    is_apart = jnp.abs(t - events.latest) > _APART * accuracy
    crossed = is_apart & watch.crossed(events.signs, values, events.active)
    if contacts is None:
        return crossed
    # A function that stays zero crosses it by rounding errors all the time.
    moves = events.signs * slopes < -contacts.still * jnp.abs(h)
    return crossed & ~(watch.changes & contacts.touching(events.signs) & ~moves)


def _narrowed(
    at: StepSearch, q: Array, v: Array, values: Array, health: Health, crossed: Array,
    ends: Array, past: Array,
) -> StepSearch:  # fmt: skip
    """Narrow the bracket after a trial."""
    up, down = ~ends & past, ~ends & ~past
    new = ends | up
    q, v, found, health, crossed = jax.tree.map(
        lambda x, y: jnp.where(new, x, y),
        (q, v, values, health, crossed),
        (at.q, at.v, at.values, at.health, at.crossed),
    )
    # The weight of an end that stays twice in a row is halved, so that both ends move.
    again_up, again_down = up & (at.side == 1), down & (at.side == -1)
    at_low = jnp.where(down, values, jnp.where(again_up, at.at_low / 2, at.at_low))
    at_high = jnp.where(up, values, jnp.where(again_down, at.at_high / 2, at.at_high))
    return replace(
        at, q=q, v=v, values=found, health=health, crossed=crossed, at_low=at_low, at_high=at_high,
        low=jnp.where(down, at.u, at.low),
        high=jnp.where(new, at.u, at.high),
        side=jnp.where(up, 1, jnp.where(down, -1, 0)).astype(jnp.int32),
        tries=at.tries + 1,
        searching=~ends,
    )  # fmt: skip


def _next(at: StepSearch, tolerance: Array) -> Array:
    """The end of the next trial: the first estimated root, or the middle."""
    middle = (at.low + at.high) / 2
    # Unknown values, and those of the wrong sign beside an event that has just occurred, bisect.
    usable = (at.at_low * at.at_high < 0) & jnp.isfinite(at.at_low) & jnp.isfinite(at.at_high)
    share = at.at_low / jnp.where(usable, at.at_low - at.at_high, 1.0)
    roots = jnp.where(usable, at.low + (at.high - at.low) * share, middle)
    root = jnp.min(jnp.where(at.crossed, roots, jnp.inf))
    edge = 0.9 * tolerance
    inside = jnp.clip(root, at.low + edge, at.high - edge)
    # Every third trial bisects, so that no function can make the search longer than 3 log2 trials.
    bisect = (at.tries % 3 == 0) | ~jnp.isfinite(root) | (at.high - at.low < 2 * edge)
    return jnp.where(bisect, middle, inside)


def _occurred(
    scheme: Scheme, watch: Watch, at: StepSearch, contacts: Contacts | None, is_due: Array,
    t: Array, h: Array, params: Params, place: Array, resume: bool,
    extents: Float[Array, " n"] | None,
) -> tuple[StepSearch, Array]:  # fmt: skip
    """Process the first of the events at the end of the bracket; also the row it is kept in."""
    was, to_t, crossed = at.events, t + at.high * h, at.crossed
    # Of events at the same time, to within the accuracy, the first in the order of the user; but
    # those that leave the state as it is come before those that change it.
    first = crossed & ~watch.changes
    which = jnp.argmax(jnp.where(first.any(), first, crossed)).astype(jnp.int32)
    cuts, terminal = watch.cuts(which), watch.stops(which)
    row = _row(watch, which, was.counts)
    q, v, values, met, active = at.q, at.v, at.values, jnp.asarray(True), was.active
    if watch.has_transitions:
        q, v, met = watch.after(scheme, which, at.q, at.v, to_t, params, was.active, extents)
        active = watch.switched(which, was.active)
        values = watch.values(scheme, q, v, to_t, watch.params(params, active))
    # Only a transition by a function can move the state anywhere, so only then is the side
    # computed.
    side = jnp.zeros_like(was.signs)
    if any(e.transition is not None and e.transition.fn is not None for e in watch.events):
        side = watch.sides(scheme, q, v, to_t, h, watch.params(params, active))
    mine = jnp.arange(len(watch.events)) == which
    events = replace(
        was,
        signs=_signs_after(watch, at, contacts, values, which, active, side),
        values=values,
        counts=was.counts + mine,
        latest=jnp.where(mine, to_t, was.latest),
        active=active,
        stopped_by=jnp.where(terminal, which, was.stopped_by),
        smooth=jnp.where(cuts, 0, was.smooth),
        speeds=jnp.maximum(was.speeds, jnp.maximum(jnp.abs(at.v), jnp.abs(v))),
        replay=was.replay.added(place, (at.high - at.base_u) * h, which, row),
    )
    # Without a crossing the bracket has closed on a step that failed.
    good = at.health.good & met & crossed.any()
    full = cuts & jnp.where(is_due, at.at_once >= AT_ONCE, at.count >= MOST)
    rests = watch.chosen(which, _resting(watch, at, contacts, is_due))
    code = first_that_holds(
        (~at.health.good, at.health.status),
        (~met, Status.NOT_ON_CONSTRAINT),
        (rests, Status.CONTACT_AT_REST),
        (~good | full, Status.TOO_MANY_EVENTS),
    )
    good &= ~(full | rests)

    def base(x: Array, y: Array) -> Array:
        return jnp.where(cuts, x, y)

    dips = at.dips.without(cuts)

    after = replace(
        at,
        base_q=base(q, at.base_q), base_v=base(v, at.base_v), base_u=base(at.high, at.base_u),
        q=q, v=v, values=values,
        health=replace(at.health, good=good, status=jnp.where(good, at.health.status, code)),
        low=at.high, high=jnp.ones_like(at.high), at_low=values, at_high=values,
        side=jnp.zeros_like(at.side), tries=jnp.zeros_like(at.tries),
        u=dips.after(at.high), dips=dips, searching=jnp.zeros_like(at.searching),
        crossed=jnp.zeros_like(crossed), opened=at.opened & ~cuts,
        events=events, count=at.count + (cuts & ~is_due),
        at_once=jnp.where(is_due, at.at_once + 1, jnp.where(cuts, 0, at.at_once)),
        end_q=at.q, end_v=at.v, cut=cuts,
        # What a transition makes due occurs at the same time, and so before the end of the step.
        over=jnp.where(is_due & ~cuts, at.over, cuts & ((at.high >= 1) | (not resume))),
        done=terminal | ~good | (~cuts & ~is_due & (at.high >= 1) & ~(crossed & ~mine).any()),
    )  # fmt: skip
    return after, row


def _resting(
    watch: Watch, at: StepSearch, contacts: Contacts | None, is_due: Array
) -> Bool[Array, " E"]:
    """Flags of impacts of bodies that have touched, and not moved apart, since the base."""
    if contacts is None:
        return jnp.zeros(len(watch.events), bool)
    transitions = [event.transition for event in watch.events]
    impacts = [x is not None and x.restitution is not None and not x.switches for x in transitions]
    signs = at.events.signs
    at_rest = contacts.touching(signs) & (signs * contacts.r <= contacts.still)
    return at_rest & ~at.opened & watch.flags(impacts) & ~is_due


def _row(watch: Watch, which: Array, counts: Array) -> Array:
    """The row in which the next occurrence of an event is kept, -1 if it is not."""
    kept = jnp.asarray([event.kept for event in watch.events], jnp.int32)
    starts = jnp.asarray(watch.rows[:-1], jnp.int32)
    so_far = watch.chosen(which, counts)
    row = watch.chosen(which, starts) + so_far
    return jnp.where(so_far < watch.chosen(which, kept), row, -1).astype(jnp.int32)


def _signs_after(
    watch: Watch, at: StepSearch, contacts: Contacts | None, after: Array, which: Array,
    active: Array, side: Array,
) -> Array:  # fmt: skip
    """The sign of each function after one event."""
    was, crossed = at.events, at.crossed
    mine = jnp.arange(len(watch.events)) == which
    passed = jnp.where(mine, -was.signs, was.signs)
    if contacts is None:
        return passed
    # After an impact the function is zero and returns to its previous sign.
    transitions = [event.transition for event in watch.events]
    rebounds = watch.flags([x is not None and x.restitution is not None for x in transitions])
    jumps = watch.flags([x is not None and x.fn is not None for x in transitions])
    own = jnp.where(rebounds, was.signs, jnp.where(jumps, side, passed))
    jumped = watch.continued_signs(was.signs, after, active)
    # Others that are crossed at the same time come next, and a zero keeps the sign before it.
    stays = contacts.touching(was.signs) & (after == at.values)
    stays |= crossed | (jnp.abs(after) <= contacts.zero)
    others = jnp.where(stays | ~watch.chosen(which, watch.changes), was.signs, jumped)
    newly = watch.enabled(active) & ~watch.enabled(was.active)
    signs = jnp.where(mine, own, jnp.where(newly, 0, others))
    return jnp.where(watch.enabled(active), signs, 0)
