"""Elimination of a symmetric matrix of small blocks, round by round (`order`).

Arrays of blocks have the number of the block as their last axis, (b, b, k): operations on all
blocks of a round then are loops over long rows. With S = [[D, E], [E^T, R]] and D the pivots of a
round, which have no blocks between them,

    G = D^-1,   U = G E,   R - E^T U is the matrix of the next round,

and S x = r is solved by r_R - U^T r_D on the way down and x_D = G r_D - U x_R on the way up.
Pivots of dependent rows are dropped as in `linalg/ldl.py`: their row and column of G are zero.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.sparse.order import EliminationOrder, gathered, with_zero


def product(X: Array, Y: Array) -> Array:
    """The products of blocks (a, b, k) and (b, c, k)."""
    total = X[:, 0, None] * Y[0, None]
    for j in range(1, X.shape[1]):
        total = total + X[:, j, None] * Y[j, None]
    return total


def transposed(X: Array) -> Array:
    """The transposed blocks, (b, c, k) to (c, b, k)."""
    return jnp.swapaxes(X, 0, 1)


def applied(X: Array, y: Array) -> Array:
    """The products of blocks (a, b, k) and vectors (b, k)."""
    total = X[:, 0] * y[0, None]
    for j in range(1, X.shape[1]):
        total = total + X[:, j] * y[j, None]
    return total


def inverse(
    S: Float[Array, "b b k"], least: Float[Array, "b k"]
) -> tuple[Float[Array, "b b k"], Bool[Array, "b k"]]:
    """Inverses of symmetric blocks on the rows whose pivots exceed `least`, zero on the others.

    Gauss-Jordan elimination in place, without exchanges.

    Example:
        >>> S = jnp.array([[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 2.0]])[..., None]
        >>> G, independent = inverse(S, jnp.full((3, 1), 1e-9))
        >>> print(jnp.diagonal(G[..., 0]), independent[:, 0])
        [0.25 0.   0.5 ] [ True False  True]
    """
    flags = []
    for j in range(S.shape[0]):
        is_pivot = np.arange(S.shape[0]) == j
        is_row, is_column = is_pivot[:, None, None], is_pivot[None, :, None]
        keep = S[j, j] > least[j]
        pivot = jnp.where(keep, 1 / jnp.where(keep, S[j, j], 1.0), 0.0)
        pivot = pivot[None, None]
        column, row = S[:, j, None], pivot * S[None, j]
        complement = jnp.where(is_column, -pivot * column, S - column * row)
        S = jnp.where(is_row, jnp.where(is_column, pivot, row), complement)
        S = jax.lax.optimization_barrier(S)  # else XLA computes it again for each of its uses
        flags.append(keep)
    return S, jnp.stack(flags)


class Factor(eqx.Module):
    """A factorized matrix of m blocks.

    Attributes:
        order: the phases of the elimination.
        G: inverses of the pivots of each phase, (R, b, b, P).
        U: their products with the blocks beside them, (R, b, b, Q).
        independent: flags of the rows that were kept, (b, m).
    """

    order: EliminationOrder = eqx.field(static=True)
    G: tuple[Array, ...]
    U: tuple[Array, ...]
    independent: Bool[Array, "b m"]

    def solve(self, r: Float[Array, "b m"]) -> Float[Array, "b m"]:
        """The x with S x = r, zero in the rows that were dropped."""
        halfway = []
        for phase, G, U in zip(self.order.phases, self.G, self.U, strict=True):
            r, z = jax.lax.scan(_down, r[:, phase.blocks], (phase.rounds, G, U))
            halfway.append(z)
        x = jnp.zeros_like(r)
        for phase, U, z in zip(self.order.phases[::-1], self.U[::-1], halfway[::-1], strict=True):
            x, _ = jax.lax.scan(_up, x, (phase.rounds, U, z), reverse=True)
            x = with_zero(x)[:, phase.later]
        return x


def _down(r: Array, factors: Any) -> tuple[Array, Array]:
    """Take one round from r; also its part of the solution so far."""
    places, G, U = factors
    pivots = with_zero(r)[:, places["pivots"]]
    change = applied(transposed(U), with_zero(pivots)[:, places["pivot"]])
    return r - gathered(change, places["at_blocks"]), applied(G, pivots)


def _up(x: Array, factors: Any) -> tuple[Array, None]:
    """Add the solution of one round to x."""
    places, U, z = factors
    z = z - gathered(applied(U, with_zero(x)[:, places["end"]]), places["at_pivots"])
    place = places["position"]
    return jnp.where((place < z.shape[1])[None], with_zero(z)[:, place], x), None


def factorized(
    order: EliminationOrder,
    D: Float[Array, "b b m"],
    E: Float[Array, "b b e"],
    least: Float[Array, "b m"],
) -> Factor:
    """Eliminate the blocks D on the diagonal and E = S_ab of the edges (a, b), a < b.

    Pivots up to `least` are dropped.
    """
    inverses, across, flags = [], [], []
    for phase in order.phases:
        D, least = D[..., phase.blocks], least[:, phase.blocks]
        E = with_zero(E)[..., phase.edges]

        def eliminate(carry: Any, places: Any, least: Array = least) -> tuple[Any, Any]:
            D, E = carry
            pivots = places["pivots"]
            G, independent = inverse(with_zero(D)[..., pivots], with_zero(least)[:, pivots])
            beside = with_zero(jnp.concatenate([E, transposed(E)], axis=-1))[..., places["beside"]]
            U = product(with_zero(G)[..., places["pivot"]], beside)
            U = jax.lax.optimization_barrier(U)
            D = D - gathered(product(transposed(beside), U), places["at_blocks"])
            first, second = (
                with_zero(beside)[..., places["first"]],
                with_zero(U)[..., places["second"]],
            )
            E = E - gathered(product(transposed(first), second), places["at_edges"])
            return (D, E), (G, U, independent)

        (D, E), (G, U, independent) = jax.lax.scan(eliminate, (D, E), phase.rounds)
        inverses.append(G)
        across.append(U)
        flags.append(jnp.swapaxes(independent, 0, 1).reshape(len(least), -1))
    independent = jnp.concatenate(flags, axis=1) if flags else jnp.zeros(least.shape, bool)
    return Factor(order, tuple(inverses), tuple(across), independent[:, order.places])
