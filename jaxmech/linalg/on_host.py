"""`QR` on the host: for one known matrix numpy is faster than compiling a program."""

from typing import NamedTuple

import numpy as np

from jaxmech.linalg.base import Rows
from jaxmech.linalg.qr import QR


class RowsOnHost(NamedTuple):
    """C = (R + D) U, as in `QRRowSpace`."""

    U: Rows
    R: Rows
    inverse_lengths: Rows
    scale: Rows

    def min_norm_solve(self, r: Rows) -> tuple[Rows, Rows]:
        """C^+ r, and a lambda that is zero on the dropped rows."""
        z, remaining = r * self.scale, np.zeros_like(r)
        for j, inverse in enumerate(self.inverse_lengths):
            z[j] = (z[j] - self.R[j, :j] @ z[:j]) * inverse
        y = self.U.T @ z
        for j in reversed(range(len(z))):
            remaining[j] = z[j] * self.inverse_lengths[j]
            z = z - self.R[j] * remaining[j]
        return y, remaining * self.scale


def rows_on_host(C: Rows) -> RowsOnHost:
    """`QR().factor(C)` of a known matrix.

    Example:
        >>> y, _ = rows_on_host(np.array([[1.0, 0.0, 1.0], [2.0, 0.0, 2.0]])).min_norm_solve(
        ...     np.array([2.0, 4.0])
        ... )
        >>> print(y.round(12))
        [1. 0. 1.]
    """
    squared = (C * C).sum(1)
    scale = np.where(squared > 0, 1 / np.sqrt(np.where(squared > 0, squared, 1)), 0)
    C = C * scale[:, None]
    U, R, inverses = np.zeros_like(C), np.zeros_like(C, shape=(len(C),) * 2), np.zeros_like(scale)
    threshold = QR().threshold(C.dtype)
    for j, row in enumerate(C):
        basis = U[:j]
        along = basis @ row
        residual = row - along @ basis
        again = basis @ residual
        residual = residual - again @ basis
        R[j, :j] = along + again
        length = np.sqrt(residual @ residual)
        if not length <= threshold:  # NaN is passed on
            inverses[j] = 1 / length
            U[j] = residual / length
    return RowsOnHost(U, R, inverses, scale)
