"""Crude Monte Carlo, and importance sampling around design points."""

import numpy as np

from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.estimates import FailureEstimate, weighted_estimate
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.openturns_event import OpenTurnsEvent, seeded
from jaxmech.ensemble.failure.standard_space import log_density

_LEAST_SHARE = 0.05  # of a design point among the points of the importance density


def approximations(limit: LimitState, points: Search) -> tuple[FailureEstimate, FailureEstimate]:
    """The first- and second-order approximations: sums over the design points.

    Each is the probability of a half-space, or Breitung's of a paraboloid. The sum is an upper
    bound of their union, and close to it where the design points are far from each other. The
    second one is NaN where a limit state is curved too much for a paraboloid.
    """
    from scipy.special import ndtr

    before, second = limit.trajectories, 0.0
    first = float(ndtr(-points.indices).sum())
    with seeded(0) as ot:
        for u in points.points:
            event = OpenTurnsEvent(limit)
            algorithm = ot.AbdoRackwitz()
            algorithm.setStartingPoint(u)
            try:
                result = event.run(ot.SORM(algorithm, event.event))
                second += result.getEventProbabilityBreitung()
            except RuntimeError as error:
                if event.failed:
                    raise
                if "Exception" not in str(error):  # those of OpenTURNS name their kind
                    raise
                second = float("nan")  # curved too much for a paraboloid, or not smooth
    nan = float("nan")
    return (
        FailureEstimate("form", min(first, 1.0), nan, 0),
        FailureEstimate("sorm", second, nan, limit.trajectories - before),
    )


def importance(limit: LimitState, points: Search, precision: float, seed: int) -> FailureEstimate:
    """Importance sampling with a normal density around each design point.

    The densities have the shares of the half-spaces at the design points. The points are drawn, and
    their number decided, by `ProbabilitySimulationAlgorithm` of OpenTURNS.
    """
    shares, block = _shares(points), limit.margin.study.block_size
    before, event = limit.trajectories, OpenTurnsEvent(limit)
    with seeded(seed) as ot:
        unit = ot.CovarianceMatrix(limit.size)
        density = ot.Mixture([ot.Normal(u, unit) for u in points.points], shares)
        experiment = ot.ImportanceSamplingExperiment(density)
        algorithm = ot.ProbabilitySimulationAlgorithm(event.event, experiment)
        algorithm.setBlockSize(block)
        algorithm.setMaximumOuterSampling(max(limit.left // block, 1))
        algorithm.setMaximumCoefficientOfVariation(precision)
        event.run(algorithm)
    u, margins = (np.concatenate(parts) for parts in zip(*event.samples, strict=True))
    weights = np.exp(log_density(u) - _log_mixture(u, points.points, shares))
    return weighted_estimate("importance", u, margins, weights, limit.trajectories - before)


def _shares(points: Search) -> np.ndarray:
    """The shares of the design points among the points of the importance density."""
    from scipy.special import ndtr

    shares = ndtr(-np.abs(points.indices))
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def _log_mixture(u: np.ndarray, points: np.ndarray, shares: np.ndarray) -> np.ndarray:
    from scipy.special import logsumexp

    terms = [log_density(u - point) for point in points]
    return np.asarray(logsumexp(np.stack(terms), axis=0, b=shares[:, None]))


def monte_carlo(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Crude Monte Carlo: the share of failures among points drawn as they occur."""
    rng, block = np.random.default_rng([seed, 2]), limit.margin.study.block_size
    before, points, margins = limit.trajectories, [], []
    while limit.left > 0:
        points.append(rng.normal(size=(min(block, limit.left), limit.size)))
        margins.append(limit.values(points[-1]))
        failures = sum(int((g <= 0).sum()) for g in margins)
        count = sum(map(len, margins))
        if failures and (1 - failures / count) / failures <= precision**2:
            break
    g = np.concatenate(margins)
    return weighted_estimate(
        "monte-carlo", np.concatenate(points), g, np.ones(len(g)), limit.trajectories - before
    )
