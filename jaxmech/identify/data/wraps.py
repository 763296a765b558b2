"""Sensors that wrap, such as an encoder that jumps from pi to -pi, and signs of such jumps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_TURNS = {2 * np.pi: "2 pi", 360.0: "360"}
_NEAR = 0.2  # of a turn, by which a jump may differ from it
_WITHIN = 1.01  # turns, in which a sensor that wraps stays
_SLOW = 0.25  # of a turn, the most that usual samples differ from their neighbours


def followed(
    differences: Float[Array, "T d"], weights: Float[Array, "T d"], periods: Float[Array, " d"]
) -> Float[Array, "T d"]:
    """Differences less whole periods, each nearest to the one before, the first nearest to zero.

    Not all of them nearest to zero: far from the optimum the difference passes half a turn, where
    the residuals would jump, and a fit end in a minimum that the unwrapped angle does not have.
    Samples without weight count for nothing, and 0 is no period.
    """
    wraps = periods > 0

    def step(before: Array, sample: tuple[Array, Array]) -> tuple[Array, Array]:
        difference, weight = sample
        turns = jnp.round((difference - before) / jnp.where(wraps, periods, 1.0))
        result = jnp.where(wraps, difference - periods * turns, difference)
        return jax.lax.stop_gradient(jnp.where(weight > 0, result, before)), result

    return jax.lax.scan(step, jnp.zeros_like(periods), (differences, weights))[1]


def followed_on_host(differences: np.ndarray, periods: np.ndarray) -> np.ndarray:
    """The same for differences that are NaN where nothing was measured.

    Example:
        >>> followed_on_host(np.array([[6.0], [np.nan], [2.0]]), np.array([5.0]))[:, 0].tolist()
        [1.0, nan, 2.0]
    """
    result = differences.copy()
    for sensor in np.flatnonzero(periods):
        column = unwrapped(differences[:, sensor], periods[sensor])
        first = next(iter(column[np.isfinite(column)]), 0.0)
        result[:, sensor] = column - periods[sensor] * np.round(first / periods[sensor])
    return result


def periods_of(wraps: Mapping[int, float], sensors: int) -> np.ndarray:
    """The period of each sensor, 0 without one, (d,).

    Raises:
        ValueError: if there is no such sensor, or a period is not positive.
    """
    if not isinstance(wraps, Mapping) or not all(
        type(k) is int and 0 <= k < sensors for k in wraps
    ):
        raise ValueError(
            f"periods by the index of a sensor, 0 to {sensors - 1}, such as {{0: 2 * np.pi}}, but "
            f"is {wraps!r}"
        )
    if not all(np.isfinite(period) and period > 0 for period in wraps.values()):
        raise ValueError(f"positive periods, but is {dict(wraps)}")
    return np.array([wraps.get(k, 0.0) for k in range(sensors)], float)


def unwrapped(samples: np.ndarray, period: float) -> np.ndarray:
    """Samples (T,) without jumps of a period; those that are missing stay so."""
    seen = np.isfinite(samples)
    result = samples.copy()
    result[seen] = np.unwrap(samples[seen], period=period)
    return result


def jumps(recordings: Sequence[Any]) -> Iterator[str]:
    """A warning of the first sensor that jumps by a turn, unless that is stated.

    Example:
        >>> from jaxmech.identify import Recording
        >>> angle = np.linspace(0.0, 9.0, 50)
        >>> turning = Recording(angle, (angle + np.pi) % (2 * np.pi) - np.pi, [0.0], [1.0])
        >>> next(jumps([turning])).partition(";")[0]
        'Sensor 0 jumps by nearly 2 pi between neighbouring samples (at 3.306)'
    """
    for recording in recordings:
        for sensor, column in enumerate(recording.observed.T):
            seen = np.isfinite(column) & (recording.periods[sensor] == 0)
            steps, times = np.abs(np.diff(column[seen])), recording.ts[seen][1:]
            for turn, name in _TURNS.items() if len(steps) > 1 else ():
                at = np.flatnonzero(np.abs(steps - turn) < _NEAR * turn)
                within = np.ptp(column[seen]) <= _WITHIN * turn
                if at.size and within and np.median(steps) < _SLOW * turn:
                    location = f" of {recording.name}" if recording.name else ""
                    yield (
                        f"Sensor {sensor}{location} jumps by nearly {name} between neighbouring "
                        f"samples (at {times[at[0]]:.4g}); if it is an angle that wraps, state "
                        f"`wraps={{{sensor}: {'2 * np.pi' if turn < 360 else '360'}}}` of "
                        'its Recording, or `wraps = ["its column"]` in a table.'
                    )
                    return
