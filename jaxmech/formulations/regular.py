"""A singular mass matrix made positive definite by adding constraint rows."""

import numpy as np
from jaxtyping import Array, Float

from jaxmech.equations import EquationsOfMotion
from jaxmech.linalg import cholesky, row_weights, times, weighted_gram


def regular(eom: EquationsOfMotion) -> tuple[Float[Array, " n n"], Float[Array, " n"]]:
    """M and Q, or if M is singular M + A^T W A and Q + A^T W b, with the same constrained motion.

    The matrix is definite if [M; A] has full column rank (after Udwadia and Phohomsiri 2006).
    """
    if not eom.singular_mass:
        return eom.M, eom.Q
    A, b = eom.A, eom.b
    if eom.singular_mass is not True:  # all rows would couple all bodies
        rows = np.array(eom.singular_mass)
        A, b = A[rows], b[rows]
    W = row_weights(eom.M, A)
    return eom.M + weighted_gram(A, W), eom.Q + times(A.T, W * b)


def free_acceleration(eom: EquationsOfMotion) -> Float[Array, " n"]:
    """The acceleration a = M^-1 Q without constraints, unless M is singular."""
    M, Q = regular(eom)
    mass = cholesky(M)
    return mass.upper(mass.lower(Q))
