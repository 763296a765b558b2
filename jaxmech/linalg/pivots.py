"""Elimination with complete pivoting: the choice of dependent columns of a matrix.

Complete pivoting takes the largest remaining number of the matrix as the next pivot, which reveals
the rank and gives well-conditioned independent rows and columns. The choice is stored as one-hot
vectors, whose shapes do not depend on it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.linalg.base import unit_rows
from jaxmech.linalg.products import matvec, product


class Pivots(eqx.Module):
    """Pivots in the order of elimination; k is the smaller of m and n.

    Attributes:
        rows: a one in the row of each pivot, shape (k, m); zeros where no pivot was left.
        columns: a one in the column of each pivot, shape (k, n); zeros where no pivot was left.
        sizes: absolute values of the pivots, for rows of unit length, shape (k,).
    """

    rows: Float[Array, " k m"]
    columns: Float[Array, " k n"]
    sizes: Float[Array, " k"]

    @staticmethod
    def of(A: Float[Array, " m n"], tolerance: float | None = None) -> "Pivots":
        """The pivots of A with rows of unit length, down to a tolerance, by default eps^(1/3)."""
        m, n = A.shape
        count = min(m, n)
        if count == 0:
            return Pivots(*(jnp.zeros((0, *shape), A.dtype) for shape in ((m,), (n,), ())))
        least = float(jnp.finfo(A.dtype).eps) ** (1 / 3) if tolerance is None else tolerance

        def choose(residual: Array, _: None) -> tuple[Array, tuple[Array, Array, Array]]:
            # One-hot instead of an index: a computed index is a chain of selects in native code.
            largest = jnp.argmax(jnp.abs(residual).reshape(-1))
            is_pivot = (jnp.arange(m * n) == largest).reshape(m, n).astype(A.dtype)
            value = (residual * is_pivot).sum()
            keep = jnp.abs(value) > least
            row = jnp.where(keep, is_pivot.sum(1), 0.0)
            column = jnp.where(keep, is_pivot.sum(0), 0.0)
            pivot_row = matvec(residual.T, row) / jnp.where(keep, value, 1.0)
            residual = residual - matvec(residual, column)[:, None] * pivot_row[None, :]
            residual = residual * (1 - row)[:, None] * (1 - column)[None, :]
            return residual, (row, column, jnp.where(keep, jnp.abs(value), 0.0))

        # A choice has no derivative.
        start = jax.lax.stop_gradient(unit_rows(A)[0])
        return Pivots(*jax.lax.scan(choose, start, None, length=count)[1])

    @property
    def dependent(self) -> Float[Array, " n"]:
        """One for the columns with a pivot, zero for the independent ones."""
        return self.columns.sum(0)

    @property
    def rank(self) -> Int[Array, ""]:
        """The number of pivots."""
        return self.columns.sum().astype(jnp.int32)

    def inverse(self, A: Float[Array, " m n"]) -> Float[Array, " n m"]:
        """B such that x = B r solves A x = r with zeros in the independent components.

        Its columns are zero for rows without a pivot, and for rows whose pivot vanishes in this A.
        """
        return _inverse(self.rows, self.columns, A)


@jax.custom_jvp
def _inverse(rows: Array, columns: Array, A: Array) -> Array:
    """Gauss-Jordan elimination of [A, I] with the pivots in their order."""
    m, n = A.shape

    def eliminate(table: Array, pivot: tuple[Array, Array]) -> tuple[Array, Array]:
        row, column = pivot
        along, across = matvec(table.T, row), matvec(table[:, :n], column)
        value = (across * row).sum()
        # Where no pivot was left the row is zero, hence `value` too, and the table stays as it is.
        usable = value != 0
        along = along * jnp.where(usable, 1 / jnp.where(usable, value, 1.0), 0.0)
        # `- row` leaves the row of the pivot divided by the pivot, and subtracts its multiple from
        # all others.
        return table - (across - row)[:, None] * along[None, :], jnp.where(usable, row, 0.0)

    start = jnp.concatenate([A, jnp.eye(m, dtype=A.dtype)], axis=1)
    table, rows = jax.lax.scan(eliminate, start, (rows, columns))
    return product(product(columns.T, rows), table[:, n:])


@_inverse.defjvp
def _inverse_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """B' = -B A' B, as for any inverse: B is the inverse of the pivots' rows and columns."""
    B = _inverse(*primals)
    return B, -product(B, product(tangents[2], B))
