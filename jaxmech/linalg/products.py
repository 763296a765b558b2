"""Products of small matrices as multiply and sum, which fuse under plain `vmap`; a dot does not.

What a factorization repeats for every column is written in `lax`: indexing and broadcasting by
`jnp` take several times as long to trace.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

LARGEST = 65_536  # products of two matrices in one array; more are a dot


def matvec(A: Float[Array, " m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Multiply a matrix and a vector."""
    return (A * lax.broadcast_in_dim(x, A.shape, (1,))).sum(1)


def max_abs(x: Float[Array, " n"]) -> Float[Array, ""]:
    """The largest |x|, zero of no numbers and NaN if one of them is."""
    # On CPUs the `reduce_max` of jax 0.12 drops NaN from a batch of 32,768 numbers or more.
    size = jnp.abs(x)
    return jnp.where(jnp.isnan(x).any(), jnp.nan, size.max(initial=0.0))


def outer(column: Float[Array, " m"], row: Float[Array, " 1 *k"]) -> Float[Array, " m *k"]:
    """Multiply a column and a row, or the numbers of a column and one number."""
    shape = (*column.shape, *row.shape[1:])
    rows = lax.broadcast_in_dim(row, shape, tuple(range(row.ndim)))
    return lax.mul(lax.broadcast_in_dim(column, shape, (0,)), rows)


def scaled(x: Float[Array, " *k"], factor: Float[Array, ""]) -> Float[Array, " *k"]:
    """Multiply an array and a scalar."""
    return lax.mul(x, lax.broadcast(factor, x.shape))


def split_corner(
    M: Float[Array, " n n"],
) -> tuple[Float[Array, ""], Float[Array, " k"], Float[Array, " k k"]]:
    """The first number, the column below it, and the matrix without first row and column."""
    n = len(M)
    first, column = lax.slice(M, (0, 0), (1, 1)), lax.slice(M, (1, 0), (n, 1))
    return lax.squeeze(first, (0, 1)), lax.squeeze(column, (1,)), lax.slice(M, (1, 1), (n, n))


def split_first(x: Float[Array, " n *k"]) -> tuple[Float[Array, " 1 *k"], Float[Array, " l *k"]]:
    """The first row, and the others."""
    return lax.slice_in_dim(x, 0, 1), lax.slice_in_dim(x, 1, None)


def with_first(first: Float[Array, ""], x: Float[Array, " n"]) -> Float[Array, " l"]:
    """Put a number before a vector."""
    return lax.concatenate([lax.expand_dims(first, (0,)), x], 0)


def product(A: Float[Array, " k m"], B: Float[Array, " m n"]) -> Float[Array, " k n"]:
    """Multiply two matrices."""
    if len(A) * B.size > LARGEST:
        return lax.dot(A, B, precision=lax.Precision.HIGHEST)
    return (A[:, :, None] * B[None, :, :]).sum(1)


def gram(C: Float[Array, " m n"]) -> Float[Array, " m m"]:
    """Compute C C^T."""
    if len(C) * C.size > LARGEST:
        return product(C, C.T)
    return (C[:, None, :] * C[None, :, :]).sum(-1)


def weighted_gram(A: Float[Array, " m n"], weights: Float[Array, " m"]) -> Float[Array, " n n"]:
    """Compute A^T W A for a diagonal W."""
    if A.size * A.shape[1] > LARGEST:
        return product((A * weights[:, None]).T, A)
    return ((A * weights[:, None])[:, :, None] * A[:, None, :]).sum(0)


def diagonal(M: Float[Array, " n n"]) -> Float[Array, " n"]:
    """The diagonal as a strided slice; `jnp.diagonal`, a gather, costs more to compile."""
    return lax.slice(M.ravel(), (0,), (M.size,), (len(M) + 1,))
