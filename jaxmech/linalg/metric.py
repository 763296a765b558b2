"""A mass matrix with constraint rows, and the two linear solves of constrained mechanics.

With M = L L^T and C = A L^-T, the smallest x in the metric x^T M x with A x = r is

    x = L^-T C^+ r = M^-1 A^T lambda.

Kalaba et al. 1995 have C = A M^-1/2; any square root of M is possible, and this one is
differentiable for equal masses.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.linalg.base import AbstractRowSpace, AbstractSolver, unit_rows
from jaxmech.linalg.cholesky import Cholesky, cholesky
from jaxmech.linalg.products import diagonal, matvec


class Metric(eqx.Module):
    """The factorized pair (M, A).

    Attributes:
        M: mass matrix, shape (n, n).
        A: constraint rows, shape (m, n).
        mass: Cholesky factor of M.
        rows: factorized C = A L^-T.
    """

    M: Float[Array, " n n"]
    A: Float[Array, " m n"]
    mass: Cholesky
    rows: AbstractRowSpace

    @property
    def definite(self) -> Bool[Array, ""]:
        """Whether M was positive definite; if not, all results are meaningless."""
        return self.mass.definite

    @property
    def rank(self) -> Int[Array, ""]:
        """Number of independent rows of A."""
        return self.rows.rank

    @property
    def independent(self) -> Bool[Array, " m"]:
        """Flags of the rows of A that were taken as independent."""
        return self.rows.independent

    def solve(
        self, Q: Float[Array, " n"], b: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " m"]]:
        """M^-1 Q, and x and lambda with M x = Q + A^T lambda and A x = b."""
        return _solve(self.mass, self.rows, self.M, self.A, Q, b)

    def min_norm_solve(
        self, r: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """The x with A x = r and minimum x^T M x, and lambda with M x = A^T lambda."""
        _, x, multipliers = self.solve(jnp.zeros_like(self.M[0]), r)
        return x, multipliers


def _solution(
    mass: Cholesky, rows: AbstractRowSpace, A: Array, Q: Array, b: Array
) -> tuple[Array, Array, Array]:
    free = mass.upper(mass.lower(Q))
    y, multipliers = rows.min_norm_solve(b - matvec(A, free))
    return free, free + mass.upper(y), multipliers


@jax.custom_jvp
def _solved(
    mass: Cholesky, rows: AbstractRowSpace, M: Array, A: Array, Q: Array, b: Array
) -> tuple[Array, Array, Array]:
    return _solution(mass, rows, A, Q, b)


@_solved.defjvp
def _solved_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """M x' = Q' - M' x + A'^T lambda + A^T lambda' and A x' = b' - A' x, with the same factors."""
    # Nothing is differentiated through a factorization, whose derivative is singular for equal
    # values. A dropped row has no multiplier and stays dropped, which is exact at constant rank.
    mass, rows, _, A, Q, b = primals
    _, _, dM, dA, dQ, db = tangents
    free, x, multipliers = _solution(mass, rows, A, Q, b)
    force = dQ - matvec(dM, x) + matvec(dA.T, multipliers)
    _, dx, dmultipliers = _solution(mass, rows, A, force, db - matvec(dA, x))
    dfree = mass.upper(mass.lower(dQ - matvec(dM, free)))
    return (free, x, multipliers), (dfree, dx, dmultipliers)


_solve = jax.jit(_solved)  # traced once for all solves of the same shapes


def metric(
    M: Float[Array, " n n"],
    A: Float[Array, " m n"],
    solver: AbstractSolver,
    independent: Bool[Array, " m"] | None = None,
) -> Metric:
    """Factorize M and the rows A, only those in `independent` of which may count as independent."""
    # An array in any case, so that `with_rows` is traced once for both.
    independent = jnp.ones(A.shape[0], bool) if independent is None else independent
    return with_rows(M, cholesky(M), A, solver, independent)


@partial(jax.jit, static_argnames="solver")
def with_rows(
    M: Float[Array, " n n"],
    mass: Cholesky,
    A: Float[Array, " m n"],
    solver: AbstractSolver,
    independent: Bool[Array, " m"] | None = None,
) -> Metric:
    """Factorize the rows A, given the Cholesky factor of M."""
    return Metric(M, A, mass, solver.factor(mass.lower(A.T).T, independent))


def row_weights(M: Float[Array, " n n"], A: Float[Array, " m n"]) -> Float[Array, " m"]:
    """The diagonal of W that balances the terms of M + A^T W A: tr(M) / n over |row|^2."""
    return jnp.trace(M) / M.shape[0] * unit_rows(A)[1] ** 2


def coordinate_units(M: Float[Array, " n n"], A: Float[Array, " m n"]) -> Float[Array, " n"]:
    """The units of coordinates in which the diagonal of M is one; they have no derivative."""
    # A coordinate without mass is measured by the constraints on it.
    mass, tied = diagonal(M), (row_weights(M, A)[:, None] * A * A).sum(0)
    size = jnp.where(mass > 1e-8 * (mass + tied), mass, tied)
    return jax.lax.stop_gradient(1 / jnp.sqrt(jnp.where(size > 0, size, 1.0)))
