"""Saddle-point systems of implicit steps, K x - B^T lambda = f and J x = g, with dependent rows.

K (n, n) need not be symmetric, but K + K^T is positive definite, so elimination needs no pivoting
(Golub and Van Loan, Matrix Computations, 4.3.2). B and J (m, n) are the constraint rows at both
ends of a step; the independent ones among them are given by the caller, the others are left out.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.linalg.products import diagonal, matvec, product


class LU(eqx.Module):
    """The factorization K = L U without pivoting, L with a unit diagonal.

    Attributes:
        columns: column j of L below the diagonal, shape (n - j - 1,).
        rows: row j of U to the right of the diagonal, shape (n - j - 1,).
        inverse_pivots: one over each diagonal element of U.
        regular: whether every pivot was positive beyond round-off; if not, bad pivots were replaced
            by 1 and the factors are meaningless.
    """

    columns: tuple[Array, ...]
    rows: tuple[Array, ...]
    inverse_pivots: tuple[Array, ...]
    regular: Bool[Array, ""]

    def solve(self, F: Float[Array, " n k"]) -> Float[Array, " n k"]:
        """Solve K X = F for the columns of a matrix."""
        halfway = []
        for column in self.columns:
            halfway.append(F[0])
            F = F[1:] - column[:, None] * F[None, 0]
        X = F
        steps = zip(self.rows, self.inverse_pivots, halfway, strict=True)
        for row, inverse, z in reversed(list(steps)):
            X = jnp.concatenate([((z - (row[:, None] * X).sum(0)) * inverse)[None], X])
        return X


def lu(K: Float[Array, " n n"]) -> LU:
    """Eliminate without pivoting, for matrices whose symmetric part is positive definite."""
    columns, rows, inverse_pivots, regular = [], [], [], jnp.asarray(True)
    # Round-off of the elimination: smaller pivots count as zero.
    threshold = 4 * K.shape[0] * jnp.finfo(K.dtype).eps * jnp.abs(diagonal(K))
    for smallest in threshold:
        singular = K[0, 0] <= smallest  # false for NaN, which is passed on to the result
        regular = regular & ~singular
        inverse_pivots.append(1 / jnp.where(singular, 1.0, K[0, 0]))
        columns.append(K[1:, 0] * inverse_pivots[-1])
        rows.append(K[0, 1:])
        K = K[1:, 1:] - columns[-1][:, None] * rows[-1][None]
    return LU(tuple(columns), tuple(rows), tuple(inverse_pivots), regular)


class SaddlePoint(eqx.Module):
    """The matrices of K x - B^T lambda = f and J x = g, and their elimination.

    Attributes:
        K: shape (n, n); with weights, K + B^T W J.
        B: shape (m, n).
        J: shape (m, n).
        independent: flags of the rows of B and J that count, shape (m,).
        weights: W of the rows, with which B^T W (J x - g) = 0 is added to the first equations,
            shape (m,); None if K is regular without.
        inner: factors of K.
        schur: factors of J K^-1 B^T, with rows of the identity where rows do not count.
    """

    K: Float[Array, " n n"]
    B: Float[Array, " m n"]
    J: Float[Array, " m n"]
    independent: Bool[Array, " m"]
    weights: Float[Array, " m"] | None
    inner: LU
    schur: LU

    @property
    def regular(self) -> Bool[Array, ""]:
        """Whether the factorization succeeded; if not, all results are meaningless."""
        return self.inner.regular & self.schur.regular

    def solve(
        self, f: Float[Array, " n"], g: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Solve for x and lambda; the multipliers of rows that do not count are zero."""
        weighted = 0.0 if self.weights is None else matvec(self.B.T, self.weights * g)
        return _solved(self, self.K, self.B, self.J, f + weighted, g)


def saddle_point(
    K: Float[Array, " n n"],
    B: Float[Array, " m n"],
    J: Float[Array, " m n"],
    independent: Bool[Array, " m"],
    weights: Float[Array, " m"] | None = None,
) -> SaddlePoint:
    """Factorize K and its Schur complement; with weights of the rows, K may be singular."""
    # The JVP below needs no derivatives of the factors, but that of its transpose does.
    if weights is not None:
        K = K + product((B * weights[:, None]).T, J)
    inner = lu(K)
    complement = product(J, inner.solve(B.T))
    both_independent = independent[:, None] & independent[None, :]
    complement = jnp.where(both_independent, complement, jnp.eye(len(independent), dtype=K.dtype))
    return SaddlePoint(K, B, J, independent, weights, inner, lu(complement))


@jax.custom_jvp
def _solved(
    factors: SaddlePoint, K: Array, B: Array, J: Array, f: Array, g: Array
) -> tuple[Array, Array]:
    inner, independent = factors.inner, factors.independent
    free = inner.solve(f[:, None])[:, 0]
    # Zero in rows that do not count, where the Schur complement is the identity: so are their
    # multipliers.
    missing = jnp.where(independent, g - matvec(factors.J, free), 0.0)
    multipliers = factors.schur.solve(missing[:, None])[:, 0]
    return free + inner.solve(matvec(factors.B.T, multipliers)[:, None])[:, 0], multipliers


@_solved.defjvp
def _solved_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """K x' - B^T lambda' = f' - K' x + B'^T lambda and J x' = g' - J' x, with the same factors."""
    factors, K, B, J, _, _ = primals
    _, dK, dB, dJ, df, dg = tangents
    x, multipliers = solution = _solved(*primals)
    force = df - matvec(dK, x) + matvec(dB.T, multipliers)
    return solution, _solved(factors, K, B, J, force, dg - matvec(dJ, x))
