"""Directions of parameter space in words: which parameters change together, and by how much."""

from dataclasses import dataclass

import numpy as np

from jaxmech.identify.inference.formulas.sparse_null_space import circuits, is_simple
from jaxmech.identify.inference.information import Directions, Numbers

_SHOWN = 0.05  # part of the largest change below which a weak direction does not mention another


@dataclass(frozen=True, eq=False)
class Direction:
    """A change of several parameters together.

    Attributes:
        names: the parameters.
        changes: of each as a part of its scale, which is |value| as a rule; the smallest of them is
            1 or -1 where they are as small integers, else the largest, shape (p,).
        standard_error: of the number of such steps; infinite where no residual notices any. As the
            changes are relative ones, 1 means 100 %.

    Example:
        >>> print(Direction(("m1", "k1"), np.array([1.0, -1.0]), np.inf))
        m1 +1 %, k1 -1 % leaves every residual unchanged
    """

    names: tuple[str, ...]
    changes: Numbers
    standard_error: float

    def __str__(self) -> str:
        exact = np.isinf(self.standard_error)
        least = 0.0 if exact else _SHOWN * np.abs(self.changes).max()
        text = ", ".join(
            f"{name} {_signed(change)} %"
            for name, change in zip(self.names, self.changes, strict=True)
            if abs(change) > least
        )
        if exact:
            return f"{text} leaves every residual unchanged"
        return f"{text} is known to +- {100 * self.standard_error:.2g} such steps only"


def exact_directions(found: Directions) -> tuple[Direction, ...]:
    """The changes that leave all residuals as they are, each with few parameters.

    Args:
        found: parameter space split by the information.

    Example:
        >>> from jaxmech.identify.inference.information import directions
        >>> J = np.array([[2.0, 4.0], [1.0, 2.0]])
        >>> print(*exact_directions(directions(["a", "b"], [2.0, 1.0], J.T @ J)))
        a +1 %, b -1 % leaves every residual unchanged
    """
    relative = found.null_space / found.scales[:, None]
    return tuple(Direction(found.names, _readable(z), np.inf) for z in circuits(relative).T)


def weak_directions(
    found: Directions, noise: float | int, above: float | int
) -> tuple[Direction, ...]:
    """The changes that are noticed but known worse than a given part, the worst first.

    They are the axes of the ellipsoid of errors in relative changes, apart from the null space.

    Args:
        found: parameter space split by the information.
        noise: standard deviation of the weighted residuals.
        above: relative standard error from which a direction is weak.
    """
    null = found.null_space / found.scales[:, None]
    basis = np.linalg.qr(np.hstack([null, np.eye(len(found.names))]))[0][:, null.shape[1] :]
    H = found.information * found.scales * found.scales[:, None]
    eigenvalues, vectors = np.linalg.eigh(basis.T @ H @ basis)
    tiny = np.finfo(H.dtype).tiny
    errors = noise / np.sqrt(np.maximum(eigenvalues, tiny))
    directions = []
    for error, z in zip(errors, (basis @ vectors).T, strict=True):
        if error > above:
            changes = _readable(np.where(np.abs(z) > 1e-12 * np.abs(z).max(), z, 0.0))
            size = np.linalg.norm(changes)
            directions.append(Direction(found.names, changes, float(error / size)))
    return tuple(directions)


def _readable(z: Numbers) -> Numbers:
    nonzero = np.abs(z[z != 0])
    z = z / (nonzero.min() if is_simple(z) else nonzero.max())
    return z * np.sign(z[np.flatnonzero(z)[0]])


def _signed(change: float) -> str:
    return f"{change:+.3g}"
