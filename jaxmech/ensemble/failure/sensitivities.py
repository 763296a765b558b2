"""The sensitivity of log p to the parameters of the distributions, from the failures of a method.

By the score function, d log p / dθ is the mean of d log f(x; θ) / dθ over the failures, where f is
the joint density of the variables (Wu, "Computational methods for efficient structural reliability
and reliability sensitivity analysis", AIAA Journal 32, 1994). It needs no further trajectories.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import sqrt

import numpy as np

from jaxmech.ensemble.distributions import LogNormal, Normal, Scipy, Spread
from jaxmech.ensemble.failure.estimates import FailureEstimate
from jaxmech.ensemble.failure.standard_space import StandardSpace, normal_quantile, slope

_DIFFERENCE = 1e-5  # of a parameter, relative to it or to the deviation
_PARAMETERS: dict[type, tuple[str, ...]] = {Normal: ("mean", "sd"), LogNormal: ("median", "sigma")}
_BOUNDARIES = ("low", "high", "loc")  # which may move the ends of a density: no score function


@dataclass(frozen=True)
class Sensitivity:
    """The derivative of log p with respect to a parameter of a distribution.

    A part of the result of `failure_probability`.

    Attributes:
        variable: full name of the variable, such as "parameters.m".
        parameter: of its distribution, such as "sd".
        value: its value.
        derivative: d log p / dθ.
        standard_deviation: of the derivative, by sampling.
    """

    variable: str
    parameter: str
    value: float
    derivative: float
    standard_deviation: float


def sensitivities(space: StandardSpace, estimate: FailureEstimate) -> tuple[Sensitivity, ...]:
    """The sensitivities to the parameters of all distributions whose density is smooth in them."""
    u, weights = estimate.failures, estimate.weights
    if not len(u):
        return ()
    z = space.correlated(u)
    pull = np.zeros_like(z)  # the derivative of the logarithm of the density of the copula
    if space.factor is not None:
        inverse = np.linalg.inv(space.factor @ space.factor.T)
        pull = z - z @ inverse
    weights = weights / weights.sum()
    results = []
    for k, (name, (rule, default)) in enumerate(space.rules.items()):
        for key, value, ahead, behind, step in _neighbours(rule, default):
            scores = _scores(rule, ahead, behind, step, z[:, k], pull[:, k], default)
            mean = float((weights * scores).sum())
            parts = weights * (scores - mean)
            if len(estimate.runs):  # failures of a run depend on each other
                parts = np.bincount(estimate.runs, parts)
            results.append(Sensitivity(name, key, value, mean, sqrt(float((parts**2).sum()))))
    return tuple(results)


def _scores(
    rule: Spread, ahead: Spread, behind: Spread, step: float, z: np.ndarray, pull: np.ndarray,
    default: float,
) -> np.ndarray:  # fmt: skip
    """Derivatives of the log density at fixed x, by central differences."""
    x = normal_quantile(rule, z, default)
    scores = (ahead.log_density(x, default) - behind.log_density(x, default)) / (2 * step)
    if pull.any():  # z = Φ⁻¹(F(x; θ)) moves too, where x stays
        moved = normal_quantile(ahead, z, default) - normal_quantile(behind, z, default)
        scores = scores - pull * moved / (2 * step) / slope(rule, z, default)
    return np.where(np.isfinite(scores), scores, 0.0)


def _neighbours(rule: Spread, default: float) -> Iterator[tuple[str, float, Spread, Spread, float]]:
    """Each parameter with its value, the distributions for a little more and less, and how much."""
    if isinstance(rule, Scipy):
        for key, value in rule.parameters.items():
            if key not in _BOUNDARIES:
                step = _DIFFERENCE * abs(value)
                pair = [
                    Scipy(rule.name, {**rule.parameters, key: value + d}) for d in (step, -step)
                ]
                yield key, float(value), pair[0], pair[1], step
        return
    for key in _PARAMETERS.get(type(rule), ()):
        present = getattr(rule, key)
        value = float(default if present is None else present)
        deviation = next(getattr(rule, f.name) for f in fields(rule) if f.name in ("sd", "sigma"))
        step = _DIFFERENCE * max(abs(value), deviation)
        if deviation > 0:
            yield (
                key, value, replace(rule, **{key: value + step}),
                replace(rule, **{key: value - step}), step,
            )  # fmt: skip
