"""`SVD`: the pseudo-inverse from singular values, used as reference."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.linalg.base import AbstractRowSpace, AbstractSolver, unit_rows
from jaxmech.linalg.products import matvec


class SVDRowSpace(AbstractRowSpace):
    """The pseudo-inverse of a matrix C.

    Attributes:
        inverse: pseudo-inverse of the scaled rows, shape (n, m).
        scale: factors by which the rows of C were multiplied, shape (m,).
        rank: number of singular values kept.
        independent: flags of the singular values that were kept, largest first, shape (m,).
    """

    inverse: Float[Array, " n m"]
    scale: Float[Array, " m"]
    rank: Int[Array, ""]
    independent: Bool[Array, " m"]

    def min_norm_solve(
        self, r: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Return y = C^+ r and the smallest lambda in terms of the scaled rows."""
        y = matvec(self.inverse, r * self.scale)
        return y, matvec(self.inverse.T, y) * self.scale


class SVD(AbstractSolver):
    """Singular values of C: the slowest, and the reference for `LDL` and `QR`.

    Its derivative is that of the pseudo-inverse (Golub and Pereyra 1973), exact at constant rank.

    Args:
        tolerance: singular values below this times the largest are zero; by default eps^(2/3).
    """

    def factor(
        self, C: Float[Array, " m n"], independent: Bool[Array, " m"] | None = None
    ) -> SVDRowSpace:
        return _inverted(C, self.thresholds(C, independent))


@jax.jit  # traced once for all tolerances
def _inverted(C: Array, thresholds: Array) -> SVDRowSpace:
    C, scale = unit_rows(C)
    if C.shape[0] == 0:
        return SVDRowSpace(C.T, scale, jnp.zeros((), jnp.int32), scale > 0)
    inverse, independent = _pseudo_inverse(C, thresholds)
    return SVDRowSpace(inverse, scale, independent.sum(dtype=jnp.int32), independent)


@jax.custom_jvp
def _pseudo_inverse(C: Array, thresholds: Array) -> tuple[Array, Array]:
    """C^+ from the singular values above the thresholds, (n, m), and flags of them, (m,)."""
    U, sizes, Vt = jnp.linalg.svd(C, full_matrices=False)
    # A threshold of 2 drops a singular value, since none exceeds the largest: as many values count
    # as for the C nearby.
    keep = sizes > thresholds[: sizes.size] * sizes[0]
    inverses = jnp.where(keep, 1 / jnp.where(keep, sizes, 1.0), 0.0)
    beyond = jnp.zeros(C.shape[0] - sizes.size, bool)
    return (Vt.T * inverses[None, :]) @ U.T, jnp.concatenate([keep, beyond])


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The derivative of Golub and Pereyra 1973, equation (4.12)."""
    C, dC = primals[0], tangents[0]
    P, independent = _pseudo_inverse(*primals)
    beyond_rows, beyond_columns = dC.T - dC.T @ (C @ P), dC.T - (P @ C) @ dC.T
    dP = -P @ dC @ P + P @ P.T @ beyond_rows + beyond_columns @ (P.T @ P)
    return (P, independent), (dP, np.zeros(independent.shape, jax.dtypes.float0))
