"""The keys of a benchmark's configuration, as frozen dataclasses for `jaxmech.config.toml.read`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from experiments.speed.cases import NAMES, is_name
from experiments.speed.routes import ROUTES
from jaxmech.config.errors import Problem, StudyError, not_one_of

Precision = Literal["float64", "float32"]
RouteName = Literal[*ROUTES]  # type: ignore[valid-type]


def _count(name: str, value: int) -> Iterator[Problem]:
    least = 0 if name == "seed" else 1
    if value < least:
        yield Problem((name,), f"must be at least {least}, but is {value}")


def _counts(name: str, values: tuple[int, ...]) -> Iterator[Problem]:
    if not values:
        yield Problem((name,), "must not be empty")
    for k, value in enumerate(values):
        yield from _count(f"{name}[{k}]", value)


def _positive(name: str, value: float) -> Iterator[Problem]:
    if not value > 0:
        yield Problem((name,), f"must be positive, but is {value:g}")


def _different(name: str, values: tuple[str, ...]) -> Iterator[Problem]:
    if not values:
        yield Problem((name,), "must not be empty")
    for value in {value for value in values if values.count(value) > 1}:
        yield Problem((name,), f'must name "{value}" only once')


def _cases(name: str, value: Mapping[str, Any]) -> Iterator[Problem]:
    if not value:
        yield Problem((name,), "must name at least one case, but is empty")
    known = {*NAMES, "chain_<links>", "dense_<coordinates>"} - {"chain_10"}
    for case in value:
        if not is_name(case):
            yield Problem((name, case), not_one_of(case, known, "a case"))


_RULES: Mapping[str, Callable[[str, Any], Iterator[Problem]]] = {
    **dict.fromkeys(("rounds", "steps", "seed"), _count),
    "batches": _counts,
    **dict.fromkeys(("step", "limit", "longest"), _positive),
    **dict.fromkeys(("parts", "routes", "precisions"), _different),
    "cases": _cases,
}


class _Checked:
    """Refuses values that make no sense, by the name of a field."""

    def __post_init__(self) -> None:
        rules = ((_RULES.get(f.name), f.name) for f in fields(self))
        if problems := [x for rule, name in rules if rule for x in rule(name, getattr(self, name))]:
            raise StudyError(problems)


@dataclass(frozen=True, kw_only=True)
class Timing(_Checked):
    """How often and how long each route runs."""

    rounds: int = 5  # the best one counts
    least: float = 0.2  # a round is the mean over as many runs as fill this time [s]
    most: float = 20.0  # a route that has run for this long stops after its second round [s]
    limit: float = 900.0  # a route without an answer for this long is abandoned [s]
    longest: float = 60.0  # a run is left out that would take longer, by a smaller batch [s]


@dataclass(frozen=True, kw_only=True)
class Size(_Checked):
    """The size of a case."""

    batches: tuple[int, ...]  # numbers of trajectories, in ascending order
    steps: int  # of each trajectory
    step: float  # of RK4 [s]


@dataclass(frozen=True, kw_only=True)
class Part(_Checked):
    """Every case by every route; ratios refer to the first route."""

    routes: tuple[RouteName, ...]
    cases: Mapping[str, Size]
    precisions: tuple[Precision, ...] = ("float64",)


@dataclass(frozen=True, kw_only=True)
class Gradient(_Checked):
    """The gradient of a scalar of the final state, in both modes, against the forward run."""

    cases: Mapping[str, Size]
    precisions: tuple[Precision, ...] = ("float64",)


@dataclass(frozen=True, kw_only=True)
class Speed(_Checked):
    """A benchmark: the parts to measure, and what each of them consists of."""

    parts: tuple[Literal["table", "scaling", "gradient"], ...]
    table: Part | None = None
    scaling: Part | None = None  # over the size of the batch and of the system
    gradient: Gradient | None = None
    seed: int = 1  # of the initial states
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        super().__post_init__()
        message = "must be given, because `parts` asks for it, but is missing"
        missing = [Problem((x,), message) for x in self.parts if getattr(self, x) is None]
        if missing:
            raise StudyError(missing)
