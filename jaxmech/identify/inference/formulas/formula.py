"""Short formulas in named numbers: products of small powers, and quotients of their sums."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxmech.identify.inference.information import Numbers

Powers = tuple[int, ...]


@dataclass(frozen=True)
class Formula:
    """(sum of signed power products) / (power product).

    Example:
        >>> inertia = Formula(("m", "a", "I"), ((1, 2, 0), (0, 0, 1)), (1, 1), (0, 0, 0))
        >>> print(inertia, inertia([2.0, 3.0, 0.5]), inertia.gradient([2.0, 3.0, 0.5]))
        m a^2 + I 18.5 [ 9. 12.  1.]
    """

    names: tuple[str, ...]  # names of all p parameters
    terms: tuple[Powers, ...]  # the exponents of each product in the sum, p each
    signs: tuple[int, ...]  # 1 or -1 for each term
    divisor: Powers

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that occur in it."""
        used = np.any(np.array([*self.terms, self.divisor]) != 0, axis=0)
        return tuple(name for name, is_used in zip(self.names, used, strict=True) if is_used)

    def __call__(self, values: Sequence[float] | Numbers) -> float:
        """The value for values (p,) of all parameters."""
        return float(np.dot(self.signs, powers(values, self.exponents)))

    def gradient(self, values: Sequence[float] | Numbers) -> Numbers:
        """The derivatives (p,) by all parameters, at values (p,)."""
        E = self.exponents
        lower = E[:, None, :] - np.eye(E.shape[1], dtype=int)
        slopes = E * powers(values, np.where(E[:, :, None] != 0, lower, 0))
        return np.asarray(self.signs) @ slopes

    @property
    def exponents(self) -> NDArray[np.int_]:
        """Exponents of each term divided by the divisor, shape (number of terms, p)."""
        return np.array(self.terms) - np.array(self.divisor)

    def __str__(self) -> str:
        # products before single parameters, as in m a^2 + I
        sizes = [(-sum(e != 0 for e in term), -sum(map(abs, term))) for term in self.terms]
        order = sorted(range(len(self.terms)), key=sizes.__getitem__)
        if len(order) == 1:
            return quotient(self.names, self.exponents[0])
        order.sort(key=lambda k: self.signs[k] < 0)
        text = ""
        for k in order:  # positive terms first, so that a sum seldom begins with a sign
            sign = " - " if self.signs[k] < 0 else " + "
            text += (sign if text else "") + quotient(self.names, self.terms[k])
        if not any(self.divisor):
            return text
        below = quotient(self.names, self.divisor)
        return f"({text})/({below})" if " " in below or "/" in below else f"({text})/{below}"


def powers(values: Sequence[float] | Numbers, exponents: NDArray[np.int_]) -> Numbers:
    """Products of powers of the values, the exponents along the last axis; 0^0 is 1."""
    base = np.where(exponents == 0, 1.0, np.asarray(values, float))
    return np.prod(base**exponents, axis=-1)


def quotient(names: Sequence[str], exponents: Sequence[int] | NDArray[np.int_]) -> str:
    """Format a power product, masses first.

    Example:
        >>> print(quotient(["a", "m", "k"], [-1, -1, 1]), quotient(["a", "m", "k"], [2, 1, 0]))
        k/(m a) m a^2
    """

    def product(sign: int) -> list[str]:
        chosen = [k for k, e in enumerate(exponents) if e * sign > 0]
        chosen.sort(key=lambda k: (abs(exponents[k]), not names[k].split(".")[-1].startswith("m")))
        powers = [f"^{abs(exponents[k])}" if abs(exponents[k]) > 1 else "" for k in chosen]
        return [names[k] + power for k, power in zip(chosen, powers, strict=True)]

    above, below = " ".join(product(1)) or "1", product(-1)
    if not below:
        return above
    return f"{above}/{below[0]}" if len(below) == 1 else f"{above}/({' '.join(below)})"
