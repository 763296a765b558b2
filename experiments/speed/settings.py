"""The keys of a benchmark's configuration, as frozen dataclasses for `jaxmech.config.toml.read`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from experiments.speed.cases import NAMES, is_name
from experiments.speed.routes import ROUTES
from jaxmech.config.errors import Problem, StudyError, not_one_of

Precisions = tuple[Literal["float64", "float32"], ...]
RouteName = Literal[*ROUTES]  # type: ignore[valid-type]


class _Checked:
    """Rejects invalid values, by the name of a field."""

    def __post_init__(self) -> None:
        if problems := [x for f in fields(self) for x in _problems(f.name, getattr(self, f.name))]:
            raise StudyError(problems)


def _problems(name: str, value: Any) -> Iterator[Problem]:
    if isinstance(value, tuple | Mapping) and not value:
        yield Problem((name,), "must not be empty")
    match name:
        case "rounds" | "steps" | "batches" | "seed":
            least = 0 if name == "seed" else 1
            several = isinstance(value, tuple)
            for k, count in enumerate(value if several else (value,)):
                if count < least:
                    key = f"{name}[{k}]" if several else name
                    yield Problem((key,), f"must be at least {least}, but is {count}")
        case "step" | "limit" | "longest" if not value > 0:
            yield Problem((name,), f"must be positive, but is {value:g}")
        case "parts" | "routes" | "precisions":
            for twice in {x for x in value if value.count(x) > 1}:
                yield Problem((name,), f'must name "{twice}" only once')
        case "cases":
            known = {*NAMES, "chain_<links>", "dense_<coordinates>"} - {"chain_10"}
            unknown = (one for one in value if not is_name(one))
            yield from (Problem((name, x), not_one_of(x, known, "a case")) for x in unknown)


@dataclass(frozen=True, kw_only=True)
class Timing(_Checked):
    """The number and length of the runs of each route."""

    rounds: int = 5  # the best one counts
    least: float = 0.2  # a round is the mean over as many runs as fill this time [s]
    most: float = 20.0  # a route that has run for this long stops after its second round [s]
    limit: float = 900.0  # a route without an answer for this long is abandoned [s]
    longest: float = 60.0  # a run expected to take longer, by a smaller batch, is left out [s]


@dataclass(frozen=True, kw_only=True)
class Size(_Checked):
    """The size of a case."""

    batches: tuple[int, ...]  # numbers of trajectories, in ascending order
    steps: int  # per trajectory
    step: float  # of RK4 [s]


@dataclass(frozen=True, kw_only=True)
class Part(_Checked):
    """Every case by every route; ratios refer to the first route."""

    routes: tuple[RouteName, ...]
    cases: Mapping[str, Size]
    precisions: Precisions = ("float64",)


@dataclass(frozen=True, kw_only=True)
class Gradient(_Checked):
    """The gradient of a scalar of the final state, in both modes, against the forward run."""

    cases: Mapping[str, Size]
    precisions: Precisions = ("float64",)


@dataclass(frozen=True, kw_only=True)
class Speed(_Checked):
    """A benchmark: the parts to measure, and their contents."""

    parts: tuple[Literal["table", "scaling", "gradient"], ...]
    table: Part | None = None
    scaling: Part | None = None  # over the size of the batch and of the system
    gradient: Gradient | None = None
    seed: int = 1  # seed of the initial states
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        super().__post_init__()
        message = "must be given, because it is in `parts`, but is missing"
        missing = [Problem((x,), message) for x in self.parts if getattr(self, x) is None]
        if missing:
            raise StudyError(missing)
