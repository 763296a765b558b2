"""Directions of parameter space that change no residual, and which short formulas are determined.

A function f of the parameters is determined if its gradient is orthogonal to all changes that leave
the residuals as they are. Candidates are power products of up to three parameters, and sums of two
or three such over a third, from simple to complicated; those that are independent of the simpler
ones are kept, until they account for all that is determined.

The null space is known at one point only (or at the few points given), so a formula may be
orthogonal to it by accident. `formula_search` says how coincidences of the numbers are excluded.
Those of round values are not: where a = 1, m a and m have the same derivative by m. There a second
point helps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations as subsets
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jaxmech.identify.inference.formula_search import NEGLIGIBLE, Formula, NullSpacePoint, passing
from jaxmech.identify.inference.information import Directions, Numbers, checked, row

_MOST = 5000  # subsets to be tried
_SHOWN = 0.05  # share of the largest change from which a weak direction mentions a parameter
_INDEPENDENT = 1e-5  # share of a gradient that must be new for a formula to be independent
_WORTH = 0.5  # a longer divisor must reduce the error to this share


def circuits(null_space: Numbers) -> Numbers:
    """A basis (p, r) of the space of independent columns, each vector as sparse as possible."""
    p, r = null_space.shape
    if not r:
        return null_space
    basis = np.linalg.qr(null_space / np.linalg.norm(null_space, axis=0))[0]
    rows = [k for k in range(p) if np.abs(basis[k]).max() > NEGLIGIBLE]
    found = []
    # A vector of an r-dimensional space that is zero in r - 1 given places is unique in general, so
    # all choices of places are tried (the vectors are the circuits of the matroid of the rows;
    # Oxley, Matroid Theory, 2011, section 1.1). Where they are too many, one elimination serves.
    if comb(len(rows), r - 1) <= _MOST:
        for zero in subsets(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)]) if zero else (0, np.zeros(0), np.eye(1))
            if np.all(s > 1e-6):
                found.append(basis @ vt[-1])
    else:
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        found = list((basis @ np.linalg.inv(basis[pivots])).T)
    tidy = sorted((_tidy(vector) for vector in found), key=_complexity)
    return _independent(np.array(tidy), r).T


def _complexity(z: Numbers) -> tuple[int, bool, list[bool]]:
    """Sorts vectors: few parameters first, then simple ratios, then the first parameters."""
    return int(np.count_nonzero(z)), not is_simple(z), (z == 0).tolist()


def is_simple(z: Numbers) -> bool:
    """Whether the nonzero numbers are multiples of the smallest by integers up to 9."""
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def _tidy(z: Numbers) -> Numbers:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > NEGLIGIBLE * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])


def _independent(rows: Numbers, r: int) -> Numbers:
    """The first r independent rows."""
    kept = np.zeros((0, rows.shape[1]))
    chosen = []
    for z in rows:
        unit = z / np.linalg.norm(z)
        rest = unit - kept.T @ (kept @ unit)
        length = np.linalg.norm(rest)
        if length > 1e-6:
            chosen.append(z)
            kept = np.vstack([kept, rest / length])
        if len(chosen) == r:
            break
    return np.array(chosen)


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of several parameters together.

    Example:
        >>> print(Direction(("m1", "k1"), np.array([1.0, -1.0]), np.inf))
        m1 +1 %, k1 -1 % leaves every residual unchanged
    """

    names: tuple[str, ...]
    # relative to the scales, usually |value|; in multiples of the smallest change where these are
    # small integers, otherwise of the largest, (p,)
    changes: Numbers
    standard_error: float  # of the number of such steps; infinite where no residual changes

    def __str__(self) -> str:
        exact = np.isinf(self.standard_error)
        least = 0.0 if exact else _SHOWN * np.abs(self.changes).max()
        pairs = zip(self.names, self.changes, strict=True)
        text = ", ".join(f"{name} {x:+.3g} %" for name, x in pairs if abs(x) > least)
        if exact:
            return f"{text} leaves every residual unchanged"
        return f"{text} is known to +- {100 * self.standard_error:.2g} such steps only"


def exact_directions(found: Directions) -> tuple[Direction, ...]:
    """The changes that leave all residuals as they are, each of as few parameters as possible."""
    relative = found.null_space / found.scales[:, None]
    return tuple(Direction(found.names, _readable(z), np.inf) for z in circuits(relative).T)


def weak_directions(
    found: Directions, noise: float | int, above: float | int
) -> tuple[Direction, ...]:
    """The axes of the error ellipsoid with a relative standard error above a limit, worst first."""
    null = found.null_space / found.scales[:, None]
    # the axes are taken in relative changes, orthogonal to the null space
    basis = np.linalg.qr(np.hstack([null, np.eye(len(found.names))]))[0][:, null.shape[1] :]
    H = found.information * found.scales * found.scales[:, None]
    eigenvalues, vectors = np.linalg.eigh(basis.T @ H @ basis)
    errors = noise / np.sqrt(np.maximum(eigenvalues, np.finfo(H.dtype).tiny))
    weak = []
    for error, z in zip(errors, (basis @ vectors).T, strict=True):
        if error > above:
            changes = _readable(np.where(np.abs(z) > 1e-12 * np.abs(z).max(), z, 0.0))
            weak.append(Direction(found.names, changes, float(error / np.linalg.norm(changes))))
    return tuple(weak)


def _readable(z: Numbers) -> Numbers:
    nonzero = np.abs(z[z != 0])
    z = z / (nonzero.min() if is_simple(z) else nonzero.max())
    return z * np.sign(z[np.flatnonzero(z)[0]])


@dataclass(frozen=True)
class Combinations:
    """Formulas that are determined though their parameters are not."""

    affected: tuple[str, ...]  # the parameters that are not determined
    formulas: tuple[Formula, ...]  # those that are, the simple first, independent of each other
    missing: int  # how many more independent numbers are determined, without a short formula

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
    null_space: ArrayLike,  # changes of the parameters without effect on the residuals, (p, r)
    *,
    also: Sequence[tuple[ArrayLike, ArrayLike]] = (),  # values and null spaces at other points
    tolerance: float = 1e-6,  # how nearly orthogonal a gradient must be at least
) -> Combinations:
    """The short formulas that are determined, in parameters of nonzero value."""
    points = []
    for v, z in ((values, null_space), *also):
        numbers = row(v, len(names), "values")
        null = checked(
            "null_space", np.asarray(z, float), (len(names), "r"), "one row per parameter"
        )
        scales = np.where(numbers != 0, numbers, 1.0)[:, None]
        points.append(NullSpacePoint(numbers, circuits(null / scales) * scales))
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
    undetermined = tuple(name for name, k in zip(names, affected, strict=True) if k)
    return Combinations(undetermined, tuple(found), goal - len(found))


def _new_direction(
    formula: Formula, here: NullSpacePoint, affected: NDArray[np.bool_], span: Numbers
) -> Numbers | None:
    """The part of the relative gradient orthogonal to the rows of `span`; None if there is none."""
    scales = np.where(here.values != 0, here.values, 1.0)
    gradient = (formula.gradient(here.values) * scales)[affected]
    gradient = gradient / np.linalg.norm(gradient)
    rest = gradient - span.T @ (span @ gradient)
    rest = rest - span.T @ (span @ rest)  # twice is enough for orthogonality to round-off
    length = np.linalg.norm(rest)
    return rest / length if length > _INDEPENDENT else None


def sharpened(
    formulas: Sequence[Formula], values: Numbers, error: Callable[[Numbers], float]
) -> tuple[Formula, ...]:
    """The formulas, sums divided by that determined product which leaves the smallest error."""
    # Where (m a^2 + I) / k and m a / k are determined, so is (m a^2 + I) / (m a), which may be
    # known a hundred times better than a friction k. The products stay, so that nothing is lost.
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
