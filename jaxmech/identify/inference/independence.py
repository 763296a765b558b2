"""Whether the residuals of a fit are independent of one another: the test of Ljung and Box (1978).

With the correlations r_k of residuals k samples of their sensor apart, n residuals and n_k pairs,

    Q = sum_k n^2 / n_k r_k^2

has a chi-square distribution with as many degrees of freedom as there are lags, if they are. Ten
lags see a correlation that returns; neighbours alone see a short one in fewer residuals. Both are
tested, so the smaller probability counts twice.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.inference.information import Numbers

CHANCE = 1e-3  # probability with which independent residuals are called correlated
LEAST = 0.1  # correlation, over all lags, that makes a difference to the intervals
_LAGS = 10
_PER_LAG = 5  # samples of a sensor, in the longest recording, for each lag


class Autocorrelation(NamedTuple):
    """Residuals that are not independent."""

    neighbours: float  # correlation of neighbours in time
    chance: float  # probability of such correlations between independent residuals


def correlation(
    residuals: Sequence[Numbers], recordings: Sequence[Recording]
) -> Autocorrelation | None:
    """The correlation of residuals (T, d) in time, None if it may be chance or is negligible.

    Example:
        >>> ts = np.arange(40.0)
        >>> recording = Recording(ts, np.zeros(40), [0.0], [0.0])
        >>> print(round(correlation([np.sin(ts / 5)[:, None]], [recording]).neighbours, 1))
        0.9
    """
    from scipy.special import chdtrc  # slow to import, and seldom needed

    totals, degrees, strongest, neighbours = np.zeros(2), np.zeros(2), 0.0, 0.0
    for columns in samples_of_sensors(residuals, recordings):
        values = np.concatenate(columns)
        size = np.abs(values).max(initial=0.0)
        if not (size > 0 and np.isfinite(size)):
            continue
        squares, terms = ((values / size) ** 2).sum(), []
        longest = max(len(x) for x in columns)
        for lag in range(1, 1 + max(1, min(_LAGS, longest // _PER_LAG))):
            products = np.concatenate([x[lag:] / size * (x[:-lag] / size) for x in columns])
            terms.append((float(products.sum() / squares), products.size))
        r = np.array([r for r, count in terms if count])
        counts = np.array([count for _, count in terms if count])
        if not r.size:
            continue
        terms_of_Q = values.size**2 / counts * r**2
        totals += terms_of_Q[0], terms_of_Q.sum()
        degrees += 1, r.size
        if (total := float((r**2).sum())) > strongest:
            strongest, neighbours = total, float(r[0])
    chance = min(1.0, 2 * float(chdtrc(degrees, totals).min())) if degrees.any() else 1.0
    return Autocorrelation(neighbours, chance) if chance < CHANCE and strongest > LEAST**2 else None


def samples_of_sensors(
    residuals: Sequence[Numbers], recordings: Sequence[Recording]
) -> list[list[Numbers]]:
    """Of each sensor its residuals in each recording, without the times at which it has no sample.

    A sensor may be slower than others, and than the times of a recording.
    """
    pairs = zip(residuals, recordings, strict=True)
    samples = [np.where(recording.measured, r, np.nan).T for r, recording in pairs]
    return [[x[np.isfinite(x)] for x in columns] for columns in zip(*samples, strict=True)]
