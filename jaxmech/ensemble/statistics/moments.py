"""Statistics with intervals: `Moments`, `Probability`, and `FirstPassage`."""

from dataclasses import dataclass, field
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Sample, State, StatisticResult
from jaxmech.utils.text import doc, setting

Method = Literal["wilson", "clopper-pearson"]


def of_proportion(hits: Any, count: Any, confidence: float, method: Method) -> tuple[float, float]:
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


@dataclass(frozen=True)
class Moments(AbstractStatistic):
    """Count, mean, standard deviation, smallest and largest value, each with its trajectory.

    The mean and the standard deviation are exact to round-off, also for quantities that are large
    beside their differences.
    """

    of: str = field(metadata=doc("name of the quantity"))
    confidence: float = setting(0.95, "confidence of the interval of the mean", between=(0, 1))

    in_unit = ("mean", "mean_low", "mean_high", "sd", "min", "max")

    def of_sample(self, sample: Sample) -> State:
        """Count, extremes and centred moments of the values that are finite."""
        value, w = sample.counted(self.of)  # of which those that do not count are zero
        # From the first value that counts, since a mean of large numbers loses digits.
        centre = jnp.take_along_axis(value, (w > 0).argmax(0)[None], 0)
        away = jnp.where(w > 0, value - centre, 0)
        offset = (w * away).sum(0) / jnp.where(w.sum(0) > 0, w.sum(0), 1)
        has_values = (w > 0).any(0)
        low, high = jnp.where(w > 0, value, jnp.inf), jnp.where(w > 0, value, -jnp.inf)
        return {
            "count": (w > 0).sum(0),
            "mean": centre[0] + offset,
            "spread": (w * jnp.where(w > 0, away - offset, 0) ** 2).sum(0),
            "min": low.min(0),
            "max": high.max(0),
            "min_index": jnp.where(has_values, sample.number[low.argmin(0)], -1),
            "max_index": jnp.where(has_values, sample.number[high.argmax(0)], -1),
        }

    def merge(self, first: State, second: State) -> State:
        """Merge the centred moments; of equal extremes keep the first one.

        By the formulas of Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
        The American Statistician 37, 1983.
        """
        total = first["count"] + second["count"]
        share = (second["count"] / jnp.maximum(total, 1)).astype(second["mean"].dtype)
        # The mean of a state without any value is of no account.
        apart = jnp.where(first["count"] > 0, second["mean"] - first["mean"], second["mean"])
        between = jnp.where(second["count"] > 0, apart, 0)
        # Strictly, so that of equal extremes the one of the earlier trajectory stays.
        lower, higher = second["min"] < first["min"], second["max"] > first["max"]
        return {
            "count": total,
            "mean": jnp.where(first["count"] > 0, first["mean"], 0) + between * share,
            "spread": first["spread"] + second["spread"] + between**2 * first["count"] * share,
            "min": jnp.where(lower, second["min"], first["min"]),
            "max": jnp.where(higher, second["max"], first["max"]),
            "min_index": jnp.where(lower, second["min_index"], first["min_index"]),
            "max_index": jnp.where(higher, second["max_index"], first["max_index"]),
        }

    def result(self, state: State) -> StatisticResult:
        """Unbiased estimates; NaN where there are too few values."""
        count = np.asarray(state["count"], float)
        is_empty = count == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            sd = np.sqrt(state["spread"] / np.where(count > 1, count - 1, np.nan))
            half = float(ndtri(0.5 + self.confidence / 2)) / np.sqrt(count) * sd
        mean, low, high = (
            np.where(is_empty, np.nan, np.asarray(state[name], float))
            for name in ("mean", "min", "max")
        )
        return {
            "count": state["count"],
            "mean": mean,
            "mean_low": mean - half,
            "mean_high": mean + half,
            "sd": sd,
            "min": low,
            "max": high,
            "min_index": state["min_index"],
            "max_index": state["max_index"],
        }


@dataclass(frozen=True)
class Probability(AbstractStatistic):
    """The probability that a quantity is above, or below, a threshold at any saved time.

    For all times, not the saved ones alone, observe an event of the threshold: the probability of
    `fast` is that of `fast_count` above 0.5. Trajectories that failed, or whose quantity is NaN at
    some time, are left out and counted.
    """

    of: str = field(metadata=doc("name of the quantity"))
    above: float | None = setting(None, "threshold to be exceeded")
    below: float | None = setting(None, "threshold to fall below")
    confidence: float = setting(0.95, "confidence of the interval", between=(0, 1))
    interval: Method = setting("wilson", "kind of interval")

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            condition = "neither is" if self.above is None else "both are"
            raise refuse("above", f"or `below` must be given, one of the two, but {condition}")
        super().__post_init__()

    def of_sample(self, sample: Sample) -> State:
        """Count hits."""
        value = sample.floats(self.of).reshape(len(sample.good), -1)
        counts = sample.good & ~jnp.isnan(value).any(1)
        beyond = value < self.below if self.below is not None else value > jnp.asarray(self.above)
        flags = {"hits": counts & beyond.any(1), "count": counts, "failed": sample.real & ~counts}
        return {key: x.sum().astype(sample.number.dtype) for key, x in flags.items()}

    def result(self, state: State) -> StatisticResult:
        """The probability with its interval, and the counts behind it."""
        hits, count = int(state["hits"]), int(state["count"])
        low, high = of_proportion(hits, count, self.confidence, self.interval)
        return {
            "probability": hits / count if count else np.nan,
            "low": low,
            "high": high,
            "hits": hits,
            "count": count,
            "left_out": int(state["failed"]),
        }


@dataclass(frozen=True)
class FirstPassage(AbstractStatistic):
    """The exact time at which an event of the study first occurs.

    The probabilities that it has by each saved time have Clopper-Pearson intervals. The mean time,
    its standard deviation, and the earliest and latest time are over the trajectories in which it
    occurs.
    """

    of: str = field(metadata=doc("name of an event of the study"))
    confidence: float = setting(0.95, "confidence of the intervals", between=(0, 1))

    in_unit = ("mean", "sd", "earliest", "latest")

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities of the event."""
        return f"{self.of}_passed", f"{self.of}_time"

    def of_sample(self, sample: Sample) -> State:
        """Count the trajectories by the saved time at which the event has first occurred."""
        past = sample.values[self.names[0]] > 0
        # The first true one; the last column stands for trajectories that never pass.
        never = jnp.full((len(past), 1), True)
        first = jnp.concatenate([past, never], axis=1).argmax(1)
        is_first = (first[:, None] == jnp.arange(past.shape[1] + 1)[None]) & sample.good[:, None]
        times = self._times.of_sample(sample._replace(good=is_first[:, :-1].any(1)))
        return {"passed": is_first.sum(0).astype(sample.number.dtype), "times": times}

    def merge(self, first: State, second: State) -> State:
        """Sums, and the moments of the times."""
        times = self._times.merge(first["times"], second["times"])
        return {"passed": first["passed"] + second["passed"], "times": times}

    def result(self, state: State) -> StatisticResult:
        """The number that first passed at each saved time, and the probability of it by then."""
        passed = np.asarray(state["passed"])
        count, hits = int(passed.sum()), np.cumsum(passed)[:-1]
        bounds = [of_proportion(n, count, self.confidence, "clopper-pearson") for n in hits]
        low, high = np.asarray(bounds).T
        moments = self._times.result(state["times"])
        keys = {"mean": "mean", "sd": "sd", "earliest": "min", "latest": "max"}
        return {
            "count": count,
            "passed": passed[:-1],
            "never": int(passed[-1]),
            "probability": hits / max(count, 1),
            "low": low,
            "high": high,
            **{name: float(moments[key]) for name, key in keys.items()},
        }

    @property
    def _times(self) -> Moments:
        return Moments(of=self.names[1])
