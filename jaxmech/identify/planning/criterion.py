"""Criteria that a designed experiment minimizes.

C is the covariance of the fitted numbers, each relative to its value (Pukelsheim, "Optimal design
of experiments", 2006, chapter 6).
"""

from abc import abstractmethod
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.result import Fit


class AbstractCriterion:
    """Base of the criteria of a design."""

    @abstractmethod
    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """The loss to minimize, for the information H, the inverse of C."""


@dataclass(frozen=True)
class DOptimal(AbstractCriterion):
    """The volume of the confidence region: the determinant of C.

    The choice does not depend on the units of the parameters.

    Example:
        >>> print(DOptimal().loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        -0.6931
    """

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the determinant of C."""
        return -0.5 * jnp.linalg.slogdet(H)[1]


@dataclass(frozen=True)
class AOptimal(AbstractCriterion):
    """The mean square of the relative errors: the trace of C, dominated by the largest error.

    Example:
        >>> print(AOptimal().loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        0.1116
    """

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the trace of C."""
        return 0.5 * jnp.log(jnp.trace(jnp.linalg.inv(H)))


@dataclass(frozen=True)
class COptimal(AbstractCriterion):
    """The variance of a combination of the numbers: c C c, with its gradient c.

    Use it for combinations that a fit leaves undetermined (`COptimal.undetermined`), or for a
    quantity that depends on the parameters. In `design` the numbers are relative to their values: c
    is for a change of each by 100 %.

    Attributes:
        direction: c, p numbers, or several such rows, whose variances are added.

    Example:
        >>> print(COptimal((0.0, 1.0)).loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        -0.6931
    """

    direction: tuple[float, ...] | tuple[tuple[float, ...], ...]

    @classmethod
    def undetermined(cls, fit: Fit, *, relative: bool = True) -> "COptimal":
        """The directions that a fit leaves undetermined, as the criterion of the next experiment.

        They are the null space of its information and the directions that `identifiability` calls
        weak, orthogonal and of unit length in relative changes. Together with the recordings of the
        fit, an experiment under this criterion determines all numbers, if any experiment can.

        Args:
            fit: the fit; pass it as `known`, too.
            relative: whether numbers are relative to their values, as in `design`; False for
                `choose_measurements` with derivatives with respect to the numbers themselves.

        Raises:
            ValueError: if the fit determines all its numbers.

        Example:
            >>> from jaxmech.identify.storage import made_up
            >>> COptimal.undetermined(made_up())
            Traceback (most recent call last):
            ValueError: Argument `fit` must leave a number open, but all are determined; take
            `AOptimal()` or `DOptimal()` to know them better.
        """
        report = fit.identifiability
        scales = report.directions.scales
        null = report.directions.null_space / scales[:, None]
        changes = np.hstack([null, *(weak.changes[:, None] for weak in report.weak)])
        if not changes.shape[1]:
            raise ValueError(
                "Argument `fit` must leave a number open, but all are determined; take "
                "`AOptimal()` or `DOptimal()` to know them better."
            )
        directions = np.linalg.qr(changes)[0] / (1.0 if relative else scales[:, None])
        return cls(tuple(tuple(c) for c in directions.T.tolist()))

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the variance."""
        c = jnp.asarray(self.direction, H.dtype)
        if c.ndim not in (1, 2) or c.shape[-1] != len(H):
            raise ValueError(
                f"Argument `direction` must hold {len(H)} numbers, one for each that is to be "
                f"known, but has shape {c.shape}."
            )
        c = jnp.atleast_2d(c)
        return 0.5 * jnp.log(jnp.sum(c.T * jnp.linalg.solve(H, c.T)))
