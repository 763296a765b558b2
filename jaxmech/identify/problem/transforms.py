"""Smooth transforms from free numbers to parameters within their bounds.

A free number z becomes a parameter x within its bounds:

    no bounds           x = x0 + s z                        any number
    low                 x = low + (x0 - low) exp(z)         masses, inertias, friction
    high                x = high - (high - x0) exp(-z)
    low and high        x = low + (high - low) / (1 + exp(-y)),  y = y0 + z

All begin at z = 0. All numbers of a body together are in `body_inertia`.

The trust region moves the parameters themselves, in units of their start and up to their bounds:
these are the `straight` numbers.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Entry = tuple[int, ...]
_NEAREST = 1e-100  # smallest distance from a bound, in units of the start


@dataclass(frozen=True)
class AbstractTransform(abc.ABC):
    """A map from z, zero at the start of the fit, to a leaf of the parameters."""

    def entries(self, shape: tuple[int, ...]) -> tuple[Entry, ...]:
        """The fitted entries of the leaf, one for each number z."""
        return tuple(np.ndindex(*shape))

    @abc.abstractmethod
    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, or an empty text."""

    @abc.abstractmethod
    def value(self, z: Array, start: Array) -> Array:
        """The leaf for z, of the shape of its start."""

    def known(self, z: np.ndarray, start: Array) -> Array:
        """The same for known numbers."""
        return self.value(jnp.asarray(z), start)

    def limits(self, start: np.ndarray) -> np.ndarray:
        """The bounds of the `straight` numbers, shape (2, size of z); infinite if there is none."""
        count = len(self.entries(start.shape))
        return np.array([-inf, inf])[:, None] * np.ones(count)

    def units(self, start: np.ndarray) -> np.ndarray:
        """The change of the parameters for a change of their `straight` numbers by one."""
        return np.ones(len(self.entries(start.shape)))

    def straight(self, z: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Numbers for z with bounds of their own, of size 1 at the start of the fit."""
        return 1.0 + z

    def bent(self, x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers z for `straight` ones, and their derivatives by these."""
        return x - 1.0, np.ones(x.shape)


@dataclass(frozen=True)
class Bounds(AbstractTransform):
    """A transform to an interval, possibly infinite; without bounds, a scaling by the start."""

    low: float = -inf
    high: float = inf

    def excludes(self, start: np.ndarray) -> str:
        """Report a start at or outside a bound."""
        if np.all((self.low < start) & (start < self.high)):
            return ""
        if isinf(self.high):
            return f"must be more than {self.low:g}"
        if isinf(self.low):
            return f"must be less than {self.high:g}"
        return f"must lie between {self.low:g} and {self.high:g}"

    def value(self, z: Any, start: Any) -> Any:
        """A straight line, the distance from the only bound as an exponential, or logistic.

        Of JAX or NumPy, as z is.
        """
        xp = z.__array_namespace__()
        low, high, z = self.low, self.high, z.reshape(start.shape)
        if isinf(low) and isinf(high):
            return start + xp.where(start == 0, 1.0, xp.abs(start)) * z
        if isinf(high):
            return low + (start - low) * xp.exp(z)
        if isinf(low):
            return high - (high - start) * xp.exp(-z)
        y = xp.log((start - low) / (high - start)) + z
        return low + (high - low) / (1 + xp.exp(-y))

    def limits(self, start: np.ndarray) -> np.ndarray:
        """Bounds of the parameters in units of their start."""
        return np.array([self.low, self.high])[:, None] / self.units(start)

    def known(self, z: np.ndarray, start: Array) -> Array:
        """The same in NumPy, which compiles nothing."""
        values = self.value(np.asarray(z), np.asarray(start, float))
        return jnp.asarray(values.astype(start.dtype))

    def units(self, start: np.ndarray) -> np.ndarray:
        """The sizes of the parameters at the start of the fit."""
        return np.where(start == 0, 1.0, np.abs(start)).ravel()

    def straight(self, z: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The parameters in units of their start."""
        return self.value(z, start).ravel() / self.units(start)

    def bent(self, x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The inverse of `straight`."""
        low, high, x0 = self.low, self.high, start.ravel()
        size = self.units(start)
        if isinf(low) and isinf(high):
            return x - x0 / size, np.ones(x.shape)
        # a distance of zero from a bound has no logarithm
        above, below = (np.maximum(d, _NEAREST * size) for d in (size * x - low, high - size * x))
        if isinf(high):
            return np.log(above / (x0 - low)), size / above
        if isinf(low):
            return -np.log(below / (high - x0)), size / below
        z = np.log(above / below) - np.log((x0 - low) / (high - x0))
        return z, size / above + size / below


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
