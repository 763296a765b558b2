"""A robust loss, for recordings with outliers.

Instead of r^2 / 2 of a residual r, in units of the noise, a fit minimizes rho(r), which grows more
slowly, so that an outlier has little effect. This is a sequence of weighted least-squares fits with
the weights w(r) = rho'(r) / r (Huber and Ronchetti, "Robust Statistics", 2009, chapter 7). The unit
is the median of |r|, which outliers hardly change, divided by that of a normal distribution.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive
from jaxmech.utils.text import setting

NORMAL = 1.482602218505602  # standard deviation of a normal distribution in medians of |r|


@dataclass(frozen=True)
class Huber:
    """The Huber loss: r^2 / 2 up to `scale`, and a straight line beyond.

    It is convex, so it does not add local minima.

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
        """The loss of residuals in units of the noise, of NumPy or JAX."""
        xp = r.__array_namespace__()
        inside = xp.minimum(xp.abs(r), self.scale)
        return 0.5 * inside**2 + self.scale * (xp.abs(r) - inside)

    def weight(self, r: HostArray) -> HostArray:
        """The weights of the squares: 1, or scale / |r|."""
        return self.scale / np.maximum(np.abs(r), self.scale)

    def slope(self, r: HostArray) -> HostArray:
        """The second derivative of the loss: 1, or 0."""
        return np.where(np.abs(r) <= self.scale, 1.0, 0.0)
