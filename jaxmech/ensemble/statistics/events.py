"""`Probability` and `FirstPassage`: whether, and when, a quantity is beyond a threshold."""

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.intervals import Method, of_proportion, of_weighted
from jaxmech.ensemble.statistics.moments import require_confidence
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Found,
    Sample,
    State,
    as_float,
    host,
)
from jaxmech.utils.field_docs import doc


@dataclass(frozen=True)
class _Threshold(AbstractStatistic):
    """A statistic of a quantity that is beyond a threshold; exactly one threshold is given."""

    of: str = field(metadata=doc("name of the quantity"))
    above: float | None = field(default=None, metadata=doc("threshold that counts when exceeded"))
    below: float | None = field(default=None, metadata=doc("threshold that counts when undercut"))
    confidence: float = field(default=0.95, metadata=doc("confidence of the interval"))

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            what = "neither is" if self.above is None else "both are"
            raise refuse("above", f"or `below` must be given, one of the two, but {what}")
        require_confidence(self.confidence)

    def beyond(self, value: Array) -> Array:
        """Whether values are beyond the threshold."""
        return value < self.below if self.below is not None else value > jnp.asarray(self.above)


@dataclass(frozen=True)
class Probability(_Threshold):
    """The probability that a quantity is above, or below, a threshold at any saved time.

    Trajectories that failed, or whose quantity is NaN at some time, are left out and counted. With
    importance weights the interval is the normal one, of the mean of weights times hits.

    Example:
        >>> x = jnp.array([1.0, 2.0, 6.0])
        >>> sample = Sample({"x": x}, jnp.ones(3), jnp.full(3, True), jnp.arange(3))
        >>> high = Probability(of="x", above=5.0)
        >>> found = high.result(high.update(high.init(sample), sample))
        >>> print(f"{found['probability']:.3f} [{found['low']:.3f}, {found['high']:.3f}]")
        0.333 [0.061, 0.792]
    """

    interval: Method = field(default="wilson", metadata=doc("kind of interval"))

    def init(self, sample: Sample) -> State:
        """Zeros."""
        none, zero = jnp.zeros((), sample.number.dtype), jnp.zeros((), sample.weight.dtype)
        return {"hits": none, "count": none, "failed": none, "total": zero, "squares": zero}

    def update(self, state: State, sample: Sample) -> State:
        """Count hits, and sum their weights."""
        value = as_float(sample.values[self.of]).reshape(len(sample.weight), -1)
        counts = (sample.weight > 0) & ~jnp.isnan(value).any(1)
        hit = counts & self.beyond(value).any(1)
        w = jnp.where(hit, sample.weight, 0)
        own = {"hits": hit, "count": counts, "failed": sample.real & ~counts}
        summed = {key: x.sum().astype(state[key].dtype) for key, x in own.items()}
        return self.merge(state, {**summed, "total": w.sum(), "squares": (w**2).sum()})

    def merge(self, first: State, second: State) -> State:
        """Sums."""
        return {key: first[key] + second[key] for key in first}

    def result(self, state: State) -> Found:
        """The probability with its interval, and the counts behind it."""
        x = host(state)
        hits, count = int(x["hits"]), int(x["count"])
        weighted = bool(x["total"] != hits or x["squares"] != hits)
        if weighted:
            total, squares = float(x["total"]), float(x["squares"])
            low, high = of_weighted(total, squares, count, self.confidence)
        else:
            low, high = of_proportion(hits, count, self.confidence, self.interval)
        return {
            "probability": float(x["total"]) / count if count else np.nan,
            "low": low,
            "high": high,
            "hits": hits,
            "count": count,
            "left_out": int(x["failed"]),
        }

    def estimate(self, found: Found) -> tuple[float, float, float] | None:
        """The probability."""
        return found["probability"], found["low"], found["high"]


@dataclass(frozen=True)
class FirstPassage(_Threshold):
    """When a quantity is first beyond a threshold, to the saved time, and how often it never is.

    The probabilities to have passed by each saved time have intervals of Clopper and Pearson.
    """

    of: str = field(metadata=doc("name of the quantity, with one number at every saved time"))

    def init(self, sample: Sample) -> State:
        """Zeros."""
        times = sample.values[self.of].shape[1]
        return {
            "passed": jnp.zeros(times + 1, sample.number.dtype),  # the last one: never
            "weights": jnp.zeros(times + 1, sample.weight.dtype),
            "squares": jnp.zeros(times + 1, sample.weight.dtype),
        }

    def update(self, state: State, sample: Sample) -> State:
        """Count the trajectories by the time of their first passage."""
        value = as_float(sample.values[self.of])
        value = value.reshape(*value.shape[:2], -1)
        counts = (sample.weight > 0) & ~jnp.isnan(value).any((1, 2))
        past = self.beyond(value).any(2)
        never = jnp.full((len(past), 1), True)
        first = jnp.concatenate([past, never], axis=1).argmax(1)
        at = (first[:, None] == jnp.arange(past.shape[1] + 1)) & counts[:, None]
        w = jnp.where(at, sample.weight[:, None], 0)
        own = {"passed": at.sum(0).astype(state["passed"].dtype), "weights": w.sum(0)}
        return self.merge(state, {**own, "squares": (w**2).sum(0)})

    def merge(self, first: State, second: State) -> State:
        """Sums."""
        return {key: first[key] + second[key] for key in first}

    def result(self, state: State) -> Found:
        """By saved time: how many passed first there, and the probability to have passed by it."""
        x = host(state)
        count = int(x["passed"].sum())
        hits, total, squares = (np.cumsum(x[k])[:-1] for k in ("passed", "weights", "squares"))
        if np.array_equal(x["weights"], x["passed"]):
            bounds = [of_proportion(n, count, self.confidence, "clopper-pearson") for n in hits]
        else:
            pairs = zip(total, squares, strict=True)
            bounds = [of_weighted(w, w2, count, self.confidence) for w, w2 in pairs]
        low, high = np.asarray(bounds).T
        return {
            "count": count,
            "passed": x["passed"][:-1],
            "never": int(x["passed"][-1]),
            "probability": total / max(count, 1),
            "low": low,
            "high": high,
        }
