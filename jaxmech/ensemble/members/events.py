"""Events of a study.

Their results are quantities, which statistics can be computed of; `name_problems_of` checks all
names of quantities.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config.errors import Problem, refuse
from jaxmech.ensemble.members.base import quantity_entries
from jaxmech.ensemble.members.observed import (
    AUDIT,
    SERIES,
    StudyEvent,
    multipliers_names,
)
from jaxmech.ensemble.statistics import FirstPassage
from jaxmech.integrate import Events, EventSet, event_set_of
from jaxmech.system import System
from jaxmech.utils.text import not_one_of

OF_ALL = ("stopped_by", "t_end", "missed_events")  # quantities of a study with events
_OF_EACH = ("count", "time", "times", "q", "v", "passed")
_STORED = ("count", "times", "q", "v")


def study_events(study: Any, system: System) -> EventSet:
    """The events of a study for `simulate`, or a StudyError."""
    entries, observe = quantity_entries(system), study.observe
    try:
        events = [item.event(name, entries, observe) for name, item in study.events.items()]
        return event_set_of(system, events, study.inactive)
    except (TypeError, ValueError) as error:
        raise refuse("events", f"cannot be used: {error}") from error


def event_quantities(events: Events, ts: Array, kept: int) -> dict[str, Array]:
    """The quantities derived from the events of one trajectory, by name.

    What controllers keep, so many numbers, is not recorded at events: NaN.
    """
    missed = sum((events[name].missed for name in events), jnp.zeros_like(events.stopped_by))
    values = {"stopped_by": events.stopped_by, "t_end": events.t_end, "missed_events": missed}
    for name in events:
        record = events[name]
        values |= {
            f"{name}_count": record.count,
            f"{name}_time": record.t[0],
            f"{name}_times": record.t,
            f"{name}_q": jnp.pad(record.q, ((0, 0), (0, kept)), constant_values=jnp.nan),
            f"{name}_v": jnp.pad(record.v, ((0, 0), (0, kept)), constant_values=jnp.nan),
            f"{name}_passed": record.t[0] <= ts,
        }
    return values


def event_names(events: Iterable[str], *, stored: bool = False) -> tuple[str, ...]:
    """The names of these quantities, or of those that are stored by default."""
    events = tuple(events)
    suffixes = _STORED if stored else _OF_EACH
    names = tuple(f"{name}_{suffix}" for name in events for suffix in suffixes)
    return (*OF_ALL, *names) if events else ()


def event_dimensions(events: Iterable[str], velocity: str) -> dict[str, tuple[str, ...]]:
    """The names of the dimensions of the stored arrays; `velocity` is that of v."""
    dims: dict[str, tuple[str, ...]] = {}
    for name in events:
        occurrence = f"{name}_occurrence"
        dims |= {f"{name}_times": (occurrence,), f"{name}_q": (occurrence, "coordinate")}
        dims |= {f"{name}_v": (occurrence, velocity), f"{name}_passed": ("time",)}
    return dims


def name_problems_of(study: Any, system: System, coordinates: Iterable[str]) -> Iterator[Problem]:
    """Quantities and events that are named twice, or not at all."""
    coordinates, observe = tuple(coordinates), study.observe
    series = (*SERIES, *AUDIT, *multipliers_names(system))
    of_events = event_names(study.events)
    for name in observe:
        if name in series or name in coordinates:
            message = "must have another name: there is a quantity of that name"
            yield Problem(("observe", name), message)
    yield from _of_events(study.events, {*series, *coordinates, *observe}, (*coordinates, *observe))
    yield from _of_statistics(study, (*series, *coordinates, *observe, *of_events))


def _of_events(
    events: Mapping[str, StudyEvent], reserved: set[str], quantities: tuple[str, ...]
) -> Iterator[Problem]:
    for name, event in events.items():
        if clashes := reserved & set(event_names([name])):
            message = f"must have another name: there is a quantity `{min(clashes)}` already"
            yield Problem(("events", name), message)
        if event.of is not None and event.of not in quantities:
            reason = not_one_of(event.of, quantities, "a coordinate or an observed quantity")
            yield Problem(("events", name, "of"), reason)


def _of_statistics(study: Any, quantities: tuple[str, ...]) -> Iterator[Problem]:
    for name, statistic in study.statistics.items():
        if isinstance(statistic, FirstPassage):
            if statistic.of not in study.events:
                message = not_one_of(statistic.of, study.events, "an event of this study")
                yield Problem(("statistics", name, "of"), message)
            continue
        for quantity in statistic.quantities:
            if quantity not in quantities:
                yield Problem(
                    ("statistics", name, "of"), not_one_of(quantity, quantities, "a quantity")
                )
