"""Directions of parameter space that change no residual or hardly any, sparse and in words."""

from dataclasses import dataclass
from itertools import combinations as subsets
from math import comb

import numpy as np

from jaxmech.identify.inference.information import Directions, Numbers

NEGLIGIBLE = 1e-9  # share of a null vector up to which a component counts as round-off
_MOST = 5000  # subsets to be tried
_SHOWN = 0.05  # share of the largest change from which a weak direction mentions a parameter


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
