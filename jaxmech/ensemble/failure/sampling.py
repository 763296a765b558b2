"""Approximations at design points, importance sampling around them, and crude Monte Carlo."""

from dataclasses import replace
from math import inf, nan, sqrt

import numpy as np
from scipy.special import logsumexp, ndtr

from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.result import FailureEstimate

_LEAST_SHARE = 0.05  # of a design point among the points of the importance density


def first_order(points: Search) -> FailureEstimate:
    """The sum of the half-spaces at the design points.

    It is an upper bound of their union, and close to it where the points are far from each other.
    """
    return FailureEstimate("form", min(float(ndtr(-points.indices).sum()), 1.0), nan, 0)


def importance(
    limit: LimitState, points: Search, precision: float, seed: int, keep_on: bool = True
) -> FailureEstimate:
    """Importance sampling with a normal density around each design point.

    The densities have the shares of the half-spaces at the design points, so that the weights are
    known in closed form. Batches are drawn until the precision is reached, or no more may be; or,
    unless it is to `keep_on`, until half are drawn and the rest will not be enough.
    """
    return _sampled(limit, points, precision, np.random.default_rng([seed, 5]), keep_on)


def monte_carlo(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Crude Monte Carlo: the share of failures among points drawn as they occur."""
    origin = np.zeros((1, limit.size))
    around = Search(origin, origin, 1.0, flat=False)
    estimate = _sampled(limit, around, precision, np.random.default_rng([seed, 2]))
    return replace(estimate, method="monte-carlo", counted=estimate.trajectories)


def _sampled(
    limit: LimitState, points: Search, precision: float, rng: np.random.Generator,
    keep_on: bool = True,
) -> FailureEstimate:  # fmt: skip
    shares, before = _shares(points), limit.trajectories
    terms, failures = np.zeros(0), [np.zeros((0, limit.size))]
    probability, spread = 0.0, inf
    while spread > precision and limit.left > 0:
        count = min(limit.block, limit.left)
        centres = points.points[rng.choice(len(shares), count, p=shares)]
        u = centres + rng.normal(size=(count, limit.size))
        failed = limit.values(u) <= 0
        terms = np.append(terms, np.where(failed, importance_weights(u, points), 0.0))
        failures.append(u[failed])
        if failed.any() or probability:
            probability = float(terms.mean())
            spread = float(terms.std()) / sqrt(len(terms)) / probability
        # At half of them, what is left is for another method if the precision is out of reach.
        is_hopeless = spread > sqrt(limit.most / len(terms)) * precision
        if not keep_on and limit.left < limit.most / 2 and is_hopeless:
            break
    return FailureEstimate(
        "importance", probability, spread, limit.trajectories - before,
        np.concatenate(failures), terms[terms > 0] / max(terms.sum(), 1e-300),
    )  # fmt: skip


def _shares(points: Search) -> np.ndarray:
    """The shares of the design points among the points of the importance density."""
    shares = ndtr(-np.abs(points.indices))
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def importance_weights(u: np.ndarray, points: Search) -> np.ndarray:
    """The density around the origin, relative to the mixture around the design points."""
    terms = u @ points.points.T - (points.points**2).sum(1) / 2
    return np.asarray(np.exp(-logsumexp(terms, axis=1, b=_shares(points))))
