"""Cholesky factorization M = L L^T of a small matrix, column by column, the last one first.

L is upper triangular. In the coordinates of a tree of bodies, those before others first,
elimination from the last one fills no zeros of M (Featherstone, "Efficient factorization of the
joint-space inertia matrix for branched kinematic trees", 2005), and the compiler folds the zeros.

Written as operations on shrinking columns, which become native code for a batch; a batched
LAPACK call would factorize the matrices one after another.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxmech.linalg.products import diagonal, outer, scaled, split_corner, split_first, with_first


class Cholesky(eqx.Module):
    """The Cholesky factorization M = L L^T.

    Attributes:
        columns: the columns of L above the diagonal, the last one first and from its diagonal up.
        inverse_pivots: one over each diagonal element of L, the last one first; multiplying is
            faster than dividing.
        definite: whether every pivot was positive beyond round-off; if not, bad pivots were
            replaced by 1 and the factor is meaningless.
    """

    columns: tuple[Array, ...]
    inverse_pivots: tuple[Array, ...]
    definite: Bool[Array, ""]

    def lower(self, B: Float[Array, " n *k"]) -> Float[Array, " n *k"]:
        """Solve L X = B for a vector or for the columns of a matrix."""
        rows, B = [], lax.rev(B, (0,))
        for column, inverse in zip(self.columns, self.inverse_pivots, strict=True):
            first, remaining = split_first(B)
            rows.append(scaled(first, inverse))
            B = lax.sub(remaining, outer(column, rows[-1]))
        return lax.concatenate(rows[::-1], 0)

    def upper(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solve L^T x = y for a vector."""
        x, last_first = y[:0], jnp.unstack(y)[::-1]
        numbers = zip(self.columns, self.inverse_pivots, last_first, strict=True)
        for column, inverse, number in reversed(list(numbers)):
            x = with_first(lax.mul(lax.sub(number, lax.mul(column, x).sum()), inverse), x)
        return lax.rev(x, (0,))

    def transposed(self) -> Float[Array, " n n"]:
        """L^T, lower triangular."""
        rows = [
            jnp.concatenate([column[::-1], (1 / inverse)[None], jnp.zeros(k, column.dtype)])
            for k, (column, inverse) in enumerate(
                zip(self.columns, self.inverse_pivots, strict=True)
            )
        ]
        return jnp.stack(rows[::-1])


@jax.jit
def cholesky(M: Float[Array, " n n"]) -> Cholesky:
    """Factorize a symmetric matrix, and flag instead of NaN one that is not positive definite."""
    columns, inverse_pivots = [], []
    definite, unit = jnp.asarray(True), jnp.ones((), M.dtype)
    # Round-off of the elimination: smaller pivots count as zero.
    M = lax.rev(M, (0, 1))
    threshold = 4 * M.shape[0] * jnp.finfo(M.dtype).eps * jnp.abs(diagonal(M))
    for smallest in jnp.unstack(threshold):
        pivot, column, remaining = split_corner(M)
        singular = lax.le(pivot, smallest)  # false for NaN, which is passed on to the result
        definite = definite & ~singular
        inverse_pivots.append(lax.div(unit, lax.sqrt(lax.select(singular, unit, pivot))))
        columns.append(scaled(column, inverse_pivots[-1]))
        M = lax.sub(remaining, outer(columns[-1], lax.expand_dims(columns[-1], (0,))))
    return Cholesky(tuple(columns), tuple(inverse_pivots), definite)
