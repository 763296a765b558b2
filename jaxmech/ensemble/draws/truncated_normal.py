"""Truncated distributions: their limits, and the normal one in any part of its tails."""

from math import inf, isfinite, log, pi, sqrt

import numpy as np

from jaxmech.config.errors import refuse

_FAR = 30.0  # deviations beyond which probabilities would lose their digits, and then vanish
_NEWTON_STEPS = 4  # from a start that is off by less than 1 / _FAR**2


def quantile(unit: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values at probabilities, of a normal variable between two limits, which may be infinite."""
    from scipy.special import ndtr, ndtri  # slow to import

    if low > 0:  # in the lower tail, where `ndtri` keeps its digits
        return -quantile(1 - unit, -high, -low)
    if high < -_FAR:
        return high - _distance(unit, -high, high - low)
    start, end = ndtr(low), ndtr(high)
    return np.asarray(ndtri(start + (end - start) * unit))


def log_density(z: np.ndarray, low: float, high: float) -> np.ndarray:
    """The logarithm of the density, -inf outside of the limits."""
    from scipy.special import ndtr  # slow to import

    if low > 0:
        return log_density(-np.asarray(z), -high, -low)
    z = np.asarray(z)
    if high < -_FAR:
        x, width = -high, high - low
        share = -np.expm1(_log_ratio(x, np.asarray(width)))
        density = np.log(_hazard(x)) - _half_squares(x, high - z) - np.log(share)
    else:
        density = -(z**2) / 2 - log(sqrt(2 * pi) * (ndtr(high) - ndtr(low)))
    return np.where((low <= z) & (z <= high), density, -np.inf)


def _distance(unit: np.ndarray, x: float, width: float) -> np.ndarray:
    """How far beyond x > 0 a variable of the upper tail lies that at most `width` is left to.

    The ratio of two tails, Q(x + s) / Q(x), is computed as a whole, since each of them may
    underflow; Newton's method finds the s where it has its value.
    """
    least = _log_ratio(x, np.asarray(width))  # log of w = Q(x + width) / Q(x)
    with np.errstate(divide="ignore"):  # in the branch that is not taken
        far, near = (
            np.log(unit + (1 - unit) * np.exp(least)),
            np.log1p((1 - unit) * np.expm1(least)),
        )
    value = np.where(unit < 0.5, far, near)
    s = -2 * value / (x + np.sqrt(x**2 - 2 * value))
    for _ in range(_NEWTON_STEPS):
        s = s + (_log_ratio(x, s) - value) / _hazard(x + s)
    return np.asarray(s)


def _log_ratio(x: float, s: np.ndarray) -> np.ndarray:
    """The logarithm of Q(x + s) / Q(x), where Q is the probability of the upper tail."""
    from scipy.special import erfcx  # slow to import

    with np.errstate(divide="ignore"):  # Q(inf) = 0
        scaled = np.log(erfcx((x + s) / sqrt(2))) - np.log(erfcx(x / sqrt(2)))
    return np.asarray(scaled - _half_squares(x, s))


def _half_squares(x: float, s: np.ndarray) -> np.ndarray:
    """Half of (x + s)² − x², without the difference of two large numbers."""
    return np.asarray(s * (x + s / 2))


def _hazard(x: np.ndarray | float) -> np.ndarray:
    """The density at x divided by Q(x)."""
    from scipy.special import erfcx  # slow to import

    return np.asarray(sqrt(2 / pi) / erfcx(np.asarray(x) / sqrt(2)))


def within(x: np.ndarray, low: float | None, high: float | None) -> np.ndarray:
    """Values without the round-off by which they exceed their limits."""
    return np.clip(x, -inf if low is None else low, inf if high is None else high)


def require_truncation(low: float | None, high: float | None, spread: float) -> None:
    """Raise a StudyError for limits that leave nothing of a distribution."""
    if low is None and high is None:
        return
    if not (-inf if low is None else low) < (inf if high is None else high):
        raise refuse("low", f"must be below `high`, but {low} is not below {high}")
    if spread == 0:
        raise refuse(
            "low" if low is not None else "high",
            "must be left out for a distribution without spread",
        )


def require_interval(low: float, high: float) -> None:
    """Raise a StudyError for ends in the wrong order, or too far apart."""
    if not low < high:
        raise refuse("low", f"must be below `high`, but {low} is not below {high}")
    if not isfinite(high - low):
        raise refuse("high", f"must be finite, as `low` must, but they are {low} and {high}")
