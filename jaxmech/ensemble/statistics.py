"""Statistics of a study: reductions over its trajectories, on the device, merged block by block.

A statistic has a state that is updated with trajectories, and merged with another:

    of_sample(sample)       the state of the trajectories of a sample
    merge(first, second)    of the trajectories of both, those of `first` before those of `second`
    result(state)           the named results, on the host
    init(sample)            the state of no trajectory at all
    add(state, sample)      with the trajectories of a sample

All but `result` are pure JAX functions of arrays of fixed shapes; the last two follow from the
first two, unless a statistic has its own. States are merged in the order of the trajectories, so
that a result has the same bits however the work was divided.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int
from scipy.special import ndtri

from jaxmech.config.errors import out_of_range, refuse, refuse_all
from jaxmech.utils.text import doc, setting

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # probabilities by default
_LEAST = 4  # bins that widen with the values
State = dict[str, Any]
StatisticResult = dict[str, Any]


class Sample(NamedTuple):
    """Some trajectories of a study, B of them, for a statistic.

    Attributes:
        values: the requested quantities by name, shape (B, ...).
        good: False for failed trajectories and padding, shape (B,).
        real: False for padding, shape (B,).
        number: index of the trajectory in the study, shape (B,).
    """

    values: Mapping[str, Array]
    good: Bool[Array, " B"]
    real: Bool[Array, " B"]
    number: Int[Array, " B"]

    def floats(self, name: str) -> Array:
        """A quantity as floating-point numbers, truth values too."""
        value = self.values[name]
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)

    def counted(self, name: str) -> tuple[Array, Array]:
        """A quantity, zero where it is not finite or does not count, and one where it does."""
        value = self.floats(name)
        counts = jnp.isfinite(value) & self.good.reshape(-1, *(1,) * (value.ndim - 1))
        return jnp.where(counts, value, 0), counts.astype(value.dtype)


class AbstractStatistic(abc.ABC):
    """A statistic of a study, whose fields are the keys of its table in a configuration."""

    of: str
    in_unit: ClassVar[tuple[str, ...]] = ()  # results that have the unit of the quantity

    def __post_init__(self) -> None:
        if not isinstance(self.of, str):
            raise refuse("of", f"must be the name of one quantity, such as 'q', but is {self.of!r}")
        refuse_all(out_of_range(self))

    @property
    def names(self) -> tuple[str, ...]:
        """The quantities that it is computed from: by default that of the key `of`."""
        return (self.of,)

    def of_sample(self, sample: Sample) -> State:
        """The state of the trajectories of a sample; failed ones and padding do not count."""
        raise NotImplementedError

    def init(self, sample: Sample) -> State:
        """The state of no trajectory; only shapes and types of the sample count."""
        return self.of_sample(jax.tree.map(lambda x: jnp.zeros_like(x[:1]), sample))

    def add(self, state: State, sample: Sample) -> State:
        """The state with the trajectories of a sample added."""
        return self.merge(state, self.of_sample(sample))

    def merge(self, first: State, second: State) -> State:
        """The state of all trajectories of two states: by default sums."""
        return {key: first[key] + second[key] for key in first}

    @abc.abstractmethod
    def result(self, state: State) -> StatisticResult:
        """The result, arrays and numbers by name, from a state of numpy arrays."""


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
        # Formulas of Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
        # The American Statistician 37, 1983.
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
        value = sample.floats(self.of).reshape(len(sample.good), -1)
        counts = sample.good & ~jnp.isnan(value).any(1)
        beyond = value < self.below if self.below is not None else value > jnp.asarray(self.above)
        flags = {"hits": counts & beyond.any(1), "count": counts, "failed": sample.real & ~counts}
        return {key: x.sum().astype(sample.number.dtype) for key, x in flags.items()}

    def result(self, state: State) -> StatisticResult:
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
        return f"{self.of}_passed", f"{self.of}_time"

    def of_sample(self, sample: Sample) -> State:
        past = sample.values[self.names[0]] > 0
        # The first true one; the last column stands for trajectories that never pass.
        never = jnp.full((len(past), 1), True)
        first = jnp.concatenate([past, never], axis=1).argmax(1)
        is_first = (first[:, None] == jnp.arange(past.shape[1] + 1)[None]) & sample.good[:, None]
        times = self._times.of_sample(sample._replace(good=is_first[:, :-1].any(1)))
        return {"passed": is_first.sum(0).astype(sample.number.dtype), "times": times}

    def merge(self, first: State, second: State) -> State:
        times = self._times.merge(first["times"], second["times"])
        return {"passed": first["passed"] + second["passed"], "times": times}

    def result(self, state: State) -> StatisticResult:
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


def _added(counts: Array, bin_index: Array, weight: Array) -> Array:
    """Counts (..., bins) with weights (B, ...) added at their indices (B, ...)."""
    weight = jnp.broadcast_to(weight, bin_index.shape)
    flat = counts.reshape(-1, counts.shape[-1])
    rows = jnp.broadcast_to(jnp.arange(len(flat)), (len(bin_index), len(flat)))
    added = flat.at[rows, bin_index.reshape(rows.shape)].add(weight.reshape(rows.shape))
    return added.reshape(counts.shape)


def _unit(low: Array, high: Array, bins: int) -> tuple[Array, Array]:
    """The width of the bins that hold all values, a power of two, and the number of the first."""
    low, high = (jnp.where(low <= high, x, 0.0) for x in (low, high))
    # Bins narrower than the spacing of the numbers would have edges that cannot be told apart. Two
    # bins are spare, because neither end of the range need be at the edge of a bin.
    info = jnp.finfo(low.dtype)
    spacing = 4 * info.eps * jnp.maximum(jnp.abs(low), jnp.abs(high))
    width = jnp.maximum(jnp.maximum((high - low) / (bins - 2), spacing), 4 * info.tiny)
    unit = jnp.ldexp(jnp.ones((), low.dtype), jnp.frexp(width)[1])
    return unit, jnp.floor(low / unit)


class _Binned(AbstractStatistic):
    """A statistic by bins that widen with the values.

    Bins have widths that are powers of two, wide enough for all values. Those of width 2^e begin at
    whole multiples of it, so that two neighbors of an even and an odd number are one bin of width
    2^(e+1), and histograms of any widths merge without loss. The exponent is the least one for
    which all values lie in the bins that there are: it depends only on the smallest and the largest
    value, so that no result depends on the order in which blocks are merged.

    A state has the `weights` in the bins (..., bins), and the smallest and largest value, `min` and
    `max`.
    """

    of: str
    bins: int

    def init(self, sample: Sample) -> State:
        value = sample.floats(self.of)
        zero = jnp.zeros(value.shape[1:], value.dtype)
        weights = jnp.zeros((*zero.shape, self.bins), value.dtype)
        return {"weights": weights, "min": zero + jnp.inf, "max": zero - jnp.inf}

    def add(self, state: State, sample: Sample) -> State:
        value, w = sample.counted(self.of)
        low = jnp.minimum(state["min"], jnp.where(w > 0, value, jnp.inf).min(0))
        high = jnp.maximum(state["max"], jnp.where(w > 0, value, -jnp.inf).max(0))
        unit, first = _unit(low, high, self.bins)
        # A quotient by a power of two is exact: the bin of a value does not depend on how the work
        # is divided.
        bin_index = jnp.where(w > 0, jnp.floor(value / unit) - first, 0).astype(jnp.int32)
        weights = _added(self._widened(state, low, high), bin_index, w)
        return {"weights": weights, "min": low, "max": high}

    def merge(self, first: State, second: State) -> State:
        low = jnp.minimum(first["min"], second["min"])
        high = jnp.maximum(first["max"], second["max"])
        weights = self._widened(first, low, high) + self._widened(second, low, high)
        return {"weights": weights, "min": low, "max": high}

    def _widened(self, state: State, low: Array, high: Array) -> Array:
        unit, first = _unit(state["min"], state["max"], self.bins)
        wide, start = _unit(low, high, self.bins)

        def moved(weights: Array) -> Array:
            numbers = first[..., None] + jnp.arange(self.bins)
            bin_index = jnp.floor(numbers * (unit / wide)[..., None]) - start[..., None]
            inside = (bin_index >= 0) & (bin_index < self.bins) & (weights > 0)
            bin_index = jnp.where(inside, bin_index, 0).astype(jnp.int32)
            bins_first = jnp.moveaxis(bin_index, -1, 0), jnp.moveaxis(weights, -1, 0)
            return _added(jnp.zeros_like(weights), *bins_first)

        # Once a few values have been seen the bins stay, and moving all counts would cost as much
        # again.
        is_same = ((unit == wide) & (first == start)).all()
        weights: Array = jax.lax.cond(is_same, lambda w: w, moved, state["weights"])
        return weights

    def _on_host(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        unit, first = _unit(jnp.asarray(state["min"]), jnp.asarray(state["max"]), self.bins)
        return np.asarray(unit, float), np.asarray(first, float)


@dataclass(frozen=True)
class Histogram(_Binned):
    """Counts of values in bins of equal width, which hold all of them.

    A bin holds its left edge, as in `numpy.histogram`. Its width is a power of two; of `bins` of
    them between a quarter and all are needed.
    """

    of: str = field(metadata=doc("name of the quantity"))
    bins: int = setting(100, "number of bins", least=_LEAST, most=100_000)

    in_unit = ("edges",)

    def result(self, state: State) -> StatisticResult:
        """The edges and counts of the bins that hold values; of several quantities of all bins."""
        weights = np.asarray(state["weights"])
        unit, first = self._on_host(state)
        edges = (first[..., None] + np.arange(self.bins + 1)) * unit[..., None]
        if weights.ndim == 1 and weights.any():
            full = np.flatnonzero(weights)
            weights, edges = weights[full[0] : full[-1] + 1], edges[full[0] : full[-1] + 2]
        return {"edges": edges, "counts": weights}


@dataclass(frozen=True)
class Quantiles(_Binned):
    """Quantiles, each within a known error: the width of a bin, between range/bins and 4 of these.

    The interval of each is that of order statistics, with the width of the bins added. One
    extreme value widens all bins; `error` in the results tells their width.
    """

    of: str = field(metadata=doc("name of the quantity"))
    at: tuple[float, ...] = setting(QUANTILES, "probabilities of the quantiles")
    bins: int = setting(512, "number of bins", least=_LEAST, most=100_000)
    confidence: float = setting(0.95, "confidence of each interval", between=(0, 1))

    in_unit = ("quantiles", "low", "high", "error")

    def __post_init__(self) -> None:
        if not self.at or not all(0 <= p <= 1 for p in self.at):
            raise refuse("at", f"must hold probabilities from 0 to 1, but is {list(self.at)}")
        super().__post_init__()

    def result(self, state: State) -> StatisticResult:
        """Quantiles (..., probabilities) with intervals, and the width of the bins."""
        from scipy.stats import binom

        weights = np.asarray(state["weights"])
        unit, first = self._on_host(state)
        total = weights.sum(-1)

        def quantile(p: np.ndarray) -> np.ndarray:
            places = (first[..., None] + _places(weights, p)) * unit[..., None]
            inside = np.clip(places, state["min"][..., None], state["max"][..., None])
            return np.where(total[..., None] > 0, inside, np.nan)

        p = np.broadcast_to(np.asarray(self.at), (*total.shape, len(self.at)))
        # The order statistics around the quantile, by the binomial distribution.
        number = np.maximum(total, 1)[..., None]
        tail = (1 - self.confidence) / 2
        low = np.clip(binom.ppf(tail, number, p) / number, 0, 1)
        high = np.clip((binom.ppf(1 - tail, number, p) + 1) / number, 0, 1)
        return {
            "at": np.asarray(self.at),
            "quantiles": quantile(p),
            "low": quantile(low) - unit[..., None],
            "high": quantile(high) + unit[..., None],
            "error": np.where(total > 0, unit, np.nan),
            "count": total,
        }


def _places(weights: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Where a cumulative distribution has some values, in bins from the first one."""
    places = np.zeros((weights[..., 0].size, p.shape[-1]))
    rows = zip(weights.reshape(len(places), -1), p.reshape(places.shape), strict=True)
    for row, (counts, probabilities) in enumerate(rows):
        full = np.flatnonzero(counts)
        if len(full):
            sums = np.concatenate([[0.0], np.cumsum(counts[full])])
            bins = np.clip(np.searchsorted(sums, probabilities * sums[-1]) - 1, 0, len(full) - 1)
            inside = (probabilities * sums[-1] - sums[bins]) / counts[full][bins]
            places[row] = full[bins] + np.clip(inside, 0, 1)
    return places.reshape(p.shape)


STATISTICS: dict[str, type[AbstractStatistic]] = {
    "moments": Moments,
    "probability": Probability,
    "first-passage": FirstPassage,
    "quantiles": Quantiles,
    "histogram": Histogram,
}
