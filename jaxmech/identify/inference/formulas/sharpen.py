"""Formulas over the divisor with which they are known best."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jaxmech.identify.inference.formulas.formula import Formula
from jaxmech.identify.inference.information import Numbers

_WORTH = 0.5  # an error must shrink to this part for a longer divisor


def sharpened(
    formulas: Sequence[Formula], values: Numbers, error: Callable[[Numbers], float]
) -> tuple[Formula, ...]:
    """The formulas with sums divided by that determined product which leaves the smallest error.

    Where (m a^2 + I) / k and m a / k are determined, so is (m a^2 + I) / (m a), and it may be known
    a hundred times better than any friction. The products stay, so that as much is said as before.

    Args:
        formulas: determined ones.
        values: of all parameters, shape (p,).
        error: standard error of a function of the parameters with a given gradient.

    Example:
        >>> names = ("x", "y", "k")
        >>> product = Formula(names, ((1, 0, -1),), (1,), (0, 0, 0))
        >>> total = Formula(names, ((1, 0, 0), (0, 1, 0)), (1, 1), (0, 0, 1))
        >>> known = np.array([0.1, 0.1, 2.0])
        >>> print(*sharpened([product, total], np.ones(3), lambda g: np.linalg.norm(g * known)))
        x/k (x + y)/x
    """
    products = [np.array(formula.terms[0]) for formula in formulas if len(formula.terms) == 1]

    def relative(formula: Formula) -> float:
        return error(formula.gradient(values)) / max(abs(formula(values)), 1e-300)

    def best(formula: Formula) -> Formula:
        if len(formula.terms) == 1:
            return formula
        others = [np.array(formula.divisor) + sign * e for e in products for sign in (1, -1)]
        plain = [d for d in others if d.min() >= 0 and d.max() <= 2]
        rivals = [replace(formula, divisor=tuple(int(e) for e in d)) for d in plain]
        rival = min(rivals, key=relative, default=formula)
        return rival if relative(rival) < _WORTH * relative(formula) else formula

    return tuple(best(formula) for formula in formulas)
