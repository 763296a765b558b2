"""`QR`: the pseudo-inverse from an orthogonalization of the rows of C."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.linalg.products import times
from jaxmech.linalg.solver import AbstractRowSpace, AbstractSolver, unit_rows


class QRRowSpace(AbstractRowSpace):
    """C = R U with orthonormal rows in U (zero where dropped) and lower triangular R.

    Attributes:
        U: orthonormal rows, shape (m, n).
        R: row j of R left of the diagonal, shape (j,).
        inverse_lengths: 1 / diagonal of R, zero where the row was dropped, shape (m,).
        scale: what the rows of C were multiplied by, shape (m,).
        rank: number of rows kept.
    """

    U: Float[Array, " m n"]
    R: tuple[Array, ...]
    inverse_lengths: tuple[Array, ...]
    scale: Float[Array, " m"]
    rank: Int[Array, ""]

    def smallest(self, r: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """y = C^+ r and a lambda that is zero on the dropped rows."""
        r = r * self.scale
        z = r[:0]
        for j, (row, inverse) in enumerate(zip(self.R, self.inverse_lengths, strict=True)):
            z = jnp.concatenate([z, ((r[j] - (row * z).sum()) * inverse)[None]])
        rest, multipliers = z, z[:0]
        for row, inverse in zip(reversed(self.R), reversed(self.inverse_lengths), strict=True):
            last = rest[-1] * inverse
            multipliers = jnp.concatenate([last[None], multipliers])
            rest = rest[:-1] - row * last
        return times(self.U.T, z), multipliers * self.scale


class QR(AbstractSolver):
    """Gram-Schmidt on the rows of C, done twice: the more accurate choice near a singular pose.

    It never squares the condition number as C C^T does. A row that keeps less than `tolerance` of
    its length is dropped as dependent on the rows before it.

    Args:
        tolerance: relative length below which a row is dependent; by default eps^(2/3).

    Example:
        >>> import jax.numpy as jnp
        >>> C = jnp.array([[1.0, 0.0, 1.0], [2.0, 0.0, 2.0]])
        >>> y, multipliers = QR().factor(C).smallest(jnp.array([2.0, 4.0]))
        >>> print(y.round(12), multipliers.round(12), QR().factor(C).rank)
        [1. 0. 1.] [1. 0.] 1
    """

    def factor(self, C: Float[Array, " m n"]) -> QRRowSpace:
        """Orthogonalize the rows of C after scaling them."""
        C, scale = unit_rows(C)
        threshold = self.threshold(C.dtype)
        U, R, inverse_lengths = C[:0], [], []
        rank = jnp.zeros((), jnp.int32)
        for row in C:
            along = times(U, row)
            rest = row - times(U.T, along)
            again = times(U, rest)
            rest = rest - times(U.T, again)
            squared = (rest * rest).sum()
            keep = squared > threshold**2
            rank = rank + keep
            inverse = jnp.where(keep, 1 / jnp.sqrt(jnp.where(keep, squared, 1.0)), 0.0)
            U = jnp.concatenate([U, (rest * inverse)[None]])
            R.append(along + again)
            inverse_lengths.append(inverse)
        return QRRowSpace(U, tuple(R), tuple(inverse_lengths), scale, rank)
