"""Confidence intervals of probabilities and means."""

from math import sqrt
from typing import Any, Literal

import numpy as np

Number = int | float | np.integer[Any] | np.floating[Any]
Method = Literal["wilson", "clopper-pearson"]


def of_proportion(
    hits: Number, count: Number, confidence: float, method: Method
) -> tuple[float, float]:
    """The interval of a probability, from the number of hits in `count` trials.

    By `scipy.stats.binomtest`: Wilson's score interval (JASA 22, 1927), which covers with the
    confidence on average, or that of Clopper and Pearson (Biometrika 26, 1934), which never covers
    with less. Both agree with counts of zero: ten thousand trials without a hit are no proof.

    Example:
        >>> low, high = of_proportion(0, 10_000, 0.95, "clopper-pearson")
        >>> low, round(10_000 * high, 2)
        (0.0, 3.69)
    """
    from scipy.stats import binomtest

    if not count:
        return 0.0, 1.0
    short = {"wilson": "wilson", "clopper-pearson": "exact"}[method]
    interval = binomtest(int(hits), int(count)).proportion_ci(confidence, short)
    return float(interval.low), float(interval.high)


def factor(confidence: float) -> float:
    """Half of the width of a normal interval, in standard errors.

    Example:
        >>> round(factor(0.95), 4)
        1.96
    """
    from scipy.special import ndtri

    return float(ndtri(0.5 + confidence / 2))


def of_weighted(
    total: Number, squares: Number, count: Number, confidence: float
) -> tuple[float, float]:
    """The normal interval of a mean of numbers with this count, sum and sum of squares, >= 0."""
    if count < 2:
        return 0.0, float("inf")
    mean = float(total / count)
    variance = max(float(squares / count) - mean**2, 0.0)
    error = factor(confidence) * sqrt(variance / (count - 1))
    return max(mean - error, 0.0), mean + error


def of_correlation(r: np.ndarray, count: float, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of correlations, by Fisher's transformation (Metron 1, 1921)."""
    width = factor(confidence) / sqrt(count - 3) if count > 3 else float("inf")
    with np.errstate(divide="ignore"):
        # artanh r is nearly normal, with a variance of 1 / (n - 3) that does not depend on r.
        z = np.arctanh(np.clip(r, -1, 1))
    return np.tanh(z - width), np.tanh(z + width)
