"""Observations of a trajectory: the series of `simulate`, quantities of the user's own, events.

[observe]
height = { function = "pendulum.py:height", unit = "m" }       # at every saved time
peak = { function = "pendulum.py:height", keep = "max" }       # one number per trajectory
[events]
lands = { function = "ball.py:height", direction = -1, terminal = true }
fast = { of = "speed", level = 6.0, direction = 1 }      # an observed quantity, or a coordinate
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config import Subject, TextOrTable, copy_of, find, named_copy
from jaxmech.config.errors import Key, Problem, StudyError, out_of_range, refuse, refuse_all
from jaxmech.control import MEMORY
from jaxmech.ensemble.draws.inputs import RecordedInput
from jaxmech.ensemble.statistics.protocol import Reduction
from jaxmech.integrate import Event, Transition
from jaxmech.system import System
from jaxmech.utils.checks import argument_count
from jaxmech.utils.text import doc, setting

Keep = Literal["all", "final", "max", "min", "mean", "largest"]
Series = Literal[
    "q", "v", "energy", "position_residual", "velocity_residual", "qdd", "multipliers",
    "constraint_force", "rates",
]  # fmt: skip
SERIES = get_args(Series)
_FUNCTION: Any = Callable
_NAMES_OF_FUNCTIONS = {  # fields of the settings of a study
    "observe": ("function",), "statistics": ("functions",), "events": ("function", "jump"),
}  # fmt: skip
_SEPARATORS = "/\\"  # of a path, which would make an array of an array
_LONGEST = 200  # bytes; file systems allow 255, some of which endings such as "_count" need
_RESERVED = ("", ".", "..", "zarr.json")
_KEPT: dict[str, Callable[[Array], Array]] = {
    "final": lambda x: x[-1],
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
    "mean": lambda x: x.mean(0),
    "largest": lambda x: jnp.abs(x).max(0),
}


@dataclass(frozen=True)
class Observed(TextOrTable):
    """A quantity of the motion: a function of q, v, t and params, at every saved time.

    The function is `fn(q, v, t, params)` with q and v of shape (n,), or `fn(q, v, t, params,
    reactions)`, where reactions are the `Observation` of `observe` at that time; it returns
    an array of fixed shape. In a file it is named "path/file.py:name", seen from its folder. With
    `keep` there is one value per trajectory; "largest" is that of the absolute value.
    """

    function: str | Callable[..., Any] = field(
        metadata=doc('"path/file.py:name" of a function of q, v, t, params', short=True)
    )
    keep: Keep = setting("all", "saved times, or one value of them")
    unit: str | None = setting(None, "unit of its values, such as m/s, which results show")

    @property
    def needs_reactions(self) -> bool:
        """Whether the function has an argument for reactions."""
        return callable(self.function) and argument_count(self.function) == 5

    @property
    def size(self) -> Callable[..., Any]:
        """The function at a state: its absolute value where the largest one is kept."""
        assert callable(self.function)
        return composed(jnp.abs, self.function) if self.keep == "largest" else self.function

    def at(self, q: Array, v: Array, t: Array, params: Any, reactions: Any) -> Array:
        """Evaluate the quantity at one state."""
        assert callable(self.function)
        arguments = (reactions,) if self.needs_reactions else ()
        return jnp.asarray(self.function(q, v, t, params, *arguments))

    def along(
        self, system: System, states: tuple[Array, Array, Array, Array], params: Any, reactions: Any
    ) -> Array:
        """The quantity along one trajectory of q, v, memory and ts, shape (T, ...) or (...)."""

        def at_save(q: Array, v: Array, memory: Array, t: Array, reactions: Any) -> Array:
            return self.at(q, v, t, system.with_outputs(params, memory), reactions)

        values = jax.vmap(at_save)(*states, reactions)
        if self.keep == "all":
            return values
        return _KEPT[self.keep](values)


@dataclass(frozen=True)
class StudyEvent(TextOrTable):
    """An event of a study: something goes through zero, or through a level.

    Functions are `fn(q, v, t, params)`, and the one that goes through zero may have a fifth
    argument for reactions, as in `jaxmech.Event`; in a file they are named "path/file.py:name".
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
            condition = "neither is" if self.of is None else "both are"
            raise refuse("function", f"or `of` must be given, one of the two, but {condition}")
        if self.direction not in (-1, 0, 1):
            raise refuse("direction", f"must be -1, 0 or 1, but is {self.direction}")
        refuse_all(out_of_range(self))

    def event(
        self, name: str, entries: Mapping[str, tuple[str, int]], observe: Mapping[str, Observed]
    ) -> Event:
        """The event, with functions in place of names, of which some are entries of q and v."""
        e, jump = self.restitution, self.jump
        transition = None
        if callable(jump) or e is not None or self.on or self.off:
            factor = (lambda p: p[e]) if isinstance(e, str) else e
            transition = Transition(jump if callable(jump) else None, factor, self.on, self.off)
        quantity, level = self.of, self.level
        fn: Any = self.function
        if quantity is not None and quantity in entries:
            array, k = entries[quantity]
            arrays: Any = {"q": lambda q, v, p: q, "v": lambda q, v, p: v}
            read = arrays.get(array, lambda q, v, p: p[MEMORY])
            fn = lambda q, v, t, p: read(q, v, p)[k] - level  # noqa: E731
        elif quantity is not None or level:
            size = fn if quantity is None else observe[quantity].size
            fn = composed(lambda value: value - level, size)
        return Event(
            fn, direction=self.direction, terminal=self.terminal, transition=transition, name=name,
            keep=self.keep,
        )  # fmt: skip


def composed(outer: Callable[[Any], Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function outer(fn(...)), with the arguments of `fn`, which say what it needs."""

    @wraps(fn)
    def composition(*arguments: Any) -> Any:
        return outer(fn(*arguments))

    return composition


def loaded(study: Any, folder: Path) -> tuple[Any, list[Path]]:
    """The study with its functions in place of their names, and their files."""
    problems: list[Problem] = []
    files: list[Path] = []

    def get(reference: Any, key: Key) -> Any:
        value, is_reduction = reference, key[0] == "statistics"
        if isinstance(reference, str):
            kinds = (Reduction, _FUNCTION) if is_reduction else (_FUNCTION,)
            try:
                source = find(reference, {}, folder, kinds)
            except StudyError as error:
                problems.extend(Problem(key, p.message) for p in error.problems)
                return reference
            files.append(source.path)
            value = source.value
        count = argument_count(value) if callable(value) else 0
        if is_reduction and not isinstance(value, Reduction):
            kind = type(value).__name__
            message = f"must name a jaxmech.ensemble.Reduction, but {reference} is a {kind}"
            problems.append(Problem(key, message))
        elif key[0] == "observe" and count not in (4, 5):
            message = "must name a function of q, v, t, params, or of these and reactions, but it "
            problems.append(Problem(key, f"{message}takes {count} arguments"))
        return value

    sections = _with_functions(study, get)
    refuse_all(problems)
    return replace(study, **sections), files


def _with_functions(study: Any, get: Callable[[Any, Key], Any]) -> dict[str, Any]:
    """Replace the names of functions in quantities, statistics and events by `get`."""
    sections: dict[str, Any] = {}
    for section, fields in _NAMES_OF_FUNCTIONS.items():
        sections[section] = dict(getattr(study, section))
        for name, table in sections[section].items():
            names = {f: getattr(table, f) for f in fields if hasattr(table, f)}
            functions = {
                f: get(function_name, (section, name, f)) for f, function_name in names.items()
            }
            sections[section][name] = replace(table, **functions)
    return sections


def stored_study(study: Any, subject: Subject, copies: Mapping[Path, str], folder: Path) -> Any:
    """A study whose model, functions and inputs are named by the copies of their files."""

    def renamed(reference: Any, key: Key) -> Any:
        if not isinstance(reference, str) or reference.startswith("python:"):
            return reference
        return named_copy(reference, copies, folder)

    sections = _with_functions(study, renamed)
    sections["controllers"] = tuple(renamed(name, ("controllers",)) for name in study.controllers)
    sections["inputs"] = {
        name: replace(item, file=copies[(folder / item.file).resolve()])
        if isinstance(item, RecordedInput)
        else item
        for name, item in study.inputs.items()
    }
    if subject.source:
        sections["model"] = copy_of(subject.name, subject.source)[1]
    return replace(study, **sections)


def name_problem(name: str) -> str:
    r"""What is wrong with a name that a study gives to an array, empty if nothing is."""
    if name in _RESERVED or name.startswith("__"):
        return 'must be another name: "", ".", "..", "zarr.json" and "__..." are reserved'
    if not name.isprintable() or any(separator in name for separator in _SEPARATORS):
        return "must be a name without /, \\ and control characters, since it is that of a file"
    if len(name.encode()) > _LONGEST:
        return f"must be a name of at most {_LONGEST} bytes, since it is that of a file"
    return ""


def array_name(name: str) -> str:
    """The name of the array of a quantity that a model names, with points in place of slashes."""
    return "".join("." if character in _SEPARATORS else character for character in name)
