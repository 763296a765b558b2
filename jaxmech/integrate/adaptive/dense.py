"""States within a step: Hermite interpolation between its ends, and the projection."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_Basis = Float[np.ndarray, "places 3 powers"]


@cache
def hermite(places: tuple[float, ...]) -> Any:
    """Polynomials with value, slope and curvature one at a place, and zero elsewhere.

    Returns:
        Coefficients of rising powers, shape (places, 3, 3 places).
    """
    degree = 3 * len(places)
    rows = []
    for derivative in range(3):
        for x in places:
            powers = np.polynomial.polynomial.polyder(np.eye(degree), derivative)
            rows.append(np.polynomial.polynomial.polyval(x, powers))
    coefficients = np.linalg.inv(np.array(rows)).T
    exact = np.round(coefficients * 2) / 2  # they are whole or half numbers for halves of a step
    return exact.reshape(3, len(places), degree).transpose(1, 0, 2)


def interpolated(
    places: tuple[float, ...], states: Any, h: Array, at: Array
) -> tuple[Array, Array]:
    """q and v at the fraction `at` of a step, from (q, v, qdd) at some fractions of it.

    Two places have an error of order h^6 in q and h^5 in v; three have h^9 and h^8.
    """
    basis = hermite(places)
    slopes = np.polynomial.polynomial.polyder(basis, axis=-1)
    values, rates = _powers(basis, at), _powers(slopes, at)
    first = states[0][0]
    # The polynomials of the values add up to one: differences keep the digits of a short step.
    q, v = first, jnp.zeros_like(first)
    for k, (position, speed, acceleration) in enumerate(states):
        columns = position - first, h * speed, h * h * acceleration
        for derivative, column in enumerate(columns):
            if k or derivative:
                q = q + values[k, derivative] * column
                v = v + rates[k, derivative] * column
    return q, v / h


def _powers(coefficients: np.ndarray, at: Array) -> Array:
    """Evaluate polynomials."""
    found = jnp.zeros(coefficients.shape[:-1], at.dtype)
    for power in range(coefficients.shape[-1])[::-1]:
        found = found * at + jnp.asarray(coefficients[..., power], at.dtype)
    return found
