"""The directions that a matrix sends to zero, as orthonormal rows of a fixed shape."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.linalg.qr import QR


def null_space(A: Float[Array, " m n"]) -> Float[Array, " n n"]:
    """Orthonormal rows N with A N^T = 0, as many as there are directions; the others are zero.

    The unit vectors are orthogonalized behind the rows of A: those that lie in the row space are
    dropped, what is left of the others is the null space. A square shape, with zero rows, because
    the rank of A is not known while a program is being traced.

    Args:
        A: matrix, shape (m, n), of any rank.

    Example:
        >>> import jax.numpy as jnp
        >>> print(null_space(jnp.array([[3.0, 4.0], [6.0, 8.0]])).round(12) + 0.0)
        [[ 0.8 -0.6]
         [ 0.   0. ]]
    """
    m, n = A.shape
    return QR().factor(jnp.concatenate([A, jnp.eye(n, dtype=A.dtype)])).U[m:]
