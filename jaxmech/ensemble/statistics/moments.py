"""`Moments`: count, mean, standard deviation and extremes of a quantity."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.intervals import factor
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Found, Sample, State, host
from jaxmech.utils.field_docs import doc, setting


@dataclass(frozen=True)
class Moments(AbstractStatistic):
    """Count, mean, standard deviation, smallest and largest value, each with its trajectory.

    Means of blocks are merged with the formulas of Chan, Golub and LeVeque ("Algorithms for
    computing the sample variance", The American Statistician 37, 1983).

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

    def of_sample(self, sample: Sample) -> State:
        """Two passes: the mean of the sample, then squares of the distances from it."""
        value, w = sample.weighted(self.of)
        total = w.sum(0)
        # The mean first: a sum of squares less the square of a sum would cancel where the spread is
        # small beside the mean.
        mean = (w * value).sum(0) / jnp.where(total > 0, total, 1)
        known = (w > 0).any(0)
        low, high = jnp.where(w > 0, value, jnp.inf), jnp.where(w > 0, value, -jnp.inf)
        return {
            "count": (w > 0).sum(0).astype(sample.number.dtype),
            "weight": total,
            "squares": (w**2).sum(0),
            "mean": mean,
            "spread": (w * (value - mean) ** 2).sum(0),
            "min": low.min(0),
            "max": high.max(0),
            "min_index": jnp.where(known, sample.number[low.argmin(0)], -1),
            "max_index": jnp.where(known, sample.number[high.argmax(0)], -1),
        }

    def merge(self, first: State, second: State) -> State:
        """Chan's formulas; of equal extremes, the first one."""
        both, away, share = pooled(first, second)
        # Strictly, so that of equal extremes the one of the earlier trajectory stays.
        lower, higher = second["min"] < first["min"], second["max"] > first["max"]
        return {
            **both,
            "spread": first["spread"] + second["spread"] + away**2 * first["weight"] * share,
            "min": jnp.where(lower, second["min"], first["min"]),
            "max": jnp.where(higher, second["max"], first["max"]),
            "min_index": jnp.where(lower, second["min_index"], first["min_index"]),
            "max_index": jnp.where(higher, second["max_index"], first["max_index"]),
        }

    def result(self, state: State) -> Found:
        """Unbiased estimates if all weights are one; NaN where there are too few values."""
        x = host(state)
        with np.errstate(divide="ignore", invalid="ignore"):
            # With weights of one it is the count, and the correction below the usual n / (n - 1).
            effective = x["weight"] ** 2 / x["squares"]  # Kish's effective number of values
            mean = np.where(x["count"] > 0, x["mean"], np.nan)
            sd = np.sqrt(x["spread"] / x["weight"] * effective / (effective - 1))
            half = factor(self.confidence) * sd / np.sqrt(effective)
        none = x["count"] == 0
        return {
            "count": x["count"],
            "effective_count": np.where(none, 0.0, effective),
            "mean": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "sd": sd,
            "min": np.where(none, np.nan, x["min"]),
            "max": np.where(none, np.nan, x["max"]),
            "min_index": x["min_index"],
            "max_index": x["max_index"],
        }

    def estimate(self, found: Found) -> tuple[float, float, float] | None:
        """The mean of a quantity that is one number per trajectory."""
        parts = [np.asarray(found[name]) for name in ("mean", "mean_low", "mean_high")]
        if parts[0].ndim:
            return None
        value, low, high = (float(part) for part in parts)
        return value, low, high


def pooled(first: State, second: State) -> tuple[State, Array, Array]:
    """Count, weights and mean of two states by Chan's formulas, and the data for their spread."""
    total = first["weight"] + second["weight"]
    share = second["weight"] / jnp.where(total > 0, total, 1)
    away = second["mean"] - first["mean"]
    sums = {name: first[name] + second[name] for name in ("count", "weight", "squares")}
    return {**sums, "mean": first["mean"] + away * share}, away, share
