"""Smooth transforms from a free number to a parameter within its bounds.

    Anywhere()          x = x0 + s z                        any number
    Above(low)          x = low + (x0 - low) exp(z)         masses, inertias, friction
    Below(high)         x = high - (high - x0) exp(-z)
    Between(low, high)  x = low + (high - low) / (1 + exp(-y)),  y = y0 + z
    PhysicalInertia()   J = tr(S) 1 - S,  S = L L^T         the inertia of some body, 3 x 3

All begin at z = 0. A body has the matrix of inertia J if and only if S = tr(J)/2 1 - J, its second
moments of mass, is positive definite (Wensing, Kim and Slotine 2018); L is lower triangular with
the exponentials of free numbers on its diagonal.
"""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


@dataclass(frozen=True)
class AbstractTransform(abc.ABC):
    """A map from z, zero where the fit begins, to a leaf of the parameters."""

    def entries(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The entries of the leaf that are fitted, as many as there are numbers z."""
        return tuple(np.ndindex(*shape))

    @abc.abstractmethod
    def excludes(self, start: np.ndarray) -> str:
        """Why a fit cannot begin here, or an empty text."""

    @abc.abstractmethod
    def value(self, z: Array, start: Array) -> Array:
        """The leaf for z, of the shape of its start."""


@dataclass(frozen=True)
class Anywhere(AbstractTransform):
    """Any number, moved in units of the size of its start."""

    def excludes(self, start: np.ndarray) -> str:
        """No number is excluded."""
        return ""

    def value(self, z: Array, start: Array) -> Array:
        """A straight line."""
        return start + jnp.where(start == 0, 1.0, jnp.abs(start)) * z.reshape(start.shape)


@dataclass(frozen=True)
class Above(AbstractTransform):
    """More than `low`."""

    low: float

    def excludes(self, start: np.ndarray) -> str:
        """A start at or below the bound."""
        return "" if np.all(start > self.low) else f"must be more than {self.low:g}"

    def value(self, z: Array, start: Array) -> Array:
        """The distance from the bound as an exponential."""
        return self.low + (start - self.low) * jnp.exp(z.reshape(start.shape))


@dataclass(frozen=True)
class Below(AbstractTransform):
    """Less than `high`."""

    high: float

    def excludes(self, start: np.ndarray) -> str:
        """A start at or above the bound."""
        return "" if np.all(start < self.high) else f"must be less than {self.high:g}"

    def value(self, z: Array, start: Array) -> Array:
        """The distance from the bound as an exponential."""
        return self.high - (self.high - start) * jnp.exp(-z.reshape(start.shape))


@dataclass(frozen=True)
class Between(AbstractTransform):
    """Between two bounds."""

    low: float
    high: float

    def excludes(self, start: np.ndarray) -> str:
        """A start at or outside a bound."""
        inside = np.all((start > self.low) & (start < self.high))
        return "" if inside else f"must lie between {self.low:g} and {self.high:g}"

    def value(self, z: Array, start: Array) -> Array:
        """The logistic function."""
        y = jnp.log((start - self.low) / (self.high - start)) + z.reshape(start.shape)
        return self.low + (self.high - self.low) / (1 + jnp.exp(-y))


@dataclass(frozen=True)
class PhysicalInertia(AbstractTransform):
    """A matrix of inertia (3, 3) that some body has: definite, with the triangle inequalities.

    Example:
        >>> PhysicalInertia().excludes(np.diag([1.0, 1.0, 3.0]))
        'must be the inertia of a body: symmetric, no principal moment above the sum of the others'
    """

    def entries(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The lower triangle."""
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
        """From the second moments of mass, S = L L^T."""
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
    """The transform for the bounds of a parameter, `Anywhere()` where it has none.

    Example:
        >>> transform("m", {"m": (0, None)})
        Above(low=0.0)
    """
    given = bounds.get(name, Anywhere())
    if isinstance(given, AbstractTransform):
        return given
    try:
        low, high = (None if end is None or np.isinf(end) else float(end) for end in given)
        if any(end is not None and np.isnan(end) for end in (low, high)):
            raise ValueError("a bound is NaN")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Argument `bounds` must hold (low, high) for {name!r}, None for no bound, or "
            f"PhysicalInertia(); but holds {given!r}."
        ) from error
    if low is not None and high is not None:
        if not low < high:
            raise ValueError(f"Argument `bounds` must have low < high for {name!r}: {given!r}.")
        return Between(low, high)
    if low is not None:
        return Above(low)
    return Anywhere() if high is None else Below(high)
