"""The normal equations at the end of a fit, and the covariances that follow from them.

The initial states are eliminated from the Gauss-Newton matrix. The covariance of a robust fit is
that of a least-squares fit with other weights. With psi = w r of n residuals r in units of the
noise, p unknowns and the derivatives J, it is (Huber and Ronchetti, "Robust Statistics", 2009,
section 7.6)

    K^2 [sum psi^2 / (n - p)] / mean(psi')^2 (J^T J)^-1,   K = 1 + p / n var(psi') / mean(psi')^2.

The last round of a fit has J^T W J in place of mean(w) J^T J, and changes of the estimate by
samples left out are those of its normal equations times mean(w) / mean(psi').

Where residuals are correlated in time, covariances come from blocks of a recording. Blocks of
consecutive samples, longer than the correlation, are almost independent of each other. A block b
has the information H_b and the score g_b, of all unknowns, since the blocks of a recording share
its initial state. With H = L L^T and K_b = L^-1 H_b L^-T the covariance is

    sum_b d_b d_b^T,   d_b = L^-T (I - K_b)^-1/2 L^-1 g_b,

with B - 1 degrees of freedom for B blocks. It is exact on average for independent residuals, of
which the fit takes its part away: the estimate CR2 of Bell and McCaffrey (2002, Survey Methodology
28). The jackknife has (I - K_b)^-1 and overestimates it, the sandwich I and underestimates it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from jaxmech.identify.inference.information import Information
from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Point, Task, residual_rows, samples, unrobust
from jaxmech.utils.arrays import HostArray

_DEPENDENT = 1e-9  # share of a column, beyond the others, below which it counts as dependent


def normal(task: Task, at: Point, conditions: Conditions, factor: float = 1.0) -> Information:
    """The second-order model at a point, initial states eliminated."""
    size = task.problem.layout.size
    values, J, recording, _ = residual_rows(task, at, conditions)
    W = J[:, :size]
    if J.shape[1] > size:
        # W = J_z - J_u J_u^+ J_z: W^T W is the Schur complement of the Gauss-Newton matrix, without
        # the round-off of squaring first
        Q = basis(J[:, size:])
        W = W - Q @ (Q.T @ W)
    W = _by_numbers(W, np.asarray(at.by_z, float))
    parts = [recording == k for k in range(len(task.origin.recordings))]
    prior = W[recording < 0]
    scores = factor * np.stack([W[part].T @ values[part] for part in parts])
    by_recording = np.stack([W[part].T @ W[part] for part in parts])
    return Information(W.T @ W, by_recording, prior.T @ prior, scores)


def _by_numbers(W: np.ndarray, by_z: np.ndarray) -> np.ndarray:
    """Derivatives by the numbers, from those by z; zero by numbers that z does not move."""
    # near a bound the columns by z are tiny, but not what they are of each other
    sizes = np.linalg.norm(by_z, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled, right = (by_z / sizes).T, (W / sizes).T
    try:
        return np.linalg.solve(scaled, right).T
    except np.linalg.LinAlgError:  # the fit ended where a map of parameters loses rank
        return np.linalg.lstsq(scaled, right, rcond=None)[0].T


def basis(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of columns of any sizes, (K, rank)."""
    sizes = np.linalg.norm(columns, axis=0)
    scaled = columns[:, sizes > 0] / sizes[sizes > 0]
    if not scaled.size:
        return np.zeros((len(columns), 0))
    from scipy.linalg import qr  # slow to import, and seldom needed

    Q, R, _ = qr(scaled, mode="economic", pivoting=True)
    orthonormal: np.ndarray = Q[:, : int((np.abs(np.diag(R)) > _DEPENDENT).sum())]
    return orthonormal


_ENOUGH = 10  # samples of a sensor with moments of its own


def normal_conditions(
    task: Task, at: Point, conditions: Conditions, unknowns: int
) -> tuple[Conditions, float]:
    """Conditions with which J^T J is the inverse of the covariance, and a factor on the scores."""
    if task.loss is None:
        return conditions, 1.0
    seen = task.seen
    r, _ = samples(at, unrobust(conditions))
    weight, slope = task.loss.weight(r), task.loss.slope(r)
    share = min(unknowns / seen.sum(), 0.5)

    def moments(chosen: np.ndarray) -> tuple[float, float]:
        w, by_r = weight[chosen], slope[chosen]
        # a redescending loss may have a mean slope near zero, of which nothing follows
        mean = max(float(by_r.mean()), 0.05)
        K = 1 + share * float(by_r.var()) / mean**2
        squares = float(((w * r[chosen]) ** 2).mean()) / (1 - share)
        return np.sqrt(squares * w.mean()) * K / mean, float(w.mean()) / mean

    whole = moments(seen)
    factors = np.full(r.shape[2], whole[0])
    for j in np.flatnonzero(seen.sum((0, 1)) >= _ENOUGH):
        factors[j] = moments(seen & (np.arange(r.shape[2]) == j))[0]
    factors = np.where(factors > 0, factors, 1.0)
    return replace(conditions, sensor_weight=conditions.sensor_weight / factors), whole[1]


_MOST, _FEWEST = 20, 4  # blocks
_LENGTH = 4.0  # shortest block, in integrated correlation times, unless there are the fewest
_RANK = 1e-10  # eigenvalue, relative to the largest, that counts as zero


def blocks(task: Task, at: Point, conditions: Conditions, factor: float) -> tuple[HostArray, int]:
    """The covariance by blocks (p, p) and their number, 0 if the recordings are too short.

    Args:
        task: the fit.
        at: its end.
        conditions: those of the normal equations.
        factor: on the scores.
    """
    p = task.problem.layout.size
    values, slopes = samples(at, conditions)
    J = residual_rows(task, at, conditions).jacobian
    H = J.T @ J
    sizes = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    information, axes = np.linalg.eigh(H / sizes / sizes[:, None])
    known = information > _RANK * information.max(initial=0.0)
    to_unit = (axes[:, known] / np.sqrt(information[known])).T / sizes  # L^-1
    blocks = list(block_times(values, task.seen))
    if len(blocks) < _FEWEST:
        return np.zeros((p, p)), 0
    moves = []
    for k, times in blocks:
        by_segment = slopes[k][:, times].reshape(slopes.shape[1], -1)
        by_unit = to_unit @ (at.map_of(k, task.data).T @ by_segment)
        left, axes = np.linalg.eigh(np.eye(len(by_unit)) - by_unit @ by_unit.T)
        # What nothing but this block tells has no residuals there.
        root = np.sqrt(np.divide(1.0, left, out=np.zeros(left.shape), where=left > _RANK))
        score = by_unit @ values[k, times].ravel()
        moves.append((to_unit.T @ (axes @ (root * (axes.T @ score))))[:p])
    by_z = np.asarray(at.by_z, float)
    # What hardly any sample depends on moves without bounds.
    with np.errstate(over="ignore", invalid="ignore"):
        changes = factor * np.array(moves) @ by_z.T
        covariance = changes.T @ changes
    return np.where(np.isnan(covariance), np.inf, covariance), len(blocks)


def correlation_length(parts: Sequence[np.ndarray]) -> float:
    """The integrated correlation time of the residuals of a sensor, in samples of that sensor.

    It is 1 if they are independent: twice the sum of correlations up to the first that is not
    positive, less one (Geyer 1992, Statistical Science 7).

    Args:
        parts: those of each segment.
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
