"""The sparsest basis of a null space: each vector changes as few parameters as possible."""

from itertools import combinations as subsets
from math import comb

import numpy as np

from jaxmech.identify.inference.information import Numbers

NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried


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
    found = []
    # A vector of an r-dimensional space that is zero in r - 1 given places is unique in general, so
    # all choices of places are tried (the vectors are the circuits of the matroid of the rows;
    # Oxley, Matroid Theory, 2011, section 1.1). Where they are too many, one elimination serves.
    if comb(len(rows), r - 1) <= _MOST:
        for zero in subsets(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)])
            if np.all(s > 1e-6):
                found.append(basis @ vt[-1])
    else:
        from scipy.linalg import qr  # slow to import, and seldom needed

        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        found = list((basis @ np.linalg.inv(basis[pivots])).T)
    # few parameters first, then simple ratios, then the first parameters
    tidy = sorted(
        map(_tidy, found), key=lambda z: (np.count_nonzero(z), not is_simple(z), (z == 0).tolist())
    )
    chosen: list[Numbers] = []
    span = np.zeros((0, p))
    for vector in tidy:
        new = new_direction(vector, span, 1e-6)
        if new is not None:
            chosen.append(vector)
            span = np.vstack([span, new])
        if len(chosen) == r:
            break
    return np.transpose(chosen)


def is_simple(z: Numbers) -> bool:
    """Whether the nonzero numbers are multiples of the smallest by integers up to 9."""
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def _tidy(z: Numbers) -> Numbers:
    """The vector without round-off, its largest component 1 or -1, its first positive."""
    z = np.where(np.abs(z) > NEGLIGIBLE * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])


def new_direction(row: Numbers, span: Numbers, least: float) -> Numbers | None:
    """The direction of a row orthogonal to the rows of `span`; None if its share is too small."""
    unit = row / np.linalg.norm(row)
    rest = unit - span.T @ (span @ unit)
    rest = rest - span.T @ (span @ rest)  # twice is enough for orthogonality to round-off
    length = np.linalg.norm(rest)
    return rest / length if length > least else None
