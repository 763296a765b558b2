"""Observations of a trajectory: the series of `simulate`, quantities of the user's own, events.

[observe]
height = "pendulum.py:height"                                  # at every saved time
peak = { function = "pendulum.py:height", keep = "max" }       # one number per trajectory
[events]
lands = { function = "ball.py:height", direction = -1, terminal = true }
fast = { of = "speed", level = 6.0, direction = 1 }      # an observed quantity, or a coordinate
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config.errors import (
    Key,
    Problem,
    StudyError,
    not_one_of,
    out_of_range,
    refuse,
    refuse_all,
)
from jaxmech.config.load import Found, Subject, copy_of, find
from jaxmech.ensemble.statistics.custom import Reduction
from jaxmech.integrate import Event, Events, Transition
from jaxmech.utils.field_docs import doc, setting

Keep = Literal["all", "final", "max", "min", "mean", "largest"]
Series = Literal[
    "q", "v", "energy", "position_residual", "velocity_residual", "qdd", "multipliers",
    "constraint_force",
]  # fmt: skip
SERIES = get_args(Series)
AUDIT = (
    "status", "t_failed", "rank", "energy_drift", "integration_error", "worst_position_residual",
    "worst_velocity_residual",
)  # fmt: skip
OF_ALL = ("stopped_by", "t_end")  # quantities of a study with events
_OF_EACH = ("count", "time", "times", "q", "v", "passed")
_STORED = ("count", "times", "q", "v")
_FUNCTION: Any = Callable
_NAMES_OF_FUNCTIONS = {  # fields of the settings of a study
    "observe": ("function",), "statistics": ("functions",), "events": ("function", "jump"),
}  # fmt: skip
_KEPT: dict[str, Callable[[Array], Array]] = {
    "final": lambda x: x[-1],
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "mean": lambda x: x.mean(0),
    "largest": lambda x: jnp.abs(x).max(0),
}


@dataclass(frozen=True)
class Observed:
    """A quantity of the motion: a function of q, v, t and params, at every saved time.

    The function is `fn(q, v, t, params)` with q and v of shape (n,), or `fn(q, v, t, params,
    reactions)`, where reactions are the `Observation` of `jaxmech.observe` at that time; it returns
    an array of fixed shape. In a file it is named "path/file.py:name", seen from its folder. With
    `keep` there is one value per trajectory; "largest" is that of the absolute value.

    Example:
        >>> height = Observed(lambda q, v, t, params: q[1], keep="max")
        >>> q = v = jnp.array([[0.0, 1.0], [0.0, 3.0]])
        >>> print(height.along(q, v, jnp.array([0.0, 1.0]), {}, None))
        3.0
    """

    function: str | Callable[..., Any] = field(
        metadata=doc('"path/file.py:name" of a function of q, v, t, params', short=True)
    )
    keep: Keep = setting("all", "saved times, or one value of them")
    every: int = setting(1, "keep every so many saved times", least=1)

    def __post_init__(self) -> None:
        refuse_all(out_of_range(self))

    @property
    def needs_reactions(self) -> bool:
        """Whether the function has an argument for reactions."""
        return callable(self.function) and len(inspect.signature(self.function).parameters) > 4

    def at(self, q: Array, v: Array, t: Array, params: Any, seen: Any) -> Array:
        """Evaluate the quantity at one state."""
        assert callable(self.function)
        more = (seen,) if self.needs_reactions else ()
        return jnp.asarray(self.function(q, v, t, params, *more))

    def along(self, q: Array, v: Array, ts: Array, params: Any, seen: Any) -> Array:
        """The quantity of one trajectory, shape (T, ...) or (...)."""
        q, v, ts, seen = jax.tree.map(lambda x: x[:: self.every], (q, v, ts, seen))
        values = jax.vmap(lambda q, v, t, seen: self.at(q, v, t, params, seen))(q, v, ts, seen)
        if self.keep == "all":
            return values
        return _KEPT[self.keep](values)


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
    keep: int = setting(8, "number of occurrences whose times and states are stored", least=1)

    def __post_init__(self) -> None:
        if (self.function is None) == (self.of is None):
            what = "neither is" if self.of is None else "both are"
            raise refuse("function", f"or `of` must be given, one of the two, but {what}")
        if self.direction not in (-1, 0, 1):
            raise refuse("direction", f"must be -1, 0 or 1, but is {self.direction}")
        refuse_all(out_of_range(self))

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
            place = coordinates.index(of)  # states follow the coordinates, and are the last of v
            last = place - len(coordinates)
            return lambda q, v, t, p: (q[place] if place < q.size else v[last]) - level
        own = self.function if of is None else observe[of].function
        assert callable(own)
        if of is None and not level:
            return own
        if Observed(own).needs_reactions:
            return lambda q, v, t, p, reactions: own(q, v, t, p, reactions) - level
        return lambda q, v, t, p: own(q, v, t, p) - level


def loaded(study: Any, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """Load the functions of quantities, statistics and events; also their files."""
    problems: list[Problem] = []
    files: list[Path] = []

    def get(named: Any, key: Key) -> Any:
        if not isinstance(named, str):
            return named
        try:
            found = _found(named, folder, is_reduction=key[0] == "statistics")
        except StudyError as error:
            problems.extend(Problem(key, p.message) for p in error.problems)
            return named
        files.append(found.path)
        return found.found

    named = _with_functions(study, get)
    for name, quantity in named["observe"].items():
        problems += _signature_problems(name, quantity)
    refuse_all(problems)
    return named, files


def _with_functions(study: Any, get: Callable[[Any, Key], Any]) -> dict[str, Any]:
    """Replace the names of functions in quantities, statistics and events by `get`."""
    found: dict[str, Any] = {}
    for section, fields in _NAMES_OF_FUNCTIONS.items():
        found[section] = dict(getattr(study, section))
        for name, one in found[section].items():
            named = {f: getattr(one, f) for f in fields if hasattr(one, f)}
            own = {f: get(given, (section, name, f)) for f, given in named.items()}
            found[section][name] = replace(one, **own)
    return found


def _found(named: str, folder: Path, *, is_reduction: bool) -> Found:
    if named.startswith("python:"):
        raise refuse(
            "function", f"must name a function in a file, but {named} was passed as an object"
        )
    found = find(named, {}, folder, (Reduction, _FUNCTION) if is_reduction else (_FUNCTION,))
    if is_reduction and not isinstance(found.found, Reduction):
        kind = type(found.found).__name__
        raise refuse("function", f"must name a jaxmech.ensemble.Reduction, but {named} is a {kind}")
    return found


def _signature_problems(name: str, quantity: Observed) -> Iterator[Problem]:
    if not callable(quantity.function):
        yield Problem(("observe", name, "function"), "must name a function of q, v, t, params")
        return
    count = len(inspect.signature(quantity.function).parameters)
    if count not in (4, 5):
        text = "must name a function of q, v, t, params, or of these and reactions, but it takes "
        yield Problem(("observe", name, "function"), f"{text}{count} arguments")


def copies_of(files: Iterable[Path], subject: Subject) -> dict[Path, str]:
    """The Python files of a study, with the names of their copies in a run folder."""
    copy, _ = copy_of(subject.name, subject.source)
    names = {subject.source: copy} if subject.source else {}
    for path in files:
        if path not in names:
            name, count = path.name, 1
            while name in {"model.py", *names.values()}:
                name, count = f"{path.stem}_{count}.py", count + 1
            names[path] = name
    return names


def stored_study(study: Any, copies: Mapping[Path, str], folder: Path) -> Any:
    """A study whose functions are named by the copies of their files."""

    def renamed(named: Any, key: Key) -> Any:
        if not isinstance(named, str) or named.startswith("python:"):
            return named
        file, _, name = named.rpartition(":")
        return f"{copies[(folder / file).resolve()]}:{name}"

    return replace(study, **_with_functions(study, renamed))


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
        for of in one.quantities:
            if of not in known and not of.startswith("multipliers_"):
                yield Problem(("statistics", name, "of"), not_one_of(of, known, "a quantity"))
