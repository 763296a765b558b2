"""The events in an accepted step, which ends at the first of them that changes the motion."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.adaptive.attempt import Attempt, Knot, attempt, knot
from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.dips import step_dips
from jaxmech.integrate.events.log import EventState, Replay
from jaxmech.integrate.events.switches import Switched
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import Health
from jaxmech.integrate.steps import Tolerance
from jaxmech.status import Status
from jaxmech.system import Params


class StepEvents(eqx.Module):
    """The events in an accepted step."""

    events: EventState  # after the step; `replay` has those of this step
    happened: Bool[Array, ""]  # whether there were any events
    cut: Bool[Array, ""]  # whether the step ends at one
    which: Int[Array, ""]  # index of that event
    row: Int[Array, ""]  # row in which it is kept, -1 if it is not
    share: Float[Array, ""]  # the fraction of the step up to it
    end: Knot  # where that part ends
    after: Knot  # from which the motion continues
    status: Int[Array, ""]  # `STOPPED` after a terminal event, or a failure


def events_in_step(
    scheme: Scheme, tolerance: Tolerance, watch: Watch, extents: Array | None, start: Knot,
    was: EventState, tried: Attempt, t: Array, h: Array, params: Params, accepted: Array,
    log: Array,
) -> tuple[StepEvents, Array]:  # fmt: skip
    """Find the events in a step from a knot, given the whole attempt; also the log with them."""
    end, none = tried.end, jnp.zeros((), jnp.int32)
    before = replace(was, replay=Replay.none(len(watch.events), t.dtype))
    ends = (start.q, start.v, t, start.qdd), (end.q, end.v, t + h, end.qdd)
    was, passed, dips, happens = step_dips(scheme, watch, before, *ends, h, params)
    plain = params.params if isinstance(params, Switched) else params

    def part(q: Array, v: Array, t: Array, h: Array, params: Params) -> Any:
        found = attempt(scheme, tolerance, start, t, h, params, extents)
        good = found.status == Status.OK
        return found.end.q, found.end.v, Health(good, found.status, found.rank, good)

    happens = (accepted & happens) | was.due
    at, log = through_events(
        scheme, watch, start.q, start.v, t, h, plain, was, none, dips, happens, log, extents, part,
        True,
    )  # fmt: skip

    def rarely() -> StepEvents:
        events, end_t = at.events, t + at.base_u * h
        before = knot(scheme, at.end_q, at.end_v, end_t, params)
        after = knot(scheme, at.q, at.v, end_t, watch.params(plain, events.active))
        _, _, which, row = events.replay.at(events.replay.count - 1)
        is_nan = at.health.good & jnp.isnan(events.values).any()
        code = jnp.where(at.health.good, int(Status.OK), at.health.status)
        code = jnp.where(is_nan, int(Status.EVENT_IS_NAN), code)
        stopped = (code == Status.OK) & (events.stopped_by >= 0)
        code = jnp.where(stopped, int(Status.STOPPED), code).astype(jnp.int32)
        ends = jax.tree.map(lambda x, y: jnp.where(at.cut, x, y), before, end)
        return StepEvents(
            events, events.replay.count > 0, at.cut, which, row, at.base_u, ends, after, code
        )

    def usually() -> StepEvents:
        events = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), passed, before)
        no, ok = jnp.asarray(False), jnp.asarray(Status.OK, jnp.int32)
        return StepEvents(events, no, no, none, none - 1, jnp.ones_like(t), end, end, ok)

    return jax.lax.cond(happens, rarely, usually), log
