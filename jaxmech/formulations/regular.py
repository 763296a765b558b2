"""A mass matrix without full rank, made definite with the constraints."""

import numpy as np
from jaxtyping import Array, Float

from jaxmech.equations import EquationsOfMotion
from jaxmech.linalg import cholesky, row_weights, times, weighted_gram


def regular(eom: EquationsOfMotion) -> tuple[Float[Array, " n n"], Float[Array, " n"]]:
    """M and Q as they are, or M + A^T W A and Q + A^T W b where M lacks full rank.

    Both have the same constrained motion, and the second matrix is definite if [M; A] has full
    column rank (after Udwadia and Phohomsiri 2006). Of A only the rows count that M needs, where
    these are known: all rows would couple all bodies.

    Example:
        >>> import jax.numpy as jnp
        >>> tied = EquationsOfMotion(
        ...     jnp.diag(jnp.array([2.0, 0.0])), jnp.ones(2), jnp.array([[0.0, 1.0]]), jnp.ones(1),
        ...     singular_mass=True,
        ... )
        >>> print(*regular(tied))
        [[2. 0.] [0. 1.]] [1. 2.]
    """
    if not eom.singular_mass:
        return eom.M, eom.Q
    A, b = eom.A, eom.b
    if eom.singular_mass is not True:
        rows = np.array(eom.singular_mass)
        A, b = A[rows], b[rows]
    W = row_weights(eom.M, A)
    return eom.M + weighted_gram(A, W), eom.Q + times(A.T, W * b)


def free_acceleration(eom: EquationsOfMotion) -> Float[Array, " n"]:
    """a = M^-1 Q, the acceleration without the constraints (n,), for laws that do not need it.

    Where M lacks full rank there is none, and the constraints make up for it as in `regular`.

    Example:
        >>> import jax.numpy as jnp
        >>> free = EquationsOfMotion(2 * jnp.eye(1), jnp.ones(1), jnp.eye(1), jnp.zeros(1))
        >>> print(free_acceleration(free).round(12))
        [0.5]
    """
    M, Q = regular(eom)
    mass = cholesky(M)
    return mass.upper(mass.lower(Q))
