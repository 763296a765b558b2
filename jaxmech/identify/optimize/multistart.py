"""`MultiStart`: many starting points for a fit with many local minima."""

from dataclasses import dataclass

import numpy as np

from jaxmech.utils.checks import require_positive_integer, require_seed
from jaxmech.utils.field_docs import setting


@dataclass(frozen=True)
class MultiStart:
    """Evaluate many random starting points as one batch, and fit from the best of them.

    The given parameters are one of the starting points.

    Args:
        count: number of starting points.
        spread: standard deviation of the free numbers: 0.5 scatters a positive parameter over a
            factor of about 3 up and down, an unbounded one by half its size.
        refine: number of the best ones that are fitted; the best fit is the result.
        seed: seed of the random numbers.

    Raises:
        ValueError: a number is not positive, or `refine` exceeds `count`.

    Example:
        >>> MultiStart(count=64, refine=3)
        MultiStart(count=64, spread=0.5, refine=3, seed=0)
    """

    count: int = setting(64, "starting points, the given one among them")
    spread: float = setting(0.5, "how far they scatter; 0.5 is a factor of about 3")
    refine: int = setting(3, "how many of the best are fitted")
    seed: int = setting(0, "seed of the draws")

    def __post_init__(self) -> None:
        require_positive_integer("count", self.count, "give the number of starting points")
        require_positive_integer("refine", self.refine, "give the number of fits")
        require_seed(self.seed)
        if not self.spread > 0:
            raise ValueError(f"Argument `spread` must be positive, but is {self.spread}.")
        if self.refine > self.count:
            raise ValueError(
                f"Argument `refine` must be at most `count`, {self.count}, but is {self.refine}."
            )

    def draws(self, size: int) -> np.ndarray:
        """The free numbers z of all starting points, (count, size); the first are zero."""
        z = np.random.default_rng(self.seed).normal(0.0, self.spread, (self.count, size))
        z[0] = 0.0
        return z
