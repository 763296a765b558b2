"""`LDL`: the pseudo-inverse from L D L^T = C C^T, dropping the pivots of dependent rows."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxmech.linalg.base import AbstractRowSpace, AbstractSolver
from jaxmech.linalg.products import (
    gram,
    matvec,
    outer,
    scaled,
    split_corner,
    split_first,
    with_first,
)


class LDLRowSpace(AbstractRowSpace):
    """C with the factorization of its Gram matrix C C^T.

    Attributes:
        C: the matrix, shape (m, n).
        columns: column j of the unit lower triangle below the diagonal, shape (m - j - 1,).
        inverse_pivots: 1 / D, zero where the row was dropped, shape (m,).
        rank: number of rows kept.
        independent: flags of the rows that were kept, shape (m,).
    """

    C: Float[Array, " m n"]
    columns: tuple[Array, ...]
    inverse_pivots: tuple[Array, ...]
    rank: Int[Array, ""]
    independent: Bool[Array, " m"]

    def min_norm_solve(
        self, r: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Return y = C^+ r and a lambda that is zero on the dropped rows."""
        # C^+ r = C^T lambda for every lambda with C C^T lambda = r, also the one with zeros for
        # dropped rows. Substitution through L, D and L^T.
        halfway = []
        for column, inverse in zip(self.columns, self.inverse_pivots, strict=True):
            first, remaining = split_first(r)
            halfway.append(lax.mul(lax.squeeze(first, (0,)), inverse))
            r = lax.sub(remaining, outer(column, first))
        multipliers = r
        for column, z in zip(reversed(self.columns), reversed(halfway), strict=True):
            last = lax.sub(z, lax.mul(column, multipliers).sum())
            multipliers = with_first(last, multipliers)
        return matvec(self.C.T, multipliers), multipliers


class LDL(AbstractSolver):
    """Elimination on C C^T, the default: fastest, exact for redundant consistent constraints.

    A pivot below `tolerance` belongs to a row that depends on the rows before it. The row is
    dropped, without a branch, and its multiplier is zero.

    Args:
        tolerance: squared relative length below which a row is dependent; by default eps^(2/3).
    """

    def factor(
        self, C: Float[Array, " m n"], independent: Bool[Array, " m"] | None = None
    ) -> LDLRowSpace:
        """Factorize C C^T; pivots are compared with the squared lengths of the rows of C."""
        return _eliminated(C, self.thresholds(C, independent))


@jax.jit  # traced once for all tolerances
def _eliminated(C: Array, thresholds: Array) -> LDLRowSpace:
    # Only the lower triangle is read, so native code does not compute the upper one.
    schur = gram(C)
    # Rows are not scaled to unit length as in `QR`: comparing a pivot with the squared length
    # of its row drops the same rows, and saves a fifth of the operations of an acceleration.
    smallest = thresholds * (C * C).sum(1)
    zero, unit = jnp.zeros((), C.dtype), jnp.ones((), C.dtype)
    rank = jnp.zeros((), jnp.int32)
    keeps, columns, inverse_pivots = [jnp.zeros(0, bool)], [], []
    for least in jnp.unstack(smallest):
        pivot, column, schur = split_corner(schur)
        keep = lax.gt(pivot, least)
        # Not by a sum at the end: XLA may compute all pivots once more for it, rounded otherwise.
        rank = rank + keep
        keeps.append(lax.expand_dims(keep, (0,)))
        # The inner `select` keeps the division finite, so that the compiler may fold its products
        # with zero: no NaN can originate here.
        inverse = lax.select(keep, lax.div(unit, lax.select(keep, pivot, unit)), zero)
        inverse_pivots.append(inverse)
        columns.append(scaled(column, inverse))
        schur = lax.sub(schur, outer(columns[-1], lax.expand_dims(column, (0,))))
    return LDLRowSpace(
        C=C,
        columns=tuple(columns),
        inverse_pivots=tuple(inverse_pivots),
        rank=rank,
        independent=lax.concatenate(keeps, 0),
    )
