"""Which short formulas are determined although the parameters in them are not.

A function f of the parameters is determined where its gradient is orthogonal to all changes that
leave the residuals as they are. Candidates are power products of up to three parameters, and sums
of two or three such over a third, from simple to complicated; those are kept that say something new
until they say all that is determined.

All that is known is the null space at one point (or at the few points given), so a formula may be
orthogonal to it by accident. `candidates` says how accidents of numbers are kept out. Accidents of
round values are not: where a = 1, m a and m have the same derivative by m. There a second point
helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.inference.formulas.formula import Formula
from jaxmech.identify.inference.formulas.search import NullSpacePoint, passing
from jaxmech.identify.inference.formulas.sparse_null_space import circuits
from jaxmech.identify.inference.information import Numbers, require_finite_numbers, row

_INDEPENDENT = 1e-5  # part of a gradient that must be new for a formula to say something new


@dataclass(frozen=True)
class Combinations:
    """Formulas that are determined though their parameters are not.

    Attributes:
        affected: the parameters that are not determined.
        formulas: what is, the simple first; no one follows from the others.
        missing: how many more independent numbers are determined in these parameters, for which no
            short formula was found.
    """

    affected: tuple[str, ...]
    formulas: tuple[Formula, ...]
    missing: int

    def __str__(self) -> str:
        if not self.affected:
            return "all parameters are determined"
        known = [str(formula) for formula in self.formulas]
        known += [f"{self.missing} more without a short formula"] if self.missing else []
        if not known:
            return f"nothing is determined in {', '.join(self.affected)}"
        listed = ", ".join(known[:-1]) + (" and " if known[1:] else "") + known[-1]
        single = len(known) == 1 and self.missing < 2
        return f"of {', '.join(self.affected)} only {listed} {'is' if single else 'are'} determined"


def combinations(
    names: Sequence[str],
    values: ArrayLike,
    null_space: ArrayLike,
    *,
    also: Sequence[tuple[ArrayLike, ArrayLike]] = (),
    tolerance: float = 1e-6,
) -> Combinations:
    """Find the short formulas that are determined.

    Args:
        names: the parameters, p of them.
        values: their values, shape (p,). A parameter of value zero is in no formula.
        null_space: changes of the parameters that leave the residuals as they are, (p, r).
        also: values and null spaces at more points, for certainty: a formula must hold at all.
        tolerance: how nearly orthogonal a gradient must be at least.

    Raises:
        ValueError: for shapes that do not fit together and numbers that are not finite.

    Example:
        A body that turns about a fixed axis under its weight with known g: m a and m a^2 + I.

        >>> m, a, I = 1.7, 0.3, 0.05
        >>> null = np.array([[m], [-a], [m * a**2]])
        >>> print(combinations(["m", "a", "I"], [m, a, I], null))
        of m, a, I only m a and m a^2 + I are determined
    """
    points = [_point(names, v, z) for v, z in ((values, null_space), *also)]
    here = points[0]
    affected = np.any(here.null_space != 0, axis=1)
    goal = int(affected.sum()) - here.null_space.shape[1]
    found: list[Formula] = []
    span = np.zeros((0, int(affected.sum())))
    for formula in passing(tuple(names), points, affected, tolerance) if goal else ():
        new = _new_direction(formula, here, affected, span)
        if new is not None:
            found.append(formula)
            span = np.vstack([span, new])
        if len(found) == goal:
            break
    open_ones = tuple(name for name, is_open in zip(names, affected, strict=True) if is_open)
    return Combinations(open_ones, tuple(found), goal - len(found))


def _point(names: Sequence[str], values: ArrayLike, null_space: ArrayLike) -> NullSpacePoint:
    values = row(values, len(names), "values")
    null = np.asarray(null_space, float)
    if null.ndim != 2 or len(null) != len(names):
        raise ValueError(
            f"Argument `null_space` must have shape ({len(names)}, r), one row per parameter, but "
            f"has shape {null.shape}."
        )
    require_finite_numbers("null_space", null)
    scales = np.where(values != 0, values, 1.0)[:, None]
    return NullSpacePoint(values, circuits(null / scales) * scales)


def _new_direction(
    formula: Formula, here: NullSpacePoint, affected: NDArray[np.bool_], span: Numbers
) -> Numbers | None:
    """What the relative gradient adds to the orthonormal rows; None if it adds nothing."""
    scales = np.where(here.values != 0, here.values, 1.0)
    gradient = (formula.gradient(here.values) * scales)[affected]
    gradient = gradient / np.linalg.norm(gradient)
    rest = gradient - span.T @ (span @ gradient)
    rest = rest - span.T @ (span @ rest)
    length = np.linalg.norm(rest)
    return rest / length if length > _INDEPENDENT else None
