"""Noise: robust losses, for recordings with outliers, and `AR1`, for correlated noise.

Instead of r^2 / 2 of a residual r, in units of the noise, a fit minimizes rho(r), which grows more
slowly, so that an outlier has little effect. This is a sequence of weighted least-squares fits with
the weights w(r) = rho'(r) / r (Huber and Ronchetti, "Robust Statistics", 2009, chapter 7). The unit
is the median of |r|, which outliers hardly change, divided by that of a normal distribution.

The correlation of `AR1` decays exponentially in time. The noise of a sensor, in units of its
standard deviation, is a stationary process with the correlation a = exp(-dt / tau) between samples
that are dt apart: autoregressive of first order where samples are evenly spaced. Then

    (e_k - a e_(k-1)) / sqrt(1 - a^2)

are independent with unit variance (Prais and Winsten 1954), and a fit minimizes their squares. The
time tau maximizes the restricted likelihood of the residuals (REML; Patterson and Thompson 1971,
Biometrika 58), and is estimated in turns with the fit.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive
from jaxmech.utils.text import setting

NORMAL = 1.482602218505602  # standard deviation of a normal distribution in medians of |r|


class AbstractLoss:
    """Base of the robust losses."""

    @abstractmethod
    def value(self, r: Any) -> Any:
        """The loss of residuals in units of the noise, of NumPy or JAX; r^2 / 2 for small ones."""

    @abstractmethod
    def weight(self, r: HostArray) -> HostArray:
        """The weights of the squares, 1 for small residuals."""

    @abstractmethod
    def slope(self, r: HostArray) -> HostArray:
        """The second derivative of the loss."""

    @property
    @abstractmethod
    def log_scale(self) -> float:
        """The logarithm of the integral of exp(-value)."""


@dataclass(frozen=True)
class Huber(AbstractLoss):
    """The Huber loss: r^2 / 2 up to `scale`, and a straight line beyond.

    A good first choice: it is convex, so it does not add local minima.

    Args:
        scale: residual, in units of the noise, from which the loss is linear. With the default and
            normal noise, an interval is 2.6 % longer than with least squares.

    Raises:
        ValueError: if the scale is not positive.

    Example:
        >>> print(Huber(2.0).value(np.array([1.0, 4.0])))
        [0.5 6. ]
    """

    scale: float = setting(
        1.345, "residual, in units of the noise, from which the loss is straight"
    )

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    def value(self, r: Any) -> Any:
        """r^2 / 2, or a straight line."""
        xp = r.__array_namespace__()
        inside = xp.minimum(xp.abs(r), self.scale)
        return 0.5 * inside**2 + self.scale * (xp.abs(r) - inside)

    def weight(self, r: HostArray) -> HostArray:
        """1, or scale / |r|."""
        return self.scale / np.maximum(np.abs(r), self.scale)

    def slope(self, r: HostArray) -> HostArray:
        """1, or 0."""
        return np.where(np.abs(r) <= self.scale, 1.0, 0.0)

    @property
    def log_scale(self) -> float:
        """A normal distribution inside, an exponential one outside."""
        from scipy.special import erf  # slow to import, and seldom needed

        k = self.scale
        inside = np.sqrt(2 * np.pi) * erf(k / np.sqrt(2))
        return float(np.log(inside + 2 / k * np.exp(-0.5 * k * k)))


class AbstractTail(AbstractLoss):
    """The loss scale^2 / 2 log(1 + (r / scale)^2), that of a t distribution."""

    @property
    @abstractmethod
    def tail(self) -> float:
        """The scale: the residual of which the square counts half."""

    def value(self, r: Any) -> Any:
        """scale^2 / 2 log(1 + (r / scale)^2)."""
        return 0.5 * self.tail**2 * r.__array_namespace__().log1p((r / self.tail) ** 2)

    def weight(self, r: HostArray) -> HostArray:
        """1 / (1 + (r / scale)^2)."""
        return 1 / (1 + (r / self.tail) ** 2)

    def slope(self, r: HostArray) -> HostArray:
        """(1 - (r / scale)^2) w^2."""
        return (1 - (r / self.tail) ** 2) * self.weight(r) ** 2

    @property
    def log_scale(self) -> float:
        """The integral of (1 + (r / scale)^2)^(-scale^2 / 2)."""
        from scipy.special import gammaln  # slow to import, and seldom needed

        half = 0.5 * self.tail**2
        return float(np.log(self.tail * np.sqrt(np.pi)) + gammaln(half - 0.5) - gammaln(half))


@dataclass(frozen=True)
class Cauchy(AbstractTail):
    """The loss of a Cauchy distribution, scale^2 / 2 log(1 + (r / scale)^2).

    Unlike with `Huber`, the effect of an outlier decreases with its distance; from a poor initial
    guess a fit may end in another minimum.

    Args:
        scale: residual, in units of the noise, whose square has half of its weight. With the
            default and normal noise, an interval is 2.6 % longer than with least squares.

    Raises:
        ValueError: if the scale is not above 1.

    Example:
        >>> print(Cauchy(2.0).weight(np.array([0.0, 2.0])))
        [1.  0.5]
    """

    scale: float = setting(
        2.385, "residual, in units of the noise, of which the square counts half"
    )

    def __post_init__(self) -> None:
        if not self.scale > 1:
            raise ValueError(f"Argument `scale` must be above 1, but is {self.scale:g}.")

    @property
    def tail(self) -> float:
        """The scale."""
        return self.scale


@dataclass(frozen=True)
class StudentT(AbstractTail):
    """The loss of Student's t distribution.

    Args:
        degrees: degrees of freedom; with fewer of them, more and larger outliers are expected.

    Raises:
        ValueError: if the degrees are not positive.

    Example:
        >>> print(StudentT(3.0).weight(np.array([0.0, 2.0])))
        [1.  0.5]
    """

    degrees: float = setting(4.0, "degrees of freedom", positive=True)

    def __post_init__(self) -> None:
        require_positive("degrees", self.degrees)

    @property
    def tail(self) -> float:
        """The scale with which the loss is r^2 / 2 of small residuals."""
        return float(np.sqrt(self.degrees + 1))


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
