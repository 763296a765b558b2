"""Robust losses, for recordings with outliers.

Instead of r^2 / 2 of a residual r, in units of the noise, a fit minimizes rho(r), which grows more
slowly, so that an outlier has little effect. This is a sequence of weighted least-squares fits with
the weights w(r) = rho'(r) / r (Huber and Ronchetti, "Robust Statistics", 2009, chapter 7). The unit
is the median of |r|, which outliers hardly change, divided by that of a normal distribution.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive
from jaxmech.utils.text import setting

NORMAL = 1.482602218505602  # standard deviation of a normal distribution in medians of |r|


class AbstractLoss:
    """Base of the robust losses."""

    @abstractmethod
    def value(self, r: Any) -> Any:
        """The loss of residuals in units of the noise, of NumPy or JAX; r^2 / 2 for small ones."""

    @abstractmethod
    def weight(self, r: HostArray) -> HostArray:
        """The weights of the squares, 1 for small residuals."""

    @abstractmethod
    def slope(self, r: HostArray) -> HostArray:
        """The second derivative of the loss."""

    @property
    @abstractmethod
    def log_scale(self) -> float:
        """The logarithm of the integral of exp(-value)."""


@dataclass(frozen=True)
class Huber(AbstractLoss):
    """The Huber loss: r^2 / 2 up to `scale`, and a straight line beyond.

    A good first choice: it is convex, so it does not add local minima.

    Args:
        scale: residual, in units of the noise, from which the loss is linear. With the default and
            normal noise, an interval is 2.6 % longer than with least squares.

    Raises:
        ValueError: if the scale is not positive.
    """

    scale: float = setting(
        1.345, "residual, in units of the noise, from which the loss is straight"
    )

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    def value(self, r: Any) -> Any:
        """r^2 / 2, or a straight line."""
        xp = r.__array_namespace__()
        inside = xp.minimum(xp.abs(r), self.scale)
        return 0.5 * inside**2 + self.scale * (xp.abs(r) - inside)

    def weight(self, r: HostArray) -> HostArray:
        """1, or scale / |r|."""
        return self.scale / np.maximum(np.abs(r), self.scale)

    def slope(self, r: HostArray) -> HostArray:
        """1, or 0."""
        return np.where(np.abs(r) <= self.scale, 1.0, 0.0)

    @property
    def log_scale(self) -> float:
        """A normal distribution inside, an exponential one outside."""
        from scipy.special import erf  # slow to import, and seldom needed

        k = self.scale
        inside = np.sqrt(2 * np.pi) * erf(k / np.sqrt(2))
        return float(np.log(inside + 2 / k * np.exp(-0.5 * k * k)))


@dataclass(frozen=True)
class StudentT(AbstractLoss):
    """The loss of Student's t distribution, scale^2 / 2 log(1 + (r / scale)^2).

    Unlike with `Huber`, the effect of an outlier decreases with its distance; from a poor initial
    guess a fit may end in another minimum. Here scale^2 = degrees + 1, with which the loss is
    r^2 / 2 of small residuals.

    Args:
        degrees: degrees of freedom; with fewer of them, more and larger outliers are expected.

    Raises:
        ValueError: if the degrees are not positive.
    """

    degrees: float = setting(4.0, "degrees of freedom", positive=True)

    def __post_init__(self) -> None:
        require_positive("degrees", self.degrees)

    def value(self, r: Any) -> Any:
        """scale^2 / 2 log(1 + (r / scale)^2)."""
        square = self.degrees + 1
        return 0.5 * square * r.__array_namespace__().log1p(r**2 / square)

    def weight(self, r: HostArray) -> HostArray:
        """1 / (1 + (r / scale)^2)."""
        return 1 / (1 + r**2 / (self.degrees + 1))

    def slope(self, r: HostArray) -> HostArray:
        """(1 - (r / scale)^2) w^2."""
        return (1 - r**2 / (self.degrees + 1)) * self.weight(r) ** 2

    @property
    def log_scale(self) -> float:
        """The integral of (1 + (r / scale)^2)^(-scale^2 / 2)."""
        from scipy.special import gammaln  # slow to import, and seldom needed

        half = 0.5 * (self.degrees + 1)
        return float(0.5 * np.log(2 * half * np.pi) + gammaln(half - 0.5) - gammaln(half))
