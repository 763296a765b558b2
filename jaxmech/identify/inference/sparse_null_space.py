"""The sparsest basis of a null space: each vector changes as few parameters as possible."""

from collections.abc import Callable, Iterable
from itertools import combinations as subsets
from math import comb
from typing import TypeVar

import numpy as np

from jaxmech.identify.inference.information import Numbers

NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried

T = TypeVar("T")


def circuits(null_space: Numbers) -> Numbers:
    """A basis (p, r) of the space of independent columns (p, r), each vector as sparse as possible.

    Example:
        >>> circuits(np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])) + 0.0
        array([[0., 1.],
               [1., 0.],
               [0., 1.]])
    """
    p, r = null_space.shape
    if not r:
        return null_space
    basis = np.linalg.qr(null_space / np.linalg.norm(null_space, axis=0))[0]
    rows = [k for k in range(p) if np.abs(basis[k]).max() > NEGLIGIBLE]
    vectors = []
    # A vector of an r-dimensional space that is zero in r - 1 given places is unique in general, so
    # all choices of places are tried (the vectors are the circuits of the matroid of the rows;
    # Oxley, Matroid Theory, 2011, section 1.1). Where they are too many, one elimination serves.
    if comb(len(rows), r - 1) <= _MOST:
        for zero in subsets(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)])
            if np.all(s > 1e-6):
                vectors.append(tidy(basis @ vt[-1]))
    else:
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        vectors = [tidy(z) for z in (basis @ np.linalg.inv(basis[pivots])).T]
    # few parameters first, then simple ratios, then the first parameters
    vectors.sort(key=lambda z: (np.count_nonzero(z), not is_simple(z), (z == 0).tolist()))
    return np.transpose(independent(vectors, lambda z: z, r, least=1e-6))


def is_simple(z: Numbers) -> bool:
    """Whether the nonzero numbers are multiples of the smallest by integers up to 9."""
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def tidy(z: Numbers, negligible: float = NEGLIGIBLE) -> Numbers:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > negligible * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])


def independent(
    candidates: Iterable[T], vector: Callable[[T], Numbers], count: int, *, least: float
) -> list[T]:
    """The first `count` whose vectors have a share of `least` beyond the span of those before."""
    chosen: list[T] = []
    span: list[Numbers] = []
    for candidate in candidates if count else ():
        row = vector(candidate)
        unit = row / np.linalg.norm(row)
        rows = np.reshape(span, (-1, unit.size))
        residue = unit - rows.T @ (rows @ unit)
        # twice is enough for orthogonality to round-off
        residue = residue - rows.T @ (rows @ residue)
        if (length := np.linalg.norm(residue)) > least:
            chosen.append(candidate)
            span.append(residue / length)
        if len(chosen) == count:
            break
    return chosen
