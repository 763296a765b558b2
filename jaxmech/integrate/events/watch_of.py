"""`watch_of`: check and name the events that a user passes."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from jaxmech.integrate.events.event import Event
from jaxmech.integrate.events.transition import names_of
from jaxmech.integrate.events.watch import Watch
from jaxmech.system import System


def watch_of(system: System, events: Any, inactive: Any) -> Watch | None:
    """Make the watch of a run; None if there are no events and no constraint is off.

    Raises:
        TypeError: `events` has an entry of another type.
        ValueError: a name is used twice, or is not that of a constraint.
    """
    given = (events,) if isinstance(events, Event) or not isinstance(events, Iterable) else events
    named = tuple(_named(event, k) for k, event in enumerate(given, start=1))
    off = names_of("inactive", inactive)
    if not named:
        if off:
            raise ValueError(
                "Argument `inactive` must be empty where no event switches a constraint on, but "
                f"names {off[0]!r}; leave that constraint out of the system."
            )
        return None
    names = [event.name for event in named]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"Argument `events` must have distinct names, but {name!r} is given twice."
            )
    _require_constraints(system, "inactive", off)
    for event in named:
        if event.transition is not None:
            what = f"transition of event {event.name!r}"
            _require_constraints(system, what, event.transition.switches)
    return Watch(named, off)


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


def _require_constraints(system: System, argument: str, names: tuple[str, ...]) -> None:
    known = [constraint.name for constraint in system.constraints]
    for name in names:
        if name not in known:
            there = ", ".join(known) or "none"
            raise ValueError(
                f"Argument `{argument}` must name constraints of the system, but {name!r} is none "
                f"of them; there are {there}."
            )
