"""Directions of parameter space in words: which parameters change together, and by how much."""

from dataclasses import dataclass

import numpy as np

from jaxmech.identify.inference.formulas.sparse_null_space import circuits, is_simple
from jaxmech.identify.inference.information import Directions, Numbers

_SHOWN = 0.05  # share of the largest change from which a weak direction mentions a parameter


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
