"""Design points, the most probable failures, and the probabilities by several methods.

They are approximations at design points, importance sampling around them, crude Monte Carlo, and
subset simulation.
"""

from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, nan, sqrt

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri, stdtrit

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.limit_state import GRADIENT_LANES, ExhaustedError, LimitState
from jaxmech.ensemble.statistics import of_proportion

_LEAST_SHARE = 0.05  # of a design point among the points of the importance density
_SIZE = 2000  # points of a level of a run
_RUNS = 6  # that advance together
_SHARE = 0.1  # of the points of a level that are in the next one
_ACCEPTANCE = 0.44
_MOST_LEVELS = 30  # down to 1e-30
_CORRELATION = 3.0  # by how much the chains raise the variance of a level, about
_FEW = 1e-300
_RADIUS = 3.0  # of random starts, in standard deviations
_ROUNDS = 8  # of starts at most
_STEPS = 60
_WHOLE = 12  # of them that are not shortened
_FARTHEST = 12.0  # point that is searched, in standard deviations
_SHORTEST = 2.0**-10  # of the steps, before a start is given up
_CLOSE = 1e-5  # of the margin relative to that of the origin, and of u, at a design point
_APART = 1.5  # distance of points that are different ones, in standard deviations
_RELEVANT = 3.0  # by how much a reliability index may be larger for its region to matter


@dataclass(frozen=True, eq=False)
class Search:
    """The outcome of a search for design points.

    Attributes:
        points: the design points, the most probable one first, shape (k, n).
        gradients: the gradients of the margin there, shape (k, n).
        origin: the margin at the origin, the medians of all variables.
        flat: whether the margin has no gradient at any start.
    """

    points: np.ndarray
    gradients: np.ndarray
    origin: float
    flat: bool

    @property
    def indices(self) -> np.ndarray:
        """The reliability indices β: distances from the origin, negative if it is a failure."""
        return np.linalg.norm(self.points, axis=1) * (1.0 if self.origin > 0 else -1.0)

    @property
    def relevant(self) -> np.ndarray:
        """The distances of the points that are not much farther than the nearest one."""
        distances = np.abs(self.indices)
        return distances[distances < distances.min(initial=np.inf) + _RELEVANT]


def search(limit: LimitState, seed: int, failures: np.ndarray | None = None) -> Search:
    """The design points to which the origin and some failures lead, or random points.

    The search, from several starts in one batch, is the improved HLRF algorithm (Zhang and Der
    Kiureghian, "Two improved algorithms for reliability analysis", IFIP 1994): a step to the point
    nearest to the origin of the linearized limit state, shortened until the merit |u|²/2 + c |g|
    falls. The first steps are not shortened, so that they leave the kinks of a margin that is the
    smallest of several.

    Further starts, as far as possible from each other and from all points found, follow until they
    lead to none that is new: a boundary along an arc, and a motion that is driven by noise, have
    many points.
    """
    candidates = failures
    if candidates is None or not len(candidates):
        directions = np.random.default_rng([seed, 1]).normal(size=(256, limit.size))
        candidates = _RADIUS * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    origin, flat = np.nan, True
    points, gradients = np.zeros((0, limit.size)), np.zeros((0, limit.size))
    for round_ in range(_ROUNDS):
        known = points if round_ else np.zeros((1, limit.size))
        starts = _far_apart(candidates, known, GRADIENT_LANES - (round_ == 0))
        if round_ == 0:
            starts = np.vstack([np.zeros(limit.size), starts])
        found = _descended(limit, starts, origin)
        if round_ == 0:
            origin, flat = found[0], found[3]
        u, du = np.vstack([points, found[1]]), np.vstack([gradients, found[2]])
        kept: list[int] = []
        for k in np.argsort(np.linalg.norm(u, axis=1), kind="stable"):
            if all(np.linalg.norm(u[k] - u[other]) > _APART for other in kept):
                kept.append(int(k))
        more = len(kept) > len(points)
        points, gradients = u[kept], du[kept]
        if not more or len(starts) < GRADIENT_LANES or (failures is None and len(kept) == 1):
            break
    return Search(points, gradients, float(origin), bool(flat))


def _far_apart(candidates: np.ndarray, known: np.ndarray, count: int) -> np.ndarray:
    """Some of the candidates, each the farthest from those before and from the known points."""
    distance = np.full(len(candidates), np.inf)
    for u in known:
        distance = np.minimum(distance, np.linalg.norm(candidates - u, axis=1))
    chosen: list[int] = []
    while len(chosen) < count and distance.max(initial=0.0) > 1e-9:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(candidates - candidates[chosen[-1]], axis=1))
    return candidates[chosen]


def _descended(
    limit: LimitState, starts: np.ndarray, origin: float
) -> tuple[float, np.ndarray, np.ndarray, bool]:
    """The margin of the origin, design points and their gradients, whether there are gradients."""
    u = starts.copy()
    g, gradients = limit.with_gradients(u)
    origin = float(g[0]) if np.isnan(origin) else origin
    scale = max(abs(origin), 1e-300)
    flat = not gradients.any()
    moving: np.ndarray = np.asarray(gradients.any(1))
    done = np.zeros(len(u), bool)
    damping, last = np.ones(len(u)), np.zeros_like(u)
    for step in range(_STEPS):
        if not moving.any():
            break
        squares = np.maximum((gradients**2).sum(1), 1e-300)
        nearest = (((gradients * u).sum(1) - g) / squares)[:, None] * gradients
        reach = np.linalg.norm(nearest, axis=1, keepdims=True)
        move = nearest * np.minimum(1.0, _FARTHEST / np.maximum(reach, _FARTHEST)) - u
        # Where a boundary is curved like a circle, whole steps go to and fro for ever.
        returns = (move * last).sum(1) < -0.5 * (last**2).sum(1)
        damping = np.where(returns, damping / 2, np.minimum(1.0, 1.5 * damping))
        last = move
        # The weight of the margin in the merit is twice the least with which every step descends.
        lengths = np.linalg.norm(u, axis=1)
        enough = 0.5 * (nearest**2).sum(1) / np.maximum(np.abs(g), 1e-300)
        weight = np.maximum(
            2 * np.maximum(lengths, 1.0) / np.sqrt(squares),
            np.where(np.abs(g) > _CLOSE * scale, enough, 0.0),
        )
        merit = 0.5 * lengths**2 + weight * np.abs(g)
        most = np.full(len(u), np.inf) if step < _WHOLE else merit + 1e-12 * (1 + merit)
        factor = damping.copy()
        trying: np.ndarray = np.array(moving)
        while trying.any():
            rows = np.flatnonzero(trying)
            tried = u[rows] + factor[rows, None] * move[rows]
            at, slopes = limit.with_gradients(tried)
            fine = slopes.any(1) & (
                0.5 * (tried**2).sum(1) + weight[rows] * np.abs(at) < most[rows]
            )
            to = rows[fine]
            u[to], g[to], gradients[to] = tried[fine], at[fine], slopes[fine]
            trying[to] = False
            factor[rows[~fine]] /= 2
            stuck = trying & (factor < _SHORTEST)
            moving &= ~stuck
            trying &= ~stuck
        # A design point is on the boundary, and along the gradient there.
        squares = np.maximum((gradients**2).sum(1), 1e-300)
        across = u - ((gradients * u).sum(1) / squares)[:, None] * gradients
        lengths = np.maximum(np.linalg.norm(u, axis=1), 1.0)
        on = np.abs(g) <= _CLOSE * np.maximum(scale, np.sqrt(squares) * lengths)
        done |= moving & on & (np.linalg.norm(across, axis=1) <= 1e-3 * lengths)
        moving &= ~done
    return origin, u[done], gradients[done], flat


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
        if self.counted:
            failed = round(self.probability * self.counted)
            return of_proportion(failed, self.counted, confidence, "clopper-pearson")
        if self.probability <= 0:
            return 0.0, inf
        if not isfinite(self.coefficient_of_variation):
            return nan, nan
        tail = 0.5 + confidence / 2
        quantile = float(stdtrit(self.degrees, tail) if self.degrees else ndtri(tail))
        width = quantile * sqrt(np.log1p(self.coefficient_of_variation**2))
        return self.probability * exp(-width), min(self.probability * exp(width), 1.0)

    def agrees(self, other: "FailureEstimate", deviations: float) -> bool:
        """Whether two estimates differ by at most so many of their standard deviations."""
        spread = np.hypot(self.coefficient_of_variation, other.coefficient_of_variation)
        ratio = np.log(max(self.probability, _FEW) / max(other.probability, _FEW))
        return bool(abs(ratio) <= deviations * sqrt(np.log1p(spread**2)))


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
    """The mean of as many runs as the precision requires, or as may be computed.

    Subset simulation is a small probability as a product of large ones, one batch per step of
    chains: Au and Beck, "Estimation of small failure probabilities in high dimensions by subset
    simulation", Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that
    are correlated with the present ones, by an amount that adapts to their acceptance: Papaioannou,
    Betz, Zwirglmaier and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering
    Mechanics 41, 2015. Several independent runs advance together, so that a step of all of their
    chains is one batch. Their mean is the estimate and their scatter its standard error, which
    includes what the chains of a run have in common; formulas for a single run do not.
    """
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
