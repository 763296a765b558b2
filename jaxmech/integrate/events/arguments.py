"""The events of a run, from the arguments of `simulate` and the gaps of its system."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxmech.integrate.events.event import Event, names_of
from jaxmech.integrate.events.event_set import NO_EVENTS, EventSet
from jaxmech.integrate.events.gaps import Gaps
from jaxmech.integrate.events.rounding import ROUNDINGS
from jaxmech.system import Params, System
from jaxmech.utils.caller import warn_caller
from jaxmech.utils.precision import USE_FLOAT64, PrecisionWarning
from jaxmech.utils.tracers import actual


def _positive(q: Array, v: Array, t: Array, params: Params) -> float:
    return 1.0


def with_gaps(event_set: EventSet, system: System, q: Array, ts: Array, params: Params) -> EventSet:
    """The events of a run with those of the gaps of its system.

    Its functions tell at the initial state how many gaps there are.
    """
    if not (event_set or system.unilateral):
        return event_set  # and no program for ts[0]
    _warn_of_rounded_times(ts)
    gaps = Gaps.of(system, q, ts[0], params)
    events = (*event_set.events, *gaps.events)
    _require_names(events)
    return replace(event_set, events=events, gaps=gaps)


def _warn_of_rounded_times(ts: Array) -> None:
    """Warn if times so far from zero are rounded that events cannot be located in the motion."""
    values = actual(ts, 1)
    if values is None or not values.size:
        return
    eps = float(np.finfo(values.dtype).eps)
    largest, duration = np.abs(values).max(), np.ptp(values)
    rounding = ROUNDINGS * eps * largest
    if 0 < max(1e-6, 1000 * eps) * duration < rounding:
        warn_caller(
            f"times near {largest:g} s are rounded in {values.dtype}, so events are located to "
            f"{rounding:.1g} s only, and their states likewise; subtract the first time from all "
            f"times, or {USE_FLOAT64}.",
            PrecisionWarning,
        )


def event_set_of(system: System, events: Any, inactive: Any) -> EventSet:
    """The checked and named events of a run."""
    events_given = (
        (events,) if isinstance(events, Event) or not isinstance(events, Iterable) else events
    )
    named_events = tuple(_named(event, k) for k, event in enumerate(events_given, start=1))
    names_off = names_of("inactive", inactive)
    if not (named_events or names_off):
        return NO_EVENTS
    _require_names(named_events)
    _require_constraints(system, "Argument `inactive`", names_off)
    if not (named_events or system.unilateral):
        # Switches are those of events: one that never occurs.
        named_events = (Event(_positive, name="never"),)
    for event in named_events:
        if event.transition is not None:
            subject = f"The transition of event {event.name!r}"
            _require_constraints(system, subject, event.transition.switches)
    return EventSet(named_events, names_off)


def _require_names(events: Sequence[Event]) -> None:
    names = [event.name for event in events]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"Argument `events` must have distinct names, but {name!r} is given twice."
            )


def _named(event: Any, number: int) -> Event:
    if not isinstance(event, Event):
        raise TypeError(
            f"Argument `events` must hold Event objects, but holds {event!r}; wrap the function, "
            "for example Event(fn, name=...)."
        )
    if event.name:
        return event
    name = getattr(event.fn, "__name__", "<lambda>")
    return replace(event, name=f"event{number}" if name == "<lambda>" else name)


def _require_constraints(system: System, subject: str, names: tuple[str, ...]) -> None:
    parts = [*system.constraints, *system.unilateral]
    names_of_system = [part.name for part in parts]
    for name in names:
        if name not in names_of_system:
            known_names = ", ".join(names_of_system) or "none"
            raise ValueError(
                f"{subject} must name constraints of the system, but names {name!r}. "
                f"Its constraints: {known_names}."
            )
