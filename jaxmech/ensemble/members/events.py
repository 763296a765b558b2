"""Events of a study: those of its configuration, and thresholds passed between saved times.

A probability or a first passage counts what happens at saved times. With `between_saves`, an event
of the quantity less its threshold finds the passages between these times. The results of events are
quantities, which statistics can be computed of; `name_problems_of` checks all names of quantities.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config.errors import Problem, refuse
from jaxmech.ensemble.members.base import quantity_entries
from jaxmech.ensemble.members.observed import (
    AUDIT,
    SERIES,
    Observed,
    StudyEvent,
    composed,
    multipliers_names,
)
from jaxmech.ensemble.statistics import AbstractStatistic, FirstPassage, Probability
from jaxmech.integrate import Event, Events, EventSet, event_set_of
from jaxmech.system import System
from jaxmech.utils.text import not_one_of

SAVED_ONLY = "saved ones only; between_saves = true finds passages between them"
ALL = "all, between the saved ones too"
OF_ALL = ("stopped_by", "t_end", "missed_events")  # quantities of a study with events
_OF_EACH = ("count", "time", "times", "q", "v", "passed")
_STORED = ("count", "times", "q", "v")
_OVER_TIME = {True: ("all", "max", "largest"), False: ("all", "min")}  # by whether it is `above`


def study_events(study: Any, system: System) -> EventSet:
    """The events of a study for `simulate`, or a StudyError."""
    entries, observe = quantity_entries(system), study.observe
    sought = [item for item in study.statistics.values() if item.passage is not None]
    try:
        events = [item.event(name, entries, observe) for name, item in study.events.items()]
        # Statistics of the same threshold share an event.
        events += {item.passage: _passage(item, entries, observe) for item in sought}.values()
        return event_set_of(system, events, study.inactive)
    except (TypeError, ValueError) as error:
        raise refuse("events", f"cannot be used: {error}") from error


def _passage(
    statistic: Any, entries: Mapping[str, tuple[str, int]], observe: Mapping[str, Observed]
) -> Event:
    is_above = statistic.below is None
    event = StudyEvent(
        of=statistic.of, level=statistic.level, direction=1 if is_above else -1, keep=1
    )
    quantity = observe.get(statistic.of)
    if quantity is not None:
        extreme = jnp.max if is_above else jnp.min  # the component that is beyond first
        observe = {statistic.of: Observed(composed(extreme, quantity.size))}
    return event.event(statistic.passage, entries, observe)


def passage_problems(study: Any, coordinates: Collection[str]) -> Iterator[Problem]:
    """Statistics that seek passages of a quantity without a value between the saved times."""
    for name, statistic in study.statistics.items():
        if statistic.passage is None:
            continue
        key = ("statistics", name, "between_saves")
        quantity = study.observe.get(statistic.of)
        allowed = _OVER_TIME[statistic.below is None]
        if quantity is not None and quantity.keep not in allowed:
            side = "above" if statistic.below is None else "below"
            message = (
                f"must be false where {statistic.of} has keep = {quantity.keep!r}; passages of a"
            )
            choices = " or ".join(map(repr, allowed))
            yield Problem(key, f"{message} threshold `{side}` are those of keep = {choices}")
        elif quantity is None and statistic.of not in coordinates:
            message = "must be false unless `of` names a coordinate or an observed quantity"
            yield Problem(key, f"{message}, but {statistic.of} is neither")


def counted_times(
    statistic: AbstractStatistic, study: Any, coordinates: Collection[str]
) -> str | None:
    """The times at which a statistic counts passages; None if they do not matter to it."""
    if statistic.of_event is not None or not isinstance(statistic, Probability | FirstPassage):
        return None
    if statistic.passage is not None:
        return ALL
    quantity = study.observe.get(statistic.of)
    if quantity is None:
        return SAVED_ONLY if statistic.of in (*SERIES, *coordinates) else None
    return SAVED_ONLY if quantity.keep in _OVER_TIME[statistic.below is None] else None


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
    coordinates, observe, store = tuple(coordinates), study.observe, study.store
    series = (*SERIES, *AUDIT, *multipliers_names(system))
    of_events = event_names(study.events)
    for name in observe:
        if name in series or name in coordinates:
            message = "must have another name: there is a quantity of that name"
            yield Problem(("observe", name), message)
    yield from _of_events(study.events, {*series, *coordinates, *observe}, (*coordinates, *observe))
    yield from _of_statistics(study, (*series, *coordinates, *observe, *of_events))
    stored = (*SERIES, *multipliers_names(system), *observe, *of_events)
    for entry, name in enumerate(() if isinstance(store, str) else store):
        if name not in stored:
            yield Problem((f"store[{entry}]",), not_one_of(name, stored, "a quantity to store"))


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
        if statistic.of_event is not None:
            if statistic.of_event not in study.events:
                kind = "an event of this study, where neither `above` nor `below` is given"
                message = not_one_of(statistic.of_event, study.events, kind)
                yield Problem(("statistics", name, "of"), message)
            continue
        for quantity in statistic.quantities:
            if quantity not in quantities:
                yield Problem(
                    ("statistics", name, "of"), not_one_of(quantity, quantities, "a quantity")
                )
