"""`AR1`: noise whose correlation decays exponentially in time.

The noise of a sensor, in units of its standard deviation, is a stationary process with the
correlation a = exp(-dt / tau) between samples that are dt apart: autoregressive of first order
where samples are evenly spaced. Then

    (e_k - a e_(k-1)) / sqrt(1 - a^2)

are independent with unit variance (Prais and Winsten 1954), and a fit minimizes their squares. The
time tau maximizes the restricted likelihood of the residuals (REML; Patterson and Thompson 1971,
Biometrika 58), and is estimated in turns with the fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_SHORTEST = 0.05  # correlation time, in intervals between samples, that counts as none
_TURNS = 5  # of the variance and of what the fit takes away, which is a small part
_LONGEST = 10.0  # the same in durations: a longer one cannot be told from a drift


@dataclass(frozen=True)
class AR1:
    """Correlated noise, whose correlation is estimated for each sensor.

    For the `noise` of `fit`, if the residuals are correlated although the model is right, for
    example because of a filter. It is no remedy for an incomplete model.

    Example:
        >>> AR1()
        AR1()
    """


class Neighbours(NamedTuple):
    """The sample before each of S segments of T times and d sensors, among those that count."""

    previous: np.ndarray  # its index, (S, T, d)
    interval: np.ndarray  # time since then [s]; infinite for a first sample, (S, T, d)

    @staticmethod
    def of(ts: np.ndarray, weights: np.ndarray) -> "Neighbours":
        """The neighbours at times (S, T) where weights (S, T, d) are positive."""
        index = np.arange(ts.shape[1])[None, :, None]
        last = np.maximum.accumulate(np.where(weights > 0, index, -1), axis=1)
        previous = np.concatenate([np.full_like(last[:, :1], -1), last[:, :-1]], axis=1)
        times = np.broadcast_to(ts[:, :, None], weights.shape)
        interval = times - np.take_along_axis(times, np.maximum(previous, 0), axis=1)
        interval = np.where((previous >= 0) & (weights > 0), interval, np.inf)
        return Neighbours(np.maximum(previous, 0), interval)

    def of_sensor(self, sensor: int) -> "Neighbours":
        """Those of the samples of one sensor."""
        return Neighbours(*(part[:, :, [sensor]] for part in self))

    def correlation(self, time: np.ndarray) -> np.ndarray:
        """The correlation with the sample before for correlation times (d,), (S, T, d)."""
        with np.errstate(divide="ignore"):
            return np.exp(-self.interval / np.maximum(time, 1e-300))

    def whitened(self, values: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Independent combinations of values (S, ..., T, d)."""
        shape = (len(values), *(1,) * (values.ndim - 3), *values.shape[-2:])
        before, a = self.previous.reshape(shape), correlation.reshape(shape)
        before = np.broadcast_to(before, values.shape)
        shifted = np.take_along_axis(values, before, axis=-2)
        white: np.ndarray = (values - a * shifted) / np.sqrt(1 - a**2)
        return white


def correlation_time(
    neighbours: Neighbours, e: np.ndarray, by_y: np.ndarray, stated: bool, others: np.ndarray,
    information: Callable[[np.ndarray], np.ndarray],
) -> float:  # fmt: skip
    """The most likely correlation time of a sensor [s]; 0 if its samples look independent.

    Args:
        neighbours: those of its samples.
        e: its residuals in units of their standard deviation, (S, T, 1).
        by_y: their derivatives, (S, P, T, 1).
        stated: whether their standard deviation is known; if not, each time has its own.
        others: the information (Y, Y) from all other sensors.
        information: that from this one for whitened `by_y`, (Y, Y).
    """
    from scipy.optimize import minimize_scalar  # slow to import, and seldom needed

    gaps = neighbours.interval[np.isfinite(neighbours.interval)]
    if not gaps.size:
        return 0.0
    count = gaps.size + len(e)

    def loss(log_time: float) -> float:
        a = neighbours.correlation(np.exp([log_time]))
        squares = float((neighbours.whitened(e, a) ** 2).sum())
        H = information(neighbours.whitened(by_y, a))
        variance = 1.0 if stated else _variance(squares, count, others, H)
        size = count * np.log(variance) + squares / variance
        log_determinant = np.linalg.slogdet(others + H / variance)[1]
        return float(0.5 * (size + np.log1p(-(a**2)).sum() + log_determinant))

    usual = float(np.median(gaps))
    longest = _LONGEST * float(gaps.sum()) / len(e)
    grid = np.linspace(np.log(_SHORTEST * usual), np.log(longest), 25)
    best = int(np.argmin([loss(x) for x in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, 24)]
    optimum = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-3})
    time = float(np.exp(optimum.x))
    return time if best > 0 else 0.0


def _variance(squares: float, count: int, others: np.ndarray, H: np.ndarray) -> float:
    """The variance of samples with a sum of squares, of which the fit takes its part away."""
    taken = 0.0
    for _ in range(_TURNS):
        variance = squares / max(count - taken, 1.0)
        part = H / variance
        taken = float(np.trace(np.linalg.solve(others + part, part)))
    return squares / max(count - taken, 1.0)


def neighbour_correlation(neighbours: Neighbours, times: np.ndarray) -> np.ndarray:
    """The correlation (d,) of neighbours at the usual interval, for correlation times (d,)."""
    gaps = [x[np.isfinite(x)] for x in np.moveaxis(neighbours.interval, 2, 0)]
    usual = np.array([np.median(x) if x.size else np.inf for x in gaps])
    with np.errstate(divide="ignore"):
        return np.exp(-usual / times)
