"""Products of small matrices as multiply and sum: these fuse under `vmap`, a dot does not."""

from jaxtyping import Array, Float


def times(A: Float[Array, " m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """A x for a matrix and a vector.

    Example:
        >>> import jax.numpy as jnp
        >>> print(times(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0])))
        [21. 43.]
    """
    return (A * x[None, :]).sum(1)


def product(A: Float[Array, " k m"], B: Float[Array, " m n"]) -> Float[Array, " k n"]:
    """A B for two matrices.

    Example:
        >>> import jax.numpy as jnp
        >>> print(product(jnp.array([[1.0, 2.0]]), jnp.array([[3.0], [4.0]])))
        [[11.]]
    """
    return (A[:, :, None] * B[None, :, :]).sum(1)


def weighted_gram(A: Float[Array, " m n"], weights: Float[Array, " m"]) -> Float[Array, " n n"]:
    """A^T W A for a diagonal W.

    Example:
        >>> import jax.numpy as jnp
        >>> print(weighted_gram(jnp.array([[1.0, 2.0]]), jnp.array([10.0])))
        [[10. 20.]
         [20. 40.]]
    """
    return ((A * weights[:, None])[:, :, None] * A[:, None, :]).sum(0)
