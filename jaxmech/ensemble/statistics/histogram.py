"""`Histogram`: counts of values in bins."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.bins import Bins, counted
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.text import doc, setting

_LEAST = 4  # bins that widen with the values


@dataclass(frozen=True)
class Histogram(AbstractStatistic):
    """Counts of values in bins of equal width from `low` to `high`, below and above them.

    A bin holds its left edge, and the last one also `high`, as in `numpy.histogram`. The edges are
    numbers of the precision of the study. Without limits all values lie in bins, whose width is a
    power of two; of `bins` of them between a quarter and all are needed.

    Example:
        >>> x = jnp.array([0.5, 1.0, 1.5, 6.0])
        >>> sample = Sample({"x": x}, jnp.ones(4), jnp.full(4, True), jnp.arange(4))
        >>> histogram = Histogram(of="x", low=0.0, high=2.0, bins=2)
        >>> found = histogram.result(histogram.update(histogram.init(sample), sample))
        >>> print(found["edges"], found["counts"], found["above"])
        [0. 1. 2.] [1. 2.] 1.0
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
