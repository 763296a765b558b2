"""`Quantiles`: bands of a quantity, from counts in bins that widen with its values."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.bins import Bins
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.text import doc, setting

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # probabilities by default


@dataclass(frozen=True)
class Quantiles(AbstractStatistic):
    """Quantiles, each within a known error: the width of a bin, between range/bins and 4 of these.

    The interval of each is that of order statistics, with the width of the bins added. One
    extreme value widens all bins; `error` in the results tells their width.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.linspace(0.0, 1.0, 1001)
        >>> sample = Sample({"x": x}, jnp.ones(1001), jnp.full(1001, True), jnp.arange(1001))
        >>> quartiles = Quantiles(of="x", at=(0.25, 0.5, 0.75))
        >>> found = quartiles.result(quartiles.update(quartiles.init(sample), sample))
        >>> bool(np.abs(found["quantiles"] - [0.25, 0.5, 0.75]).max() <= found["error"] <= 4 / 512)
        True
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
