"""The keys of a benchmark's configuration, as frozen dataclasses for `jaxmech.config.toml.read`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from experiments.speed.cases import NAMES, is_name
from experiments.speed.roster import ROUTES
from jaxmech.config.errors import Problem, StudyError, not_one_of

RouteName = Literal[*ROUTES]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How often and how long.

    Attributes:
        rounds: of every route, in turn; the best counts.
        least: seconds that a round fills with runs, whose mean is its result [s].
        most: a route that has taken this long stops after its second round [s].
        limit: a route that gives no answer for this long is given up [s].
    """

    rounds: int = 5
    least: float = 0.2
    most: float = 20.0
    limit: float = 900.0

    def __post_init__(self) -> None:
        _refuse(_too_small({"rounds": self.rounds}))
        if not self.limit > 0:
            raise StudyError([Problem(("limit",), f"must be positive, but is {self.limit:g}")])


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of a case.

    Attributes:
        batch: number of trajectories.
        steps: of each trajectory.
        step: of RK4 [s].
    """

    batch: int
    steps: int
    step: float

    def __post_init__(self) -> None:
        _refuse(_too_small({"batch": self.batch, "steps": self.steps}))
        if not self.step > 0:
            raise StudyError([Problem(("step",), f"must be positive, but is {self.step:g}")])


@dataclass(frozen=True, kw_only=True)
class Table:
    """Every case by every route.

    Attributes:
        routes: which; the first is the reference of agreement and of the ratios.
        cases: their sizes, by name.
    """

    routes: tuple[RouteName, ...]
    cases: Mapping[str, Size]

    def __post_init__(self) -> None:
        _refuse([*_no_cases(self.cases), *_repeated("routes", self.routes)])


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Speed over the size of the batch and of the system.

    Attributes:
        routes: which; the first is the reference of agreement.
        case: what grows in batches.
        batches: sizes of the batch.
        links: lengths of the chain.
        chain_batch: trajectories of each chain.
        steps: of each trajectory.
        step: of RK4 [s].
        large: sizes of other cases by name, such as systems of many coordinates.
    """

    routes: tuple[RouteName, ...]
    case: str
    batches: tuple[int, ...]
    links: tuple[int, ...]
    chain_batch: int
    steps: int
    step: float
    large: Mapping[str, Size] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {"chain_batch": self.chain_batch, "steps": self.steps}
        for name, values in (("batches", self.batches), ("links", self.links)):
            sizes |= {f"{name}[{k}]": value for k, value in enumerate(values)}
        problems = [*_too_small(sizes), *_repeated("routes", self.routes)]
        problems += [] if is_name(self.case) else [_no_case(("case",), self.case)]
        problems += _unknown("large", self.large)
        if not self.step > 0:
            problems.append(Problem(("step",), f"must be positive, but is {self.step:g}"))
        _refuse(problems)


@dataclass(frozen=True, kw_only=True)
class Gradient:
    """The gradient of a scalar of the final state, in both modes, against the forward run.

    Attributes:
        cases: their sizes, by name.
    """

    cases: Mapping[str, Size]

    def __post_init__(self) -> None:
        _refuse(_no_cases(self.cases))


@dataclass(frozen=True, kw_only=True)
class Speed:
    """A benchmark.

    Attributes:
        parts: what is measured, of what is described below.
        seed: of the starts.
        timing: how often and how long.
        table: every case by every route.
        scaling: over the size of the batch and the length of a chain.
        gradient: of a scalar of the final state.
    """

    parts: tuple[Literal["table", "scaling", "gradient"], ...]
    table: Table | None = None
    scaling: Scaling | None = None
    gradient: Gradient | None = None
    seed: int = 1
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        message = "must be given, because `parts` asks for it, but is missing"
        given = {"table": self.table, "scaling": self.scaling, "gradient": self.gradient}
        problems = [Problem((part,), message) for part in self.parts if given[part] is None]
        if self.seed < 0:
            problems.append(Problem(("seed",), f"must be at least 0, but is {self.seed}"))
        _refuse([*problems, *_repeated("parts", self.parts)])


def _refuse(problems: list[Problem] | Iterator[Problem]) -> None:
    problems = list(problems)
    if problems:
        raise StudyError(problems)


def _too_small(sizes: Mapping[str, int]) -> Iterator[Problem]:
    for name, size in sizes.items():
        if size < 1:
            yield Problem((name,), f"must be at least 1, but is {size}")


def _no_cases(cases: Mapping[str, Size]) -> Iterator[Problem]:
    if not cases:
        yield Problem(("cases",), "must name at least one case, but is empty")
    yield from _unknown("cases", cases)


def _unknown(key: str, cases: Mapping[str, Size]) -> Iterator[Problem]:
    for name in cases:
        if not is_name(name):
            yield _no_case((key, name), name)


def _no_case(key: tuple[str, ...], name: str) -> Problem:
    known = {*NAMES, "chain_<links>", "dense_<coordinates>"} - {"chain_10"}
    return Problem(key, not_one_of(name, known, "a case"))


def _repeated(key: str, names: tuple[str, ...]) -> Iterator[Problem]:
    if not names:
        yield Problem((key,), "must not be empty")
    for name in {name for name in names if names.count(name) > 1}:
        yield Problem((key,), f'must name "{name}" only once')
