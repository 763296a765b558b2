"""Starts of recorded coordinates without outliers, and their rates, from local parabolas.

Differences of neighbouring samples amplify their noise by one over the time between them. A
parabola over more samples is less noisy, until it no longer follows the motion; the width is chosen
by leave-one-out cross-validation (Fan and Gijbels 1996, section 4.10). It is a number of samples,
which may have any number of times without one between them. A fit that begins at an
outlier may end anywhere, or nowhere: samples that their neighbours contradict do not count.
"""

import numpy as np
from numpy.typing import NDArray

from jaxmech.utils.arrays import HostArray

_WIDTHS = (5, 9, 17, 33, 65)  # samples under a parabola
_JUDGED = 100  # samples at which the widths are compared
_NEAR = 9  # samples under a parabola that judges the one in its middle
_FAR = 10.0  # distance from it that noise does not explain, in its standard deviations
_JUMP = 3.0  # the same in the largest step of the others, for recordings without noise
_ROUNDS = 20  # of outliers in the neighbourhood of a larger one
_AT_ONCE = 4096  # samples whose parabolas are fitted in one batch, to bound the memory


def rates(values: HostArray, ts: HostArray) -> HostArray:
    """Time derivatives (T, k) of samples (T, k) at times (T,); NaN where one is unknown."""
    return np.stack([_rates(column, ts) for column in values.T], axis=1)


def without_outliers(values: HostArray, ts: HostArray) -> tuple[HostArray, NDArray[np.bool_]]:
    """Samples (T, k) with the outliers moved to where their neighbours are, and which these are."""
    moved = np.zeros(values.shape, bool)
    clean = values.copy()
    for k in range(values.shape[1]):
        seen = np.flatnonzero(np.isfinite(values[:, k]))
        column, times = values[seen, k], ts[seen]
        for _ in range(_ROUNDS if len(seen) >= _NEAR else 0):
            outliers = _outliers(column, times)
            if not outliers.any():
                break
            column[outliers] = np.nan
            moved[seen[outliers], k] = True
        indices = np.flatnonzero(np.isnan(column))
        if indices.size:
            clean[seen[indices], k] = _parabolas(column, times, _NEAR, times[indices])[0]
    return clean, moved


def _outliers(values: HostArray, ts: HostArray) -> NDArray[np.bool_]:
    """The samples far from the parabola through their neighbours, and further than those are."""
    parts = np.array_split(np.arange(len(ts)), -(-len(ts) // _AT_ONCE))
    value, leverage = (
        np.concatenate(columns)
        for columns in zip(*(_parabolas(values, ts, _NEAR, ts[x])[::2] for x in parts), strict=True)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.abs(values - value) / np.sqrt(1 - leverage)  # all of one variance
        missed = away / np.sqrt(1 - leverage)  # by the parabola through the others
    away, missed = (np.where(np.isfinite(x), x, 0.0) for x in (away, missed))
    noise = 1.4826 * np.median(away)
    first = np.clip(np.arange(len(ts)) - _NEAR // 2, 0, len(ts) - _NEAR)
    near = first[:, None] + np.arange(_NEAR)
    others = np.where(near == np.arange(len(ts))[:, None], np.nan, values[near])
    steps = np.nan_to_num(np.abs(np.diff(others, axis=1)), nan=0.0).max(axis=1)
    far: NDArray[np.bool_] = (
        (away > _FAR * noise) & (missed > _JUMP * steps) & (away >= away[near].max(axis=1))
    )
    return far


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
