"""Events of a study, and the quantities derived from them.

[events]
lands = { function = "ball.py:height", direction = -1, terminal = true }
fast = { of = "speed", level = 6.0, direction = 1 }      # an observed quantity, or a coordinate
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array

from jaxmech.config.errors import Problem, not_one_of, refuse
from jaxmech.ensemble.observed.quantities import AUDIT, SERIES, Observed
from jaxmech.integrate import Event, Events, Transition, Watch, watch_of
from jaxmech.system import System
from jaxmech.utils.field_docs import setting

OF_ALL = ("stopped_by", "t_end")  # quantities of a study with events
_OF_EACH = ("count", "time", "times", "q", "v", "passed")
_STORED = ("count", "times", "q", "v")


@dataclass(frozen=True)
class StudyEvent:
    """An event of a study: something goes through zero, or through a level.

    Functions are `fn(q, v, t, params)`, and the one that goes through zero may have a fifth
    argument for reactions, as in `jaxmech.Event`; in a file they are named "path/file.py:name".

    Example:
        >>> StudyEvent(of="x", level=2.0).event("far", ("x", "y"), {})
        Event('far')
    """

    function: str | Callable[..., Any] | None = setting(
        None, '"path/file.py:name" of a function of q, v, t, params', short=True
    )
    of: str | None = setting(None, "a coordinate or an observed quantity, in place of `function`")
    level: float = setting(0.0, "value that it crosses")
    direction: int = setting(0, "1 for rising only, -1 for falling only, 0 for both")
    terminal: bool = setting(False, "whether the trajectory ends there")
    jump: str | Callable[..., Any] | None = setting(
        None, '"path/file.py:name" of a function that gives the new q and v'
    )
    restitution: float | str | None = setting(
        None, "of an impact: a number, or the name of a parameter"
    )
    on: tuple[str, ...] = setting((), "constraints that are switched on")
    off: tuple[str, ...] = setting((), "constraints that are switched off")
    keep: int = setting(8, "number of occurrences whose times and states are stored")

    def __post_init__(self) -> None:
        if (self.function is None) == (self.of is None):
            what = "neither is" if self.of is None else "both are"
            raise refuse("function", f"or `of` must be given, one of the two, but {what}")
        if self.direction not in (-1, 0, 1):
            raise refuse("direction", f"must be -1, 0 or 1, but is {self.direction}")
        if self.keep < 1:
            raise refuse("keep", f"must be at least 1, but is {self.keep}")

    def event(
        self, name: str, coordinates: tuple[str, ...], observe: Mapping[str, Observed]
    ) -> Event:
        """The event, with functions in place of names."""
        e, jump = self.restitution, self.jump
        transition = None
        if callable(jump) or e is not None or self.on or self.off:
            factor = (lambda p: p[e]) if isinstance(e, str) else e
            transition = Transition(jump if callable(jump) else None, factor, self.on, self.off)
        return Event(
            self._function(coordinates, observe),
            direction=self.direction,
            terminal=self.terminal,
            transition=transition,
            name=name,
            keep=self.keep,
        )

    def _function(
        self, coordinates: tuple[str, ...], observe: Mapping[str, Observed]
    ) -> Callable[..., Any]:
        of, level = self.of, self.level
        if of is not None and of in coordinates:
            place = coordinates.index(of)
            return lambda q, v, t, p: q[place] - level
        own = self.function if of is None else observe[of].function
        assert callable(own)
        if of is None and not level:
            return own
        if Observed(own).needs_reactions:
            return lambda q, v, t, p, reactions: own(q, v, t, p, reactions) - level
        return lambda q, v, t, p: own(q, v, t, p) - level


def study_watch(study: Any, system: System) -> Watch | None:
    """The events of a study for `simulate`, or a StudyError."""
    coordinates = tuple(system.coordinates)
    try:
        made = [one.event(name, coordinates, study.observe) for name, one in study.events.items()]
        return watch_of(system, made, study.inactive)
    except (TypeError, ValueError) as error:
        raise refuse("events", f"cannot be used: {error}") from error


def event_quantities(found: Events, ts: Array) -> dict[str, Array]:
    """The quantities derived from the events of one trajectory, by name."""
    values = {"stopped_by": found.stopped_by, "t_end": found.t_end}
    for name in found:
        record = found[name]
        values |= {
            f"{name}_count": record.count,
            f"{name}_time": record.t[0],
            f"{name}_times": record.t,
            f"{name}_q": record.q,
            f"{name}_v": record.v,
            f"{name}_passed": record.t[0] <= ts,
        }
    return values


def event_names(events: Iterable[str], *, stored: bool = False) -> tuple[str, ...]:
    """The names of these quantities, or of those that are stored by default."""
    events = tuple(events)
    each = _STORED if stored else _OF_EACH
    own = tuple(f"{name}_{what}" for name in events for what in each)
    return (*OF_ALL, *own) if events else ()


def event_dimensions(events: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of the dimensions of the stored arrays."""
    dims: dict[str, tuple[str, ...]] = {}
    for name in events:
        each = f"{name}_occurrence"
        dims |= {f"{name}_times": (each,), f"{name}_q": (each, "coordinate")}
        dims |= {f"{name}_v": (each, "coordinate"), f"{name}_passed": ("time",)}
    return dims


def name_problems_of(study: Any, coordinates: Iterable[str]) -> Iterator[Problem]:
    """Quantities and events that are named twice, or not at all."""
    coordinates, observe, store = tuple(coordinates), study.observe, study.store
    own, of_events = (*SERIES, *AUDIT), event_names(study.events)
    for name in observe:
        if name in own or name in coordinates:
            text = "must have another name: there is a quantity of that name"
            yield Problem(("observe", name), text)
    yield from _of_events(study.events, {*own, *coordinates, *observe}, (*coordinates, *observe))
    yield from _of_statistics(study, (*own, *coordinates, *observe, *of_events))
    stored = (*SERIES, *observe, *of_events)
    for place, name in enumerate(() if isinstance(store, str) else store):
        if name not in stored:
            yield Problem((f"store[{place}]",), not_one_of(name, stored, "a quantity to store"))


def _of_events(
    events: Mapping[str, StudyEvent], taken: set[str], known: tuple[str, ...]
) -> Iterator[Problem]:
    """Events whose quantities have names that are taken, or that refer to no known quantity."""
    for name, one in events.items():
        if both := taken & set(event_names([name])):
            text = f"must have another name: there is a quantity `{min(both)}` already"
            yield Problem(("events", name), text)
        if one.of is not None and one.of not in known:
            what = not_one_of(one.of, known, "a coordinate or an observed quantity")
            yield Problem(("events", name, "of"), what)


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
