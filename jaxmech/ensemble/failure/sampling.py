"""Approximations at design points, importance sampling, crude Monte Carlo, subset simulation.

Subset simulation is a small probability as a product of large ones, one batch per step of chains:
Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation",
Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that are correlated
with the present ones, by an amount that adapts to their acceptance: Papaioannou, Betz, Zwirglmaier
and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering Mechanics 41, 2015.
Several independent runs advance together, so that a step of all of their chains is one batch. Their
mean is the estimate and their scatter its standard error, which includes what the chains of a run
have in common; formulas for a single run do not.
"""

from dataclasses import replace
from math import inf, nan, sqrt

import numpy as np
from scipy.special import logsumexp, ndtr

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState
from jaxmech.ensemble.failure.result import FailureEstimate

_LEAST_SHARE = 0.05  # of a design point among the points of the importance density
_SIZE = 2000  # points of a level of a run
_RUNS = 6  # that advance together
_SHARE = 0.1  # of the points of a level that are in the next one
_ACCEPTANCE = 0.44
_MOST_LEVELS = 30  # down to 1e-30
_CORRELATION = 3.0  # by how much the chains raise the variance of a level, about


def first_order(points: Search) -> FailureEstimate:
    """The sum of the half-spaces at the design points.

    It is an upper bound of their union, and close to it where the points are far from each other.
    """
    return FailureEstimate("form", min(float(ndtr(-points.indices).sum()), 1.0), nan, 0)


def monte_carlo(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Crude Monte Carlo: the share of failures among points drawn as they occur."""
    origin = np.zeros((1, limit.size))
    around = Search(origin, origin, 1.0, flat=False)
    estimate = importance(limit, around, precision, [seed, 2])
    return replace(estimate, method="monte-carlo", counted=estimate.trajectories)


def importance(
    limit: LimitState, points: Search, precision: float, seed: list[int], keep_on: bool = True
) -> FailureEstimate:
    """Importance sampling with a normal density around each design point.

    The densities have the shares of the half-spaces at the design points, so that the weights are
    known in closed form. Batches are drawn until the precision is reached, or no more may be; or,
    unless it is to `keep_on`, until half are drawn and the rest will not be enough.
    """
    rng, shares, before = np.random.default_rng(seed), _shares(points), limit.trajectories
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


class FlatError(InputError):
    """The margin is the same in most safe motions."""


def subset_simulation(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """The mean of as many runs as the precision requires, or as may be computed."""
    rng, before = np.random.default_rng([seed, 4]), limit.trajectories
    probabilities: list[float] = []
    while True:
        begun = limit.trajectories
        try:
            probabilities += runs(limit, _SIZE, _RUNS, rng)[1].tolist()
        except ExhaustedError:
            if not probabilities:
                raise
            break
        mean, count = float(np.mean(probabilities)), len(probabilities)
        spread = float(np.std(probabilities, ddof=1)) / sqrt(count) / mean if mean > 0 else inf
        if spread <= precision or limit.left < limit.trajectories - begun:
            break
    spent = limit.trajectories - before
    return FailureEstimate("subset", mean, spread, spent, degrees=count - 1)


def runs(
    limit: LimitState, size: int, count: int, rng: np.random.Generator
) -> tuple[FailureEstimate, np.ndarray]:
    """Some runs that advance together, and the probability by each.

    The coefficient of variation of the estimate is the one by the usual formula, since the scatter
    of so few runs says little.
    """
    seeds, before = max(int(_SHARE * size), 1), limit.trajectories
    u = rng.normal(size=(count, size, limit.size))
    g, width = limit.values(u.reshape(-1, limit.size)).reshape(count, size), 0.6
    logs, variance, levels = np.zeros(count), 0.0, 0
    while True:
        level = np.maximum(np.partition(g, seeds - 1, axis=1)[:, seeds - 1], 0.0)
        inside = g <= level[:, None]
        shares = inside.mean(1)
        if (shares[level > 0] > 0.5).any():
            raise FlatError(
                "the method 'subset' needs a margin that differs between safe motions, but half of "
                'them have the same one; choose the method "monte-carlo", or observe a quantity '
                "that tells how far a failure is"
            )
        with np.errstate(divide="ignore"):
            logs += np.log(shares)
        share = max(float(shares.mean()), 1e-300)
        correlation, levels = (_CORRELATION if levels else 0.0), levels + 1
        variance += (1 - share) / share / (size * count) * (1 + correlation)
        if (level <= 0).all():
            break
        if levels == _MOST_LEVELS:
            raise ExhaustedError
        # The chains begin at the points inside; runs at their end stand still.
        first = np.argsort(~inside, axis=1, kind="stable")[:, :seeds]
        u, g = np.take_along_axis(u, first[:, :, None], 1), np.take_along_axis(g, first, 1)
        points, margins = [u], [g]
        going = level > 0
        for step in range(1, -(-size // seeds)):
            # One width for all variables and runs: if it followed the scatter of a run in each of
            # many variables, its chains would no longer be reversible, and the product too small.
            sigma = min(width, 1.0)
            moved = np.sqrt(1 - sigma**2) * u + sigma * rng.normal(size=u.shape)
            new = np.full(g.shape, inf)
            new[going] = limit.values(moved[going].reshape(-1, limit.size)).reshape(-1, seeds)
            ok = new <= level[:, None]
            u, g = np.where(ok[..., None], moved, u), np.where(ok, new, g)
            width *= np.exp((float(ok[going].mean()) - _ACCEPTANCE) / np.sqrt(step))
            points.append(u)
            margins.append(g)
        u, g = np.concatenate(points, 1)[:, :size], np.concatenate(margins, 1)[:, :size]
    probabilities = np.exp(logs)
    failed = g <= 0
    weights = np.broadcast_to((probabilities / np.maximum(failed.sum(1), 1))[:, None], g.shape)
    estimate = FailureEstimate(
        "subset", float(probabilities.mean()), sqrt(variance), limit.trajectories - before,
        u[failed], weights[failed] / max(probabilities.sum(), 1e-300),
    )  # fmt: skip
    return estimate, probabilities
