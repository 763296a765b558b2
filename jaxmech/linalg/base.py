"""The interface of a solver of the constrained equations.

Given C (m, n), possibly without full row rank, and r in its range, it computes the smallest y with
C y = r, which is C^+ r, and some lambda with C^T lambda = y. Rows are first scaled to unit length,
so that the choice of dependent rows is independent of the units of a constraint.
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
    """A factorized matrix C.

    Attributes:
        rank: number of rows kept as independent, a scalar.
        independent: flags of the rows that were kept, shape (m,); for `SVD` of the singular values.
    """

    rank: eqx.AbstractVar[Int[Array, ""]]
    independent: eqx.AbstractVar[Bool[Array, " m"]]

    @abc.abstractmethod
    def min_norm_solve(
        self, r: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """Return y = C^+ r and some lambda with C^T lambda = y."""


@dataclass(frozen=True)
class AbstractSolver(abc.ABC):
    """A factorization of C, and the relative size below which a row counts as dependent.

    Args:
        tolerance: by default eps^(2/3), about 4e-11 in float64. For LDL it bounds a squared length,
            for QR and SVD a length.
    """

    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise ValueError(
                f"Argument `tolerance` must be in [0, 1), but is {self.tolerance}; "
                "leave it out for eps^(2/3)."
            )

    def threshold(self, dtype: jnp.dtype) -> float:
        """The tolerance for numbers of this type."""
        if self.tolerance is not None:
            return self.tolerance
        # Well above the round-off left of a dependent row. LDL compares squared lengths, where this
        # is a length of eps^(1/3); docs/decisions/laws.md discusses lower values.
        return float(jnp.finfo(dtype).eps) ** (2 / 3)

    def thresholds(self, C: Float[Array, " m n"], independent: Bool[Array, " m"] | None) -> Array:
        """The tolerance for each row (m,), so large that rows not in `independent` are dropped."""
        tolerance = jnp.full(C.shape[:1], self.threshold(C.dtype), C.dtype)
        return (
            tolerance if independent is None else jnp.where(independent, tolerance, 2.0)
        )  # rows have length 1

    @abc.abstractmethod
    def factor(
        self, C: Float[Array, " m n"], independent: Bool[Array, " m"] | None = None
    ) -> AbstractRowSpace:
        """Factorize C, dropping rows that depend on others or are not in `independent`."""


def unit_rows(C: Float[Array, " m n"]) -> tuple[Float[Array, " m n"], Float[Array, " m"]]:
    """C with its rows scaled to unit length, and the scales; a zero row stays zero."""
    squared = (C * C).sum(1)
    nonzero = squared > 0
    scale = jnp.where(nonzero, 1 / jnp.sqrt(jnp.where(nonzero, squared, 1.0)), 0.0)
    return C * scale[:, None], scale


def unit(C: Rows) -> tuple[Rows, Rows]:
    """Scale the rows on the host, and return their lengths in place of the scales."""
    lengths = np.linalg.norm(C, axis=1)
    return C / np.where(lengths > 0, lengths, 1.0)[:, None], lengths
