"""Products of small matrices as multiply and sum, which fuse under plain `vmap`; a dot does not."""

import jax
from jaxtyping import Array, Float


def times(A: Float[Array, " m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Multiply a matrix and a vector."""
    return (A * x[None, :]).sum(1)


def product(A: Float[Array, " k m"], B: Float[Array, " m n"]) -> Float[Array, " k n"]:
    """Multiply two matrices."""
    return (A[:, :, None] * B[None, :, :]).sum(1)


def weighted_gram(A: Float[Array, " m n"], weights: Float[Array, " m"]) -> Float[Array, " n n"]:
    """Compute A^T W A for a diagonal W."""
    return ((A * weights[:, None])[:, :, None] * A[:, None, :]).sum(0)


def diagonal(M: Float[Array, " n n"]) -> Float[Array, " n"]:
    """The diagonal as a strided slice, where `jnp.diagonal` is a gather and costs more to compile.

    Example:
        >>> import jax.numpy as jnp
        >>> print(diagonal(jnp.array([[1.0, 2.0], [3.0, 4.0]])))
        [1. 4.]
    """
    return jax.lax.slice(M.ravel(), (0,), (M.size,), (len(M) + 1,))
