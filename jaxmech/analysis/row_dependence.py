"""Constraint equations that are linear combinations of others, by name.

Rows are processed in the order in which the constraints are written. A row in the span of the rows
kept so far is dependent. Since the kept rows are independent, its coefficients on them are unique,
and so are the constraints on which it depends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jaxmech.linalg import Rows, unit


@dataclass(frozen=True)
class Dependence:
    """Equations of one constraint that follow from those before them.

    The entries of `Structure.dependences`, see `structure`.

    Attributes:
        name: the constraint.
        equations: indices of its equations, counted from 0.
        others: the constraints of which they are combinations, in system order, possibly the
            constraint itself; empty if an equation does not depend on the coordinates at all.
    """

    name: str
    equations: tuple[int, ...]
    others: tuple[str, ...]


@dataclass(frozen=True)
class Independence:
    """A partition of the rows into independent and dependent ones."""

    independent: tuple[int, ...]  # indices of the independent rows
    combinations: dict[int, NDArray[np.floating]]  # coefficients of the others on the kept rows

    @property
    def rank(self) -> int:
        """The number of independent rows."""
        return len(self.independent)


def independence(C: Rows, tolerance: float) -> Independence:
    """Sort the rows of C, of unit length or zero, by Gram-Schmidt done twice."""
    basis = np.zeros((0, C.shape[1]))
    independent: list[int] = []
    combinations = {}
    for number, row in enumerate(C):
        remainder = row - basis.T @ (basis @ row)
        remainder = remainder - basis.T @ (basis @ remainder)
        length = np.linalg.norm(remainder)
        if length > tolerance:
            basis = np.vstack([basis, remainder / length])
            independent.append(number)
        else:
            combinations[number] = np.linalg.lstsq(C[independent].T, row, rcond=None)[0]
    width = len(independent)
    padded = {k: np.pad(x, (0, width - x.size)) for k, x in combinations.items()}
    return Independence(tuple(independent), padded)


def dependences(
    rows: Independence, names: Sequence[str], sizes: Sequence[int]
) -> tuple[Dependence, ...]:
    """Group the dependent rows by the names of their constraints."""
    owner, index = owners(names, sizes)
    by_owner: dict[str, tuple[list[int], set[str]]] = {}
    for row, x in rows.combinations.items():
        indices, partners = by_owner.setdefault(owner[row], ([], set()))
        indices.append(index[row])
        least = 1e-6 * np.abs(x).max(initial=0.0)
        partners.update(
            owner[k] for k, c in zip(rows.independent, x, strict=True) if abs(c) > least
        )
    return tuple(
        Dependence(name, tuple(indices), tuple(n for n in names if n in partners))
        for name, (indices, partners) in by_owner.items()
    )


def removable(
    C: Rows, names: Sequence[str], sizes: Sequence[int], tolerance: float
) -> tuple[str, ...]:
    """The constraints any single one of which can be left out without a loss of rank."""
    owner, _ = owners(names, sizes)
    full = independence(C, tolerance)
    if not full.combinations:
        return ()
    belongs = np.array(owner)
    return tuple(
        name
        for name, size in zip(names, sizes, strict=True)
        if size and independence(C[belongs != name], tolerance).rank == full.rank
    )


def owners(names: Sequence[str], sizes: Sequence[int]) -> tuple[list[str], list[int]]:
    """The name of the constraint of every row, and the index of the row in it."""
    pairs = [(name, k) for name, size in zip(names, sizes, strict=True) for k in range(size)]
    return [name for name, _ in pairs], [k for _, k in pairs]


def without_rows(A: Rows, x: NDArray[np.floating], tolerance: float) -> NDArray[np.floating]:
    """The part of a vector x (n,) that is orthogonal to the rows of A (m, n)."""
    rows, _ = unit(A)
    return x - np.linalg.pinv(rows, rcond=tolerance) @ (rows @ x)
