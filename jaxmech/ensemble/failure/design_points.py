"""Design points, the most probable failures.

The search, from several starts in one batch, is the improved HLRF algorithm (Zhang and Der
Kiureghian, "Two improved algorithms for reliability analysis", IFIP 1994): a step to the point
nearest to the origin of the linearized limit state, shortened until the merit |u|²/2 + c |g| falls.
The first steps are not shortened, so that they leave the kinks of a margin that is the smallest of
several.
"""

from dataclasses import dataclass

import numpy as np

from jaxmech.ensemble.failure.limit_state import GRADIENT_LANES, LimitState

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
