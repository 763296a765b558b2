"""`Histogram` and `Quantiles`, by counts of values in bins.

`Bins` are bins whose width is a power of two, wide enough for all values. Those of width 2^e begin
at whole multiples of it, so that two neighbors of an even and an odd number are one bin of width
2^(e+1), and histograms of any widths merge without loss. The exponent is the least one for which
all values lie in the bins that there are: it depends only on the smallest and the largest value, so
that no result depends on the order in which blocks are merged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.moments import exponent_of, scaled
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.text import doc, setting


@dataclass(frozen=True)
class Bins:
    """Bins of a quantity; its values decide where they lie.

    A state has the `weights` in the bins (..., bins), the `squares` of all weights, and the
    smallest and largest value, `min` and `max`.
    """

    of: str  # name of the quantity
    count: int  # number of bins

    def init(self, sample: Sample) -> State:
        """Initialize without values."""
        value = sample.floats(self.of)
        zero = jnp.zeros(value.shape[1:], value.dtype)
        return {
            "weights": jnp.zeros((*zero.shape, self.count), value.dtype),
            "squares": zero,
            "min": zero + jnp.inf,
            "max": zero - jnp.inf,
        }

    def update(self, state: State, sample: Sample) -> State:
        """Widen the bins as far as necessary, and count."""
        value, w = sample.weighted(self.of)
        low = jnp.minimum(state["min"], jnp.where(w > 0, value, jnp.inf).min(0))
        high = jnp.maximum(state["max"], jnp.where(w > 0, value, -jnp.inf).max(0))
        e, first = self.scale(low, high)
        # By powers of two only, which is exact: the bin of a value does not depend on how the work
        # is divided.
        bin_index = jnp.floor(scaled(value, -e)) - first
        bin_index = jnp.where(w > 0, bin_index, 0).astype(jnp.int32)
        weights = self._widened(state, low, high)
        return {
            "weights": counted(weights, bin_index, w),
            "squares": state["squares"] + (w**2).sum(0),
            "min": low,
            "max": high,
        }

    def merge(self, first: State, second: State) -> State:
        """Sums of the counts in common bins."""
        low = jnp.minimum(first["min"], second["min"])
        high = jnp.maximum(first["max"], second["max"])
        counts = self._widened(first, low, high) + self._widened(second, low, high)
        squares = first["squares"] + second["squares"]
        return {"weights": counts, "squares": squares, "min": low, "max": high}

    def scale(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The exponent of the width of the bins, and the number of the first one."""
        low, high = (jnp.where(low <= high, x, 0.0) for x in (low, high))
        largest = jnp.maximum(jnp.abs(low), jnp.abs(high))
        # In units near the largest one: the range itself might overflow, or be too small.
        size = jnp.where(largest > 0, exponent_of(largest), 0)
        unit = jnp.where(largest > 0, scaled(largest, -size), 1.0)
        width = (scaled(high, -size) - scaled(low, -size)) / (self.count - 2)
        # Bins narrower than the spacing of the numbers would have edges that cannot be told apart.
        # Two bins are spare, because neither end of the range need be at the edge of a bin.
        _, e = jnp.frexp(jnp.maximum(width, jnp.finfo(low.dtype).eps * 4 * unit))  # in [w, 2 w)
        return e + size, jnp.floor(scaled(low, -(e + size)))

    def on_host(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The number of the first bin of a state, and the width of its bins."""
        e, first = self.scale(jnp.asarray(state["min"]), jnp.asarray(state["max"]))
        return np.asarray(first), np.asarray(np.ldexp(1.0, np.asarray(e)))

    def _widened(self, state: State, low: Array, high: Array) -> Array:
        e, first = self.scale(state["min"], state["max"])
        wide, start = self.scale(low, high)
        is_same = (e == wide) & (first == start)

        def moved(weights: Array) -> Array:
            numbers = first[..., None] + jnp.arange(self.count)
            bin_index = jnp.floor(jnp.ldexp(numbers, (e - wide)[..., None])) - start[..., None]
            inside = (bin_index >= 0) & (bin_index < self.count) & (weights > 0)
            bin_index = jnp.where(inside, bin_index, 0).astype(jnp.int32)
            bins_first = jnp.moveaxis(bin_index, -1, 0), jnp.moveaxis(weights, -1, 0)
            return counted(jnp.zeros_like(weights), *bins_first)

        # Once a few values have been seen the bins stay, and moving all counts would cost as much
        # again.
        weights: Array = jax.lax.cond(is_same.all(), lambda w: w, moved, state["weights"])
        return weights


def counted(counts: Array, bin_index: Array, weight: Array) -> Array:
    """Counts (..., bins) with weights (B, ...) added at their indices (B, ...)."""
    weight = jnp.broadcast_to(weight, bin_index.shape)
    bins = counts.shape[-1]
    flat = counts.reshape(-1, bins)
    rows = jnp.broadcast_to(jnp.arange(len(flat)), (len(bin_index), len(flat)))
    added = flat.at[rows, bin_index.reshape(rows.shape)].add(weight.reshape(rows.shape))
    return added.reshape(counts.shape)


_LEAST = 4  # bins that widen with the values


@dataclass(frozen=True)
class Histogram(AbstractStatistic):
    """Counts of values in bins of equal width from `low` to `high`, below and above them.

    A bin holds its left edge, and the last one also `high`, as in `numpy.histogram`. The edges are
    numbers of the precision of the study. Without limits all values lie in bins, whose width is a
    power of two; of `bins` of them between a quarter and all are needed.
    """

    of: str = field(metadata=doc("name of the quantity"))
    low: float | None = setting(None, "where the first bin begins; by default all values are in")
    high: float | None = setting(None, "where the last bin ends")
    bins: int = setting(100, "number of bins", least=1, most=100_000)

    size_key = "bins"
    in_unit = ("edges",)

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            missing = "low" if self.low is None else "high"
            raise refuse(missing, "must be given where the other limit is")
        if self.low is None and self.bins < _LEAST:
            raise refuse("bins", f"must be at least {_LEAST} without limits, but is {self.bins}")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise refuse("low", f"must be below `high`, but {self.low} is not below {self.high}")
        super().__post_init__()

    def state_numbers(self, numbers: Callable[[str], int], inputs: int) -> int:
        """A count for each bin, and one for either side of them."""
        return (self.bins + 2) * numbers(self.of)

    def init(self, sample: Sample) -> State:
        """Initialize zero counts."""
        if self.low is None:
            return self._bins.init(sample)
        value = sample.values[self.of]
        return {"weights": jnp.zeros((*value.shape[1:], self.bins + 2), sample.weight.dtype)}

    def update(self, state: State, sample: Sample) -> State:
        """Add the weights of the values to their bins."""
        if self.low is None:
            return self._bins.update(state, sample)
        value, w = sample.weighted(self.of)
        edges = self._edges(value.dtype)
        # By comparisons: a product with the width of a bin is rounded across the edges.
        bin_index = jnp.searchsorted(edges, value, side="right").astype(jnp.int32)
        bin_index = jnp.where(value == edges[-1], self.bins, bin_index)
        return {"weights": counted(state["weights"], bin_index, w)}

    def merge(self, first: State, second: State) -> State:
        """Sums of the counts, in common bins."""
        return self._bins.merge(first, second) if self.low is None else super().merge(first, second)

    def result(self, state: State) -> StatisticResult:
        """The edges of the bins, and the sums of the weights: counts, if all weights are one."""
        if self.low is None:
            return self._of_all(host(state))
        weights = host(state)["weights"]
        return {
            "edges": self._edges(weights.dtype),
            "counts": weights[..., 1:-1],
            "below": weights[..., 0],
            "above": weights[..., -1],
        }

    @property
    def _bins(self) -> Bins:
        return Bins(self.of, self.bins)

    def _of_all(self, state: State) -> StatisticResult:
        """The bins that hold values, of a single quantity; of several, all bins of each."""
        first, width = self._bins.on_host(state)
        edges = (first[..., None] + np.arange(self.bins + 1)) * width[..., None]
        weights = state["weights"]
        if weights.ndim == 1 and weights.any():
            filled = np.flatnonzero(weights)
            weights = weights[filled[0] : filled[-1] + 1]
            edges = edges[filled[0] : filled[-1] + 2]
        nothing = np.zeros(weights.shape[:-1], weights.dtype)
        return {"edges": edges, "counts": weights, "below": nothing, "above": nothing}

    def _edges(self, dtype: Any) -> np.ndarray:
        # Halved, so that the difference of the ends may not overflow.
        assert self.low is not None
        assert self.high is not None
        return 2 * np.linspace(self.low / 2, self.high / 2, self.bins + 1).astype(dtype)


QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # probabilities by default


@dataclass(frozen=True)
class Quantiles(AbstractStatistic):
    """Quantiles, each within a known error: the width of a bin, between range/bins and 4 of these.

    The interval of each is that of order statistics, with the width of the bins added. One
    extreme value widens all bins; `error` in the results tells their width.
    """

    of: str = field(metadata=doc("name of the quantity"))
    at: tuple[float, ...] = setting(QUANTILES, "probabilities of the quantiles")
    bins: int = setting(512, "number of bins", least=4, most=100_000)
    confidence: float = setting(0.95, "confidence of each interval", between=(0, 1))

    size_key = "bins"
    in_unit = ("quantiles", "low", "high", "error")

    def __post_init__(self) -> None:
        if not self.at or not all(0 <= p <= 1 for p in self.at):
            raise refuse("at", f"must hold probabilities from 0 to 1, but is {list(self.at)}")
        super().__post_init__()

    def state_numbers(self, numbers: Callable[[str], int], inputs: int) -> int:
        """A count for each bin."""
        return (self.bins + 3) * numbers(self.of)

    @property
    def _bins(self) -> Bins:
        return Bins(self.of, self.bins)

    def init(self, sample: Sample) -> State:
        """Initialize without values."""
        return self._bins.init(sample)

    def update(self, state: State, sample: Sample) -> State:
        """Widen the bins as far as necessary, and count."""
        return self._bins.update(state, sample)

    def merge(self, first: State, second: State) -> State:
        """Sums of the counts in common bins."""
        return self._bins.merge(first, second)

    def result(self, state: State) -> StatisticResult:
        """Quantiles (..., probabilities) with intervals, and the width of the bins."""
        x = host(state)
        first, width = self._bins.on_host(x)
        total = x["weights"].sum(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            effective = np.where(total > 0, total**2 / x["squares"], 0.0)

        def quantile(p: np.ndarray) -> np.ndarray:
            values = (first[..., None] + _inverse(x["weights"], p)) * width[..., None]
            inside = np.clip(values, x["min"][..., None], x["max"][..., None])
            return np.where(total[..., None] > 0, inside, np.nan)

        probabilities = np.broadcast_to(np.asarray(self.at), (*total.shape, len(self.at)))
        low, high = _ranks(probabilities, effective[..., None], self.confidence)
        with np.errstate(over="ignore"):  # beyond the largest number, an interval has no end
            low, high = quantile(low) - width[..., None], quantile(high) + width[..., None]
        return {
            "at": np.asarray(self.at),
            "quantiles": quantile(probabilities),
            "low": low,
            "high": high,
            "error": np.where(total > 0, width, np.nan),
            "count": total,
        }


def _inverse(weights: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Locate probabilities in the cumulative distribution, in bins from the first one."""
    flat = weights.reshape(-1, weights.shape[-1])
    rows = p.reshape(len(flat), -1)
    ranks = []
    for counts, probabilities in zip(flat, rows, strict=True):
        filled = np.flatnonzero(counts)
        if not len(filled):
            ranks.append(np.zeros(len(probabilities)))
            continue
        edges = np.concatenate([filled[:1], filled + 1]).astype(float)
        sums = np.concatenate([[0.0], np.cumsum(counts[filled])])
        bins = np.clip(np.searchsorted(sums, probabilities * sums[-1]) - 1, 0, len(filled) - 1)
        inside = (probabilities * sums[-1] - sums[bins]) / counts[filled][bins]
        ranks.append(edges[bins + 1] - 1 + np.clip(inside, 0, 1))
    return np.asarray(ranks).reshape(p.shape)


def _ranks(p: np.ndarray, count: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the order statistics around the quantile of p (binomial distribution)."""
    from scipy.stats import binom

    number = np.maximum(np.round(count), 1)
    tail = (1 - confidence) / 2
    low = binom.ppf(tail, number, p) / number
    high = (binom.ppf(1 - tail, number, p) + 1) / number
    return np.clip(low, 0, 1), np.clip(high, 0, 1)
