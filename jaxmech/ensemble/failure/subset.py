"""Subset simulation: a small probability as a product of large ones, one batch per step of chains.

Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation",
Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that are correlated
with the present ones, by an amount that adapts to their acceptance: Papaioannou, Betz, Zwirglmaier
and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering Mechanics 41, 2015.
"""

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from jaxmech.ensemble.failure.estimates import FailureEstimate, SubsetLevel
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState

SHARE = 0.1  # of a level among the trajectories of the one before
PILOT = 1000  # trajectories of a level of a pilot
RUN = 2000  # and of a level of one of several runs
_LEAST_RUNS = 5
_MOST_RUNS = 1000
_ACCEPTANCE = 0.44  # that the proposals are adapted to
_MOST_LEVELS = 60
_SEEDS_PER_VARIABLE = 5  # from which on their covariance is known
_STALLED = 0.95  # share above which a level makes no progress


@dataclass
class _Chains:
    """Markov chains within a level, all of which advance at once."""

    u: np.ndarray  # shape (chains, n)
    margins: np.ndarray
    scale: float  # of the proposals, in standard deviations of the seeds; adapts

    def advanced(
        self, limit: LimitState, threshold: float, axes: tuple[np.ndarray | None, np.ndarray],
        rng: np.random.Generator, step: int,
    ) -> float:  # fmt: skip
        """Move every chain by one proposal; return the share of those that were accepted."""
        directions, spread = axes
        sigma = np.minimum(self.scale * spread, 1.0)
        along = self.u if directions is None else self.u @ directions  # standard normal, too
        along = np.sqrt(1 - sigma**2) * along + sigma * rng.normal(size=self.u.shape)
        proposal = along if directions is None else along @ directions.T
        margins = limit.values(proposal)
        accepted = margins <= threshold
        self.u = np.where(accepted[:, None], proposal, self.u)
        self.margins = np.where(accepted, margins, self.margins)
        share = float(accepted.mean())
        self.scale = float(np.exp(np.log(self.scale) + (share - _ACCEPTANCE) / sqrt(step)))
        return share


def subset_simulation(
    limit: LimitState, precision: float, size: int | None, seed: int
) -> FailureEstimate:
    """The mean of independent runs of subset simulation, as many as the precision requires.

    Chains of a level begin where others of the level before have been, so the standard deviation
    that a single run states is too small. That of the mean comes from the differences of the runs.
    """
    runs: list[FailureEstimate] = []
    while len(runs) < _MOST_RUNS:
        if runs and limit.left < 1.5 * runs[-1].trajectories:
            break
        runs.append(levels_of(limit, size or RUN, np.random.default_rng([seed, 4, len(runs)])))
        if len(runs) >= _LEAST_RUNS and _mean(runs).coefficient_of_variation <= precision:
            break
    return _mean(runs)


def _mean(runs: list[FailureEstimate]) -> FailureEstimate:
    probabilities = np.array([run.probability for run in runs])
    mean = float(probabilities.mean())
    stated = sqrt(sum(x.coefficient_of_variation**2 for x in runs if x.failures.size)) / len(runs)
    spread = inf
    if mean > 0 and len(runs) > 1:
        spread = max(stated, float(probabilities.std(ddof=1)) / sqrt(len(runs)) / mean)
    failed = [run for run in runs if run.failures.size]
    weights = [run.weights * run.probability / (mean * len(runs)) for run in failed]
    return FailureEstimate(
        "subset", mean, spread if len(runs) > 1 else runs[0].coefficient_of_variation,
        sum(run.trajectories for run in runs),
        np.concatenate([run.failures for run in failed]) if failed else np.zeros((0, 0)),
        np.concatenate(weights) if failed else np.zeros(0), runs[0].levels, len(runs) - 1,
    )  # fmt: skip


def levels_of(limit: LimitState, size: int, rng: np.random.Generator) -> FailureEstimate:
    """One run of subset simulation with so many trajectories in a level."""
    before = limit.trajectories
    u = rng.normal(size=(size, limit.size))
    margins = limit.values(u)
    levels, correlation, scale, acceptance = [], 0.0, 0.6, float("nan")
    chain = 1  # points of a chain, which follow each other in steps of the number of chains
    while True:
        threshold = max(float(np.partition(margins, _rank(size))[_rank(size)]), 0.0)
        inside = margins <= threshold
        if threshold > 0 and inside.mean() > _STALLED:  # a plateau, which no level gets over
            threshold, inside = 0.0, margins <= 0
        share = float(inside.mean())
        correlation = _correlation(inside, chain)
        spread = sqrt((1 - share) / (max(share, 1e-300) * size) * (1 + correlation))
        levels.append(SubsetLevel(threshold, share, spread if share > 0 else inf, acceptance))
        if threshold <= 0 or len(levels) == _MOST_LEVELS:
            break
        seeds = rng.permutation(np.flatnonzero(inside))[: _rank(size) + 1]
        try:
            u, margins, chain, scale, acceptance = _population(
                limit, u[seeds], margins[seeds], threshold, size, scale, rng
            )
        except ExhaustedError:
            break
    return _product(levels, u[margins <= 0], limit.trajectories - before, correlation)


def _rank(size: int) -> int:
    return max(int(size * SHARE) - 1, 0)


def _population(
    limit: LimitState, seeds: np.ndarray, margins: np.ndarray, threshold: float, size: int,
    scale: float, rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, int, float, float]:  # fmt: skip
    """The points of the next level: chains from the seeds, which are points of it already."""
    chains = _Chains(seeds, margins, scale)
    axes = _axes(seeds)
    length = -(-size // len(seeds))
    points, values, shares = [seeds], [margins], []
    for step in range(1, length):
        shares.append(chains.advanced(limit, threshold, axes, rng, step))
        points.append(chains.u)
        values.append(chains.margins)
    return (
        np.concatenate(points), np.concatenate(values), length, chains.scale,
        float(np.mean(shares)) if shares else float("nan"),
    )  # fmt: skip


def _axes(seeds: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Orthogonal directions, shape (n, n), and the spread of the seeds along each.

    A level is thin in one direction, mostly, which is none of the variables. Of few seeds the
    directions are not known, and those of the variables are used (None).
    """
    n = seeds.shape[1]
    if len(seeds) < _SEEDS_PER_VARIABLE * n:
        return None, np.maximum(seeds.std(0), 1e-3)
    variances, directions = np.linalg.eigh(np.atleast_2d(np.cov(seeds.T)))
    return directions, np.sqrt(np.maximum(variances, 1e-6))


def _correlation(inside: np.ndarray, length: int) -> float:
    """The factor by which correlated chains raise the variance, less 1 (Au and Beck, eq. 29)."""
    if length == 1:
        return 0.0
    by_step = inside.reshape(length, -1).astype(float)
    mean = by_step.mean()
    variance = mean * (1 - mean)
    if variance == 0:
        return 0.0
    factor = 0.0
    for lag in range(1, length):
        covariance = (by_step[:-lag] * by_step[lag:]).mean() - mean**2
        factor += 2 * (1 - lag / length) * covariance / variance
    return max(factor, 0.0)


def _product(
    levels: list[SubsetLevel], failures: np.ndarray, trajectories: int, correlation: float
) -> FailureEstimate:
    reached = levels[-1].threshold <= 0
    probability = float(np.prod([level.probability for level in levels])) if reached else 0.0
    spread = sqrt(sum(level.coefficient_of_variation**2 for level in levels))
    weights = np.full(len(failures), 1 / max(len(failures), 1))
    return FailureEstimate(
        "subset", probability if len(failures) else 0.0, spread if len(failures) else inf,
        trajectories, failures, weights, tuple(levels),
    )  # fmt: skip
