"""Lagrange's equations of the first kind: accelerations and multipliers from one linear system.

Kalaba, Udwadia, Xu and Itiki 1995, equation (1), for the unknowns qdd and lambda together:

    [ M  -A^T ] [ qdd    ]   [ Q ]
    [ A    0  ] [ lambda ] = [ b ]

M is not inverted, so it may be singular. Whatever the rank of A, the system has a solution if A qdd
= b has one, and its qdd is unique if [M; A] has full column rank: for a positive semidefinite M,
K (x, l) = 0 means M x = 0, A x = 0 and A^T l = 0. With redundant rows only the multipliers are
undetermined, K lacks rank, and a solution of smallest norm is computed.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from jaxmech.laws.base import AbstractFormulation, Law, free_acceleration, without_units
from jaxmech.linalg import QR
from jaxmech.system import EquationsOfMotion


@dataclass(frozen=True)
class LagrangeFirstKind(AbstractFormulation):
    """The multiplier system of Lagrange's equations of the first kind, solved as one.

    The system is scaled to a unit diagonal of M and unit rows of A, then solved by `QR`, which
    drops dependent rows. M need not be definite, but the acceleration has to be unique:
    `Law.definite` reports whether it is. The system is as ill-conditioned as C C^T, so that laws
    that use C itself are more accurate near a singular pose.
    """

    @without_units
    def solve(self, eom: EquationsOfMotion) -> Law:
        n = eom.Q.size
        corner = jnp.zeros((eom.b.size, eom.b.size), eom.M.dtype)
        rows = QR().factor(jnp.block([[eom.M, -eom.A.T], [eom.A, corner]]))
        solution = rows.min_norm_solve(jnp.concatenate([eom.Q, eom.b]))[0]
        # U^T U projects onto the determined directions. The trace of its block for qdd is n if all
        # of qdd is determined, and at most n - 1 where one direction is free.
        determined = (rows.U[:, :n] ** 2).sum()  # dimension of the determined part of qdd
        return Law(
            qdd=solution[:n],
            free=free_acceleration(eom),
            multipliers=solution[n:],
            rank=rows.rank - n,
            definite=~(determined < n - 0.5),  # true for NaN, which is passed on to the result
            independent=rows.independent[n:],
        )
