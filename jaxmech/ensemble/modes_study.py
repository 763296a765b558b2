"""`ModesStudy`: the configuration of a study of eigenvalues."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite

from jaxmech.config.errors import Problem, not_one_of
from jaxmech.ensemble.distributions import Distribution
from jaxmech.ensemble.statistics import AbstractStatistic, Probability
from jaxmech.ensemble.study import AbstractStudy
from jaxmech.utils.field_docs import setting

INSTABILITY = "instability"  # name of the statistic that every study of eigenvalues has
QUANTITIES = (
    "status", "stability", "residual", "q", "v", "frequencies", "growth", "unstable",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModesStudy(AbstractStudy):
    """The probability that an equilibrium or a steady motion is unstable, for random parameters.

    Statistics may be of `growth` [1/s], `frequencies` [Hz], `unstable` (0 or 1), q, v, and of a
    coordinate at the equilibrium. Members without a verdict are in none of them. Recorded inputs
    keep their values at `time`, which is all that they need to cover.

    Example:
        >>> from jaxmech.ensemble import Uniform
        >>> study = ModesStudy(model="pendulum", size=100, parameters={"l": Uniform(0.5, 2.0)})
        >>> study.confidence
        0.95
    """

    time: float = setting(0.0, "when the equilibrium is looked for [s]")
    steady: bool = setting(
        False, "the steady motion nearest to the model's initial velocities, not rest"
    )
    confidence: float = setting(
        0.95, "level of the interval of the probability of instability", between=(0, 1)
    )
    fixed: tuple[str, ...] = setting((), "coordinates that are held at their guess")
    failed_allowed: float = setting(
        0.0, "fraction of members without a verdict up to which the exit code is 0"
    )
    start: Mapping[str, Distribution] = setting(
        {}, "start variables of the model, whose state is the guess, by name"
    )
    coordinates: Mapping[str, Distribution] = setting(
        {}, "guess of the coordinates, in place of the model's"
    )
    velocities: Mapping[str, Distribution] = setting(
        {}, "rates that a steady motion keeps; without any: at rest"
    )

    @property
    def all_statistics(self) -> Mapping[str, AbstractStatistic]:
        """The statistics of the study, and the probability of instability."""
        # Among the members with a verdict: the others do not count.
        unstable = Probability(of="unstable", above=0.5, confidence=self.confidence)
        return {INSTABILITY: unstable, **self.statistics}

    def problems(self) -> Iterator[Problem]:
        """Those of every study, and of the steady motion."""
        yield from super().problems()
        if not isfinite(self.time):
            yield Problem(("time",), f"must be finite, but is {self.time}")
        if self.steady and self.velocities:
            message = (
                "must be left out where rates are given in [velocities]: the motion keeps those"
            )
            yield Problem(("steady",), message)
        if INSTABILITY in self.statistics:
            message = "must have another name: this one is the probability of instability"
            yield Problem(("statistics", INSTABILITY), message)

    def unknown_quantities(self, coordinates: tuple[str, ...]) -> Iterator[Problem]:
        """The statistics of quantities that a spectrum does not have."""
        quantities = (*QUANTITIES, *coordinates)
        for name, statistic in self.statistics.items():
            key = ("statistics", name, "of")
            if statistic.of_event is not None or statistic.passage is not None:
                yield Problem(key, "must name a quantity: a spectrum has no events")
                continue
            for quantity in statistic.names:
                if quantity not in quantities:
                    yield Problem(key, not_one_of(quantity, quantities, "a quantity of a spectrum"))
