"""Gauss' principle of least constraint: the acceleration as the minimum of a quadratic function.

Of all accelerations that satisfy A qdd = b, nature takes the one that makes

    G(qdd) = (qdd - a)^T M (qdd - a),    a = M^-1 Q

smallest (Gauss 1829; Kalaba, Udwadia, Xu and Itiki 1995, equations (18) and (19)). With M = L L^T
and z = L^T (qdd - a), G = z^T z (their equation (20); any root of M serves). The accelerations that
satisfy the constraints are qdd = x + N^T w, with one solution x and the null space N of A, and w
solves a least-squares problem without constraints:

    | L^T N^T w - L^T (a - x) |  ->  min

The multipliers follow from stationarity: half the gradient of G, M (qdd - a), is A^T lambda.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.laws.base import AbstractFormulation, Law, regular, without_units
from jaxmech.linalg import QR, cholesky, matvec, null_space
from jaxmech.system import EquationsOfMotion, SingularMass
from jaxmech.utils.checks import is_known


@dataclass(frozen=True)
class GaussPrinciple(AbstractFormulation):
    """The principle of least constraint, solved as a quadratic program.

    A singular M is made definite with the constraints, which changes G by a constant only.
    """

    @without_units
    def solve(self, eom: EquationsOfMotion) -> Law:
        M, Q = regular(eom)
        mass, rows, N = cholesky(M), QR().factor(eom.A), null_space(eom.A)
        x, _ = rows.min_norm_solve(eom.b)
        least_squares = mass.lower(M @ N.T).T
        # L^T (a - x) = L^-1 (Q - M x), without forming a = M^-1 Q.
        z = mass.lower(Q - matvec(M, x))
        _, w = QR().factor(least_squares).min_norm_solve(matvec(least_squares, z))
        qdd = x + matvec(N.T, w)
        slope = matvec(eom.M, qdd) - eom.Q
        _, multipliers = rows.min_norm_solve(matvec(eom.A, slope))
        free = mass.upper(mass.lower(Q))
        return Law(qdd, free, multipliers, rows.rank, mass.definite, independent=rows.independent)


def gauss_function(
    eom: EquationsOfMotion, qdd: Float[Array, " n"], *, singular_mass: SingularMass = False
) -> Float[Array, ""]:
    """G = (qdd - a)^T M (qdd - a), Gauss' measure of constraint of a trial acceleration, a scalar.

    Kalaba et al. 1995, equation (18). Its unit is force times acceleration, and it is zero for the
    free acceleration a = M^-1 Q.

    Args:
        eom: the equations at a state.
        qdd: the trial acceleration, shape (n,); it need not satisfy the constraints.
        singular_mass: whether M lacks full rank, so that there is no free acceleration. G is then
            formed with M + A^T W A and Q + A^T W b, which has the same minimum, and the same
            differences between accelerations that satisfy the constraints.

    Raises:
        ValueError: if M is not positive definite. Under `jit` the value is NaN instead.
    """
    M, Q = regular(replace(eom, singular_mass=singular_mass or eom.singular_mass))
    mass = cholesky(M)
    if is_known(mass.definite) and not mass.definite:
        raise ValueError(
            "Argument `eom` must have a positive definite M, but does not; where [M; A] has full "
            "column rank pass `singular_mass=True`."
        )
    z = mass.lower(matvec(M, jnp.asarray(qdd)) - Q)
    return jnp.where(mass.definite, (z * z).sum(), jnp.nan)
