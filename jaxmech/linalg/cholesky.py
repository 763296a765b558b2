"""Cholesky factorization M = L L^T of a small matrix, column by column.

Written as `jnp` operations on shrinking columns rather than as a library call: under `vmap` they
fuse into a few loops over the batch, where a batched LAPACK call works through it one by one.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Cholesky(eqx.Module):
    """M = L L^T.

    Attributes:
        columns: column j of L from the diagonal down, shape (n - j,).
        definite: whether every pivot was positive beyond round-off; if not, the bad pivots were
            replaced by 1 and nothing computed from the factor means anything.
    """

    columns: tuple[Array, ...]
    definite: Bool[Array, ""]

    def lower(self, B: Float[Array, " n *k"]) -> Float[Array, " n *k"]:
        """L^-1 B for a vector or for the columns of a matrix."""
        rows = []
        for column in self.columns:
            rows.append(B[0] / column[0])
            B = B[1:] - _outer(column[1:], rows[-1])
        return jnp.stack(rows)

    def upper(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """L^-T y for a vector."""
        x = y[:0]
        for j in reversed(range(len(self.columns))):
            column = self.columns[j]
            x = jnp.concatenate([((y[j] - (column[1:] * x).sum()) / column[0])[None], x])
        return x


def cholesky(M: Float[Array, " n n"]) -> Cholesky:
    """Factorize a symmetric matrix, with a flag instead of NaN where it is not positive definite.

    Args:
        M: symmetric matrix, shape (n, n).

    Returns:
        The factor; a pivot counts as zero below 4 n eps times its diagonal element.

    Example:
        >>> import jax.numpy as jnp
        >>> factor = cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> print(factor.upper(factor.lower(jnp.array([8.0, 12.0]))), factor.definite)
        [1. 2.] True
    """
    columns = []
    definite = jnp.asarray(True)
    threshold = 4 * M.shape[0] * jnp.finfo(M.dtype).eps * jnp.abs(jnp.diagonal(M))
    for smallest in threshold:
        singular = M[0, 0] <= smallest  # false for NaN, which then shows in the result
        definite = definite & ~singular
        pivot = jnp.sqrt(jnp.where(singular, 1.0, M[0, 0]))
        columns.append(jnp.concatenate([pivot[None], M[1:, 0] / pivot]))
        M = M[1:, 1:] - _outer(columns[-1][1:], columns[-1][1:])
    return Cholesky(tuple(columns), definite)


def _outer(column: Array, row: Array) -> Array:
    return column.reshape(-1, *(1,) * row.ndim) * row[None]
