"""Design points: the most probable failures, searched for from several starts in one batch.

The search is the improved HLRF algorithm (Zhang and Der Kiureghian, "Two improved algorithms for
reliability analysis", IFIP 1994): a step to the point nearest to the origin of the linearized limit
state, shortened until the merit |u|²/2 + c |g| falls. All starts advance in the same calls.
"""

from dataclasses import dataclass

import numpy as np

from jaxmech.ensemble.failure.limit_state import GRADIENT_LANES, LimitState

STARTS = 8
_RADIUS = 3.0  # of the starts but the first, in standard deviations
_STEPS = 60
_SHORTEST = 2.0**-10  # of the steps, before a start is given up
_CLOSE = 1e-5  # of the margin relative to that of the origin, and of u, at a design point
_DISTINCT = 0.9  # cosine above which two directions are one
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


def search(limit: LimitState, seed: int) -> Search:
    """The design points of a limit state, from the origin and random starts."""
    rng = np.random.default_rng([seed, 1])
    count = min(STARTS, GRADIENT_LANES)
    directions = rng.normal(size=(count - 1, limit.size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    u = np.vstack([np.zeros(limit.size), _RADIUS * directions])
    g, gradients = limit.with_gradients(u)
    origin, scale = float(g[0]), max(abs(float(g[0])), 1e-300)
    is_flat = ~gradients.any(1)
    done, moving = np.zeros(count, bool), np.asarray(~is_flat)
    for _ in range(_STEPS):
        if not moving.any():
            break
        u, g, gradients, done, moving = _advanced(limit, u, g, gradients, done, moving, scale)
    order = np.argsort(np.linalg.norm(u, axis=1))
    best = [k for k in order if done[k]]
    distinct: list[int] = []
    for k in best:
        if all(not _is_same(u[k], u[other]) for other in distinct):
            distinct.append(k)
    return Search(u[distinct], gradients[distinct], origin, is_flat.mean(), 1 - done.mean())


def _advanced(
    limit: LimitState, u: np.ndarray, g: np.ndarray, gradients: np.ndarray, done: np.ndarray,
    moving: np.ndarray, scale: float,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """All starts after a step of those that are moving."""
    u, g, gradients, done, moving = (x.copy() for x in (u, g, gradients, done, moving))
    squares = np.maximum((gradients**2).sum(1), 1e-300)
    nearest = (((gradients * u).sum(1) - g) / squares)[:, None] * gradients
    step = nearest - u
    lengths, sizes = np.linalg.norm(u, axis=1), np.sqrt(squares)
    weight = _MERIT * np.maximum(lengths, 1.0) / sizes
    weight = np.maximum(weight, 0.5 * (nearest**2).sum(1) / np.maximum(np.abs(g), 1e-300) * (
        np.abs(g) > _CLOSE * scale
    ))  # fmt: skip
    merit = 0.5 * lengths**2 + weight * np.abs(g)
    factor, trying = np.ones(len(u)), moving.copy()
    while trying.any():
        rows = np.flatnonzero(trying)
        trial = u[rows] + factor[rows, None] * step[rows]
        new_g, new_gradients = limit.with_gradients(trial)
        new_merit = 0.5 * (trial**2).sum(1) + weight[rows] * np.abs(new_g)
        falls = new_gradients.any(1) & (new_merit < merit[rows] + 1e-12 * (1 + merit[rows]))
        for row, x, value, slope in zip(
            rows[falls], trial[falls], new_g[falls], new_gradients[falls], strict=True
        ):
            u[row], g[row], gradients[row] = x, value, slope
        trying[rows[falls]] = False
        factor[rows[~falls]] /= 2
        stuck = trying & (factor < _SHORTEST)
        moving &= ~stuck
        trying &= ~stuck
    done |= moving & _is_design_point(u, g, gradients, scale)
    return u, g, gradients, done, moving & ~done


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
