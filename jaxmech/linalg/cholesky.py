"""Cholesky factorization M = L L^T of a small matrix, column by column.

Written as `jnp` operations on shrinking columns, which become native code for a batch; a batched
LAPACK call would factorize the matrices one after another.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.linalg.products import diagonal


class Cholesky(eqx.Module):
    """The Cholesky factorization M = L L^T.

    Attributes:
        columns: column j of L below the diagonal, shape (n - j - 1,).
        inverse_pivots: one over each diagonal element of L; multiplying is faster than dividing.
        definite: whether every pivot was positive beyond round-off; if not, bad pivots were
            replaced by 1 and the factor is meaningless.
    """

    columns: tuple[Array, ...]
    inverse_pivots: tuple[Array, ...]
    definite: Bool[Array, ""]

    def lower(self, B: Float[Array, " n *k"]) -> Float[Array, " n *k"]:
        """Solve L X = B for a vector or for the columns of a matrix."""
        rows = []
        for column, inverse in zip(self.columns, self.inverse_pivots, strict=True):
            rows.append(B[0] * inverse)
            B = B[1:] - _outer(column, rows[-1])
        return jnp.stack(rows)

    def upper(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solve L^T x = y for a vector."""
        x = y[:0]
        pairs = zip(self.columns, self.inverse_pivots, strict=True)
        for j, (column, inverse) in reversed(list(enumerate(pairs))):
            x = jnp.concatenate([((y[j] - (column * x).sum()) * inverse)[None], x])
        return x


@jax.jit
def cholesky(M: Float[Array, " n n"]) -> Cholesky:
    """Factorize a symmetric matrix, and flag instead of NaN one that is not positive definite.

    Example:
        >>> import jax.numpy as jnp
        >>> factor = cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
        >>> print(factor.upper(factor.lower(jnp.array([8.0, 12.0]))), factor.definite)
        [1. 2.] True
    """
    columns, inverse_pivots = [], []
    definite = jnp.asarray(True)
    # Round-off of the elimination: smaller pivots count as zero.
    threshold = 4 * M.shape[0] * jnp.finfo(M.dtype).eps * jnp.abs(diagonal(M))
    for smallest in threshold:
        singular = M[0, 0] <= smallest  # false for NaN, which is passed on to the result
        definite = definite & ~singular
        inverse_pivots.append(1 / jnp.sqrt(jnp.where(singular, 1.0, M[0, 0])))
        columns.append(M[1:, 0] * inverse_pivots[-1])
        M = M[1:, 1:] - _outer(columns[-1], columns[-1])
    return Cholesky(tuple(columns), tuple(inverse_pivots), definite)


def _outer(column: Array, row: Array) -> Array:
    return column.reshape(-1, *(1,) * row.ndim) * row[None]
