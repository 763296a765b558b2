"""`Histogram`: counts of values in bins."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.config.errors import refuse
from jaxmech.ensemble.statistics.protocol import (
    AbstractStatistic,
    Sample,
    State,
    StatisticResult,
    host,
)
from jaxmech.utils.field_docs import doc, setting


@dataclass(frozen=True)
class Histogram(AbstractStatistic):
    """Counts of values in bins of equal width from `low` to `high`, below and above them.

    A bin holds its left edge, and the last one also `high`, as in `numpy.histogram`. The edges are
    numbers of the precision of the study.

    Example:
        >>> x = jnp.array([0.5, 1.0, 1.5, 6.0])
        >>> sample = Sample({"x": x}, jnp.ones(4), jnp.full(4, True), jnp.arange(4))
        >>> histogram = Histogram(of="x", low=0.0, high=2.0, bins=2)
        >>> found = histogram.result(histogram.update(histogram.init(sample), sample))
        >>> print(found["edges"], found["counts"], found["above"])
        [0. 1. 2.] [1. 2.] 1.0
    """

    of: str = field(metadata=doc("name of the quantity"))
    low: float = field(metadata=doc("where the first bin begins"))
    high: float = field(metadata=doc("where the last bin ends"))
    bins: int = setting(100, "number of bins", least=1, most=100_000)

    size_key = "bins"
    in_unit = ("edges",)

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise refuse("low", f"must be below `high`, but {self.low} is not below {self.high}")
        super().__post_init__()

    def state_numbers(self, numbers: Callable[[str], int], inputs: int) -> int:
        """A count for each bin, and one for either side of them."""
        return (self.bins + 2) * numbers(self.of)

    def init(self, sample: Sample) -> State:
        """Initialize zero counts."""
        value = sample.values[self.of]
        return {"weights": jnp.zeros((*value.shape[1:], self.bins + 2), sample.weight.dtype)}

    def update(self, state: State, sample: Sample) -> State:
        """Add the weights of the values to their bins."""
        value, w = sample.weighted(self.of)
        edges = self._edges(value.dtype)
        # By comparisons: a product with the width of a bin is rounded across the edges.
        place = jnp.searchsorted(edges, value, side="right").astype(jnp.int32)
        place = jnp.where(value == edges[-1], self.bins, place)
        return {"weights": counted(state["weights"], place, w)}

    def result(self, state: State) -> StatisticResult:
        """The edges of the bins, and the sums of the weights: counts, if all weights are one."""
        weights = host(state)["weights"]
        return {
            "edges": self._edges(weights.dtype),
            "counts": weights[..., 1:-1],
            "below": weights[..., 0],
            "above": weights[..., -1],
        }

    def _edges(self, dtype: Any) -> np.ndarray:
        # Halved, so that the difference of the ends may not overflow.
        return 2 * np.linspace(self.low / 2, self.high / 2, self.bins + 1).astype(dtype)


def counted(counts: Array, place: Array, weight: Array) -> Array:
    """Counts (..., bins) with weights (B, ...) added at their places (B, ...)."""
    weight = jnp.broadcast_to(weight, place.shape)
    bins = counts.shape[-1]
    flat = counts.reshape(-1, bins)
    rows = jnp.broadcast_to(jnp.arange(len(flat)), (len(place), len(flat)))
    added = flat.at[rows, place.reshape(rows.shape)].add(weight.reshape(rows.shape))
    return added.reshape(counts.shape)
