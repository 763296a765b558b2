"""Linear complementarity problems: w = M z + r, with w >= 0, z >= 0 and w z = 0 in every row.

Lemke's algorithm (Cottle, Pang and Stone, The Linear Complementarity Problem, 1992, section 4.4)
moves along the edges of w = M z + r + d z0, from a large z0 to z0 = 0, by pivots of one tableau:
the multipliers of contacts, which push and never pull, are exact but for round-off. Among equal
ratios the lexicographic rule chooses, so that no sequence of pivots repeats.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_PIVOTS = 16  # for each row, at most; Lemke's algorithm usually needs one or two
_ROUNDING = 64.0  # units of round-off, relative to the largest entry of a column


class Complementarity(NamedTuple):
    """The solution of a linear complementarity problem.

    Attributes:
        z: the solution, shape (n,), with as few positive entries as its pivots have left.
        is_basic: flags of the rows with w = 0 whose z may be positive, shape (n,); their columns
            are independent.
        solved: whether there is a solution; otherwise z is meaningless.
    """

    z: Float[Array, " n"]
    is_basic: Bool[Array, " n"]
    solved: Bool[Array, ""]


class _Tableau(NamedTuple):
    """Columns of w, z, z0 and the right-hand side, in terms of the variables of a basis."""

    rows: Float[Array, " n w"]
    basis: Int[Array, " n"]  # the variable of each row: w from 0 on, z from n on, z0 is 2 n
    enters: Int[Array, ""]
    pivots: Int[Array, ""]
    is_ray: Bool[Array, ""]


@jax.jit
def complementarity(M: Float[Array, "n n"], r: Float[Array, " n"]) -> Complementarity:
    """Solve a linear complementarity problem.

    For a positive semidefinite M, as that of multipliers of contacts without friction, a solution
    exists exactly if the inequalities can be satisfied, and is then found; w is unique.

    Args:
        M: the matrix, shape (n, n), of any symmetry.
        r: the constant terms, shape (n,).

    Returns:
        A `Complementarity`.
    """
    n = r.size
    if n == 0:
        return Complementarity(r, jnp.zeros(0, bool), jnp.asarray(True))
    eye = jnp.eye(n, dtype=r.dtype)
    rows = jnp.concatenate([eye, -M, -jnp.ones((n, 1), r.dtype), r[:, None]], axis=1)
    start = _Tableau(
        rows, jnp.arange(n, dtype=jnp.int32), jnp.asarray(2 * n, jnp.int32),
        jnp.zeros((), jnp.int32), jnp.asarray(False),
    )  # fmt: skip
    # The row that is violated most is left by its w when z0 enters.
    first = _pivoted(start, _first_of(r == r.min()))
    is_trivial = (r >= 0).all()

    def goes_on(tableau: _Tableau) -> Array:
        is_open = (tableau.basis == 2 * n).any() & ~tableau.is_ray
        return ~is_trivial & is_open & (tableau.pivots < _PIVOTS * n)

    end = jax.lax.while_loop(goes_on, _next, first)
    numbers = jnp.arange(n, 2 * n, dtype=jnp.int32)
    holds = (end.basis[:, None] == numbers[None]) & ~is_trivial
    z = jnp.where(holds, jnp.maximum(end.rows[:, -1:], 0.0), 0.0).sum(0)
    solved = is_trivial | ~(end.basis == 2 * n).any()
    return Complementarity(z, holds.any(0), solved)


def _next(tableau: _Tableau) -> _Tableau:
    n = len(tableau.basis)
    column = _column(tableau)
    eps = _ROUNDING * float(jnp.finfo(column.dtype).eps)
    may_leave = column > eps * jnp.abs(tableau.rows[:, :-1]).max()
    divisor = jnp.where(may_leave, column, 1.0)
    tied = may_leave
    # The right-hand side, then the inverse of the basis, which are the columns of w.
    for k in (2 * n + 1, *range(n)):
        ratios = jnp.where(tied, tableau.rows[:, k] / divisor, jnp.inf)
        rounding = eps * jnp.abs(tableau.rows[:, k]).max() / divisor
        tied &= ratios - rounding <= ratios.min()
        if k == 2 * n + 1:
            # z0 leaves as soon as it can: then the problem is solved.
            is_z0 = tied & (tableau.basis == 2 * n)
            tied = jnp.where(is_z0.any(), is_z0, tied)
    is_ray = ~may_leave.any()
    moved = _pivoted(tableau, _first_of(tied))
    stays = tableau._replace(is_ray=jnp.asarray(True))
    return jax.tree.map(lambda x, y: jnp.where(is_ray, x, y), stays, moved)


def _column(tableau: _Tableau) -> Float[Array, " n"]:
    is_column = jnp.arange(tableau.rows.shape[1]) == tableau.enters
    return jnp.where(is_column[None], tableau.rows, 0.0).sum(1)


def _first_of(flags: Bool[Array, " n"]) -> Bool[Array, " n"]:
    return flags & (jnp.cumsum(flags) == 1)


def _pivoted(tableau: _Tableau, leaves: Bool[Array, " n"]) -> _Tableau:
    """The tableau after a pivot in one row, and the complement of what left it enters next."""
    n, column = len(leaves), _column(tableau)
    pivot = jnp.where(leaves, column, 0.0).sum()
    row = jnp.where(leaves[:, None], tableau.rows, 0.0).sum(0) / jnp.where(pivot == 0, 1.0, pivot)
    rows = jnp.where(leaves[:, None], row[None], tableau.rows - column[:, None] * row[None])
    left = jnp.where(leaves, tableau.basis, 0).sum()
    basis = jnp.where(leaves, tableau.enters, tableau.basis)
    enters = jnp.where(left < n, left + n, left - n).astype(jnp.int32)
    return tableau._replace(rows=rows, basis=basis, enters=enters, pivots=tableau.pivots + 1)
