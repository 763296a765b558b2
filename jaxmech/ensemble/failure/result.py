"""`FailureProbability`, the result, which prints itself, with its estimates."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import exp, inf, isfinite, nan, sqrt
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

_FEW = 1e-300
_SHOWN = 8  # variables that a printed result lists


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
        failures: points of standard normal space at which the motion fails, shape (N, n), of
            sampling around design points and of the pilot.
        weights: their weights, proportional to the share of the failures that they stand for.
        degrees: degrees of freedom of the standard deviation, if it is known from few runs.
        counted: the number of independent trajectories among which failures were counted.
    """

    method: str
    probability: float
    coefficient_of_variation: float
    trajectories: int
    failures: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0))
    degrees: int = 0
    counted: int = 0

    def interval(self, confidence: float) -> tuple[float, float]:
        """The interval of the probability; NaN for an approximation.

        That of Clopper and Pearson for counted failures; of others that of the logarithm, which is
        nearly normal, with Student's distribution where the deviation is known from few runs.
        """
        tail = 0.5 + confidence / 2
        if self.counted:
            count, failed = self.counted, round(self.probability * self.counted)
            low = betaincinv(failed, count - failed + 1, 1 - tail) if failed else 0.0
            high = betaincinv(failed + 1, count - failed, tail) if failed < count else 1.0
            return float(low), float(high)
        if self.probability <= 0:
            return 0.0, inf
        if not isfinite(self.coefficient_of_variation):
            return nan, nan
        quantile = float(stdtrit(self.degrees, tail) if self.degrees else ndtri(tail))
        width = quantile * sqrt(np.log1p(self.coefficient_of_variation**2))
        return self.probability * exp(-width), min(self.probability * exp(width), 1.0)

    def agrees(self, other: "FailureEstimate", deviations: float) -> bool:
        """Whether two estimates differ by at most so many of their standard deviations."""
        spread = np.hypot(self.coefficient_of_variation, other.coefficient_of_variation)
        ratio = np.log(max(self.probability, _FEW) / max(other.probability, _FEW))
        return bool(abs(ratio) <= deviations * sqrt(np.log1p(spread**2)))


@dataclass(frozen=True, eq=False)
class DesignPoint:
    """A most probable failure: the point of a region of failures that is nearest to the medians.

    Attributes:
        index: reliability index β, its distance from the medians in standard deviations.
        variables: the drawn variables, by full name.
        importance: importance factors of the variables, which sum to one. With correlations they
            are those of Der Kiureghian's γ.
        q: initial coordinates, shape (n,); with v and params, `simulate` gives the motion.
        v: initial velocities.
        params: parameters.
        u: the point in standard normal space.
    """

    index: float
    variables: Mapping[str, float]
    importance: Mapping[str, float]
    q: np.ndarray
    v: np.ndarray
    params: Mapping[str, Any]
    u: np.ndarray


@dataclass(frozen=True, eq=False)
class FailureProbability:
    """The probability of a failure, with what it depends on.

    The result of `failure_probability`.

    Attributes:
        estimate: the estimate of the method that the study asks for, or that was chosen.
        confidence: of the interval.
        trajectories: number of trajectories of all methods together, those with gradients included.
        gradients: number of trajectories with gradients.
        lost: number of trajectories that could not be computed to their end.
        design_points: the design points, the most probable one first.
        estimates: all estimates, also those of other methods for comparison.
        remarks: what the limit state looks like, in words, such as several regions of failures.
        doubts: what speaks against the result, in words; empty if nothing does.
    """

    estimate: FailureEstimate
    confidence: float
    trajectories: int
    gradients: int
    lost: int
    design_points: tuple[DesignPoint, ...]
    estimates: tuple[FailureEstimate, ...]
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def probability(self) -> float:
        """The probability of failure."""
        return self.estimate.probability

    @property
    def coefficient_of_variation(self) -> float:
        """The standard deviation of the probability, relative to it; NaN if it is not known."""
        return self.estimate.coefficient_of_variation

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the probability; NaN for an approximation."""
        return self.estimate.interval(self.confidence)

    @property
    def method(self) -> str:
        """The method of the estimate."""
        return self.estimate.method

    def __str__(self) -> str:
        return "\n".join(_card(self))

    def as_dict(self) -> dict[str, Any]:
        """All but the failures in standard normal space, as plain data, with None for NaN."""
        names = ("probability", "interval", "coefficient_of_variation", "method")
        shown = {name: getattr(self, name) for name in names}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "estimate"}
        plain: dict[str, Any] = _plain({**shown, **rest})
        return plain


def _plain(value: Any) -> Any:
    """Data for JSON: of a design point only parameters that are numbers, of estimates no points."""
    if isinstance(value, DesignPoint):
        arrays = {name: np.asarray(x) for name, x in value.params.items()}
        params = {name: x for name, x in arrays.items() if x.dtype.kind in "fiu"}
        value = replace(value, params=params)
    if is_dataclass(value):
        hidden = ("failures", "weights")
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)
                if f.name not in hidden}  # fmt: skip
    if isinstance(value, Mapping):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not isfinite(value) else value


def _card(result: FailureProbability) -> Iterator[str]:
    low, high = result.interval
    percent = f"{100 * result.confidence:g} %"
    interval = f", {percent} interval {low:.3g} ... {high:.3g}" if isfinite(low) else ""
    yield f"probability of failure {result.probability:.4g}{interval} ({result.method})"
    yield from (f"  WARNING: {doubt}" for doubt in result.doubts)
    yield from (f"  {remark}" for remark in result.remarks)
    if isfinite(result.coefficient_of_variation):
        yield f"  coefficient of variation   {100 * result.coefficient_of_variation:.1f} %"
    lost = f", {result.lost:,} of them not computed to their end" if result.lost else ""
    yield f"  trajectories               {result.trajectories:,}{lost}"
    yield f"  of them with gradients     {result.gradients:,}"
    for estimate in result.estimates:
        if estimate is not result.estimate:
            spread = estimate.coefficient_of_variation
            about = f" +- {100 * spread:.0f} %" if isfinite(spread) else ""
            yield f"  by {estimate.method:<24}{estimate.probability:.4g}{about}"
    for point in result.design_points:
        yield f"  design point, reliability index {point.index:.4f}"
        yield f"    {'variable':<32}{'value':>12}{'importance':>12}"
        order = sorted(point.importance, key=lambda name: -point.importance[name])
        for name in order[:_SHOWN]:
            share = 100 * point.importance[name]
            yield f"    {name:<32}{point.variables[name]:>12.5g}{share:>10.1f} %"
        if len(order) > _SHOWN:
            yield f"    and {len(order) - _SHOWN} more"
