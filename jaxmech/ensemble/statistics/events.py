"""`Probability` of crossing a threshold, and `FirstPassage`, the time of an event."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.moments import Method, Moments, of_proportion
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
)
from jaxmech.utils.text import doc, setting


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
