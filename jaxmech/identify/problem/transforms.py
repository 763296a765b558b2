"""How the unknowns of a fit become parameters within their bounds.

The unknowns x of a parameter are its numbers in units of their size at the start, which the trust
region keeps within bounds. All numbers of a body together are in `body_inertia`.

Random starting points, and the posterior density, need numbers z without bounds, by which x moves:

    no bounds           x + z
    low                 low + (x - low) exp(z)         masses, inertias, friction
    high                high - (high - x) exp(-z)
    low and high        low + (high - low) / (1 + exp(-y)),  y = log((x - low) / (high - x)) + z
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import numpy as np
from jaxtyping import Array

Entry = tuple[int, ...]
_NEAREST = 1e-100  # smallest distance from a bound, in units of the start


@dataclass(frozen=True)
class AbstractTransform(abc.ABC):
    """A map from unknowns to a leaf of the parameters."""

    @abc.abstractmethod
    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The fitted entries of the leaf, one for each unknown."""

    @abc.abstractmethod
    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, or an empty text."""

    @abc.abstractmethod
    def first(self, start: np.ndarray) -> np.ndarray:
        """The unknowns at the start; the first trust region has their size."""

    @abc.abstractmethod
    def value(self, x: Any, start: Any) -> Array:
        """The leaf for x, of the shape of its start."""

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds of the unknowns, shape (2, size of x); infinite if there is none."""
        return np.array([-inf, inf])[:, None] * np.ones(self.first(start).size)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their unknowns by one."""
        return np.ones(self.first(start).size)

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        """The unknowns moved by numbers z without bounds."""
        return x + z


@dataclass(frozen=True)
class Bounds(AbstractTransform):
    """Parameters in an interval, possibly infinite."""

    low: float = -inf
    high: float = inf

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """All of them."""
        return tuple(np.ndindex(*shape))

    def excludes(self, start: np.ndarray) -> str:
        """Report a start at or outside a bound."""
        if np.all((self.low < start) & (start < self.high)):
            return ""
        if isinf(self.high):
            return f"must be more than {self.low:g}"
        if isinf(self.low):
            return f"must be less than {self.high:g}"
        return f"must lie between {self.low:g} and {self.high:g}"

    def first(self, start: np.ndarray) -> np.ndarray:
        """1 or -1, and 0 for a parameter that is zero."""
        return start.ravel() / self.units(start)

    def value(self, x: Any, start: Any) -> Any:
        """The parameters, of JAX or NumPy as x is: the latter compiles nothing."""
        xp = x.__array_namespace__()
        start = xp.asarray(start)
        return x.reshape(start.shape) * xp.where(start == 0, 1.0, xp.abs(start))

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds in units of the start."""
        return np.array([self.low, self.high])[:, None] / self.units(start)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The sizes of the parameters at the start of the fit."""
        return np.where(start == 0, 1.0, np.abs(start)).ravel()

    def moved(self, x: Any, z: Any, start: np.ndarray) -> Any:
        """A straight line, the distance from the only bound as an exponential, or logistic."""
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


def transform(name: str, bounds: Mapping[str, Any]) -> AbstractTransform:
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
