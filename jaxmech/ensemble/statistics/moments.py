"""`Moments`: count, mean, standard deviation and extremes of a quantity."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.centred import Pooled, centred, effective_count, mean_of, pooled
from jaxmech.ensemble.statistics.intervals import factor
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.field_docs import doc, setting


@dataclass(frozen=True)
class Moments(AbstractStatistic):
    """Count, mean, standard deviation, smallest and largest value, each with its trajectory.

    The mean and the standard deviation are exact to round-off, also for quantities that are large
    beside their differences, and for numbers whose squares overflow (`centred`).

    Example:
        >>> x = jnp.array([1.0, 2.0, 6.0])
        >>> sample = Sample({"x": x}, jnp.ones(3), jnp.full(3, True), jnp.arange(3))
        >>> moments = Moments(of="x")
        >>> found = moments.result(moments.update(moments.init(sample), sample))
        >>> print(found["mean"], found["max"], found["max_index"])
        3.0 6.0 2
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
