"""Names of quantities that are given twice, or that nothing has."""

from collections.abc import Iterable, Iterator
from typing import Any

from jaxmech.config.errors import Problem, not_one_of
from jaxmech.ensemble.observed.events import event_names, event_problems
from jaxmech.ensemble.observed.quantities import AUDIT, SERIES


def name_problems_of(study: Any, coordinates: Iterable[str]) -> list[Problem]:
    """Quantities and events that are named twice, or not at all."""
    coordinates, observe, store = tuple(coordinates), study.observe, study.store
    own = (*SERIES, *AUDIT)
    problems = [
        Problem(("observe", name), "must have another name: there is a quantity of that name")
        for name in observe
        if name in own or name in coordinates
    ]
    problems += event_problems(study.events, observe, own, coordinates)
    of_events = event_names(study.events)
    known = (*own, *coordinates, *observe, *of_events)
    problems += _of_statistics(study, known)
    if not isinstance(store, str):
        stored = (*SERIES, *observe, *of_events)
        problems += [
            Problem((f"store[{place}]",), not_one_of(name, stored, "a quantity to store"))
            for place, name in enumerate(store)
            if name not in stored
        ]
    return problems


def _of_statistics(study: Any, known: tuple[str, ...]) -> Iterator[Problem]:
    for name, one in study.statistics.items():
        if one.of_event is not None:
            if one.of_event not in study.events:
                what = "an event of this study, where neither `above` nor `below` is given"
                text = not_one_of(one.of_event, study.events, what)
                yield Problem(("statistics", name, "of"), text)
            continue
        for of in one.names:
            if of not in known and not of.startswith("multipliers_"):
                yield Problem(("statistics", name, "of"), not_one_of(of, known, "a quantity"))
