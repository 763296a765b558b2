"""`Moments`: count, mean, standard deviation and extremes of a quantity."""

from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.text import doc, setting

_NONE = -(2**15)  # exponent of zero, far below that of any number


class Pooled(NamedTuple):
    """Two states in common units.

    Attributes:
        state: the sums and means of both.
        between: the difference of the means.
        share: share of the second state in the weight of both.
        scales: the factors by which both states are scaled.
    """

    state: State
    between: Array
    share: Array
    scales: tuple[Array, Array]


def exponent_of(size: Array) -> Array:
    """The least e such that numbers are below 2^e; far below all others for zero."""
    return jnp.where(size >= jnp.finfo(size.dtype).tiny, jnp.frexp(size)[1], _NONE)


def scaled(value: Array, exponent: Array) -> Array:
    """Numbers times 2^exponent; those that are too small are zero."""
    # Two factors, because one might overflow; and no `ldexp` of each value, which takes longer.
    largest = 2 * (int(jnp.finfo(value.dtype).maxexp) - 4)
    exponent = jnp.clip(exponent, -largest, largest)
    unit = jnp.ones((), value.dtype)
    return value * jnp.ldexp(unit, exponent // 2) * jnp.ldexp(unit, exponent - exponent // 2)


def centred(value: Array, weight: Array) -> tuple[State, Array]:
    """The state of values of shape (B, ...), and their distances from the mean in its units.

    Weights have the same shape, or that of all axes but the last; they are zero for values that do
    not count, which must be zero, too.
    """
    total = weight.sum(0)
    w = weight.reshape(weight.shape + (1,) * (value.ndim - weight.ndim))
    counts = w > 0
    # Scaled before they are subtracted: their difference might overflow, or be too small.
    size = exponent_of(jnp.abs(value).max(0))
    value = scaled(value, -size[None])
    first = jnp.broadcast_to(counts, value.shape).argmax(0)
    centre = jnp.take_along_axis(value, first[None], 0)
    away = jnp.where(counts, value - centre, 0)
    exponent = exponent_of(jnp.abs(away).max(0))
    away = scaled(away, -exponent[None])
    offset = (w * away).sum(0) / jnp.where(w.sum(0) > 0, w.sum(0), 1)
    state = {
        "weight": total,
        "squares": (weight**2).sum(0),
        "centre": scaled(centre[0], size),
        "exponent": jnp.maximum(size + exponent, _NONE),
        "offset": offset,
    }
    return state, jnp.where(counts, away - offset[None], 0)


def pooled(first: State, second: State) -> Pooled:
    """Two states in common units, with sums and means by the formulas of Chan, Golub and LeVeque.

    "Algorithms for computing the sample variance", The American Statistician 37, 1983.
    """
    total = first["weight"] + second["weight"]
    share = second["weight"] / jnp.where(total > 0, total, 1)
    # The centre of a state without any weight is of no account.
    mine, theirs = jnp.asarray(first["centre"]), jnp.asarray(second["centre"])
    mine = jnp.where(first["weight"] > 0, mine, theirs)
    theirs = jnp.where(second["weight"] > 0, theirs, mine)
    size = exponent_of(jnp.maximum(jnp.abs(mine), jnp.abs(theirs)))
    apart = scaled(theirs, -size) - scaled(mine, -size)
    exponents = (first["exponent"], second["exponent"], size + exponent_of(jnp.abs(apart)))
    exponent = jnp.maximum(jnp.maximum(*exponents[:2]), exponents[2])
    unit = jnp.ones((), mine.dtype)
    scales = tuple(scaled(unit, part - exponent) for part in exponents[:2])
    mean_difference = scaled(apart, size - exponent)
    mean_difference += second["offset"] * scales[1] - first["offset"] * scales[0]
    state = {
        "weight": total,
        "squares": first["squares"] + second["squares"],
        "centre": mine,
        "exponent": exponent,
        "offset": first["offset"] * scales[0] + mean_difference * share,
    }
    return Pooled(state, mean_difference, share, (scales[0], scales[1]))


def mean_of(state: State) -> np.ndarray:
    """The mean of a state on the host."""
    offset = np.ldexp(np.asarray(state["offset"], float), np.asarray(state["exponent"]) - 1)
    return np.asarray(2 * (np.asarray(state["centre"], float) / 2 + offset))  # may not overflow


def effective_count(state: State) -> np.ndarray:
    """Kish's effective number of values: with weights of one, their count."""
    weight, squares = (np.asarray(state[name], float) for name in ("weight", "squares"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(weight**2 / squares)


Number = int | float | np.integer[Any] | np.floating[Any]
Method = Literal["wilson", "clopper-pearson"]


def of_proportion(
    hits: Number, count: Number, confidence: float, method: Method
) -> tuple[float, float]:
    """The interval of a probability, from the number of hits in `count` trials.

    By `scipy.stats.binomtest`: Wilson's score interval (JASA 22, 1927), which covers with the
    confidence on average, or that of Clopper and Pearson (Biometrika 26, 1934), which never covers
    with less. Both agree with counts of zero: ten thousand trials without a hit are no proof.
    """
    from scipy.stats import binomtest

    if not count:
        return 0.0, 1.0
    short = {"wilson": "wilson", "clopper-pearson": "exact"}[method]
    interval = binomtest(int(hits), int(count)).proportion_ci(confidence, short)
    return float(interval.low), float(interval.high)


def factor(confidence: float) -> float:
    """Half of the width of a normal interval, in standard errors."""
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


@dataclass(frozen=True)
class Moments(AbstractStatistic):
    """Count, mean, standard deviation, smallest and largest value, each with its trajectory.

    The mean and the standard deviation are exact to round-off, also for quantities that are large
    beside their differences, and for numbers whose squares overflow (`centred`).
    """

    of: str = field(metadata=doc("name of the quantity"))
    confidence: float = setting(0.95, "confidence of the interval of the mean", between=(0, 1))

    in_unit = ("mean", "mean_low", "mean_high", "sd", "min", "max")

    def of_sample(self, sample: Sample) -> State:
        """Count, extremes and centred moments of the values that are finite."""
        value, w = sample.weighted(self.of)
        state, away = centred(value, w)
        has_values = (w > 0).any(0)
        low, high = jnp.where(w > 0, value, jnp.inf), jnp.where(w > 0, value, -jnp.inf)
        return {
            **state,
            "count": (w > 0).sum(0).astype(sample.number.dtype),
            "spread": (w * away**2).sum(0),
            "min": low.min(0),
            "max": high.max(0),
            "min_index": jnp.where(has_values, sample.number[low.argmin(0)], -1),
            "max_index": jnp.where(has_values, sample.number[high.argmax(0)], -1),
        }

    def merge(self, first: State, second: State) -> State:
        """Merge the centred moments; of equal extremes keep the first one."""
        total = pooled(first, second)
        # Strictly, so that of equal extremes the one of the earlier trajectory stays.
        lower, higher = second["min"] < first["min"], second["max"] > first["max"]
        return {
            **total.state,
            "count": first["count"] + second["count"],
            "spread": spread_of_both(first, second, total),
            "min": jnp.where(lower, second["min"], first["min"]),
            "max": jnp.where(higher, second["max"], first["max"]),
            "min_index": jnp.where(lower, second["min_index"], first["min_index"]),
            "max_index": jnp.where(higher, second["max_index"], first["max_index"]),
        }

    def result(self, state: State) -> StatisticResult:
        """Unbiased estimates if all weights are one; NaN where there are too few values."""
        x = host(state)
        effective, is_empty = effective_count(x), x["count"] == 0
        mean = np.where(is_empty, np.nan, mean_of(x))
        sd = deviation(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            half = factor(self.confidence) / np.sqrt(effective) * sd
        return {
            "count": x["count"],
            "effective_count": np.where(is_empty, 0.0, effective),
            "mean": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "sd": sd,
            "min": np.where(is_empty, np.nan, x["min"]),
            "max": np.where(is_empty, np.nan, x["max"]),
            "min_index": x["min_index"],
            "max_index": x["max_index"],
        }

    def estimate(self, result: StatisticResult) -> tuple[float, float, float] | None:
        """The mean of a quantity that is one number per trajectory."""
        parts = [np.asarray(result[name]) for name in ("mean", "mean_low", "mean_high")]
        if parts[0].ndim:
            return None
        value, low, high = (float(part) for part in parts)
        return value, low, high


def spread_of_both(first: State, second: State, total: Pooled) -> Array:
    """The sum of squares about the common mean."""
    scale, other_scale = total.scales
    inner = first["spread"] * scale**2 + second["spread"] * other_scale**2
    return inner + total.between**2 * first["weight"] * total.share


def deviation(state: State) -> np.ndarray:
    """The standard deviation; NaN where there are too few values."""
    effective = effective_count(state)
    with np.errstate(divide="ignore", invalid="ignore"):
        # With weights of one, the correction is the usual n / (n - 1).
        variance = state["spread"] / state["weight"] * effective / (effective - 1)
        return np.asarray(np.ldexp(np.sqrt(variance), state["exponent"]))
