"""Vectors and matrices of the recursions, always in space; numpy where all numbers are plain.

A mechanism in the plane is one in space whose third components are zero: the compiler folds them.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.parts.vectors import Numbers, cross_table

_SYMMETRIC = np.abs(cross_table())


def is_zero(x: Numbers) -> bool:
    """Whether all numbers are plain zeros, with which nothing needs to be computed."""
    return isinstance(x, np.ndarray | np.generic) and not np.any(x)


def matmul(a: Numbers, b: Numbers) -> Numbers:
    """Multiply a matrix with a vector or a matrix as products and a sum."""
    if is_zero(a) or is_zero(b):
        return np.zeros(a.shape[:1] + b.shape[1:], b.dtype)
    if b.ndim == 1:
        return (a * b[None, :]).sum(1)
    return (a[:, :, None] * b[None]).sum(1)


def across(a: Numbers) -> Numbers:
    """The matrix of the vector product a x, (3, 3).

    Example:
        >>> print(across(np.array([1.0, 2.0, 3.0])) + 0)
        [[ 0. -3.  2.]
         [ 3.  0. -1.]
         [-2.  1.  0.]]
    """
    return (cross_table().astype(a.dtype) * a[None, :, None]).sum(1)


def off_diagonal(a: Numbers) -> Numbers:
    """The symmetric matrix (3, 3) whose entry j, k is a_i, with i, j, k all different."""
    return (_SYMMETRIC.astype(a.dtype) * a[None, :, None]).sum(1)


def in_space(x: Numbers) -> Numbers:
    """A vector (2,), a spin () or a matrix (2, 2) of the plane in space; others unchanged."""
    xp: Any = np if isinstance(x, np.ndarray | np.generic) else jnp
    if x.shape == (2,):
        return xp.concatenate([x, np.zeros(1, x.dtype)])
    if x.shape == ():
        return xp.concatenate([np.zeros(2, x.dtype), x[None]])
    if x.shape == (2, 2):
        rows = xp.concatenate([x, np.zeros((2, 1), x.dtype)], axis=1)
        return xp.concatenate([rows, np.eye(3, dtype=x.dtype)[2:]])
    return x
