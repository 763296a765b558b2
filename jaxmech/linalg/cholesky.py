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
        columns: column j of L below the diagonal, shape (n - j - 1,).
        inverse_pivots: one over its diagonal element: solves then multiply, which is many times
            faster than dividing.
        definite: whether every pivot was positive beyond round-off; if not, the bad pivots were
            replaced by 1 and nothing computed from the factor means anything.
    """

    columns: tuple[Array, ...]
    inverse_pivots: tuple[Array, ...]
    definite: Bool[Array, ""]

    def lower(self, B: Float[Array, " n *k"]) -> Float[Array, " n *k"]:
        """L^-1 B for a vector or for the columns of a matrix."""
        rows = []
        for column, inverse in zip(self.columns, self.inverse_pivots, strict=True):
            rows.append(B[0] * inverse)
            B = B[1:] - _outer(column, rows[-1])
        return jnp.stack(rows)

    def upper(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """L^-T y for a vector."""
        x = y[:0]
        pairs = zip(self.columns, self.inverse_pivots, strict=True)
        for j, (column, inverse) in reversed(list(enumerate(pairs))):
            x = jnp.concatenate([((y[j] - (column * x).sum()) * inverse)[None], x])
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
    columns, inverse_pivots = [], []
    definite = jnp.asarray(True)
    threshold = 4 * M.shape[0] * jnp.finfo(M.dtype).eps * jnp.abs(jnp.diagonal(M))
    for smallest in threshold:
        singular = M[0, 0] <= smallest  # false for NaN, which then shows in the result
        definite = definite & ~singular
        inverse_pivots.append(1 / jnp.sqrt(jnp.where(singular, 1.0, M[0, 0])))
        columns.append(M[1:, 0] * inverse_pivots[-1])
        M = M[1:, 1:] - _outer(columns[-1], columns[-1])
    return Cholesky(tuple(columns), tuple(inverse_pivots), definite)


def _outer(column: Array, row: Array) -> Array:
    return column.reshape(-1, *(1,) * row.ndim) * row[None]
