"""Intervals from blocks of a recording, for residuals that are correlated in time.

Blocks of consecutive samples, longer than the correlation, are almost independent of each other.
As with whole recordings in `uncertainty`, the fit without a block differs by

    d_b = (H - H_b)^-1 g_b,

here of all unknowns, since the blocks of a recording share its initial state, and the jackknife
over B blocks gives the covariance (B - 1) / B sum_b d_b d_b^T with B - 1 degrees of freedom
(Carlstein 1986, Annals of Statistics 14; Kuensch 1989, Annals of Statistics 17).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Task
from jaxmech.utils.arrays import HostArray

MOST = 20  # blocks
FEWEST = 6
_LENGTH = 2.0  # shortest block, in integrated correlation times
_RANK = 1e-12  # eigenvalue, relative to the largest, that counts as zero


class Blocks(NamedTuple):
    """The covariance of the parameters from blocks of consecutive samples."""

    covariance: HostArray  # (p, p)
    number: int  # of blocks


def blocks(task: Task, y: np.ndarray, conditions: Conditions, factor: float) -> Blocks | None:
    """The covariance by blocks, None if the recordings are too short for them.

    Args:
        task: the fit.
        y: its end.
        conditions: those of the normal equations.
        factor: on the scores.
    """
    evaluator, p = task.evaluator, task.problem.layout.size
    values, slopes = evaluator.samples(y, conditions)
    seen = np.asarray(task.data.segments.weights) > 0
    J = evaluator.rows(y, conditions).jacobian
    H = J.T @ J
    sizes = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    H = H / sizes / sizes[:, None]
    blocks = list(block_times(values, seen))
    if len(blocks) < FEWEST or len(blocks) <= np.linalg.matrix_rank(H, tol=1e-10, hermitian=True):
        return None
    moves = []
    for k, times in blocks:
        by_segment = slopes[k][:, times].reshape(slopes.shape[1], -1)
        by_y = (evaluator.map_of(y, k).T @ by_segment) / sizes[:, None]
        inverse = np.linalg.pinv(H - by_y @ by_y.T, rcond=_RANK, hermitian=True)
        moves.append(((inverse @ by_y @ values[k, times].ravel()) / sizes)[:p])
    by_z = np.asarray(evaluator.at(y).by_z, float)
    count = len(blocks)
    # What hardly any sample depends on moves without bounds.
    with np.errstate(over="ignore", invalid="ignore"):
        changes = factor * np.array(moves) @ by_z.T
        covariance = (count - 1) / count * changes.T @ changes
    return Blocks(np.where(np.isnan(covariance), np.inf, covariance), count)


def correlation_length(parts: Sequence[np.ndarray]) -> float:
    """The integrated correlation time of the residuals of a sensor, in samples of that sensor.

    It is 1 if they are independent: twice the sum of correlations up to the first that is not
    positive, less one (Geyer 1992, Statistical Science 7).

    Args:
        parts: those of each segment.

    Example:
        >>> noise = np.random.default_rng(0).normal(size=4000)
        >>> correlation_length([noise]) < 1.5
        True
    """
    squares = sum(float(x @ x) for x in parts)
    if not squares > 0:
        return 1.0
    total = 1.0
    for lag in range(1, max(map(len, parts))):
        r = sum(float(x[lag:] @ x[:-lag]) for x in parts) / squares
        if r <= 0:
            break
        total += 2 * r
    return total


def block_times(values: np.ndarray, seen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Segments and indices of times of blocks of the residuals (S, T, d) that count."""
    times_seen = [np.flatnonzero(segment.any(1)) for segment in seen]
    total = sum(map(len, times_seen))
    shortest = total / MOST
    for x, mask in zip(np.moveaxis(values, 2, 0), np.moveaxis(seen, 2, 0), strict=True):
        length = correlation_length([a[b] for a, b in zip(x, mask, strict=True)])
        # A slow sensor has samples at a few of the times only.
        shortest = max(shortest, _LENGTH * length * total / max(int(mask.sum()), 1))
    for k, times in enumerate(times_seen):
        count = int(len(times) / shortest)
        if count:
            yield from ((k, part) for part in np.array_split(times, count))
        elif len(times):
            yield k, times
