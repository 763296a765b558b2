"""Central differences over a sweep of step sizes, and the best of them.

With a large step the differences miss curvature, with a small one they drown in round-off; between
the two lies a plateau. Two neighbouring step sizes together cancel the error of second order
(Richardson 1911). Of these extrapolated values that one is taken which differs least from its
neighbours, one with larger and two with smaller steps; the largest difference is its uncertainty.
On either side of the plateau the error changes by the ratio of the steps or more, so this is rather
an overestimate; two neighbours alone agree by accident too often.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating]
LEAST_SIZES = 4


class Sweep(NamedTuple):
    """Central differences of P derivatives with S step sizes."""

    sizes: Numbers  # relative step sizes, descending, (S,)
    scales: Numbers  # what they are relative to: the size of the number, 1 where it is zero, (P,)
    differences: Numbers  # (P, S), NaN where a changed motion failed
    extrapolated: Numbers  # each two neighbours without their error of second order, (P, S - 1)
    chosen: NDArray[np.integer]  # which of these is in the middle of the plateau, (P,), or -1
    values: Numbers  # the derivatives, (P,), NaN where there is no plateau
    uncertainties: Numbers  # of the values, (P,)


def sweep(sizes: Numbers, scales: Numbers, differences: Numbers, round_off: float) -> Sweep:
    """The plateau of every row of differences (P, S) of values with a given round-off.

    Example:
        >>> sizes = 10.0 ** -np.arange(1, 9)
        >>> slopes = np.array([[(np.exp(h) - np.exp(-h)) / (2 * h) for h in sizes]])
        >>> found = sweep(sizes, np.ones(1), slopes, 2e-16)
        >>> print(abs(found.values - 1) <= found.uncertainties)
        [ True]
    """
    ratio = (sizes[:-1] / sizes[1:]) ** 2
    large, small = differences[:, :-1], differences[:, 1:]
    extrapolated = small + (small - large) / (ratio - 1)
    jumps = np.abs(np.diff(extrapolated))
    next_jump = np.pad(jumps[:, 2:], ((0, 0), (0, 1)), mode="edge")
    doubt = np.maximum(np.maximum(jumps[:, :-1], jumps[:, 1:]), next_jump)
    doubt = doubt + round_off / (scales[:, None] * sizes[1:-2])
    doubt[np.isnan(doubt)] = np.inf
    middle, least = np.argmin(doubt, axis=1) + 1, np.min(doubt, axis=1)
    is_finite = np.isfinite(least)
    chosen, uncertainties = np.where(is_finite, middle, -1), np.where(is_finite, least, np.nan)
    values = np.where(is_finite, extrapolated[np.arange(len(scales)), middle], np.nan)
    return Sweep(sizes, scales, differences, extrapolated, chosen, values, uncertainties)


def step_sizes(sizes: object, eps: float) -> Numbers:
    """The given relative step sizes in descending order; by default two in each decade."""
    if sizes is None:
        decades = 9 if eps < 1e-10 else 4
        return 10.0 ** -np.linspace(1, decades, 2 * decades - 1)
    step_array = np.asarray(sizes, dtype=float)
    good = step_array.ndim == 1 and np.isfinite(step_array).all() and (step_array > 0).all()
    if not good or np.unique(step_array).size != step_array.size or step_array.size < LEAST_SIZES:
        raise ValueError(
            f"Argument `sizes` must hold at least {LEAST_SIZES} different positive step sizes, "
            f"but is {sizes!r}; leave it out for two in each decade."
        )
    return np.sort(step_array)[::-1]
