"""Many residuals as few: a triangle that keeps every sum of squares and every slope of it.

For the residuals r (N,) of a piece and their derivatives J (N, P), [J r] = Q [[R, c], [0, rho]]
with orthonormal Q. Gauss-Newton and Levenberg-Marquardt depend on J^T J = R^T R, J^T r = R^T c and
r^T r = c^T c + rho^2 alone, so the P + 1 numbers (c, rho) with the derivatives (R, 0) stand for
all N.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def triangle(J: Float[Array, "N P"], r: Float[Array, " N"]) -> Float[Array, "P+1 P+1"]:
    """[[R, c], [0, rho]] by Gram-Schmidt with each column cleared twice.

    Twice is enough (Giraud, Langou and Rozloznik 2005); a column that depends on those before it
    gets a zero on the diagonal. In plain operations, since LAPACK in a batch can hang
    (docs/limits.md).

    Args:
        J: derivatives.
        r: residuals.

    Example:
        >>> print(triangle(jnp.array([[3.0], [4.0]]), jnp.array([5.0, 0.0])))
        [[5. 3.]
         [0. 4.]]
    """
    columns = jnp.concatenate([J.T, r[None]])
    size = len(columns)

    def clear(Q: Array, k: Array) -> tuple[Array, Array]:
        column = columns[k]
        first = Q @ column
        left = column - first @ Q
        second = Q @ left
        left = left - second @ Q
        length = jnp.sqrt(left @ left)
        kept = length > 1e-14 * jnp.sqrt(column @ column)
        Q = Q.at[k].set(jnp.where(kept, left / jnp.where(kept, length, 1.0), 0.0))
        return Q, (first + second).at[k].set(jnp.where(kept, length, 0.0))

    _, rows = jax.lax.scan(clear, jnp.zeros_like(columns), jnp.arange(size))
    return rows.T
