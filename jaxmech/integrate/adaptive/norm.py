"""The error of a step in the metric of the mass matrix.

It is the norm of the whole difference of the two methods. Its part along the constraints alone is a
worse measure: with few degrees of freedom it occasionally passes through zero, so that steps are
accepted that are too long (docs/decisions.md).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.integrate.adaptive.method import Tolerance
from jaxmech.integrate.scheme import Scheme
from jaxmech.linalg import times
from jaxmech.stabilization import metric_mass
from jaxmech.system import Params

_SMALL = 0.01  # weight of the second estimate of `DormandPrince8`


class ErrorNorm(eqx.Module):
    """The scale of the error of a step."""

    M: Float[Array, " n n"]  # mass matrix at the end of the step
    allowed_q: Float[Array, ""]
    allowed_v: Float[Array, ""]

    @staticmethod
    def of(
        scheme: Scheme, tolerance: Tolerance, start: tuple[Array, Array], end: tuple[Array, Array],
        t: Array, params: Params,
    ) -> "ErrorNorm":  # fmt: skip
        """Make the norm for a step from one state to another, which is not yet projected."""
        start, end, t, params = jax.lax.stop_gradient((start, end, t, params))
        # All of this is at the state at which the projection is computed, and shared with it.
        M = metric_mass(scheme.system, *end, t, params)
        allowed = [
            tolerance.atol + tolerance.rtol * jnp.maximum(_size(M, before), _size(M, after))
            for before, after in zip(start, end, strict=True)
        ]
        return ErrorNorm(M, *allowed)

    def error(self, in_q: Array, in_v: Array) -> tuple[Array, Array]:
        """The error in units of the tolerance, and by coordinate in q and v, shape (2, n).

        The arguments are one estimate, or two combined as in `DormandPrince8`: (E, n) each.
        """
        in_q, in_v = jax.lax.stop_gradient((in_q, in_v))
        errors = jnp.stack([in_q[0], in_v[0]])
        sizes = [self.measure(*estimate) for estimate in zip(in_q, in_v, strict=True)]
        if len(sizes) == 1:
            return jnp.sqrt(sizes[0]), errors
        first, second = sizes
        below = first + _SMALL * second
        error = jnp.where(below > 0, first / jnp.sqrt(jnp.where(below > 0, below, 1.0)), below)
        return error, errors

    def measure(self, in_q: Array, in_v: Array) -> Array:
        """The mean square of both, in units of the tolerance."""
        squares = _size(self.M, in_q) / self.allowed_q, _size(self.M, in_v) / self.allowed_v
        return (squares[0] ** 2 + squares[1] ** 2) / 2


def _size(M: Array, x: Array) -> Array:
    """The size sqrt(x^T M x / tr M)."""
    # Over the trace, so that neither the number of coordinates nor the unit of mass counts. Round-
    # off can make the square of a singular M slightly negative.
    return jnp.sqrt(jnp.maximum(x @ times(M, x), 0.0) / jnp.trace(M))
