"""Short formulas that are determined although the parameters in them are not.

A function f of the parameters is determined if its gradient is orthogonal to all changes that leave
the residuals as they are. Candidates are power products of up to three parameters, and sums of two
or three such over a third, from simple to complicated; those that are independent of the simpler
ones are kept, until they account for all that is determined.

The null space is known at one point only (or at the few points given), so a formula may be
orthogonal to it by accident. `formulas` says how coincidences of the numbers are excluded. Those of
round values are not: where a = 1, m a and m have the same derivative by m. There a second point
helps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import ArrayLike

from jaxmech.identify.inference.formulas import Formula, circuits, independent, passing
from jaxmech.identify.inference.information import checked, row
from jaxmech.utils.arrays import HostArray

_INDEPENDENT = 1e-5  # share of a gradient that must be new for a formula to be independent
_WORTH = 0.5  # a longer divisor must reduce the error to this share


@dataclass(frozen=True)
class Combinations:
    """Formulas that are determined though their parameters are not.

    A part of a `Fit`, the result of `fit`.
    """

    affected: tuple[str, ...]  # the parameters that are not determined
    formulas: tuple[Formula, ...]  # those that are, the simple first, independent of each other
    missing: int  # number of further determined numbers without a short formula

    def __str__(self) -> str:
        if not self.affected:
            return "all parameters are determined"
        lines = [str(formula) for formula in self.formulas]
        lines += [f"{self.missing} more without a short formula"] if self.missing else []
        if not lines:
            return f"nothing is determined in {', '.join(self.affected)}"
        listed = ", ".join(lines[:-1]) + (" and " if lines[1:] else "") + lines[-1]
        single = len(lines) == 1 and self.missing < 2
        return f"of {', '.join(self.affected)} only {listed} {'is' if single else 'are'} determined"


@dataclass(frozen=True, eq=False)
class Combination:
    """A combination with a name of its own, such as a base parameter of a mechanism.

    Example:
        >>> mass = Combination("m", 2.0, np.array([1.0, 0.0]), "kg")
        >>> inertia = Combination("I", 0.5, np.array([0.0, 1.0]), "kg m^2")
        >>> ratio = inertia.over(mass)
        >>> print(ratio.formula, ratio.value, ratio.gradient)
        (I) / (m) 0.25 [-0.125  0.5  ]
    """

    formula: str
    value: float
    gradient: HostArray  # by the parameters, (p,)
    unit: str

    def over(self, other: "Combination") -> "Combination":
        """The ratio of two."""
        value = self.value / other.value
        slope = (self.gradient - value * other.gradient) / other.value
        units = "" if self.unit == other.unit else f"{self.unit} / ({other.unit})"
        return Combination(f"({self.formula}) / ({other.formula})", value, slope, units)


def combinations(
    names: Sequence[str],
    values: ArrayLike,
    null_space: ArrayLike,  # changes of the parameters without effect on the residuals, (p, r)
    *,
    also: Sequence[tuple[ArrayLike, ArrayLike]] = (),  # values and null spaces at other points
    tolerance: float = 1e-6,  # largest deviation of a gradient from orthogonality that is accepted
) -> Combinations:
    """The short formulas that are determined, in parameters of nonzero value."""
    points, spaces = [], []
    for v, z in ((values, null_space), *also):
        point, null = row(v, len(names), "values")[:, None], np.asarray(z, float)
        null = checked("null_space", null, (len(names), "r"), "one row per parameter")
        scales = np.where(point != 0, point, 1.0)
        spaces.append(circuits(null / scales) * scales)
        points.append(np.broadcast_to(point, spaces[-1].shape))
    center = row(values, len(names), "values")
    affected = np.any(spaces[0] != 0, axis=1)
    goal = int(affected.sum()) - spaces[0].shape[1]

    def relative_gradient(formula: Formula) -> HostArray:
        return (formula.gradient(center) * np.where(center != 0, center, 1.0))[affected]

    formulas = passing(tuple(names), np.hstack(points), np.hstack(spaces), affected, tolerance)
    chosen = independent(formulas, relative_gradient, goal, least=_INDEPENDENT)
    return Combinations(tuple(compress(names, affected)), tuple(chosen), goal - len(chosen))


def sharpened(
    formulas: Sequence[Formula], values: HostArray, error: Callable[[HostArray], float]
) -> tuple[Formula, ...]:
    """The formulas, sums divided by that determined product which leaves the smallest error.

    Example:
        >>> names = ("x", "y", "k")
        >>> product = Formula(names, ((1, 0, -1),), (1,), (0, 0, 0))
        >>> total = Formula(names, ((1, 0, 0), (0, 1, 0)), (1, 1), (0, 0, 1))
        >>> known = np.array([0.1, 0.1, 2.0])
        >>> print(*sharpened([product, total], np.ones(3), lambda g: np.linalg.norm(g * known)))
        x/k (x + y)/x
    """
    # Where (m a^2 + I) / k and m a / k are determined, so is (m a^2 + I) / (m a), which may be
    # known a hundred times better than a friction k. The products stay, so that nothing is lost.
    products = [np.array(formula.terms[0]) for formula in formulas if len(formula.terms) == 1]

    def relative(formula: Formula) -> float:
        return error(formula.gradient(values)) / max(abs(formula(values)), 1e-300)

    def best(formula: Formula) -> Formula:
        if len(formula.terms) == 1:
            return formula
        neighbors = [np.array(formula.divisor) + sign * e for e in products for sign in (1, -1)]
        plain = [d for d in neighbors if d.min() >= 0 and d.max() <= 2]
        rivals = [replace(formula, divisor=tuple(d.tolist())) for d in plain]
        rival = min(rivals, key=relative, default=formula)
        return rival if relative(rival) < _WORTH * relative(formula) else formula

    return tuple(best(formula) for formula in formulas)
