"""The keys of a benchmark's configuration, as frozen dataclasses for `jaxmech.config.toml.read`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from experiments.cases import GENTLE, is_name
from experiments.speed.routes import ROUTES
from jaxmech.config.errors import Problem, StudyError, not_one_of

RouteName = Literal[*ROUTES]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The number and length of the runs of each route."""

    rounds: int = 5  # the best one counts
    least: float = 0.2  # a round is the mean over as many runs as fill this time [s]
    most: float = 20.0  # a route that has run for this long stops after its second round [s]
    limit: float = 900.0  # a route without an answer for this long is abandoned [s]


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a case."""

    batch: int  # number of trajectories
    steps: int  # per trajectory
    step: float  # of RK4 [s]


@dataclass(frozen=True, kw_only=True)
class Part:
    """The cases of a part, and for the table the routes; ratios refer to the first one."""

    cases: Mapping[str, Size]
    routes: tuple[RouteName, ...] = ()

    def __post_init__(self) -> None:
        known = {*GENTLE, "chain_<links>"} - {"chain_10"}
        unknown = [x for x in self.cases if not is_name(x)]
        if unknown:
            problems = (Problem(("cases", x), not_one_of(x, known, "a case")) for x in unknown)
            raise StudyError(problems)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """A benchmark: the parts to measure, and their contents."""

    table: Part
    gradient: Part
    parts: tuple[Literal["table", "gradient"], ...] = ("table", "gradient")
    timing: Timing = field(default_factory=Timing)
