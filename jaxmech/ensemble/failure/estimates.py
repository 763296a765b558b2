"""`FailureEstimate`: a probability of failure by one method, with the failures it is made of."""

from dataclasses import dataclass, field
from math import exp, inf, isfinite, sqrt

import numpy as np

_FEW = 1e-300
_TAIL = 0.975  # probability below the upper end of an interval


@dataclass(frozen=True, eq=False)
class SubsetLevel:
    """A level of subset simulation, or the whole of another method.

    Attributes:
        threshold: the margin at or below which a trajectory belongs to the level.
        probability: the probability of the level, given the one before.
        coefficient_of_variation: of that probability.
        acceptance: share of the proposals that were accepted; NaN for the first one.
    """

    threshold: float
    probability: float
    coefficient_of_variation: float
    acceptance: float


@dataclass(frozen=True, eq=False)
class FailureEstimate:
    """The probability of failure by one method.

    A part of the result of `failure_probability`.

    Attributes:
        method: its name.
        probability: the estimate.
        coefficient_of_variation: its standard deviation relative to it; NaN if it is not known, as
            for approximations.
        trajectories: how many it took.
        failures: points of standard normal space at which the motion fails, shape (N, n).
        weights: their weights, proportional to the share of the failures that they stand for.
        levels: the levels of subset simulation.
        degrees: degrees of freedom of the standard deviation, if it is known from few runs.
        runs: the number of the run of each failure, where those of a run depend on each other.
        of_runs: the part of the variance that is known from the few runs alone.
    """

    method: str
    probability: float
    coefficient_of_variation: float
    trajectories: int
    failures: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    levels: tuple[SubsetLevel, ...] = ()
    degrees: int = 0
    runs: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    of_runs: float = 1.0

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of the probability: that of its logarithm, which is nearly normal.

        Without a failure, it ends at the probability with which so many trajectories are all safe
        with the remaining confidence.
        """
        if self.probability <= 0:
            count = max(self.trajectories, 1)
            return 0.0, 1 - (1 - confidence) ** (1 / count) if self.method == "monte-carlo" else inf
        spread = self.coefficient_of_variation
        if not isfinite(spread):
            return float("nan"), float("nan")
        width = self._quantile(0.5 + confidence / 2) * sqrt(np.log1p(spread**2))
        return self.probability * exp(-width), min(self.probability * exp(width), 1.0)

    def reaches(self, precision: float) -> bool:
        """Whether the interval is as short as that of a known coefficient of variation."""
        from scipy.special import ndtri

        widening = self._quantile(_TAIL) / float(ndtri(_TAIL))
        return self.coefficient_of_variation * widening <= precision

    def _quantile(self, tail: float) -> float:
        """In standard deviations: Student's for the variance by few runs, else the normal one."""
        from scipy.special import ndtri, stdtrit

        normal = float(ndtri(tail))
        student = float(stdtrit(self.degrees, tail)) if self.degrees > 0 else normal
        return sqrt(self.of_runs * student**2 + (1 - self.of_runs) * normal**2)

    def agrees(self, other: "FailureEstimate", deviations: float) -> bool:
        """Whether two estimates differ by at most so many of their standard deviations."""
        spread = np.hypot(self.coefficient_of_variation, other.coefficient_of_variation)
        ratio = np.log(max(self.probability, _FEW) / max(other.probability, _FEW))
        return bool(abs(ratio) <= deviations * sqrt(np.log1p(spread**2)))


def weighted_estimate(
    method: str, u: np.ndarray, margins: np.ndarray, weights: np.ndarray, trajectories: int
) -> FailureEstimate:
    """The estimate of independent points with importance weights."""
    terms = np.where(margins <= 0, weights, 0.0)
    probability = float(terms.mean())
    spread = float(terms.std(ddof=1)) / sqrt(len(terms)) / probability if probability > 0 else inf
    failed = terms > 0
    return FailureEstimate(
        method,
        probability,
        spread,
        trajectories,
        u[failed],
        weights[failed] / max(terms.sum(), _FEW),
    )
