"""Bridge sampling: the probability of failures of which a sample is known, from few further ones.

Meng and Wong, "Simulating ratios of normalizing constants via a simple identity", Statistica Sinica
6, 1996: with a density q and the failures F, both of which may be sampled,

    p = E_q[1_F(u) h(u)] / E_F[q(u)/φ(u) h(u)],    h = 1 / (1/p + q/φ).

Here q is made of standard normal densities beyond half-spaces, whose directions are the means of
clusters of failures. It need not hold all failures, as the second mean tells how many are missed.
Half-spaces of some runs of chains are used with the failures of the others alone: those of a run
itself have common ancestors, to which its half-spaces would be fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from jaxmech.ensemble.failure.estimates import FailureEstimate
from jaxmech.ensemble.failure.limit_state import LimitState

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
