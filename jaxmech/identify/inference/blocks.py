"""Intervals from blocks of a recording, for residuals that are correlated in time.

Blocks of consecutive samples, longer than the correlation, are almost independent of each other. A
block b has the information H_b and the score g_b, of all unknowns, since the blocks of a recording
share its initial state. With H = L L^T and K_b = L^-1 H_b L^-T the covariance is

    sum_b d_b d_b^T,   d_b = L^-T (I - K_b)^-1/2 L^-1 g_b,

with B - 1 degrees of freedom for B blocks. It is exact on average for independent residuals, of
which the fit takes its part away: the estimate CR2 of Bell and McCaffrey (2002, Survey Methodology
28). The jackknife has (I - K_b)^-1 and overestimates it, the sandwich I and underestimates it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Task
from jaxmech.utils.arrays import HostArray

_MOST, _FEWEST = 20, 4  # blocks
_LENGTH = 4.0  # shortest block, in integrated correlation times, unless there are the fewest
_RANK = 1e-10  # eigenvalue, relative to the largest, that counts as zero


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
    information, axes = np.linalg.eigh(H / sizes / sizes[:, None])
    known = information > _RANK * information.max(initial=0.0)
    to_unit = (axes[:, known] / np.sqrt(information[known])).T / sizes  # L^-1
    blocks = list(block_times(values, seen))
    if len(blocks) < _FEWEST:
        return None
    moves = []
    for k, times in blocks:
        by_segment = slopes[k][:, times].reshape(slopes.shape[1], -1)
        by_unit = to_unit @ (evaluator.map_of(y, k).T @ by_segment)
        left, axes = np.linalg.eigh(np.eye(len(by_unit)) - by_unit @ by_unit.T)
        # What nothing but this block tells has no residuals there.
        root = np.sqrt(np.divide(1.0, left, out=np.zeros(left.shape), where=left > _RANK))
        score = by_unit @ values[k, times].ravel()
        moves.append((to_unit.T @ (axes @ (root * (axes.T @ score))))[:p])
    changes = factor * np.array(moves) @ np.asarray(evaluator.at(y).by_z, float).T
    return Blocks(changes.T @ changes, len(blocks))


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
    total, longest = sum(map(len, times_seen)), 0.0
    for x, mask in zip(np.moveaxis(values, 2, 0), np.moveaxis(seen, 2, 0), strict=True):
        length = correlation_length([a[b] for a, b in zip(x, mask, strict=True)])
        # A slow sensor has samples at a few of the times only.
        longest = max(longest, length * total / max(int(mask.sum()), 1))
    if _FEWEST * longest > total:
        return
    shortest = min(max(total / _MOST, _LENGTH * longest), total / _FEWEST)
    for k, times in enumerate(times_seen):
        count = int(len(times) / shortest)
        if count:
            yield from ((k, part) for part in np.array_split(times, count))
        elif len(times):
            yield k, times
