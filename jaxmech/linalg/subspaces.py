"""By orthogonalized rows: column space, null space, and shortest least-squares solution."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.linalg.products import times
from jaxmech.linalg.qr import QR


def column_space_projector(A: Float[Array, " m n"]) -> Float[Array, " m m"]:
    """The orthogonal projector A A^+ onto the column space of A, of the rank that `QR` finds.

    Example:
        >>> import jax.numpy as jnp
        >>> print(column_space_projector(jnp.array([[1.0, 1.0], [1.0, 1.0]])).round(12))
        [[0.5 0.5]
         [0.5 0.5]]
    """
    # The columns in terms of orthonormal rows: what counts as zero is gone.
    columns = (QR().factor(A).U[:, None, :] * A[None, :, :]).sum(2)
    V = QR().factor(columns).U
    return (V[:, :, None] * V[:, None, :]).sum(0)


def null_space(A: Float[Array, " m n"]) -> Float[Array, " n n"]:
    """Orthonormal rows N with A N^T = 0, and zero rows: the rank is not known during tracing.

    Example:
        >>> import jax.numpy as jnp
        >>> print(null_space(jnp.array([[3.0, 4.0], [6.0, 8.0]])).round(12) + 0.0)
        [[ 0.8 -0.6]
         [ 0.   0. ]]
    """
    # Unit vectors are orthogonalized against the rows of A; those in the row space are dropped.
    m, n = A.shape
    return QR().factor(jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)])).U[m:]


def shortest(C: Float[Array, " n k"], r: Float[Array, " n"]) -> Float[Array, " k"]:
    """C^+ r: of all x that bring C x nearest to r the shortest; C may have any rank.

    Columns are compared with their own length, so a column of round-off alone counts as nonzero.

    Example:
        >>> import jax.numpy as jnp
        >>> print(shortest(jnp.array([[1.0, 2.0], [0.0, 0.0]]), jnp.array([5.0, 7.0])).round(12))
        [1. 2.]
    """
    rows = QR().factor(C.T)
    _, x = rows.smallest(times(C.T, r))
    # Once more for the residual, which removes the error of the normal equations (Bjorck 1987).
    x = x + rows.smallest(times(C.T, r - times(C, x)))[1]
    return times(column_space_projector(C.T), x)
