"""Linear complementarity problems: w = M z + r, with w >= 0, z >= 0 and w z = 0 in every row.

Lemke's algorithm (Cottle, Pang and Stone, The Linear Complementarity Problem, 1992, section 4.4)
moves along the edges of w = M z + r + z0, from a large z0 to z0 = 0, by pivots of one tableau:
the multipliers of contacts, which push and never pull, are exact but for round-off. An
infinitesimal change of r decides among equal ratios, so that no sequence of pivots repeats.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

_PIVOTS = 16  # for each row, at most; Lemke's algorithm usually needs one or two
_ROUNDING = 64.0  # units of round-off, relative to the largest entry of a column
_GOLDEN = 0.5 * (5**0.5 - 1)  # whose multiples modulo 1 are far apart


class Complementarity(NamedTuple):
    """The solution of a linear complementarity problem.

    Attributes:
        z: the solution, shape (n,), with as few positive entries as its pivots have left.
        is_basic: flags of the rows with w = 0 whose z may be positive, shape (n,); their columns
            are independent.
        solved: whether there is a solution; otherwise z is meaningless.
        others: the same flags of another solution, shape (n,); none without one.
    """

    z: Float[Array, " n"]
    is_basic: Bool[Array, " n"]
    solved: Bool[Array, ""]
    others: Bool[Array, " n"]


class _Path(NamedTuple):
    """The variables of a basis, in terms of the n + 1 others and two right-hand sides."""

    rows: Float[Array, " n w"]
    basis: Int[Array, " n"]  # the variable of each row: w from 0 on, z from n on, z0 is 2 n
    columns: Int[Array, " w"]  # the variable of each column, -1 of the right-hand sides
    enters: Int[Array, ""]
    pivots: Int[Array, ""]
    ends: Bool[Array, ""]
    solutions: Int[Array, ""]
    z: Float[Array, " n"]  # the basis of the first solution, and its values
    found: Int[Array, " n"]


@partial(jax.jit, static_argnames="goes_on")
def complementarity(
    M: Float[Array, "n n"], r: Float[Array, " n"], *, goes_on: bool = False
) -> Complementarity:
    """Solve a linear complementarity problem.

    For a positive semidefinite M, as that of multipliers of contacts without friction, a solution
    exists exactly if the inequalities can be satisfied, and is then found; w is unique.

    Args:
        M: the matrix, shape (n, n), of any symmetry.
        r: the constant terms, shape (n,).
        goes_on: whether to follow the edges beyond a solution, to z0 < 0. Where M is positive
            semidefinite they never return; otherwise they may, to another solution.

    Returns:
        A `Complementarity`.
    """
    n = r.size
    if n == 0:
        none = jnp.zeros(0, bool)
        return Complementarity(r, none, jnp.asarray(True), none)
    change = jnp.asarray(1 + np.arange(1, n + 1) * _GOLDEN % 1, r.dtype)
    is_trivial = (r >= 0).all()
    sign = jnp.where(is_trivial, -jnp.ones_like(r), 1.0)
    numbers = np.arange(n, dtype=np.int32)
    basis = jnp.asarray(numbers)
    # The row that is violated most is left by its w when z0 enters.
    least = jnp.where(r == r.min(), change, jnp.inf)
    least = least == least.min()
    start = _Path(
        jnp.concatenate([M, sign[:, None], r[:, None], change[:, None]], axis=1), basis,
        jnp.asarray(np.concatenate([numbers + n, np.array([2 * n, -1, -1], np.int32)])),
        jnp.asarray(2 * n, jnp.int32), is_trivial.astype(jnp.int32),
        is_trivial & (not goes_on), is_trivial.astype(jnp.int32), jnp.zeros_like(r), basis,
    )  # fmt: skip
    end = jax.lax.while_loop(
        lambda path: ~path.ends & (path.pivots < _PIVOTS * n),
        partial(_pivoted, least, 2 if goes_on else 1), start,
    )  # fmt: skip

    def holds(basis: Array) -> Array:
        return basis[:, None] == numbers[None] + n

    # A number that is not finite is not solved; where it is known to be, native code folds the
    # products with zero that follow.
    is_finite = jnp.isfinite(end.z)
    values = jnp.where(is_finite, jnp.maximum(end.z, 0.0), 0.0)
    first, solved = holds(end.found), (end.solutions > 0) & is_finite.all()
    z = jnp.where(first, values[:, None], 0.0).sum(0)
    others = holds(end.basis).any(0) & (end.solutions == 2) if goes_on else jnp.zeros(n, bool)
    return Complementarity(z, first.any(0), solved, others)


def _pivoted(least: Bool[Array, " n"], most: int, path: _Path) -> _Path:
    """The path after one pivot, to at `most` so many solutions; z0 is left by the `least` row."""
    rows, basis, columns, enters = path.rows, path.basis, path.columns, path.enters
    n = len(basis)
    is_column = columns == enters
    column = jnp.where(is_column[None], rows, 0.0).sum(1)
    eps = _ROUNDING * float(jnp.finfo(rows.dtype).eps)
    may_leave = column < -eps * jnp.abs(rows[:, : n + 1]).max()
    divisor = jnp.where(may_leave, -column, 1.0)
    tied = may_leave
    for values in (rows[:, n + 1], rows[:, n + 2]):
        ratios = jnp.where(tied, values / divisor, jnp.inf)
        tied &= ratios - eps * jnp.abs(values).max() / divisor <= ratios.min()
        # z0 leaves as soon as it can: then the problem is solved.
        is_z0 = tied & (basis == 2 * n)
        tied = jnp.where(is_z0.any(), is_z0, tied)
    leaves = jnp.where(path.pivots == 0, least, tied & (jnp.cumsum(tied) == 1))
    is_ray = ~leaves.any()

    # The variable that leaves takes the column of that which enters.
    pivot = jnp.where(leaves, column, 0.0).sum()
    row = jnp.where(leaves[:, None], rows, 0.0).sum(0)
    row = jnp.where(is_column, -1.0, row) / -jnp.where(is_ray, 1.0, pivot)
    others = jnp.where(leaves[:, None] | is_column[None], 0.0, rows)
    new_rows = others + jnp.where(leaves, 1.0, column)[:, None] * row[None]
    left = jnp.where(leaves, basis, 0).sum()
    new_basis = jnp.where(leaves, enters, basis)
    is_solved = ~is_ray & ~(new_basis == 2 * n).any()
    solutions = path.solutions + is_solved
    z, found = path.z, path.found
    if most > 1:
        # Beyond a solution z0 enters again, with the other sign.
        new_rows = jnp.where((is_column & is_solved)[None], -new_rows, new_rows)
        is_first = is_solved & (path.solutions == 0)
    else:
        is_first = is_solved
    z, found = jnp.where(is_first, new_rows[:, n + 1], z), jnp.where(is_first, new_basis, found)
    following = jnp.where(is_solved, 2 * n, jnp.where(left < n, left + n, left - n))
    return _Path(
        new_rows, new_basis, jnp.where(is_column, left, columns).astype(jnp.int32),
        following.astype(jnp.int32), path.pivots + 1, is_ray | (is_solved & (solutions >= most)),
        solutions.astype(jnp.int32), z, found,
    )  # fmt: skip
