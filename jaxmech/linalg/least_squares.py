"""Least squares with the shortest solution, without LAPACK."""

from jaxtyping import Array, Float

from jaxmech.linalg.products import times
from jaxmech.linalg.qr import QR, column_space_projector


def shortest(C: Float[Array, " n k"], r: Float[Array, " n"]) -> Float[Array, " k"]:
    """C^+ r: of all x that bring C x nearest to r the shortest.

    C^T is factorized by its rows, which gives some x with C^T C x = C^T r; the same once more for
    what is left takes away the error of the normal equations (Bjorck 1987). Columns are judged by
    their own length, so what should be zero has to be zero.

    Args:
        C: matrix, shape (n, k), of any rank.
        r: shape (n,).

    Example:
        >>> import jax.numpy as jnp
        >>> print(shortest(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([5.0, 7.0])).round(12))
        [1. 2.]
    """
    rows = QR().factor(C.T)
    _, x = rows.smallest(times(C.T, r))
    x = x + rows.smallest(times(C.T, r - times(C, x)))[1]
    return times(column_space_projector(C.T), x)
