"""Directional sampling and line sampling: the failures along random rays, many rays at a time.

Along each ray the margins are computed at the nodes of a grid, and where their signs differ, the
boundary is found between them. All failures of a ray count, not just those behind the first one.

Directional sampling: Bjerager, "Probability integration by directional simulation", Journal of
Engineering Mechanics 114, 1988. Line sampling: Koutsourelakis, Pradlwarter and Schueller,
"Reliability of structures in high dimensions", Probabilistic Engineering Mechanics 19, 2004.
"""

from collections.abc import Callable
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.estimates import FailureEstimate
from jaxmech.ensemble.failure.limit_state import LimitState

_NEGLIGIBLE = 1e-13  # probability beyond the last node of a ray
_NODES = 12  # of a ray from the origin
_NEAR = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # nodes of a line, from the index
_ITERATIONS = 12
_NARROW = 1e-5  # bracket of a boundary, in standard deviations
_RESOLUTION = 1e-4  # of a probability whose boundary is known to that bracket
_LEAST = 64  # rays


class _Rays(NamedTuple):
    """Rays u = base + s direction, and the probability along each."""

    bases: np.ndarray  # shape (N, n)
    directions: np.ndarray
    nodes: np.ndarray  # s at which margins are computed
    beyond: Callable[[np.ndarray], np.ndarray]  # probability of a larger s
    inverse: Callable[[np.ndarray], np.ndarray]  # s that is exceeded with a probability


def directional_sampling(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Rays from the origin in directions that are uniformly distributed."""
    from scipy.special import chdtrc, chdtri

    n, rng = limit.size, np.random.default_rng([seed, 5])
    farthest = sqrt(chdtri(n, _NEGLIGIBLE))
    nodes = np.linspace(0.0, farthest, _NODES + 1)[1:]

    def rays(count: int) -> _Rays:
        directions = rng.normal(size=(count, n))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return _Rays(
            np.zeros((count, n)), directions, nodes,
            lambda s: chdtrc(n, np.square(s)), lambda unit: np.sqrt(chdtri(n, unit)),
        )  # fmt: skip

    return _sampled("directional", limit, rays, len(nodes), precision, rng)


def line_sampling(
    limit: LimitState, points: Search, precision: float, seed: int
) -> FailureEstimate:
    """Lines parallel to the direction of the most probable failure, through random points."""
    from scipy.special import ndtr, ndtri

    rng, index = np.random.default_rng([seed, 6]), float(abs(points.indices[0]))
    direction = points.points[0] / max(index, 1e-12)
    if index < 1e-9:  # the medians are on the boundary
        direction = -points.gradients[0] / np.linalg.norm(points.gradients[0])
    nodes = np.unique([*np.linspace(-index - 3, index - 2, 6), *(index + np.array(_NEAR))])

    def rays(count: int) -> _Rays:
        u = rng.normal(size=(count, limit.size))
        bases = u - (u @ direction)[:, None] * direction
        directions = np.broadcast_to(direction, u.shape)
        return _Rays(bases, directions, nodes, lambda s: ndtr(-s), lambda unit: -ndtri(unit))

    return _sampled("line", limit, rays, len(nodes), precision, rng)


def _sampled(
    method: str, limit: LimitState, rays: Callable[[int], _Rays], nodes: int, precision: float,
    rng: np.random.Generator,
) -> FailureEstimate:  # fmt: skip
    count = max(limit.margin.study.block_size // nodes, 1)
    before, shares, failures, weights = limit.trajectories, [], [], []
    probability, spread = 0.0, inf
    while limit.left > count * (nodes + 2 * _ITERATIONS):
        batch = rays(count)
        share, points, masses = _failures(limit, batch, rng)
        shares.append(share)
        failures.append(points)
        weights.append(masses)
        terms = np.concatenate(shares)
        probability = float(terms.mean())
        if probability > 0 and len(terms) > 1:
            spread = max(float(terms.std(ddof=1)) / sqrt(len(terms)) / probability, _RESOLUTION)
        if spread <= precision and len(terms) >= _LEAST:
            break
    total = np.concatenate(weights) if weights else np.zeros(0)
    return FailureEstimate(
        method, probability, spread, limit.trajectories - before,
        np.concatenate(failures) if failures else np.zeros((0, limit.size)),
        total / max(total.sum(), 1e-300),
    )  # fmt: skip


def _failures(
    limit: LimitState, rays: _Rays, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The probability of failure along each ray, and a failure with its weight in each interval."""
    count, nodes = len(rays.bases), rays.nodes
    points = rays.bases[:, None] + nodes[None, :, None] * rays.directions[:, None]
    margins = limit.values(points.reshape(-1, limit.size)).reshape(count, len(nodes))
    failed = margins <= 0
    row, k = np.nonzero(failed[:, 1:] != failed[:, :-1])
    boundary = np.zeros(0)
    if len(row):
        ends = nodes[k], nodes[k + 1]
        values = margins[row, k], margins[row, k + 1]
        boundary = _boundary(limit, rays, row, ends, values)
    begins = ~failed[row, k]  # whether a failure begins at the boundary, or ends
    first = np.where(failed[:, 0], -inf, np.nan)
    starts = np.concatenate([np.flatnonzero(failed[:, 0]), row[begins]])
    low = np.concatenate([first[failed[:, 0]], boundary[begins]])
    stops = np.concatenate([row[~begins], np.flatnonzero(failed[:, -1])])
    high = np.concatenate([boundary[~begins], np.full(failed[:, -1].sum(), inf)])
    order, other = np.lexsort((low, starts)), np.lexsort((high, stops))
    starts, low, high = starts[order], low[order], high[other]
    above, below = _beyond(rays, low), _beyond(rays, high)
    masses = above - below
    share = np.bincount(starts, masses, minlength=count)
    s = rays.inverse(below + masses * rng.random(len(masses)))
    u = rays.bases[starts] + s[:, None] * rays.directions[starts]
    return share, u[masses > 0], masses[masses > 0]


def _beyond(rays: _Rays, s: np.ndarray) -> np.ndarray:
    inside = rays.beyond(np.where(np.isfinite(s), s, 0.0))
    return np.where(np.isneginf(s), 1.0, np.where(np.isposinf(s), 0.0, inside))


def _boundary(
    limit: LimitState, rays: _Rays, row: np.ndarray, ends: tuple[np.ndarray, np.ndarray],
    values: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Where the margins change their signs, by the Illinois method with some bisections."""
    (a, b), (at_a, at_b) = (x.copy() for x in ends), (x.copy() for x in values)
    best = (a + b) / 2
    for iteration in range(_ITERATIONS):
        open_ = np.flatnonzero(np.abs(b - a) > _NARROW)
        if not len(open_):
            break
        x, y, f, g = a[open_], b[open_], at_a[open_], at_b[open_]
        with np.errstate(all="ignore"):
            s = y - g * (y - x) / (g - f)
        halved = (x + y) / 2
        s = halved if iteration % 4 == 3 else np.where((s - x) * (s - y) < 0, s, halved)
        margin = limit.values(rays.bases[row[open_]] + s[:, None] * rays.directions[row[open_]])
        same = (margin <= 0) == (g <= 0)  # as the last end: that end moves, and the other stays
        a[open_] = np.where(same, x, y)
        at_a[open_] = np.where(same, f / 2, g)
        b[open_], at_b[open_] = s, margin
        best[open_] = s
        done = np.abs(margin) <= 1e-7 * (np.abs(f) + np.abs(g))
        a[open_[done]] = s[done]
    return best
