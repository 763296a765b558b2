"""Thresholds of statistics that are passed between saved times, and all events of a study.

A probability or a first passage counts what happens at saved times. With `between_saves`, an event
of the quantity less its threshold finds the passages between these times.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax.numpy as jnp

from jaxmech.config.errors import Problem, refuse
from jaxmech.ensemble.members.base import quantity_entries
from jaxmech.ensemble.members.observed import SERIES, Observed, StudyEvent, composed
from jaxmech.ensemble.statistics import AbstractStatistic, FirstPassage, Probability
from jaxmech.integrate import Event, EventSet, event_set_of
from jaxmech.system import System

SAVED_ONLY = "saved ones only; between_saves = true finds passages between them"
ALL = "all, between the saved ones too"
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
