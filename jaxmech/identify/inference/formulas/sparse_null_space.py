"""The plainest directions that span a null space: each moves as few parameters as can be."""

from itertools import combinations as subsets
from math import comb

import numpy as np
from scipy.linalg import qr

from jaxmech.identify.inference.information import Numbers

NEGLIGIBLE = 1e-9  # part of a null vector below which it is taken for round-off
_MOST = 5000  # subsets to be tried


def circuits(null_space: Numbers) -> Numbers:
    """A basis of a space in which each vector has as many zeros as possible.

    A vector of an r-dimensional space that is zero in r - 1 given places is unique in general. All
    choices of such places are tried, and the sparsest independent vectors kept (the circuits of
    the matroid of the rows; Oxley, Matroid Theory, 2011, section 1.1). With more than a few
    thousand choices those of one elimination with pivots serve.

    Args:
        null_space: vectors that span it, independent, shape (p, r).

    Returns:
        Such vectors with the largest number 1 or -1 and the first positive, shape (p, r).

    Example:
        >>> circuits(np.array([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])) + 0.0
        array([[0., 1.],
               [1., 0.],
               [0., 1.]])
    """
    p, r = null_space.shape
    if not r:
        return null_space
    basis = np.linalg.qr(null_space / _sizes(null_space))[0]
    rows = [k for k in range(p) if np.abs(basis[k]).max() > NEGLIGIBLE]
    found = []
    if comb(len(rows), r - 1) <= _MOST:
        for zero in subsets(rows, r - 1):
            _, s, vt = np.linalg.svd(basis[list(zero)]) if zero else (0, np.zeros(0), np.eye(1))
            if np.all(s > 1e-6):
                found.append(basis @ vt[-1])
    else:
        pivots = qr(basis.T, pivoting=True, mode="economic")[2][:r]
        found = list((basis @ np.linalg.inv(basis[pivots])).T)
    tidy = [_tidy(vector) for vector in found]
    tidy.sort(key=_plainness)
    return _independent(np.array(tidy), r).T


def _sizes(null_space: Numbers) -> Numbers:
    return np.linalg.norm(null_space, axis=0)


def _plainness(z: Numbers) -> tuple[int, bool, list[bool]]:
    """Few parameters, equal or simple changes, the first parameters."""
    return int(np.count_nonzero(z)), not is_simple(z), (z == 0).tolist()


def is_simple(z: Numbers) -> bool:
    """Whether the numbers are as small integers.

    Example:
        >>> is_simple(np.array([0.5, -1.0, 0.0])), is_simple(np.array([0.3, 1.0, 0.0]))
        (True, False)
    """
    z = z / np.abs(z[z != 0]).min()
    return bool(np.all(np.abs(z - z.round()) < 1e-6) and np.abs(z).max() < 9.5)


def _tidy(z: Numbers) -> Numbers:
    z = np.where(np.abs(z) > NEGLIGIBLE * np.abs(z).max(), z, 0.0)
    z = z / np.abs(z).max()
    return z * np.sign(z[np.flatnonzero(z)[0]])


def _independent(rows: Numbers, r: int) -> Numbers:
    kept = np.zeros((0, rows.shape[1]))
    chosen = []
    for row in rows:
        unit = row / np.linalg.norm(row)
        rest = unit - kept.T @ (kept @ unit)
        length = np.linalg.norm(rest)
        if length > 1e-6:
            chosen.append(row)
            kept = np.vstack([kept, rest / length])
        if len(chosen) == r:
            break
    return np.array(chosen)
