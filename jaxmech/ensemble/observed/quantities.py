"""Saved quantities of a trajectory: the series of `simulate`, and the user's own.

[observe]
height = "pendulum.py:height"                                  # at every saved time
peak = { function = "pendulum.py:height", keep = "max" }       # one number per trajectory
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.config.errors import Key, Problem, StudyError, refuse, refuse_all
from jaxmech.config.load import Found, Subject, find
from jaxmech.ensemble.statistics.custom import Reduction
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
    every: int = setting(1, "keep every so many saved times")

    def __post_init__(self) -> None:
        if self.every < 1:
            raise refuse("every", f"must be at least 1, but is {self.every}")

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
    names = {subject.source: "model.py"} if subject.source else {}
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
