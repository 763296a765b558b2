"""`SVD`: the pseudo-inverse from singular values, the audited reference."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.linalg.products import times
from jaxmech.linalg.solver import AbstractRowSpace, AbstractSolver, unit_rows


class SVDRowSpace(AbstractRowSpace):
    """C with its pseudo-inverse.

    Attributes:
        inverse: pseudo-inverse of the scaled rows, shape (n, m).
        scale: what the rows of C were multiplied by, shape (m,).
        rank: number of singular values kept.
    """

    inverse: Float[Array, " n m"]
    scale: Float[Array, " m"]
    rank: Int[Array, ""]

    def smallest(self, r: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """y = C^+ r and the smallest lambda in terms of the scaled rows."""
        y = times(self.inverse, r * self.scale)
        return y, times(self.inverse.T, y) * self.scale


class SVD(AbstractSolver):
    """Singular values of C: slowest, and the reference that `LDL` and `QR` are held against.

    Its derivative is that of `jnp.linalg.pinv` (Golub and Pereyra 1973), right at constant rank.

    Args:
        tolerance: singular values below this times the largest are zero; by default eps^(2/3).

    Example:
        >>> import jax.numpy as jnp
        >>> C = jnp.array([[1.0, 0.0, 1.0], [2.0, 0.0, 2.0]])
        >>> y, multipliers = SVD().factor(C).smallest(jnp.array([2.0, 4.0]))
        >>> print(y.round(12), multipliers.round(12), SVD().factor(C).rank)
        [1. 0. 1.] [0.5  0.25] 1
    """

    def factor(self, C: Float[Array, " m n"]) -> SVDRowSpace:
        """Pseudo-inverse of C after scaling its rows."""
        C, scale = unit_rows(C)
        threshold = self.threshold(C.dtype)
        if C.shape[0] == 0:
            return SVDRowSpace(C.T, scale, jnp.zeros((), jnp.int32))
        inverse = jnp.linalg.pinv(C, rtol=threshold)
        rank = jnp.round((C * inverse.T).sum())  # the trace of the projector C C^+
        return SVDRowSpace(inverse, scale, rank.astype(jnp.int32))
