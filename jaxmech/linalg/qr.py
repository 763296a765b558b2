"""`QR`: the pseudo-inverse from an orthogonalization of the rows of C."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.linalg.base import AbstractRowSpace, AbstractSolver, Rows, unit_rows
from jaxmech.linalg.products import matvec


class QRRowSpace(AbstractRowSpace):
    """C = (R + D) U with orthonormal rows U, strictly lower triangular R and diagonal D.

    Attributes:
        U: orthonormal rows, zero where a row of C was dropped, shape (m, n).
        R: shape (m, m).
        inverse_lengths: 1 / D, zero where the row was dropped, shape (m,).
        scale: factors by which the rows of C were multiplied, shape (m,).
        rank: number of rows kept.
        independent: flags of the rows that were kept, shape (m,).
    """

    U: Float[Array, " m n"]
    R: Float[Array, " m m"]
    inverse_lengths: Float[Array, " m"]
    scale: Float[Array, " m"]
    rank: Int[Array, ""]
    independent: Bool[Array, " m"]

    def min_norm_solve(
        self, r: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Return y = C^+ r and a lambda that is zero on the dropped rows."""
        if r.size == 0:
            return self.U.sum(0), r
        rows = (jnp.arange(r.size), self.R, self.inverse_lengths)

        def forward(z: Array, row: tuple[Array, Array, Array]) -> tuple[Array, None]:
            j, R, inverse = row
            return z.at[j].set((z[j] - (R * z).sum()) * inverse), None

        def backward(remaining: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            j, R, inverse = row
            multiplier = remaining[j] * inverse
            return remaining - R * multiplier, multiplier

        z, _ = jax.lax.scan(forward, r * self.scale, rows)
        _, multipliers = jax.lax.scan(backward, z, rows, reverse=True)
        return matvec(self.U.T, z), multipliers * self.scale


class QR(AbstractSolver):
    """Gram-Schmidt twice on the rows of C: the more accurate choice near a singular pose.

    It does not square the condition number, as C C^T does, and compiles fast as a loop over rows.
    A row that keeps less than `tolerance` of its length is dropped as dependent on those before it.

    Args:
        tolerance: relative length below which a row is dependent; by default eps^(2/3).
    """

    def factor(
        self, C: Float[Array, " m n"], independent: Bool[Array, " m"] | None = None
    ) -> QRRowSpace:
        return _orthogonalized(C, self.thresholds(C, independent))


@jax.jit  # traced once for all tolerances
def _orthogonalized(C: Array, thresholds: Array) -> QRRowSpace:
    C, scale = unit_rows(C)

    def orthogonalize(U: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        j, c, threshold = row
        along = matvec(U, c)
        residual = c - matvec(U.T, along)
        # A second time: the round-off left along U by the first is large compared with a `residual`
        # that is nearly zero, and twice is enough (Parlett, The Symmetric Eigenvalue Problem,
        # 6.9).
        again = matvec(U, residual)
        residual = residual - matvec(U.T, again)
        squared = (residual * residual).sum()
        keep = squared > threshold**2
        inverse = jnp.where(keep, 1 / jnp.sqrt(jnp.where(keep, squared, 1.0)), 0.0)
        # By `jnp.where` XLA would compute the row twice, with unlike round-off, and rows that are
        # nearly dependent would lose their orthogonality.
        return U.at[j].set(residual * inverse), (along + again, inverse)

    if C.shape[0] == 0:
        return QRRowSpace(C, C @ C.T, scale, scale, jnp.zeros((), jnp.int32), scale > 0)
    rows = (jnp.arange(C.shape[0]), C, thresholds)
    U, (R, inverse_lengths) = jax.lax.scan(orthogonalize, jnp.zeros_like(C), rows)
    independent = inverse_lengths > 0
    return QRRowSpace(U, R, inverse_lengths, scale, independent.sum(dtype=jnp.int32), independent)


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
    """`QR().factor(C)` of a known matrix."""
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
