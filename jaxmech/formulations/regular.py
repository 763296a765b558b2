"""A mass matrix without full rank, made definite with the constraints."""

from jaxtyping import Array, Float

from jaxmech.equations import EquationsOfMotion
from jaxmech.linalg import cholesky, row_weights, times, weighted_gram


def regular(
    eom: EquationsOfMotion, *, singular_mass: bool
) -> tuple[Float[Array, " n n"], Float[Array, " n"]]:
    """M and Q as they are, or M + A^T W A and Q + A^T W b where M lacks full rank.

    Both have the same constrained motion, and the second matrix is definite if [M; A] has full
    column rank (after Udwadia and Phohomsiri 2006).

    Args:
        eom: the equations at a state.
        singular_mass: whether M lacks full rank.

    Example:
        >>> import jax.numpy as jnp
        >>> tied = EquationsOfMotion(
        ...     jnp.diag(jnp.array([2.0, 0.0])), jnp.ones(2), jnp.array([[0.0, 1.0]]), jnp.ones(1)
        ... )
        >>> print(*regular(tied, singular_mass=True))
        [[2. 0.] [0. 1.]] [1. 2.]
    """
    if not singular_mass:
        return eom.M, eom.Q
    W = row_weights(eom.M, eom.A)
    return eom.M + weighted_gram(eom.A, W), eom.Q + times(eom.A.T, W * eom.b)


def free_acceleration(eom: EquationsOfMotion, *, singular_mass: bool) -> Float[Array, " n"]:
    """a = M^-1 Q, the acceleration without the constraints (n,), for laws that do not need it.

    Where M lacks full rank there is none, and the constraints make up for it as in `regular`.

    Args:
        eom: the equations at a state.
        singular_mass: whether M lacks full rank.

    Example:
        >>> import jax.numpy as jnp
        >>> free = EquationsOfMotion(2 * jnp.eye(1), jnp.ones(1), jnp.eye(1), jnp.zeros(1))
        >>> print(free_acceleration(free, singular_mass=False).round(12))
        [0.5]
    """
    M, Q = regular(eom, singular_mass=singular_mass)
    mass = cholesky(M)
    return mass.upper(mass.lower(Q))
