"""`Bins`: counts of values in bins whose width is a power of two, wide enough for all values.

The bins of width 2^e begin at whole multiples of it, so that two neighbors of an even and an odd
number are one bin of width 2^(e+1), and histograms of any widths merge without loss. The exponent
is the least one for which all values lie in the bins that there are: it depends only on the
smallest and the largest value, so that no result depends on the order in which blocks are merged.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.moments import exponent_of, scaled
from jaxmech.ensemble.statistics.protocol import Sample, State


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
