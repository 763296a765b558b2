"""Design points, the most probable failures, and what a limit state looks like where it matters.

The search, from several starts in one batch, is the improved HLRF algorithm (Zhang and Der
Kiureghian, "Two improved algorithms for reliability analysis", IFIP 1994): a step to the point
nearest to the origin of the linearized limit state, shortened until the merit |u|²/2 + c |g| falls.
The first steps are not shortened, so that they leave the kinks of a margin that is the smallest of
several. All starts advance in the same calls. `remarks` says whether a limit state is flat,
discontinuous, or has several regions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jaxmech.ensemble.failure.limit_state import GRADIENT_LANES, LimitState
from jaxmech.ensemble.failure.result import FailureEstimate

STARTS = GRADIENT_LANES  # as many as one call computes in any case
_RADIUS = 3.0  # of the starts but the first, in standard deviations
_ROUNDS = 8  # of starts at most
_STEPS = 60
_OPPOSITE = 0.5  # share of the last step that a step takes back, where it is one to and fro
_WHOLE = 12  # of them that are not shortened
_FARTHEST = 12.0  # point that is searched, in standard deviations
_SHORTEST = 2.0**-10  # of the steps, before a start is given up
_CLOSE = 1e-5  # of the margin relative to that of the origin, and of u, at a design point
_DISTINCT = 0.9  # cosine above which two directions are one
_RELEVANT = 3.0  # by how much a reliability index may be larger for its region to matter
_MERIT = 2.0  # weight of the margin, relative to the least one with which every step descends


@dataclass(frozen=True, eq=False)
class Search:
    """The outcome of a search for design points.

    Attributes:
        points: the design points, the most probable one first, shape (k, n).
        gradients: the gradients of the margin there, shape (k, n).
        origin: the margin at the origin, the medians of all variables.
        flat: the share of starts at which the margin has no gradient.
        lost: the share of starts from which no design point was found.
    """

    points: np.ndarray
    gradients: np.ndarray
    origin: float
    flat: float
    lost: float

    @property
    def indices(self) -> np.ndarray:
        """The reliability indices β: distances from the origin, negative if it is a failure."""
        return np.linalg.norm(self.points, axis=1) * (1.0 if self.origin > 0 else -1.0)

    @property
    def relevant(self) -> np.ndarray:
        """The distances of the points that are not much farther than the nearest one."""
        distances = np.abs(self.indices)
        return distances[distances < distances.min(initial=np.inf) + _RELEVANT]


def search(limit: LimitState, seed: int) -> Search:
    """The design points of a limit state, from the origin and random starts.

    Where there are several, other starts follow until they lead to none that is new: a motion that
    is driven by noise has as many as it has times at which it may fail.
    """
    rng = np.random.default_rng([seed, 1])
    starts = np.vstack([np.zeros(limit.size), _random_starts(limit, STARTS - 1, rng)])
    front = _Front.at(limit, starts)
    origin, flat = float(front.g[0]), ~front.gradients.any(1)
    scale = max(abs(origin), 1e-300)
    front.search(limit, scale)
    lost = float(1 - front.done.mean())
    count, points = 0, front.distinct()
    for _ in range(_ROUNDS):
        if len(points) > count:  # what fails on one side often fails on the other, too
            opposite = _Front.at(limit, -front.u[points[:STARTS]])
            opposite.search(limit, scale)
            front = front.with_(opposite)
            points = front.distinct()
        if len(points) in (0, 1, 2, count):
            break
        count = len(points)
        further = _Front.at(limit, _random_starts(limit, STARTS, rng))
        further.search(limit, scale)
        front = front.with_(further)
        points = front.distinct()
    return Search(front.u[points], front.gradients[points], origin, float(flat.mean()), lost)


def _random_starts(limit: LimitState, count: int, rng: np.random.Generator) -> np.ndarray:
    directions = rng.normal(size=(count, limit.size))
    return np.asarray(_RADIUS * directions / np.linalg.norm(directions, axis=1, keepdims=True))


@dataclass
class _Front:
    """The points that all starts have reached."""

    u: np.ndarray  # shape (starts, n)
    g: np.ndarray
    gradients: np.ndarray
    done: np.ndarray  # whether a point is a design point
    moving: np.ndarray
    damping: np.ndarray  # share of a step that is tried first
    last: np.ndarray  # the last steps

    @classmethod
    def at(cls, limit: LimitState, u: np.ndarray) -> "_Front":
        count = len(u)
        no, yes = np.zeros(count, bool), np.ones(count, bool)
        return cls(u, *limit.with_gradients(u), no, yes, np.ones(count), np.zeros_like(u))

    def search(self, limit: LimitState, scale: float) -> None:
        """Advance until all starts are at design points, or given up."""
        self.moving &= self.gradients.any(1)
        for step in range(_STEPS):
            if not self.moving.any():
                return
            self.advance(limit, scale, whole=step < _WHOLE)

    def with_(self, other: "_Front") -> "_Front":
        """The points of both."""
        return _Front(*(np.concatenate([vars(self)[key], x]) for key, x in vars(other).items()))

    def distinct(self) -> list[int]:
        """The numbers of different design points, the nearest one first."""
        kept: list[int] = []
        for k in np.argsort(np.linalg.norm(self.u, axis=1)):
            if self.done[k] and not any(_is_same(self.u[k], self.u[other]) for other in kept):
                kept.append(int(k))
        return kept

    def advance(self, limit: LimitState, scale: float, whole: bool) -> None:
        """Make a step with all starts that are moving."""
        squares = np.maximum((self.gradients**2).sum(1), 1e-300)
        along = (self.gradients * self.u).sum(1)
        nearest = ((along - self.g) / squares)[:, None] * self.gradients
        reach = np.linalg.norm(nearest, axis=1, keepdims=True)
        step = nearest * np.minimum(1.0, _FARTHEST / np.maximum(reach, _FARTHEST)) - self.u
        # Where a boundary is curved like a circle, whole steps go to and fro for ever.
        returns = (step * self.last).sum(1) < -_OPPOSITE * (self.last**2).sum(1)
        self.damping = np.where(returns, self.damping / 2, np.minimum(1.0, 1.5 * self.damping))
        self.last = step
        lengths = np.linalg.norm(self.u, axis=1)
        weight = _MERIT * np.maximum(lengths, 1.0) / np.sqrt(squares)
        off = np.abs(self.g) > _CLOSE * scale
        enough = 0.5 * (nearest**2).sum(1) / np.maximum(np.abs(self.g), 1e-300)
        weight = np.maximum(weight, np.where(off, enough, 0.0))
        merit = 0.5 * lengths**2 + weight * np.abs(self.g)
        self._step(limit, step, weight, np.inf if whole else merit + 1e-12 * (1 + merit))
        good = _is_design_point(self.u, self.g, self.gradients, scale)
        self.done |= self.moving & good
        self.moving &= ~self.done

    def _step(
        self, limit: LimitState, step: np.ndarray, weight: np.ndarray, most: np.ndarray | float
    ) -> None:
        """Go as far as the merit stays below `most` and there is a gradient."""
        factor, trying = self.damping.copy(), self.moving.copy()
        most = np.broadcast_to(most, factor.shape)
        while trying.any():
            rows = np.flatnonzero(trying)
            u = self.u[rows] + factor[rows, None] * step[rows]
            g, gradients = limit.with_gradients(u)
            merit = 0.5 * (u**2).sum(1) + weight[rows] * np.abs(g)
            good = gradients.any(1) & (merit < most[rows])
            to = rows[good]
            self.u[to], self.g[to], self.gradients[to] = u[good], g[good], gradients[good]
            trying[to] = False
            factor[rows[~good]] /= 2
            stuck = trying & (factor < _SHORTEST)
            self.moving &= ~stuck
            trying &= ~stuck


def _is_design_point(
    u: np.ndarray, g: np.ndarray, gradients: np.ndarray, scale: float
) -> np.ndarray:
    squares = np.maximum((gradients**2).sum(1, keepdims=True), 1e-300)
    across = u - (gradients * u).sum(1, keepdims=True) / squares * gradients
    lengths = np.maximum(np.linalg.norm(u, axis=1), 1.0)
    on = np.abs(g) <= _CLOSE * np.maximum(scale, np.sqrt(squares[:, 0]) * lengths)
    return on & (np.linalg.norm(across, axis=1) <= 1e-3 * lengths)


def _is_same(u: np.ndarray, other: np.ndarray) -> bool:
    lengths = np.linalg.norm(u) * np.linalg.norm(other)
    return bool(lengths == 0 or (u @ other) > _DISTINCT * lengths)


_RAYS = 8  # from the medians to failures, on which the boundary is looked at
_BISECTIONS = 20
_JUMP = 0.02  # of the margin at the boundary, relative to that of the medians
_FAR = 0.5  # of the reliability index, below which a failure is not behind a design point
_SHARE = 0.1  # of the failures that must be far for a remark
_LISTED = 6  # reliability indices
_LARGEST = 0.02  # share of a failure in a probability that is known to 5 %


def remarks(limit: LimitState, estimate: FailureEstimate, points: Search | None) -> list[str]:
    """Sentences about the limit state, empty if it is smooth with a single region of failures."""
    return [
        *_discrete(limit),
        *_of_boundary(limit, _failures(estimate, points)),
        *(() if points is None else _of_regions(estimate, points)),
    ]


def heavy_tail(estimate: FailureEstimate) -> str | None:
    """The doubt about an estimate of which a few failures make up much, if they do."""
    spread = estimate.coefficient_of_variation
    if estimate.levels or not len(estimate.weights) or not np.isfinite(spread):
        return None
    largest = float(estimate.weights.max())
    if largest <= max(_LARGEST, 4 * spread**2):
        return None
    return (
        f"a single failure carries {100 * largest:.1f} % of the probability, so that there may be "
        "others that carry as much and were not met: the interval is too short; compare it with "
        "the method subset"
    )


def _discrete(limit: LimitState) -> Iterator[str]:
    if steps := limit.space.steps:
        yield (
            f"the margin jumps with {', '.join(steps)}, which has a few values only: design points "
            "are those of its median"
        )


def _failures(estimate: FailureEstimate, points: Search | None) -> np.ndarray:
    """Some failures: those with the largest weights, or behind the design points."""
    if len(estimate.failures):
        order = np.argsort(-estimate.weights, kind="stable")
        return estimate.failures[order[np.linspace(0, len(order) - 1, _RAYS).astype(int)]]
    if points is not None and len(points.points):
        return points.points * 1.1
    return np.zeros((0, 0))


def _of_boundary(limit: LimitState, failures: np.ndarray) -> Iterator[str]:
    """Whether the margin jumps at the boundary, or has the same value everywhere before it."""
    if not len(failures) or limit.left < (_BISECTIONS + 1) * len(failures):
        return
    origin = float(limit.values(np.zeros((1, limit.size)))[0])
    if origin <= 0:
        return
    low, high = np.zeros(len(failures)), np.ones(len(failures))
    safe, failed = np.full(len(failures), origin), np.full(len(failures), np.nan)
    safe_values = []
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        margins = limit.values(middle[:, None] * failures)
        is_safe = margins > 0
        low, high = np.where(is_safe, middle, low), np.where(is_safe, high, middle)
        safe, failed = np.where(is_safe, margins, safe), np.where(is_safe, failed, margins)
        safe_values.append(margins[is_safe])
    known = np.concatenate(safe_values)
    if len(known) > 1 and np.ptp(known) <= 1e-12 * origin:
        yield (
            "the margin is flat: it has the same value wherever the motion is safe, so that only "
            "crude Monte Carlo can be trusted; observe a quantity that tells how far a failure is"
        )
        return
    jumps = safe - failed > _JUMP * origin
    if jumps.any():
        k = int(np.argmax(safe - failed))
        yield (
            f"the margin is discontinuous: it jumps from {safe[k]:.3g} to {failed[k]:.3g} at the "
            f"boundary, on {jumps.sum()} of {len(jumps)} rays; approximations by design points do "
            "not hold"
        )


def _of_regions(estimate: FailureEstimate, points: Search) -> Iterator[str]:
    if not len(points.points):
        why = "the margin has no gradient" if points.flat == 1 else "the search ends"
        yield f"no design point was found, as {why} everywhere it was begun"
        return
    indices = np.abs(points.indices)
    if len(relevant := points.relevant) > 1:
        listed = ", ".join(f"{index:.3g}" for index in relevant[:_LISTED])
        listed += f", ... {relevant[-1]:.3g}" if len(relevant) > _LISTED else ""
        yield f"there are {len(relevant)} regions of failures, with reliability indices {listed}"
    if len(estimate.failures):
        directions = points.points / indices[:, None]
        along = estimate.failures @ directions.T
        far = (along < _FAR * indices).all(1)
        if (share := float(estimate.weights[far].sum())) > _SHARE:
            yield (
                f"{100 * share:.0f} % of the failures are far from the design points: there are "
                "more regions of failures than these"
            )
