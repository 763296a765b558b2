"""States at the samples of a recording of all coordinates, to begin multiple shooting with."""

import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.velocity_estimates import rates, without_outliers
from jaxmech.identify.data.wraps import unwrapped

_FEWEST = 3  # samples of a coordinate from which it has a rate


def states_of_samples(one: Recording) -> tuple[np.ndarray, np.ndarray] | None:
    """Coordinates and rates (T, n) at the samples; NaN where one is missing.

    The first ones are those of the recording. Angles that wrap are unwrapped, within half a turn of
    it. None if a coordinate has hardly been measured.

    Example:
        >>> ts = np.linspace(0.0, 1.0, 51)
        >>> angle = (3.0 + 2.0 * ts + np.pi) % (2 * np.pi) - np.pi
        >>> turning = Recording(ts, angle, [3.1], [0.0], wraps={0: 2 * np.pi})
        >>> q, v = states_of_samples(turning)
        >>> print(q[[0, -1], 0], v[[0, -1], 0].round(6) + 0.0)
        [3.1 5. ] [0. 2.]
    """
    samples = np.where(one.measured, one.observed, np.nan)
    if (np.isfinite(samples).sum(axis=0) < _FEWEST).any():
        return None
    for k in np.flatnonzero(one.periods):
        period, column = one.periods[k], unwrapped(samples[:, k], one.periods[k])
        first = column[np.isfinite(column)][0]
        samples[:, k] = column - period * np.round((first - one.q0[k]) / period)
    q, _ = without_outliers(samples, one.ts)
    v = rates(q, one.ts)
    q[0], v[0] = one.q0, one.v0
    return q, v
