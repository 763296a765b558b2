"""Subset simulation: a small probability as a product of large ones, one batch per step of chains.

Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation",
Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that are correlated
with the present ones, by an amount that adapts to their acceptance: Papaioannou, Betz, Zwirglmaier
and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering Mechanics 41, 2015.
Several independent runs advance together, so that a step of all of their chains is one batch.

At the end, bridge sampling gives the probability of the failures of which there is a sample, from
few further ones: Meng and Wong, "Simulating ratios of normalizing constants via a simple identity",
Statistica Sinica 6, 1996. With a density q and the failures F, both of which may be sampled,

    p = E_q[1_F(u) h(u)] / E_F[q(u)/φ(u) h(u)],    h = 1 / (1/p + q/φ).

Here q is made of standard normal densities beyond half-spaces, whose directions are the means of
clusters of failures. It need not hold all failures, as the second mean tells how many are missed.
Half-spaces of some runs of chains are used with the failures of the others alone: those of a run
itself have common ancestors, to which its half-spaces would be fitted.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState
from jaxmech.ensemble.failure.result import FailureEstimate, SubsetLevel

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


_CLUSTERS = (1, 2, 4, 8)  # of failures, of which the likeliest number is taken
_CLUSTERED = 2000  # failures that are searched for clusters
_SWEEPS = 20  # of the search for the clusters
_SMALLEST = 20  # cluster that has a half-space
_OUTSIDE = 0.05  # share of the failures of a cluster that its half-space leaves out
_DRAWS = 1024  # from the density at first
_MOST_DRAWS = 16_384
_OVERLAP = (0.05, 0.2)  # least share of failures in the density, and of it in the failures
_ITERATIONS = 100
_CONVERGED = 1e-12  # change of the probability, relative to it
_FLOOR = 1e-3  # of the density relative to that of failures, where its logarithm is compared


@dataclass(frozen=True, eq=False)
class HalfSpaces:
    """The mixture of the standard normal densities beyond some half-spaces a·u >= b."""

    directions: np.ndarray  # a, of length one, shape (k, n)
    bounds: np.ndarray  # b
    shares: np.ndarray  # of the mixture

    @classmethod
    def around(cls, u: np.ndarray, clusters: int, rng: np.random.Generator) -> "HalfSpaces":
        """Half-spaces that hold most of some failures, in clusters."""
        labels = _clustered(u, clusters, rng)
        members = [u[labels == k] for k in range(clusters)]
        members = [x for x in members if len(x) >= min(_SMALLEST, len(u))]
        means = np.stack([x.mean(0) for x in members])
        directions = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
        bounds = [np.quantile(x @ a, _OUTSIDE) for x, a in zip(members, directions, strict=True)]
        counts = np.array([len(x) for x in members])
        return cls(directions, np.array(bounds), counts / counts.sum())

    @property
    def _log_probabilities(self) -> np.ndarray:
        from scipy.special import log_ndtr

        return np.asarray(log_ndtr(-self.bounds))

    def ratio(self, u: np.ndarray) -> np.ndarray:
        """The density relative to the standard normal one."""
        inside = u @ self.directions.T >= self.bounds
        return inside @ np.exp(np.log(self.shares) - self._log_probabilities)

    def drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points of the density, shape (count, n)."""
        from scipy.special import ndtri_exp

        k = rng.choice(len(self.shares), size=count, p=self.shares)
        beyond = -ndtri_exp(self._log_probabilities[k] + np.log(rng.random(count)))
        u, a = rng.normal(size=(count, self.directions.shape[1])), self.directions[k]
        return np.asarray(u + (beyond - (u * a).sum(1))[:, None] * a)


class _Part(NamedTuple):
    """A probability with the squares of its coefficients of variation."""

    probability: float
    of_draws: float  # by the points of the density
    of_runs: float  # by the failures


def bridged(
    limit: LimitState, runs: Sequence[np.ndarray], guess: float, precision: float,
    rng: np.random.Generator,
) -> FailureEstimate | None:  # fmt: skip
    """The probability from failures of independent runs, shape (N, n) each.

    None where it is not known, as half-spaces hold too few of the failures, or failures are too few
    in them, or trajectories are exhausted.
    """
    before, halves = limit.trajectories, (runs[::2], runs[1::2])
    if len(halves[1]) < 2:
        return None
    parts: list[_Part] = []
    for fitted, others in (halves, halves[::-1]):
        density = _likeliest(np.concatenate(fitted), np.concatenate(others), guess, rng)
        part = _part(limit, density, others, guess, precision, rng)
        if part is None:
            return None
        parts.append(part)
    probability = float(np.mean([part.probability for part in parts]))
    of_draws = sum(part.probability**2 * part.of_draws for part in parts)
    of_runs = sum(part.probability**2 * part.of_runs for part in parts)
    variance = of_draws + of_runs
    spread = sqrt(variance) / 2 / probability
    failures = np.concatenate(runs)
    numbers = np.repeat(np.arange(len(runs)), [len(u) for u in runs])
    return FailureEstimate(
        "bridge sampling", probability, spread, limit.trajectories - before, failures,
        np.full(len(failures), 1 / len(failures)), degrees=len(runs) - 2,
        of_runs=of_runs / variance, runs=numbers,
    )  # fmt: skip


def _likeliest(
    u: np.ndarray, others: np.ndarray, guess: float, rng: np.random.Generator
) -> HalfSpaces:
    """The density around failures u under which others are the likeliest."""
    choices = [HalfSpaces.around(u, count, rng) for count in _CLUSTERS]
    scores = [np.log(guess * choice.ratio(others) + _FLOOR).mean() for choice in choices]
    return choices[int(np.argmax(scores))]


def _part(
    limit: LimitState, density: HalfSpaces, runs: Sequence[np.ndarray], guess: float,
    precision: float, rng: np.random.Generator,
) -> _Part | None:  # fmt: skip
    """The probability by a density and failures of independent runs."""
    in_runs = [density.ratio(u) for u in runs]
    within = np.mean([(ratios > 0).mean() for ratios in in_runs])
    ratios, failed = np.zeros(0), np.zeros(0, bool)
    while True:
        count = max(len(ratios), _DRAWS)
        if within < _OVERLAP[1] or limit.left < count:
            return None
        u = density.drawn(count, rng)
        ratios = np.concatenate([ratios, density.ratio(u)])
        failed = np.concatenate([failed, limit.values(u) <= 0])
        if failed.mean() < _OVERLAP[0]:
            return None
        probability, terms, means = _solved(np.where(failed, ratios, np.nan), in_runs, guess)
        of_draws = float(terms.var() / len(terms) / terms.mean() ** 2)
        if of_draws <= precision**2 / 2 or len(ratios) >= _MOST_DRAWS:
            break
    return _Part(probability, of_draws, float(means.var(ddof=1) / len(means) / means.mean() ** 2))


def _solved(
    ratios: np.ndarray, in_runs: Sequence[np.ndarray], guess: float
) -> tuple[float, np.ndarray, np.ndarray]:
    """The solution p of the identity, the terms of its numerator, and the means of the runs."""
    p = guess
    for _ in range(_ITERATIONS):
        terms = np.nan_to_num(1 / (1 / p + ratios))
        means = np.array([(x / (1 / p + x)).mean() for x in in_runs])
        p, before = float(terms.mean() / means.mean()), p
        if abs(p - before) <= _CONVERGED * p:
            break
    return p, terms, means


def _clustered(u: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """The number of the cluster of each point, by k-means from points far from each other."""
    some = u if len(u) <= _CLUSTERED else u[rng.choice(len(u), _CLUSTERED, replace=False)]
    centers = some[rng.integers(len(some), size=1)]
    for _ in range(clusters - 1):
        distances = _distances(some, centers).min(1)
        choice = rng.choice(len(some), p=distances / distances.sum())
        centers = np.vstack([centers, some[choice]])
    labels = _distances(some, centers).argmin(1)
    for _ in range(_SWEEPS):
        centers = np.stack([
            some[labels == k].mean(0) if (labels == k).any() else center
            for k, center in enumerate(centers)
        ])  # fmt: skip
        before, labels = labels, _distances(some, centers).argmin(1)
        if np.array_equal(labels, before):
            break
    return np.asarray(_distances(u, centers).argmin(1))


def _distances(u: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Squared distances of points from centers, shape (N, k)."""
    return np.maximum((u**2).sum(1)[:, None] - 2 * u @ centers.T + (centers**2).sum(1), 0.0)
