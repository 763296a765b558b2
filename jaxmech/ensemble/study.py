"""`Study`: everything that defines a Monte Carlo study, as a tree of frozen dataclasses.

The schema of a configuration file, the text of `jaxmech ensemble --help` and the resolved
configuration in a run folder all come from this tree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Annotated, Any, Literal

from jaxmech.config import InFile, OneOf, plain
from jaxmech.config.errors import Problem, out_of_range, refuse, refuse_all
from jaxmech.ensemble.draws.designs import Sampling
from jaxmech.ensemble.draws.distributions import Distribution
from jaxmech.ensemble.draws.inputs import StudyInput, input_problems
from jaxmech.ensemble.members.observed import Observed, Series, StudyEvent, name_problem
from jaxmech.ensemble.statistics import (
    AbstractStatistic,
    Custom,
    FirstPassage,
    Histogram,
    Moments,
    Probability,
    Quantiles,
)
from jaxmech.integrate import AbstractMethod, AbstractSteps, FixedSteps, method_and_steps
from jaxmech.laws import UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection
from jaxmech.utils.text import doc, setting

Method = Literal["auto", "form", "importance", "subset", "monte-carlo"]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The failure of a motion: a quantity beyond a threshold, or an event.

    A quantity is a coordinate, a velocity, or an observed quantity of the study. It fails "ever"
    where its largest value (`above`) or its smallest one (`below`) at any time is at or beyond the
    threshold: at all steps, whatever times are saved, and between them near the extreme one. It
    fails at the "end" where its last value is. An observed quantity may have the `keep` that is the
    extreme value on the side of the threshold: "max" or "largest" with `above`, "min" with `below`.
    An event fails where
    it occurs at least once, or its function is beyond the level at the start; the motion goes on as
    if it did nothing, so that there is a measure of how far it was from occurring.
    """

    of: str = field(metadata=doc("a coordinate, a velocity, an observed quantity, or an event"))
    above: float | None = setting(None, "threshold, if large values are failures")
    below: float | None = setting(None, "threshold, if small values are failures")
    when: Literal["ever", "end"] = setting("ever", "at any time, or at the last one")
    unfinished: Literal["failure", "safe"] = setting(
        "failure",
        "what a trajectory counts as that cannot be computed to its end and has not failed before",
    )
    method: Method = setting("auto", "how the probability is computed")
    coefficient_of_variation: float = setting(
        0.05, "standard deviation of the estimate, relative to it, to be reached", between=(0, 1)
    )
    most: int = setting(200_000, "trajectories after which no more are begun", least=1000)
    confidence: float = setting(0.95, "confidence of the interval", between=(0, 1))

    def __post_init__(self) -> None:
        if self.above is not None and self.below is not None:
            raise refuse("above", "or `below` must be given, not both")
        for name in ("above", "below"):
            if not isfinite(getattr(self, name) or 0.0):
                raise refuse(name, f"must be finite, but is {getattr(self, name)}")
        refuse_all(out_of_range(self))

    @property
    def threshold(self) -> float | None:
        """The threshold; None for an event."""
        return self.below if self.above is None else self.above

    @property
    def margin_sign(self) -> int:
        """The sign with which the quantity enters the margin, which is at most 0 in a failure."""
        return 1 if self.above is None else -1


STATISTICS: dict[str, type[AbstractStatistic]] = {
    "moments": Moments,
    "probability": Probability,
    "first-passage": FirstPassage,
    "quantiles": Quantiles,
    "histogram": Histogram,
    "custom": Custom,
}
Statistic = Annotated[AbstractStatistic, OneOf(STATISTICS, tag="statistic")]
Store = Literal["all", "final", "statistics"]
SECTIONS = ("start", "coordinates", "velocities", "parameters")
SAVED: tuple[Series, ...] = ("q", "v", "energy", "position_residual", "velocity_residual")
LANES = 64  # a block is a whole number of these by default
LARGEST_DEFAULT_BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Times:
    """The save times of a motion: `saves` equally spaced times from `start` to `end`."""

    end: float = field(metadata=doc("last saved time [s]"))
    start: float = setting(0.0, "first saved time, where the state is drawn [s]")
    saves: int = setting(101, "number of saved times, both ends included", least=2)

    def __post_init__(self) -> None:
        if not self.start < self.end or not isfinite(self.end - self.start):
            raise refuse("end", f"must be after `start`, but {self.end} is not after {self.start}")
        refuse_all(out_of_range(self))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A Monte Carlo study of motions: a model, its random inputs, and the settings of the runs.

    Example:
        >>> from jaxmech.ensemble import Normal, Study, Times
        >>> masses = {"m": Normal(sd=0.02, relative=True)}
        >>> study = Study(model="pendulum", size=100, times=Times(end=1.0), parameters=masses)
        >>> study.block_size
        128
    """

    model: Annotated[str | Any, InFile(str)] = field(
        metadata=doc(
            'a name of `jaxmech models`, or next to this file "path/file.py:attribute" or the path '
            "of an MJCF or URDF file"
        )
    )
    size: int = field(metadata=doc("number of members", least=1))
    model_options: Mapping[str, Any] = setting({}, "options of the model, such as { links = 10 }")
    seed: int = setting(0, "seed of all random numbers, at least 0", least=0)
    block: int | None = setting(
        None,
        "members compiled and stored together; by default size up to 1024, on a GPU up to 65536",
        least=1,
    )
    failed_allowed: float = setting(
        0.0, "fraction of failed members up to which the exit code is 0"
    )
    fixed: tuple[str, ...] = setting((), "coordinates that keep their drawn value")
    start: Mapping[str, Distribution] = setting({}, "start variables of the model, by name")
    coordinates: Mapping[str, Distribution] = setting(
        {}, "initial coordinates, in place of the model's"
    )
    velocities: Mapping[str, Distribution] = setting(
        {}, "initial velocities, in place of the model's"
    )
    inputs: Mapping[str, StudyInput] = setting(
        {}, "recorded and random inputs, by the name of the parameter whose place they take"
    )
    parameters: Mapping[str, Distribution] = setting(
        {}, "parameters; `m` draws all entries of an array, `m[3]` a single one"
    )
    sampling: Sampling = setting(Sampling(), "design and correlations of the drawn variables")
    statistics: Mapping[str, Statistic] = setting({}, "reductions over all members, by name")
    failure: Failure | None = setting(
        None, "what counts as failure, for `jaxmech failure`; `jaxmech ensemble` ignores it"
    )

    times: Times = field(metadata=doc("times at which the motion is saved"))
    precision: Literal["float64", "float32"] = setting(
        "float64", "floating-point type of the whole computation"
    )
    save: tuple[Series, ...] = setting(
        SAVED,
        "series of which all saved times are stored",
    )
    store: Store = setting(
        "all",
        "`save` and `observe` at all saved times or the last one, or only statistics, and of "
        "trajectories how they ended",
    )
    method: AbstractMethod | None = setting(
        None, "how a step is made; RK4, or DormandPrince8 for adaptive steps, by default"
    )
    steps: AbstractSteps = setting(FixedSteps(), "how long the steps are")
    projection: AbstractStabilization = setting(Projection(), "control of drift")
    formulation: UdwadiaKalaba = setting(UdwadiaKalaba(), "law of motion")
    controllers: tuple[str, ...] = setting(
        (), 'controllers of the system, each a `Controller` in a Python file, "file.py:name"'
    )
    observe: Mapping[str, Observed] = setting({}, "quantities of your own, by name")
    events: Mapping[str, StudyEvent] = setting({}, "events to locate along the motion, by name")
    inactive: tuple[str, ...] = setting(
        (), "constraints that are inactive unless an event activates them"
    )

    def __post_init__(self) -> None:
        method, _ = method_and_steps(self.method, self.steps)
        object.__setattr__(self, "method", method)
        refuse_all([*out_of_range(self), *self.problems()])
        plain(self)  # which refuses policies and distributions that have no name in a file

    def problems(self) -> Iterator[Problem]:
        """The settings that contradict each other, but for those of wrong ranges."""
        for section in ("observe", "events", "statistics"):  # which name arrays
            for name in getattr(self, section):
                if message := name_problem(name):
                    yield Problem((section, name), message)
        for name, quantity in self.observe.items():
            if not isinstance(quantity, Observed):
                message = f"must be an Observed, such as Observed(function), but is {quantity!r}"
                yield Problem(("observe", name), message)
        yield from input_problems(self.inputs, self.parameters)
        if not 0 <= self.failed_allowed <= 1:
            message = f"must be a fraction from 0 to 1, but is {self.failed_allowed}"
            yield Problem(("failed_allowed",), message)
        if self.store == "statistics" and not self.statistics:
            message = 'must not be "statistics" where the table `statistics` names none'
            yield Problem(("store",), message)

    @property
    def block_size(self) -> int:
        """The number of members of one block."""
        return self.block or min(LARGEST_DEFAULT_BLOCK, -(-self.size // LANES) * LANES)
