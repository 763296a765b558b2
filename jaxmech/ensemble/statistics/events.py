"""`Probability` and `FirstPassage`: probability and time of crossing a threshold."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.moments import Method, Moments, of_proportion, of_weighted
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
)
from jaxmech.utils.text import doc, setting


@dataclass(frozen=True)
class _Threshold(AbstractStatistic):
    """A statistic of a quantity that is beyond a threshold; exactly one threshold is given."""

    of: str = field(metadata=doc("name of the quantity"))
    above: float | None = setting(None, "threshold to be exceeded")
    below: float | None = setting(None, "threshold to fall below")
    confidence: float = setting(0.95, "confidence of the interval", between=(0, 1))
    between_saves: bool = setting(
        False, "whether an event of the threshold finds passages between saved times too"
    )

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None) and self.of_event is None:
            condition = "neither is" if self.above is None else "both are"
            raise refuse("above", f"or `below` must be given, one of the two, but {condition}")
        if self.between_saves and self.of_event is not None:
            message = (
                "must be left out without a threshold: the times of an event are exact already"
            )
            raise refuse("between_saves", message)
        super().__post_init__()

    @property
    def level(self) -> float:
        """The threshold."""
        return float(self.above if self.below is None else self.below)  # type: ignore[arg-type]

    @property
    def passage(self) -> str | None:
        """The event of going beyond the threshold, if it is sought between the saved times."""
        if not self.between_saves:
            return None
        return f"{self.of} {'above' if self.below is None else 'below'} {self.level!r}"

    def _names_with(self, suffix: str) -> tuple[str, ...]:
        return (self.of,) if self.passage is None else (self.of, f"{self.passage}_{suffix}")

    def beyond(self, value: Array) -> Array:
        """Whether values are beyond the threshold."""
        return value < self.below if self.below is not None else value > jnp.asarray(self.above)


@dataclass(frozen=True)
class Probability(_Threshold):
    """The probability that a quantity is above, or below, a threshold at any saved time.

    With `between_saves` it is the probability at any time: an event finds the passages between
    saved times. Trajectories that failed, or whose quantity is NaN at some time, are left out and
    counted. With importance weights the interval is the normal one, for the mean of weights times
    hits.
    """

    interval: Method = setting("wilson", "kind of interval")

    @property
    def names(self) -> tuple[str, ...]:
        """The quantity, and how often it passes the threshold."""
        return self._names_with("count")

    def of_sample(self, sample: Sample) -> State:
        """Count hits, and sum their weights."""
        value = sample.floats(self.of).reshape(len(sample.weight), -1)
        counts = sample.counts & ~jnp.isnan(value).any(1)
        is_beyond = self.beyond(value).any(1)
        if self.passage is not None:
            is_beyond |= sample.values[self.names[1]] > 0
        hit = counts & is_beyond
        w = jnp.where(hit, sample.weight, 0)
        flags = {"hits": hit, "count": counts, "failed": sample.real & ~counts}
        summed = {key: x.sum().astype(sample.number.dtype) for key, x in flags.items()}
        return {**summed, "total": w.sum(), "squares": (w**2).sum()}

    def result(self, state: State) -> StatisticResult:
        """The probability with its interval, and the counts behind it."""
        hits, count = int(state["hits"]), int(state["count"])
        total, squares = float(state["total"]), float(state["squares"])
        low, high = of_proportion(hits, count, self.confidence, self.interval)
        if total != hits or squares != hits:  # importance weights
            low, high = of_weighted(total, squares, count, self.confidence)
        return {
            "probability": total / count if count else np.nan,
            "low": low,
            "high": high,
            "hits": hits,
            "count": count,
            "left_out": int(state["failed"]),
        }

    def estimate(self, result: StatisticResult) -> tuple[float, float, float] | None:
        """The probability with its interval."""
        return result["probability"], result["low"], result["high"]


@dataclass(frozen=True)
class FirstPassage(_Threshold):
    """The time at which a quantity first passes a threshold, or an event first occurs.

    Without a threshold, `of` names an event of the study, and passages are exact; with a threshold,
    only saved times are considered, unless `between_saves` makes passages exact, too. The
    probabilities of a passage before each saved time have Clopper-Pearson intervals. For an event
    there are also the mean time, its standard deviation, and the earliest and latest time, over the
    trajectories in which it occurs.
    """

    of: str = field(
        metadata=doc(
            "name of an event, or of a quantity with one number at every saved time and a threshold"
        )
    )

    in_unit = ("mean", "sd", "earliest", "latest")

    @property
    def of_event(self) -> str | None:
        """The event, if there is no threshold."""
        return self.of if self.above is None and self.below is None else None

    @property
    def names(self) -> tuple[str, ...]:
        """The quantity, or those of the event."""
        if self.of_event is None:
            return self._names_with("passed")
        return f"{self.of}_passed", f"{self.of}_time"

    def of_sample(self, sample: Sample) -> State:
        """Count the trajectories by the time of their first passage."""
        value = sample.floats(self.names[0])
        value = value.reshape(*value.shape[:2], -1)
        counts = sample.counts & ~jnp.isnan(value).any((1, 2))
        past = (value > 0 if self.of_event is not None else self.beyond(value)).any(2)
        if self.passage is not None:
            past |= sample.values[self.names[1]]
        never = jnp.full((len(past), 1), True)
        # The first true one; the last column stands for trajectories that never pass.
        first = jnp.concatenate([past, never], axis=1).argmax(1)
        is_first = (first[:, None] == jnp.arange(past.shape[1] + 1)[None]) & counts[:, None]
        w = jnp.where(is_first, sample.weight[:, None], 0)
        state = {"passed": is_first.sum(0).astype(sample.number.dtype), "weights": w.sum(0)}
        state["squares"] = (w**2).sum(0)
        if self.of_event is None:
            return state
        return state | {"times": self._times.of_sample(sample._replace(weight=w[:, :-1].sum(1)))}

    def merge(self, first: State, second: State) -> State:
        """Sums, and the moments of the times."""
        state = {key: first[key] + second[key] for key in ("passed", "weights", "squares")}
        if self.of_event is None:
            return state
        return state | {"times": self._times.merge(first["times"], second["times"])}

    def result(self, state: State) -> StatisticResult:
        """The number that first passed at each saved time, and the probability of it by then."""
        passed = np.asarray(state["passed"])
        count = int(passed.sum())
        hits, total, squares = (
            np.cumsum(state[key])[:-1] for key in ("passed", "weights", "squares")
        )
        if np.array_equal(state["weights"], passed):
            bounds = [of_proportion(n, count, self.confidence, "clopper-pearson") for n in hits]
        else:
            pairs = zip(total, squares, strict=True)
            bounds = [of_weighted(w, w2, count, self.confidence) for w, w2 in pairs]
        low, high = np.asarray(bounds).T
        result = {
            "count": count,
            "passed": passed[:-1],
            "never": int(passed[-1]),
            "probability": total / max(count, 1),
            "low": low,
            "high": high,
        }
        if self.of_event is not None:
            moments = self._times.result(state["times"])
            keys = {"mean": "mean", "sd": "sd", "earliest": "min", "latest": "max"}
            result |= {name: float(moments[key]) for name, key in keys.items()}
        return result

    @property
    def _times(self) -> Moments:
        return Moments(of=self.names[1])
