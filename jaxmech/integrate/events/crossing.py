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

from jaxmech.integrate.events.dips import Dips, rates
from jaxmech.integrate.events.log import EventState, Occurrences
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import Health, step
from jaxmech.status import Status
from jaxmech.system import Params

MOST = 8  # events in a step that change the motion; each of the others occurs once between them
ACCURACY = 2e-14  # [s], of the time of an event; not below 1e-9 of the step or rounding errors
_APART = 4.0  # accuracies of the time between two occurrences of the same event
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
    events: EventState
    count: Int[Array, ""]  # events in this step so far that changed the motion
    end_q: Float[Array, " n"]  # the state at the last event, before its transition
    end_v: Float[Array, " n"]
    cut: Bool[Array, ""]  # whether the motion changed at that event
    done: Bool[Array, ""]  # whether the step is over
    dips: Dips


def through_events(
    scheme: Scheme, watch: Watch, q: Array, v: Array, t: Array, h: Array, params: Params,
    events: EventState, place: Array, dips: Dips, advance: PartialStep | None = None,
    with_qdd: bool = False,
) -> StepSearch:  # fmt: skip
    """A step from (q, v) through all events on its way; `place` is its number in the segment.

    The result has the state at its end, or at a terminal event, in `q` and `v`. `advance` makes a
    step in place of the method of the scheme; then the step ends at the first event that changes
    the motion, with the state after it. `with_qdd` evaluates accelerations for the rates of the
    functions.
    """
    by, resume = advance or partial(step, scheme), advance is None
    zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
    false, none = jnp.asarray(False), jnp.zeros((), jnp.int32)
    start = StepSearch(
        base_q=q, base_v=v, base_u=zero, q=q, v=v, values=events.values,
        health=Health(~false, none, none, ~false), low=zero, high=one, at_low=events.values,
        at_high=events.values, side=none, tries=none, u=dips.after(zero), searching=false,
        events=events,
        count=none, end_q=q, end_v=v, cut=false, done=false, dips=dips,
    )  # fmt: skip
    accuracy = _accuracy(t, h)
    tolerance = accuracy / jnp.abs(h)

    def trial(at: StepSearch) -> StepSearch:
        now = watch.params(params, at.events.active)
        from_t, to_t = t + at.base_u * h, t + at.u * h
        # From the state at which the motion last changed, and not from the last trial: each trial
        # is one step, whose error does not depend on the search.
        size = (at.u - at.base_u) * h
        q, v, health = by(at.base_q, at.base_v, from_t, size, now)
        health = replace(health, correction=None)
        values = watch.values(scheme, q, v, to_t, now)
        crossed = _crossed(watch, at, to_t, values, accuracy).any()
        inside = ~at.searching & (at.u < 1)
        past = crossed | ~health.good
        ends, stays = ~at.searching & ~crossed & (at.u >= 1), inside & ~past
        # In a direction that is ignored, or after a root that has been found already.
        passes = watch.opposite_signs(at.events.signs, values, at.events.active).any()
        passes = stays & (passes | (at.u == at.dips.stops).any())
        qdd = scheme.law(q, v, to_t, now)[1].qdd if with_qdd else None
        slopes = rates(watch, q, v, to_t, h, now, qdd)
        dips = _where(inside, at.dips.updated(at.u, values, slopes, at.events.signs), at.dips)
        moved = _narrowed(at, q, v, values, health, ends, past)
        at = replace(_where(stays, at, moved), dips=dips)
        at = _where(passes, replace(at, low=at.u, at_low=values), at)
        settled = watch.continued_signs(at.events.signs, values, at.events.active)
        may_settle = (at.events.signs != 0) | (1 - at.base_u > _SETTLING)
        signs = jnp.where((ends | passes) & may_settle, settled, at.events.signs)
        kept = jnp.where(ends, values, at.events.values)
        at = replace(at, events=replace(at.events, signs=signs, values=kept), done=at.done | ends)
        found = ~ends & ~stays & (at.high - at.low <= tolerance)
        u = _next(at, watch, t + at.high * h, accuracy, tolerance)
        at = replace(at, u=jnp.where(stays, dips.after(at.low), u))

        def occurs() -> StepSearch:
            return _occurred(scheme, watch, at, t, h, params, place, accuracy, resume)

        return jax.lax.cond(found, occurs, lambda: at)

    return jax.lax.while_loop(lambda at: ~at.done, trial, start)


def _where(when: Array, yes: StepSearch | Dips, no: StepSearch | Dips) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(when, x, y), yes, no)


def _accuracy(t: Array, h: Array) -> Array:
    """The width of the last bracket [s]."""
    eps = float(jnp.finfo(t.dtype).eps)
    # Times closer than this are the same number.
    rounding = 4 * eps * jnp.maximum(jnp.abs(t), jnp.abs(t + h))
    wanted = jnp.minimum(ACCURACY, 1e-9 * jnp.abs(h))
    return jnp.maximum(jnp.maximum(wanted, rounding), 4 * eps * jnp.abs(h))


def _crossed(
    watch: Watch, at: StepSearch, t: Array, values: Array, accuracy: Array
) -> Bool[Array, " E"]:
    """Flags of the events that occur before a time at which the functions have these values."""
    events = at.events
    # Right after an event its function is zero but for rounding errors.
    is_apart = jnp.abs(t - events.latest) > _APART * accuracy
    return is_apart & watch.crossed(events.signs, values, events.active)


def _narrowed(
    at: StepSearch, q: Array, v: Array, values: Array, health: Health, ends: Array, past: Array
) -> StepSearch:
    """Narrow the bracket after a trial."""
    up, down = ~ends & past, ~ends & ~past
    new = ends | up
    q, v, found, health = jax.tree.map(
        lambda x, y: jnp.where(new, x, y),
        (q, v, values, health),
        (at.q, at.v, at.values, at.health),
    )
    # The weight of an end that stays twice in a row is halved, so that both ends move.
    again_up, again_down = up & (at.side == 1), down & (at.side == -1)
    at_low = jnp.where(down, values, jnp.where(again_up, at.at_low / 2, at.at_low))
    at_high = jnp.where(up, values, jnp.where(again_down, at.at_high / 2, at.at_high))
    return replace(
        at, q=q, v=v, values=found, health=health, at_low=at_low, at_high=at_high,
        low=jnp.where(down, at.u, at.low),
        high=jnp.where(new, at.u, at.high),
        side=jnp.where(up, 1, jnp.where(down, -1, 0)).astype(jnp.int32),
        tries=at.tries + 1,
        searching=~ends,
    )  # fmt: skip


def _next(at: StepSearch, watch: Watch, t: Array, accuracy: Array, tolerance: Array) -> Array:
    """The end of the next trial: the first estimated root, or the middle."""
    middle = (at.low + at.high) / 2
    crossed = _crossed(watch, at, t, at.values, accuracy)
    # Unknown values, and those of the wrong sign beside an event that has just occurred, bisect.
    usable = (at.at_low * at.at_high < 0) & jnp.isfinite(at.at_low) & jnp.isfinite(at.at_high)
    share = at.at_low / jnp.where(usable, at.at_low - at.at_high, 1.0)
    roots = jnp.where(usable, at.low + (at.high - at.low) * share, middle)
    root = jnp.min(jnp.where(crossed, roots, jnp.inf))
    edge = 0.9 * tolerance
    inside = jnp.clip(root, at.low + edge, at.high - edge)
    # Every third trial bisects, so that no function can make the search longer than 3 log2 trials.
    bisect = (at.tries % 3 == 0) | ~jnp.isfinite(root) | (at.high - at.low < 2 * edge)
    return jnp.where(bisect, middle, inside)


def _occurred(
    scheme: Scheme, watch: Watch, at: StepSearch, t: Array, h: Array, params: Params,
    place: Array, accuracy: Array, resume: bool,
) -> StepSearch:  # fmt: skip
    """Process the first of the events at the end of the bracket."""
    was, to_t = at.events, t + at.high * h
    crossed = _crossed(watch, at, to_t, at.values, accuracy)
    # Of events at the same time, to within the accuracy, the first in the order of the user.
    which = jnp.argmax(crossed).astype(jnp.int32)
    cuts, terminal = watch.cuts(which), watch.stops(which)
    row = _row(watch, which, was.counts)
    q, v, values, met, active = at.q, at.v, at.values, jnp.asarray(True), was.active
    if watch.has_transitions:
        q, v, met = watch.after(scheme, which, at.q, at.v, to_t, params, was.active)
        active = watch.switched(which, was.active)
        values = watch.values(scheme, q, v, to_t, watch.params(params, active))
    # Only a transition by a function can move the state anywhere, so only then is the side
    # computed.
    side = jnp.zeros_like(was.signs)
    if any(e.transition is not None and e.transition.fn is not None for e in watch.events):
        side = watch.sides(scheme, q, v, to_t, h, watch.params(params, active))
    mine = jnp.arange(len(watch.events)) == which
    after = (q, v) if watch.has_transitions else (None, None)
    events = replace(
        was,
        signs=_signs_after(watch, was, values, which, crossed, active, side),
        values=values,
        counts=was.counts + mine,
        latest=jnp.where(mine, to_t, was.latest),
        found=was.found.with_row(row, Occurrences(to_t, at.q, at.v, *after)),
        active=active,
        stopped_by=jnp.where(terminal, which, was.stopped_by),
        smooth=jnp.where(cuts, 0, was.smooth),
        replay=was.replay.added(place, (at.high - at.base_u) * h, which, row),
    )
    # Without a crossing the bracket has closed on a step that failed.
    good, full = at.health.good & met & crossed.any(), cuts & (at.count >= MOST)
    code = jnp.where(
        at.health.good,
        jnp.where(met, jnp.asarray(Status.TOO_MANY_EVENTS), Status.NOT_ON_CONSTRAINT),
        at.health.status,
    ).astype(jnp.int32)
    good &= ~full

    def base(x: Array, y: Array) -> Array:
        return jnp.where(cuts, x, y)

    dips = at.dips.without(cuts)

    return replace(
        at,
        base_q=base(q, at.base_q), base_v=base(v, at.base_v), base_u=base(at.high, at.base_u),
        q=q, v=v, values=values,
        health=replace(at.health, good=good, status=jnp.where(good, at.health.status, code)),
        low=at.high, high=jnp.ones_like(at.high), at_low=values, at_high=values,
        side=jnp.zeros_like(at.side), tries=jnp.zeros_like(at.tries),
        u=dips.after(at.high), dips=dips, searching=jnp.zeros_like(at.searching),
        events=events, count=at.count + cuts, end_q=at.q, end_v=at.v, cut=cuts,
        done=terminal | ~good | (at.high >= 1) | (cuts & (not resume)),
    )  # fmt: skip


def _row(watch: Watch, which: Array, counts: Array) -> Array:
    """The row in which the next occurrence of an event is kept, -1 if it is not."""
    kept = jnp.asarray([event.kept for event in watch.events], jnp.int32)
    starts = jnp.asarray(watch.rows[:-1], jnp.int32)
    so_far = watch.chosen(which, counts)
    row = watch.chosen(which, starts) + so_far
    return jnp.where(so_far < watch.chosen(which, kept), row, -1).astype(jnp.int32)


def _signs_after(
    watch: Watch, was: EventState, after: Array, which: Array, crossed: Array, active: Array,
    side: Array,
) -> Array:  # fmt: skip
    """The sign of each function after one event."""
    mine = jnp.arange(len(watch.events)) == which
    passed = jnp.where(mine, -was.signs, was.signs)
    if not watch.has_transitions:
        return passed
    # After an impact the function is zero and returns to its previous sign.
    transitions = [event.transition for event in watch.events]
    rebounds = watch.flags([x is not None and x.restitution is not None for x in transitions])
    jumps = watch.flags([x is not None and x.fn is not None for x in transitions])
    own = jnp.where(rebounds, was.signs, jnp.where(jumps, side, passed))
    changes = watch.flags([e.transition is not None for e in watch.events])
    jumped = watch.continued_signs(was.signs, after, active)
    # Others that are crossed at the same time come next.
    others = jnp.where(crossed | ~watch.chosen(which, changes), was.signs, jumped)
    newly = watch.enabled(active) & ~watch.enabled(was.active)
    signs = jnp.where(mine, own, jnp.where(newly, 0, others))
    return jnp.where(watch.enabled(active), signs, 0)
