"""The rows at the end of a fit from which its uncertainty follows.

The covariance of a robust fit is that of a least-squares fit with other weights. With psi = w r of
n residuals r in units of the noise, p unknowns and the derivatives J, it is (Huber and Ronchetti,
"Robust Statistics", 2009, section 7.6)

    K^2 [sum psi^2 / (n - p)] / mean(psi')^2 (J^T J)^-1,   K = 1 + p / n var(psi') / mean(psi')^2.

The last round of a fit has J^T W J in place of mean(w) J^T J, and changes of the estimate by
samples left out are those of its normal equations times mean(w) / mean(psi').
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from jaxmech.identify.inference.uncertainty import Uncertainty, eliminated, uncertainty
from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Point, Task, residual_rows, samples, unrobust
from jaxmech.utils.arrays import HostArray

_ENOUGH = 10  # samples of a sensor with moments of its own


def assessed(
    task: Task, at: Point, conditions: Conditions, *, noise: float, degrees: float, unknowns: int,
    correlated: bool,
) -> tuple[Uncertainty, HostArray]:  # fmt: skip
    """The uncertainty of a fit, and its information J^T J (p, p), initial states eliminated.

    Args:
        task: the fit.
        at: its end.
        conditions: those of the last round.
        noise: standard deviation of a residual; 1 for trusted weights.
        degrees: residuals less everything fitted; infinite for trusted weights.
        unknowns: number of everything fitted.
        correlated: whether residuals are correlated in time, so that blocks of them are needed.
    """
    # Conditions with which J^T J is the inverse of the covariance, and a factor on the scores.
    factor = 1.0
    if task.loss is not None:
        seen, (r, _) = task.seen, samples(at, unrobust(conditions))
        weight, slope = task.loss.weight(r), task.loss.slope(r)
        share = min(unknowns / seen.sum(), 0.5)

        def moments(chosen: np.ndarray) -> tuple[float, float]:
            w, by_r = weight[chosen], slope[chosen]
            mean = max(float(by_r.mean()), 0.05)
            K = 1 + share * float(by_r.var()) / mean**2
            squares = float(((w * r[chosen]) ** 2).mean()) / (1 - share)
            return np.sqrt(squares * w.mean()) * K / mean, float(w.mean()) / mean

        size, factor = moments(seen)
        factors = np.full(r.shape[2], size)
        for j in np.flatnonzero(seen.sum((0, 1)) >= _ENOUGH):
            factors[j] = moments(seen & (np.arange(r.shape[2]) == j))[0]
        factors = np.where(factors > 0, factors, 1.0)
        conditions = replace(conditions, sensor_weight=conditions.sensor_weight / factors)

    names = task.problem.layout.names
    rows, p = residual_rows(task, at, conditions), len(names)
    by_numbers = np.eye(rows.jacobian.shape[1])
    by_z = np.asarray(at.by_z, float)
    sizes = np.linalg.norm(by_z, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    by_numbers[:p, :p] = np.linalg.pinv(by_z / sizes) / sizes[:, None]
    J = rows.jacobian @ by_numbers
    parts = []
    if correlated:
        values, slopes = samples(at, conditions)
        for k, times in block_times(values, task.seen):
            by_segment = slopes[k][:, times].reshape(slopes.shape[1], -1).T
            by_unknowns = by_segment @ (at.map_of(k, task.data) @ by_numbers)
            parts.append((by_unknowns, values[k, times].ravel()))
        parts = parts if len(parts) >= _FEWEST else []
    found = uncertainty(
        names, at.numbers, J, rows.values, rows.recording, parts, noise=noise, degrees=degrees,
        factor=factor, correlated=correlated,
    )  # fmt: skip
    W = eliminated(J, p)
    return found, W.T @ W


_MOST, _FEWEST = 20, 4  # blocks
_LENGTH = 4.0  # shortest block, in integrated correlation times, unless there are the fewest


def block_times(values: np.ndarray, seen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Segments and indices of times of blocks of the residuals (S, T, d) that count."""
    times_seen = [np.flatnonzero(segment.any(1)) for segment in seen]
    total, longest = sum(map(len, times_seen)), 0.0
    for x, mask in zip(np.moveaxis(values, 2, 0), np.moveaxis(seen, 2, 0), strict=True):
        # The integrated correlation time, in samples of the sensor: twice the sum of correlations
        # up to the first that is not positive, less one (Geyer 1992, Statistical Science 7).
        parts = [a[b] for a, b in zip(x, mask, strict=True)]
        squares, length = sum(float(part @ part) for part in parts), 1.0
        for lag in range(1, max(map(len, parts)) if squares > 0 else 1):
            r = sum(float(part[lag:] @ part[:-lag]) for part in parts) / squares
            if r <= 0:
                break
            length += 2 * r
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
