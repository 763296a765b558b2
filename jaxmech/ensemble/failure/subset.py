"""Subset simulation: a small probability as a product of large ones, one batch per step of chains.

Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation",
Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that are correlated
with the present ones, by an amount that adapts to their acceptance: Papaioannou, Betz, Zwirglmaier
and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering Mechanics 41, 2015.
Several independent runs advance together, so that a step of all of their chains is one batch.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from jaxmech.ensemble.failure.bridge import bridged
from jaxmech.ensemble.failure.estimates import FailureEstimate, SubsetLevel
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState

SHARE = 0.1  # of a level among the trajectories of the one before
RUN = 1024  # trajectories of a level of a run
RUNS = 5  # that advance together, so that their chains fill a batch of 512
_ACCEPTANCE = 0.44  # that the proposals are adapted to
_MOST_LEVELS = 60
_SEEDS_PER_VARIABLE = 5  # from which on their covariance is known
_STALLED = 0.95  # share above which a level makes no progress

# The points of which a run asks the margins, and what it returns.
Run = Generator[np.ndarray, np.ndarray, FailureEstimate]


def subset_simulation(
    limit: LimitState, precision: float, size: int | None, seed: int
) -> tuple[FailureEstimate, FailureEstimate | None]:
    """The probability by the product of the levels, and from the failures at their end.

    Independent runs are added until one of the two is as precise as required. The chains of a level
    begin where others of the level before have been, so that the standard deviation that a single
    run states is too small; those here come from the differences of the runs. The second estimate
    is that of bridge sampling, far more precise where a few half-spaces hold the failures, and None
    where they do not.
    """
    runs: list[FailureEstimate] = []
    results: list[tuple[FailureEstimate, FailureEstimate | None]] = []
    while True:
        before, count = limit.trajectories, len(runs)
        rngs = [np.random.default_rng([seed, 4, count + k]) for k in range(RUNS)]
        try:
            runs += together(limit, [levels_of(limit.size, size or RUN, rng) for rng in rngs])
        except ExhaustedError:
            if not results:
                raise
            return results[-1]
        product = _mean(runs)
        failures = [run.failures for run in runs if run.failures.size]
        rng = np.random.default_rng([seed, 7, count])
        other = bridged(limit, failures, product.probability, precision, rng)
        results.append((product, other))
        is_reached = any(x.reaches(precision) for x in results[-1] if x is not None)
        if is_reached or limit.left < 1.2 * (limit.trajectories - before):
            return results[-1]


def together(limit: LimitState, runs: Sequence[Run]) -> list[FailureEstimate]:
    """The results of some runs, all of whose questions at a time are asked in one batch.

    Raises:
        ExhaustedError: if as many trajectories are computed as are allowed before they end.
    """
    results: list[FailureEstimate | None] = [None] * len(runs)
    asked = {k: next(run) for k, run in enumerate(runs)}
    while asked:
        margins = limit.values(np.concatenate([*asked.values()]))
        ends = np.cumsum([len(u) for u in asked.values()])[:-1]
        answers = dict(zip(asked, np.split(margins, ends), strict=True))
        asked = {}
        for k, answer in answers.items():
            try:
                asked[k] = runs[k].send(answer)
            except StopIteration as end:
                results[k] = end.value
    return [result for result in results if result is not None]


def _mean(runs: list[FailureEstimate]) -> FailureEstimate:
    probabilities = np.array([run.probability for run in runs])
    mean = float(probabilities.mean())
    stated = sqrt(sum(x.coefficient_of_variation**2 for x in runs if x.failures.size)) / len(runs)
    spread = inf
    if mean > 0:
        spread = max(stated, float(probabilities.std(ddof=1)) / sqrt(len(runs)) / mean)
    failed = [run for run in runs if run.failures.size]
    weights = [run.weights * run.probability / (mean * len(runs)) for run in failed]
    numbers = np.repeat(np.arange(len(failed)), [len(run.weights) for run in failed])
    return FailureEstimate(
        "product of levels", mean, spread, sum(run.trajectories for run in runs),
        np.concatenate([run.failures for run in failed]) if failed else np.zeros((0, 0)),
        np.concatenate(weights) if failed else np.zeros(0), runs[0].levels, len(runs) - 1, numbers,
    )  # fmt: skip


def levels_of(n: int, size: int, rng: np.random.Generator, with_population: bool = True) -> Run:
    """One run of subset simulation in n variables with so many trajectories in a level.

    It ends with a population of failures, unless only their probability is wanted.
    """
    u = rng.normal(size=(size, n))
    margins = yield u
    levels, correlation, scale, acceptance = [], 0.0, 0.6, float("nan")
    trajectories, rank = size, max(int(size * SHARE) - 1, 0)
    chain = 1  # points of a chain, which follow each other in steps of the number of chains
    while True:
        threshold = max(float(np.partition(margins, rank)[rank]), 0.0)
        inside = margins <= threshold
        if threshold > 0 and inside.mean() > _STALLED:  # a plateau, which no level gets over
            threshold, inside = 0.0, margins <= 0
        share = float(inside.mean())
        correlation = _correlation(inside, chain)
        spread = sqrt((1 - share) / (max(share, 1e-300) * size) * (1 + correlation))
        levels.append(SubsetLevel(threshold, share, spread if share > 0 else inf, acceptance))
        is_last = threshold <= 0 and not with_population
        if len(levels) == _MOST_LEVELS or share == 0 or is_last:
            return _product(levels, u[margins <= 0], trajectories)
        seeds = rng.permutation(np.flatnonzero(inside))[: rank + 1]
        chains = _Chains(u[seeds], margins[seeds], scale)
        u, margins, chain, acceptance = yield from chains.population(threshold, size, rng)
        scale, trajectories = chains.scale, trajectories + len(u) - len(seeds)
        if threshold <= 0:
            return _product(levels, u, trajectories)


@dataclass
class _Chains:
    """Markov chains within a level, all of which advance at once."""

    u: np.ndarray  # shape (chains, n)
    margins: np.ndarray
    scale: float  # of the proposals, in standard deviations of the seeds; adapts

    def population(
        self, threshold: float, size: int, rng: np.random.Generator
    ) -> Generator[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, int, float]]:
        """Points of the level, their margins, the length of the chains, and their acceptance."""
        axes = _axes(self.u)
        length = -(-size // len(self.u))
        points, values, shares = [self.u], [self.margins], []
        for step in range(1, length):
            proposals = self._proposals(axes, rng)
            margins = yield proposals
            shares.append(self._advance(proposals, margins, threshold, step))
            points.append(self.u)
            values.append(self.margins)
        acceptance = float(np.mean(shares)) if shares else float("nan")
        return np.concatenate(points), np.concatenate(values), length, acceptance

    def _proposals(
        self, axes: tuple[np.ndarray | None, np.ndarray], rng: np.random.Generator
    ) -> np.ndarray:
        directions, spread = axes
        sigma = np.minimum(self.scale * spread, 1.0)
        along = self.u if directions is None else self.u @ directions  # standard normal, too
        along = np.sqrt(1 - sigma**2) * along + sigma * rng.normal(size=self.u.shape)
        return along if directions is None else along @ directions.T

    def _advance(
        self, proposals: np.ndarray, margins: np.ndarray, threshold: float, step: int
    ) -> float:
        """Go to the proposals that lie within the level; return their share."""
        accepted = margins <= threshold
        self.u = np.where(accepted[:, None], proposals, self.u)
        self.margins = np.where(accepted, margins, self.margins)
        share = float(accepted.mean())
        self.scale = float(np.exp(np.log(self.scale) + (share - _ACCEPTANCE) / sqrt(step)))
        return share


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


def _product(levels: list[SubsetLevel], failures: np.ndarray, trajectories: int) -> FailureEstimate:
    probability = float(np.prod([level.probability for level in levels]))
    spread = sqrt(sum(level.coefficient_of_variation**2 for level in levels))
    weights = np.full(len(failures), 1 / max(len(failures), 1))
    return FailureEstimate(
        "subset", probability if len(failures) else 0.0, spread if len(failures) else inf,
        trajectories, failures, weights, tuple(levels),
    )  # fmt: skip
