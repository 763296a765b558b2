"""Rates of recorded coordinates, from local parabolas.

Differences of neighbouring samples amplify their noise by one over the time between them. A
parabola over more samples is less noisy, until it no longer follows the motion; the width is chosen
by leave-one-out cross-validation (Fan and Gijbels 1996, section 4.10). It is a number of samples,
which may have any number of times without one between them.
"""

import numpy as np
from numpy.typing import NDArray

from jaxmech.utils.arrays import HostArray

_WIDTHS = (5, 9, 17, 33, 65)  # samples under a parabola
_JUDGED = 100  # samples at which the widths are compared
_AT_ONCE = 4096  # samples whose parabolas are fitted in one batch, to bound the memory


def rates(values: HostArray, ts: HostArray) -> HostArray:
    """Time derivatives (T, k) of samples (T, k) at times (T,); NaN where one is unknown."""
    return np.stack([_rates(column, ts) for column in values.T], axis=1)


def _rates(values: HostArray, ts: HostArray) -> HostArray:
    seen = np.isfinite(values)
    if not seen.any():
        return np.full(len(ts), np.nan)
    samples, times = values[seen], ts[seen]
    compared = np.unique(np.linspace(0, len(times) - 1, min(len(times), _JUDGED)).astype(int))
    widths = [width for width in _WIDTHS if width <= len(times)] or [len(times)]
    # Without noise all may fit to round-off, which must not choose: then the widest is taken.
    rounding = (64 * np.finfo(float).eps * np.abs(samples).max()) ** 2
    width = min(
        widths[::-1], key=lambda width: max(_error(samples, times, width, compared), rounding)
    )
    parts = np.array_split(ts, -(-len(ts) // _AT_ONCE))
    return np.concatenate([_parabolas(samples, times, width, part)[1] for part in parts])


def _error(values: HostArray, ts: HostArray, width: int, indices: NDArray[np.int_]) -> float:
    """Mean squared error of the parabolas at samples that they were not fitted to."""
    if width < _WIDTHS[0]:
        return 0.0
    value, _, leverage = _parabolas(values, ts, width, ts[indices])
    with np.errstate(invalid="ignore", divide="ignore"):
        # the error without the sample, from the fit with it: no second fit is needed
        missed = (values[indices] - value) / (1 - leverage)
    missed = missed[np.isfinite(missed)]
    return float(np.mean(missed**2)) if missed.size else np.inf


def _parabolas(
    values: HostArray, ts: HostArray, width: int, at: HostArray
) -> tuple[HostArray, HostArray, HostArray]:
    """Value and slope at some times of the parabola around each, and the leverage of a sample."""
    nearest = np.minimum(np.searchsorted(ts, at), len(ts) - 1)
    first = np.clip(nearest - width // 2, 0, len(ts) - width)
    near = first[:, None] + np.arange(width)
    away = ts[near] - at[:, None]
    scale = np.abs(away).max(axis=1)
    scale = np.where(scale > 0, scale, 1.0)
    is_finite = np.isfinite(values[near])
    enough = is_finite.sum(axis=1)[:, None] > np.arange(3)  # two samples make a line
    powers = (away / scale[:, None])[..., None] ** np.arange(3)
    X = powers * (is_finite[..., None] & enough[:, None])
    inverse = np.linalg.pinv(X.swapaxes(1, 2) @ X, rcond=1e-10, hermitian=True)
    coefficients = inverse @ (X.swapaxes(1, 2) @ np.where(is_finite, values[near], 0.0)[..., None])
    slope = np.where(enough[:, 1], coefficients[:, 1, 0] / scale, np.nan)
    return coefficients[:, 0, 0], slope, inverse[:, 0, 0] * np.isfinite(values[nearest])
