"""How the unknowns of a fit become parameters within their bounds.

The unknowns x of a parameter are its numbers in units of their size at the start, which the trust
region keeps within bounds. All numbers of a body together are in `body_inertia`.

Random starting points, and the posterior density, need numbers z without bounds, by which x moves:

    no bounds           x + z
    low                 low + (x - low) exp(z)         masses, inertias, friction
    high                high - (high - x) exp(-z)
    low and high        low + (high - low) / (1 + exp(-y)),  y = log((x - low) / (high - x)) + z
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np

Entry = tuple[int, ...]
_NEAREST = 1e-100  # smallest distance from a bound, in units of the start


@dataclass(frozen=True)
class Bounds:
    """Parameters in an interval, possibly infinite."""

    low: float = -inf
    high: float = inf

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The fitted entries of the leaf, one for each unknown: all of them."""
        return tuple(np.ndindex(*shape))

    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, at or outside a bound, or an empty text."""
        if np.all((self.low < start) & (start < self.high)):
            return ""
        if isinf(self.high):
            return f"must be more than {self.low:g}"
        if isinf(self.low):
            return f"must be less than {self.high:g}"
        return f"must lie between {self.low:g} and {self.high:g}"

    def first(self, start: np.ndarray) -> np.ndarray:
        """The unknowns at the start, the size of the first trust region: 1 or -1, 0 for zero."""
        return start.ravel() / self.units(start)

    def value(self, x: Any, start: Any) -> Any:
        """The leaf for x, of JAX or NumPy as x is: the latter compiles nothing."""
        xp = x.__array_namespace__()
        start = xp.asarray(start)
        return x.reshape(start.shape) * xp.where(start == 0, 1.0, xp.abs(start))

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds of the unknowns, in units of the start, (2, size of x)."""
        return np.array([self.low, self.high])[:, None] / self.units(start)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their unknowns by one: their first sizes."""
        return np.where(start == 0, 1.0, np.abs(start)).ravel()

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        """The unknowns moved by numbers z without bounds."""
        xp = z.__array_namespace__()
        low, high = self.limits(start)
        if isinf(self.low) and isinf(self.high):
            return x + z
        above, below = (xp.maximum(distance, _NEAREST) for distance in (x - low, high - x))
        if isinf(self.high):
            return low + above * xp.exp(z)
        if isinf(self.low):
            return high - below * xp.exp(-z)
        return low + (high - low) / (1 + below / above * xp.exp(-z))


def transform(name: str, bounds: Mapping[str, Any]) -> Bounds:
    """The transform for the bounds of a parameter."""
    bound = bounds.get(name, Bounds())
    if isinstance(bound, Bounds):
        return bound
    try:
        low, high = bound
        interval = Bounds(-inf if low is None else float(low), inf if high is None else float(high))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, but holds "
            f"{bound!r}."
        ) from error
    if not interval.low < interval.high:  # also for NaN
        raise ValueError(f"Argument `bounds` must have low < high for {name!r}: {bound!r}.")
    return interval
