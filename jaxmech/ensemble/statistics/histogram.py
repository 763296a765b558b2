"""`Histogram` and `Quantiles`, by counts of values in bins.

Bins have widths that are powers of two, wide enough for all values. Those of width 2^e begin at
whole multiples of it, so that two neighbors of an even and an odd number are one bin of width
2^(e+1), and histograms of any widths merge without loss. The exponent is the least one for which
all values lie in the bins that there are: it depends only on the smallest and the largest value, so
that no result depends on the order in which blocks are merged.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.protocol import AbstractStatistic, Sample, State, StatisticResult
from jaxmech.utils.text import doc, setting

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # probabilities by default
_LEAST = 4  # bins that widen with the values


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

    A state has the `weights` in the bins (..., bins), and the smallest and largest value, `min` and
    `max`.
    """

    of: str
    bins: int

    def init(self, sample: Sample) -> State:
        """Bins without values."""
        value = sample.floats(self.of)
        zero = jnp.zeros(value.shape[1:], value.dtype)
        weights = jnp.zeros((*zero.shape, self.bins), value.dtype)
        return {"weights": weights, "min": zero + jnp.inf, "max": zero - jnp.inf}

    def update(self, state: State, sample: Sample) -> State:
        """Widen the bins as far as necessary, and count."""
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
        """Sums of the counts in common bins."""
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
