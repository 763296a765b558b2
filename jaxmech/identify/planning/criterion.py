"""What a designed experiment should make small.

C is the covariance of the fitted numbers, each relative to its value (Pukelsheim, "Optimal design
of experiments", 2006, chapter 6).
"""

from abc import abstractmethod
from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractCriterion:
    """Base of the criteria of a design."""

    @abstractmethod
    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """What is minimized, for the information H, the inverse of C."""


@dataclass(frozen=True)
class DOptimal(AbstractCriterion):
    """The volume of the region of confidence: the determinant of C.

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
    """The mean square of the relative errors: the trace of C, which the largest of them dominates.

    Example:
        >>> print(AOptimal().loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        0.1116
    """

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the trace of C."""
        return 0.5 * jnp.log(jnp.trace(jnp.linalg.inv(H)))


@dataclass(frozen=True)
class COptimal(AbstractCriterion):
    """The variance of one combination of the numbers: c C c, with its derivatives c by them.

    For what a fit leaves undetermined, or for a quantity that follows from the parameters. In
    `design` the numbers are relative to their values: c is for a change of each by 100 %.

    Attributes:
        direction: c, p numbers.

    Example:
        >>> print(COptimal((0.0, 1.0)).loss(jnp.diag(jnp.array([1.0, 4.0]))).round(4))
        -0.6931
    """

    direction: tuple[float, ...]

    def loss(self, H: Float[Array, "p p"]) -> Float[Array, ""]:
        """Half the logarithm of the variance."""
        c = jnp.asarray(self.direction, H.dtype)
        if c.shape != H.shape[:1]:
            raise ValueError(
                f"Argument `direction` must hold {len(H)} numbers, one for each that is to be "
                f"known, but has shape {c.shape}."
            )
        return 0.5 * jnp.log(c @ jnp.linalg.solve(H, c))
