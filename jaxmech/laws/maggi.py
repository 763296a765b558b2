"""Maggi's equations: independent pseudo-accelerations first, reactions afterwards.

Zegzhda, Naumova, Soltakhanov and Yushkov 2016, section 3. New variables w* for the accelerations:
the last ones are the constraints themselves, A qdd - b, and vanish; the first ones, w, are free.
The accelerations in terms of them are

    qdd = B w + B' b,    B = dqdd/dw,    B' = dqdd/dw* of the constraints

so that A B = 0 and, for independent rows, A B' = I. Multiplied by the columns of B and of B', the
equations of motion fall into two groups, without and with the reactions Lambda:

    B^T (M qdd - Q) = 0         (3.2)
    B'^T (M qdd - Q) = Lambda   (3.3)

Here w are the components of qdd along an orthonormal basis of the null space of A, which needs no
choice of independent coordinates, and B' = A^+, which covers redundant rows. Both are those of
coordinates in which the diagonal of M is one, so that units do not matter. M may be singular:
B^T M B is regular if [M; A] has full column rank.
"""

from dataclasses import dataclass

import jax.numpy as jnp

from jaxmech.laws.base import AbstractFormulation, Law, free_acceleration, without_units
from jaxmech.linalg import QR, cholesky, matvec, null_space
from jaxmech.system import EquationsOfMotion


@dataclass(frozen=True)
class Maggi(AbstractFormulation):
    """Maggi's equations, generalized to constraints on accelerations."""

    @without_units
    def solve(self, eom: EquationsOfMotion) -> Law:
        M, Q, A, b = eom.M, eom.Q, eom.A, eom.b
        rows, N = QR().factor(A), null_space(A)
        x, _ = rows.min_norm_solve(b)
        unused = jnp.where((N * N).sum(1) > 0, 0.0, 1.0)  # components of w beyond the null space
        mass = cholesky(N @ M @ N.T + jnp.diag(unused))
        w = mass.upper(mass.lower(matvec(N, Q - matvec(M, x))))
        qdd = x + matvec(N.T, w)
        _, reactions = rows.min_norm_solve(matvec(A, matvec(M, qdd) - Q))
        return Law(
            qdd=qdd,
            free=free_acceleration(eom),
            multipliers=reactions,
            rank=rows.rank,
            definite=mass.definite,
            independent=rows.independent,
        )
