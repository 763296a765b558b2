"""`FailureProbability`: the result, which prints itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from jaxmech.ensemble.failure.estimates import FailureEstimate
from jaxmech.ensemble.failure.sensitivities import Sensitivity

_SHOWN = 8  # variables and sensitivities that a printed result lists


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
        sensitivities: derivatives of log p with respect to parameters of distributions.
        estimates: all estimates, also those of other methods for comparison.
        remarks: what the limit state looks like, in words: flat, discontinuous, several regions of
            failures; empty if it is smooth with a single one.
        doubts: what speaks against the result, in words; empty if nothing does.
    """

    estimate: FailureEstimate
    confidence: float
    trajectories: int
    gradients: int
    lost: int
    design_points: tuple[DesignPoint, ...]
    sensitivities: tuple[Sensitivity, ...]
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
        """Everything but the points of standard normal space, as plain data.

        Numbers that are not known are None, as JSON has no NaN.
        """
        return _known({
            "probability": self.probability,
            "interval": list(self.interval),
            "confidence": self.confidence,
            "coefficient_of_variation": self.coefficient_of_variation,
            "method": self.method,
            "trajectories": self.trajectories,
            "gradients": self.gradients,
            "lost": self.lost,
            "design_points": [
                {"index": x.index, "variables": dict(x.variables), "importance": dict(x.importance)}
                for x in self.design_points
            ],
            "sensitivities": [vars(x) for x in self.sensitivities],
            "estimates": [
                {
                    "method": x.method,
                    "probability": x.probability,
                    "coefficient_of_variation": x.coefficient_of_variation,
                    "trajectories": x.trajectories,
                    "degrees": x.degrees,
                    "of_runs": x.of_runs,
                    "levels": [vars(level) for level in x.levels],
                }
                for x in self.estimates
            ],
            "remarks": list(self.remarks),
            "doubts": list(self.doubts),
        })  # fmt: skip


def _known(value: Any) -> Any:
    """The same data with None in the place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _known(x) for key, x in value.items()}
    if isinstance(value, list):
        return [_known(x) for x in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _card(result: FailureProbability) -> Iterator[str]:
    low, high = result.interval
    percent = f"{100 * result.confidence:g} %"
    interval = f", {percent} interval {low:.3g} ... {high:.3g}" if isfinite(low) else ""
    yield f"probability of failure {result.probability:.4g}{interval} ({result.method})"
    for doubt in result.doubts:
        yield f"  WARNING: {doubt}"
    for remark in result.remarks:
        yield f"  {remark}"
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
        yield from _design_point(point)
    yield from _sensitivities(result.sensitivities)


def _design_point(point: DesignPoint) -> Iterator[str]:
    yield f"  design point, reliability index {point.index:.4f}"
    yield f"    {'variable':<32}{'value':>12}{'importance':>12}"
    order = sorted(point.importance, key=lambda name: -point.importance[name])
    for name in order[:_SHOWN]:
        share = 100 * point.importance[name]
        yield f"    {name:<32}{point.variables[name]:>12.5g}{share:>10.1f} %"
    if len(order) > _SHOWN:
        yield f"    and {len(order) - _SHOWN} more"


def _sensitivities(sensitivities: tuple[Sensitivity, ...]) -> Iterator[str]:
    if not sensitivities:
        return
    yield "  change of log p with the parameters of the distributions"
    scaled = sorted(sensitivities, key=lambda x: -abs(x.derivative * (x.value or 1.0)))
    for x in scaled[:_SHOWN]:
        name = f"{x.variable}, {x.parameter} = {x.value:g}"
        yield f"    {name:<44}{x.derivative:>12.4g} +- {x.standard_deviation:.2g}"
    if len(scaled) > _SHOWN:
        yield f"    and {len(scaled) - _SHOWN} more"
