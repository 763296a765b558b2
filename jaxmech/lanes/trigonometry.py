"""Sine and cosine of the same argument as a pair of polynomials, for the CPU.

XLA's float64 sine and cosine on the CPU are calls of a scalar library function, which do not
vectorize. Here x is reduced by the nearest multiple of pi/2, held in three parts so that the
products with the multiple are exact (Cody and Waite 1980), and the minimax polynomials of Cephes
(Moshier 1989, `sin.c`) give both on [-pi/4, pi/4].
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float64

# pi/2 in three parts; the first two have 33 bits, so 20 bits times one of them is exact.
_PARTS = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SINE = (
    1.58962301576546568060e-10,
    -2.50507477628578072866e-8,
    2.75573136213857245213e-6,
    -1.98412698295895385996e-4,
    8.33333333332211858878e-3,
    -1.66666666666666307295e-1,
)
_COSINE = (
    -1.13585365213876817300e-11,
    2.08757008419747316778e-9,
    -2.75573141792967388112e-7,
    2.48015872888517045348e-5,
    -1.38888888888730564116e-3,
    4.16666666666665929218e-2,
)


def sine_and_cosine(x: Float64[Array, " lanes"]) -> tuple[Array, Array]:
    """sin(x) and cos(x).

    Args:
        x: angles [rad], float64; the reduction is exact for |x| < 1.7e12.

    Example:
        >>> import jax.numpy as jnp
        >>> sine, cosine = sine_and_cosine(jnp.array([0.0, jnp.pi / 6]))
        >>> print(sine.round(12), cosine.round(12))
        [0.  0.5] [1.        0.8660254]
    """
    k = lax.round(x * (2 / jnp.pi))
    high = lax.round(k * 2.0**-20) * 2.0**20
    low = k - high
    r = (x - high * _PARTS[0]) - low * _PARTS[0]
    r = ((r - high * _PARTS[1]) - low * _PARTS[1]) - k * _PARTS[2]
    z = r * r
    sine = r + r * z * _polynomial(_SINE, z)
    cosine = 1 - 0.5 * z + z * z * _polynomial(_COSINE, z)
    quarter = k - 4 * lax.floor(k * 0.25)  # 0, 1, 2 or 3
    odd = (quarter == 1) | (quarter == 3)
    s, c = jnp.where(odd, cosine, sine), jnp.where(odd, sine, cosine)
    s = jnp.where(quarter >= 2, -s, s)
    c = jnp.where((quarter == 1) | (quarter == 2), -c, c)
    return s, c


def _polynomial(coefficients: tuple[float, ...], z: Array) -> Array:
    value = jnp.full_like(z, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * z + coefficient
    return value
