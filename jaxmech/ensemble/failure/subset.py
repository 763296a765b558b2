"""Subset simulation: a small probability as a product of large ones, one batch per step of chains.

Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation",
Probabilistic Engineering Mechanics 16, 2001. The chains propose normal points that are correlated
with the present ones, by an amount that adapts to their acceptance: Papaioannou, Betz, Zwirglmaier
and Straub, "MCMC algorithms for subset simulation", Probabilistic Engineering Mechanics 41, 2015.

Several independent runs advance together, so that a step of all of their chains is one batch. Their
mean is the estimate and their scatter its standard error, which includes what the chains of a run
have in common; formulas for a single run do not.
"""

from math import inf, sqrt

import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState
from jaxmech.ensemble.failure.result import FailureEstimate, SubsetLevel

SIZE = 2000  # points of a level of a run
_RUNS = 6  # that advance together
_SHARE = 0.1  # of the points of a level that are in the next one
_ACCEPTANCE = 0.44
_MOST_LEVELS = 30  # down to 1e-30
_CORRELATION = 3.0  # by how much the chains raise the variance of a level, about


class FlatError(InputError):
    """The margin is the same in most safe motions."""


def subset_simulation(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """The mean of as many runs as the precision requires, or as may be computed."""
    rng, before = np.random.default_rng([seed, 4]), limit.trajectories
    rounds: list[FailureEstimate] = []
    probabilities: list[float] = []
    while True:
        begun = limit.trajectories
        try:
            one, of_runs = runs(limit, SIZE, _RUNS, rng)
        except ExhaustedError:
            if not rounds:
                raise
            break
        rounds.append(one)
        probabilities += list(of_runs)
        mean = float(np.mean(probabilities))
        count = len(probabilities)
        spread = float(np.std(probabilities, ddof=1)) / sqrt(count) / mean if mean > 0 else inf
        if spread <= precision or limit.left < limit.trajectories - begun:
            break
    counts = [len(one.failures) for one in rounds]
    numbers = [one.runs + k * _RUNS for k, one in enumerate(rounds)]
    weights = np.concatenate([one.probability * one.weights for one in rounds])
    return FailureEstimate(
        "subset", mean, spread, limit.trajectories - before,
        np.concatenate([one.failures for one in rounds]),
        weights / max(weights.sum(), 1e-300) if sum(counts) else weights,
        rounds[0].levels, count - 1, np.concatenate(numbers),
    )  # fmt: skip


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
    logs, variance, acceptance = np.zeros(count), 0.0, float("nan")
    levels: list[SubsetLevel] = []
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
        own = (1 - share) / share / (size * count) * (1 + (_CORRELATION if levels else 0.0))
        variance += own
        levels.append(SubsetLevel(float(level.mean()), share, sqrt(own), acceptance))
        if (level <= 0).all():
            break
        if len(levels) == _MOST_LEVELS:
            raise ExhaustedError
        # The chains begin at the points inside; runs at their end stand still.
        first = np.argsort(~inside, axis=1, kind="stable")[:, :seeds]
        u, g = np.take_along_axis(u, first[:, :, None], 1), np.take_along_axis(g, first, 1)
        points, margins, accepted = [u], [g], []
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
            accepted.append(float(ok[going].mean()))
            width *= np.exp((accepted[-1] - _ACCEPTANCE) / np.sqrt(step))
            points.append(u)
            margins.append(g)
        acceptance = float(np.mean(accepted))
        u, g = np.concatenate(points, 1)[:, :size], np.concatenate(margins, 1)[:, :size]
    probabilities = np.exp(logs)
    failed = g <= 0
    weights = np.broadcast_to((probabilities / np.maximum(failed.sum(1), 1))[:, None], g.shape)
    number = np.broadcast_to(np.arange(count)[:, None], g.shape)
    estimate = FailureEstimate(
        "subset", float(probabilities.mean()), sqrt(variance), limit.trajectories - before,
        u[failed], weights[failed] / max(probabilities.sum(), 1e-300), tuple(levels),
        runs=number[failed],
    )  # fmt: skip
    return estimate, probabilities
