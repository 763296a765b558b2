"""Subspaces from orthogonalized rows: column space, null space, and minimum-norm least squares."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.linalg.base import unit_rows
from jaxmech.linalg.products import matvec
from jaxmech.linalg.qr import QR


def column_space_projector(A: Float[Array, " m n"]) -> Float[Array, " m m"]:
    """The orthogonal projector A A^+ onto the column space of A, with the rank found by `QR`."""
    # The columns in terms of orthonormal rows are those of a triangle without its zero columns, so
    # none of them depends on the others, however different the units of the rows are.
    rows = QR().factor(A)
    lengths = jnp.where(
        rows.independent, 1 / jnp.where(rows.independent, rows.inverse_lengths, 1.0), 0.0
    )
    triangle = (rows.R + jnp.diag(lengths)) / jnp.where(rows.scale > 0, rows.scale, 1.0)[:, None]
    V = QR(tolerance=0.0).factor(triangle.T[::-1]).U
    return (V[:, :, None] * V[:, None, :]).sum(0)


def null_space(A: Float[Array, " m n"]) -> Float[Array, " n n"]:
    """Orthonormal rows N with A N^T = 0, padded with zero rows: the rank is unknown in tracing."""
    # Unit vectors are orthogonalized against the rows of A; those in the row space are dropped.
    m, n = A.shape
    return QR().factor(jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)])).U[m:]


def min_norm_solve(C: Float[Array, " n k"], r: Float[Array, " n"]) -> Float[Array, " k"]:
    """C^+ r, the minimum-norm x among those that bring C x nearest to r; C may have any rank.

    Columns are compared with their own length, so a column of mere round-off counts as nonzero.
    """
    rows = QR().factor(C.T)
    _, x = rows.min_norm_solve(matvec(C.T, r))
    # Once more for the residual, which removes the error of the normal equations (Bjorck 1987).
    x = x + rows.min_norm_solve(matvec(C.T, r - matvec(C, x)))[1]
    return matvec(column_space_projector(C.T), x)


def null_basis(
    A: Float[Array, " m n"], count: int
) -> tuple[Float[Array, " n count"], Bool[Array, ""]]:
    """Orthonormal columns Z with A Z = 0, for a null space whose dimension is known.

    Gram-Schmidt with pivoting is applied to the rows of A, scaled to unit length, for the n - count
    most independent ones, then to `count` unit vectors. Its derivative is that of one smooth basis.

    Args:
        A: matrix, shape (m, n).
        count: dimension of the null space, from 0 to n.

    Returns:
        Z, and whether A has rank n - count: the selected rows are independent, and the others lie
        in their span, both up to sqrt(eps).
    """
    n = A.shape[1]
    row_space = jnp.zeros((0, n), A.dtype)
    row_space, lengths, residual = _most_independent(unit_rows(A)[0], row_space, n - count)
    tolerance = jnp.finfo(A.dtype).eps ** 0.5
    is_right = jnp.all(lengths > tolerance) & (residual <= tolerance)
    basis, _, _ = _most_independent(jnp.eye(n, dtype=A.dtype), row_space, count)
    return basis[n - count :].T, is_right


def _most_independent(rows: Array, basis: Array, count: int) -> tuple[Array, Array, Array]:
    """Append `count` orthonormal vectors to `basis`; also their lengths, and the largest rest."""
    if count == 0 or rows.shape[0] == 0:
        filled = jnp.concatenate([basis, jnp.zeros((count, rows.shape[1]), rows.dtype)])
        residual = jnp.sqrt(jnp.max((rows * rows).sum(1), initial=0.0))
        return filled, jnp.zeros((count,), rows.dtype), residual
    first = basis.shape[0]
    extended = jnp.concatenate([basis, jnp.zeros((count, rows.shape[1]), rows.dtype)])

    def orthogonal_to(x: Array, U: Array) -> Array:
        """The component of every row of x orthogonal to the rows of U."""
        along = (x[:, None, :] * U[None, :, :]).sum(2)
        return x - (along[:, :, None] * U[None, :, :]).sum(1)

    def take(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        residual, U = carry
        # The choice of a row has no derivative; the row itself has one.
        size = jax.lax.stop_gradient((residual * residual).sum(1))
        chosen = (jnp.arange(len(rows)) == jnp.argmax(size)).astype(rows.dtype)
        # `residual` is updated once per vector; a second time removes the round-off along U.
        u = orthogonal_to(matvec(residual.T, chosen)[None], U)[0]
        squared = (u * u).sum()
        length = jnp.sqrt(jnp.where(squared > 0, squared, 1.0)) * (squared > 0)
        u = u / jnp.where(squared > 0, length, 1.0)
        return (orthogonal_to(residual, u[None]), U.at[k].set(u)), length

    start = orthogonal_to(orthogonal_to(rows, extended), extended)
    (residual_rows, U), lengths = jax.lax.scan(take, (start, extended), first + jnp.arange(count))
    return U, lengths, jnp.sqrt(jnp.max((residual_rows * residual_rows).sum(1), initial=0.0))
