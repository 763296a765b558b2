"""What the three solvers of the smallest-solution problem have in common.

Given C (m, n), possibly without full row rank, and r in its range: the smallest y with C y = r,
which is C^+ r, and some lambda with C^T lambda = y. Rows are first scaled to unit length, so that
what counts as dependent does not hang on the units of a constraint.
"""

import abc
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray

Rows = NDArray[np.floating]  # (m, n), on the host


class AbstractRowSpace(eqx.Module):
    """A factorized C, ready for right-hand sides.

    Attributes:
        rank: number of rows kept as independent, a scalar.
        kept: which rows were kept, shape (m,); for `SVD` which singular values, largest first.
    """

    rank: eqx.AbstractVar[Int[Array, ""]]
    kept: eqx.AbstractVar[Bool[Array, " m"]]

    @abc.abstractmethod
    def smallest(self, r: Float[Array, " m"]) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """y = C^+ r and some lambda with C^T lambda = y."""


@dataclass(frozen=True)
class AbstractSolver(abc.ABC):
    """How C is factorized, and below which relative size a row counts as dependent.

    Args:
        tolerance: dependent below this; by default eps^(2/3), about 4e-11 in float64. For LDL it
            bounds a squared length, for QR and SVD a length.
    """

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise ValueError(
                f"Argument `tolerance` must be in [0, 1), but is {self.tolerance}; "
                "leave it out for eps^(2/3)."
            )

    def threshold(self, dtype: jnp.dtype) -> float:
        """The tolerance in use for numbers of this type."""
        if self.tolerance is not None:
            return self.tolerance
        return float(jnp.finfo(dtype).eps) ** (2 / 3)

    def thresholds(self, C: Float[Array, " m n"], kept: Bool[Array, " m"] | None) -> Array:
        """The tolerance for each row (m,), more than any row can have where none may be kept."""
        tolerance = jnp.full(C.shape[:1], self.threshold(C.dtype), C.dtype)
        return tolerance if kept is None else jnp.where(kept, tolerance, 2.0)

    @abc.abstractmethod
    def factor(
        self, C: Float[Array, " m n"], kept: Bool[Array, " m"] | None = None
    ) -> AbstractRowSpace:
        """Factorize C, dropping the rows that depend on others.

        Args:
            C: matrix, shape (m, n).
            kept: what may be kept, as `AbstractRowSpace.kept` told of a C nearby; by default all.
        """


def unit_rows(C: Float[Array, " m n"]) -> tuple[Float[Array, " m n"], Float[Array, " m"]]:
    """C with its rows scaled to unit length, and the scales; a zero row stays zero.

    Example:
        >>> import jax.numpy as jnp
        >>> print(unit_rows(jnp.array([[3.0, 4.0], [0.0, 0.0]]))[0])
        [[0.6 0.8]
         [0.  0. ]]
    """
    squared = (C * C).sum(1)
    nonzero = squared > 0
    scale = jnp.where(nonzero, 1 / jnp.sqrt(jnp.where(nonzero, squared, 1.0)), 0.0)
    return C * scale[:, None], scale


def unit(C: Rows) -> tuple[Rows, Rows]:
    """C with rows of unit length, and their lengths, on the host; a zero row stays zero.

    Example:
        >>> import numpy as np
        >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))[1]
        array([5., 0.])
    """
    lengths = np.linalg.norm(C, axis=1)
    return C / np.where(lengths > 0, lengths, 1.0)[:, None], lengths
