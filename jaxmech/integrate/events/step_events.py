"""The events in a step of fixed size."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.events.crossing import through_events
from jaxmech.integrate.events.dips import step_dips
from jaxmech.integrate.events.log import EventState
from jaxmech.integrate.events.watch import Watch
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.step import Health
from jaxmech.status import Status
from jaxmech.system import Params

Moved = tuple[Array, Array, Health]  # q, v and checks after a step
MovedWithEvents = tuple[Array, Array, Health, Array, EventState]  # also its end [s] and the events


def with_events(
    scheme: Scheme, watch: Watch, start: tuple[Array, Array], moved: Moved, running: Array,
    was: EventState, log: Array, t: Array, h: Array, params: Params, place: Array,
    extents: Float[Array, " n"] | None,
) -> tuple[MovedWithEvents, Array]:  # fmt: skip
    """The result of a step with its events, from the one without, and the log with them.

    `start` are q and v before the step, `place` is its number in the segment.
    """
    (q, v, health), now = moved, watch.params(params, was.active)
    ends = (*start, t, None), (q, v, t + h, None)
    was, passed, dips, happens = step_dips(scheme, watch, was, *ends, h, now)
    # The step that an event at its start makes void may fail.
    happens = running & (health.good | was.due) & happens
    at, log = through_events(
        scheme, watch, *start, t, h, params, was, place, dips, happens, log, extents
    )

    def rarely() -> MovedWithEvents:
        is_nan = at.health.good & jnp.isnan(at.events.values).any()
        status = jnp.where(is_nan, jnp.asarray(Status.EVENT_IS_NAN, jnp.int32), at.health.status)
        found = replace(at.health, good=at.health.good & ~is_nan, status=status)
        end = jnp.where(at.events.stopped_by >= 0, t + at.high * h, t + h)
        return at.q, at.v, found, end, replace(at.events, smooth=at.events.smooth + 1)

    def usually() -> MovedWithEvents:
        return q, v, health, t + h, replace(passed, smooth=was.smooth + 1)

    return jax.lax.cond(happens, rarely, usually), log
