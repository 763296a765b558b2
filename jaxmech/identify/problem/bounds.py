"""Smooth transforms from a free number to a parameter within its bounds.

    no bounds           x = x0 + s z                        any number
    low                 x = low + (x0 - low) exp(z)         masses, inertias, friction
    high                x = high - (high - x0) exp(-z)
    low and high        x = low + (high - low) / (1 + exp(-y)),  y = y0 + z
    PhysicalInertia()   J = tr(S) 1 - S,  S = L L^T         the inertia of some body, 3 x 3

All begin at z = 0. A body has the matrix of inertia J if and only if S = tr(J)/2 1 - J, its second
moments of mass, is positive definite (Wensing, Kim and Slotine 2018); L is lower triangular with
the exponentials of free numbers on its diagonal.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isinf, isnan
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


@dataclass(frozen=True)
class AbstractTransform(abc.ABC):
    """A map from z, zero at the start of the fit, to a leaf of the parameters."""

    def entries(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The fitted entries of the leaf, one for each number z."""
        return tuple(np.ndindex(*shape))

    @abc.abstractmethod
    def excludes(self, start: np.ndarray) -> str:
        """The reason why a fit cannot start here, or an empty text."""

    @abc.abstractmethod
    def value(self, z: Array, start: Array) -> Array:
        """The leaf for z, of the shape of its start."""


@dataclass(frozen=True)
class Interval(AbstractTransform):
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

    def value(self, z: Array, start: Array) -> Array:
        """A straight line, the distance from the only bound as an exponential, or logistic."""
        low, high, z = self.low, self.high, z.reshape(start.shape)
        if isinf(low) and isinf(high):
            return start + jnp.where(start == 0, 1.0, jnp.abs(start)) * z
        if isinf(high):
            return low + (start - low) * jnp.exp(z)
        if isinf(low):
            return high - (high - start) * jnp.exp(-z)
        y = jnp.log((start - low) / (high - start)) + z
        return low + (high - low) / (1 + jnp.exp(-y))


@dataclass(frozen=True)
class PhysicalInertia(AbstractTransform):
    """A matrix of inertia (3, 3) that some body has: definite, with the triangle inequalities.

    Example:
        >>> PhysicalInertia().excludes(np.diag([1.0, 1.0, 3.0]))
        'must be the inertia of a body: symmetric, no principal moment above the sum of the others'
    """

    def entries(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The entries of the lower triangle."""
        return tuple((int(i), int(j)) for i, j in zip(*np.tril_indices(3), strict=True))

    def excludes(self, start: np.ndarray) -> str:
        """A start that is not the inertia of any body."""
        if start.shape == (3, 3) and np.allclose(start, start.T):
            moments = np.trace(start) / 2 * np.eye(3) - start
            if np.linalg.eigvalsh(moments).min() > 0:
                return ""
        law = "symmetric, no principal moment above the sum of the others"
        return f"must be the inertia of a body: {law}"

    def value(self, z: Array, start: Array) -> Array:
        """The inertia from the second moments of mass, S = L L^T."""
        # z changes the Cholesky factor of the second moments of mass relative to its start
        first = _triangle(jnp.trace(start) / 2 * jnp.eye(3, dtype=start.dtype) - start)
        change = jnp.zeros_like(start).at[np.tril_indices(3, -1)].set(z[3:])
        L = first @ (change + jnp.diag(jnp.exp(z[:3])))
        S = L @ L.T
        return jnp.trace(S) * jnp.eye(3, dtype=start.dtype) - S


def _triangle(S: Array) -> Array:
    """The Cholesky factor of a 3 x 3 matrix, entry by entry: LAPACK would leave the lanes."""
    a = jnp.sqrt(S[0, 0])
    b, c = S[1, 0] / a, S[2, 0] / a
    d = jnp.sqrt(S[1, 1] - b * b)
    e = (S[2, 1] - b * c) / d
    f = jnp.sqrt(S[2, 2] - c * c - e * e)
    zero = jnp.zeros_like(a)
    return jnp.stack([jnp.stack([a, zero, zero]), jnp.stack([b, d, zero]), jnp.stack([c, e, f])])


def transform(name: str, bounds: Mapping[str, Any]) -> AbstractTransform:
    """The transform for the bounds of a parameter.

    Example:
        >>> transform("m", {"m": (0, None)})
        Interval(low=0.0, high=inf)
    """
    given = bounds.get(name, Interval())
    if isinstance(given, AbstractTransform):
        return given
    try:
        low, high = given
        found = Interval(-inf if low is None else float(low), inf if high is None else float(high))
        if isnan(found.low) or isnan(found.high):
            raise ValueError("a bound is NaN")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, or "
            f"PhysicalInertia(); but holds {given!r}."
        ) from error
    if not found.low < found.high:
        raise ValueError(f"Argument `bounds` must have low < high for {name!r}: {given!r}.")
    return found
