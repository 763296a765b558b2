"""The contravariant form of the equations of motion, with metric tensor and Christoffel symbols.

Zegzhda, Naumova, Soltakhanov and Yushkov 2016, sections 3 and 4, with their total mass included in
the metric tensor g = M. With the kinetic energy as a metric (`christoffel`), the equations of
motion solved for the accelerations are

    q''^s = Q^s - Gamma^s_ab q'^a q'^b + g^sr A_kr Lambda_k     (3.4)

(with the sign convention of this package for Lambda). Inserted into A q'' = b this is the
multiplier system

    (A g^-1 A^T) Lambda = b - A (Q^s - Gamma^s_ab q'^a q'^b)    (4.1)

whose solution is inserted into (3.4), which results in (4.2). Or the reactions are eliminated: with
those of Maggi's second group, Lambda = B'^T (g q'' + Gamma - Q), (3.1) becomes E q'' = F, (4.3),
where

    E = (I - A^T B'^T) g,    F = (I - A^T B'^T) (Q - Gamma),    A B' = I.

The paper inverts E. But B'^T E = (I - (A B')^T) B'^T g = 0 for every choice of B': E has only rank
n - m, because the constraints have been projected out. Here they are added again as A^T W A q'' =
A^T W b, which keeps the system square: multiplied by B'^T it is A q'' = b, and the rest is (4.3).
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.laws.base import AbstractFormulation, Law, without_units
from jaxmech.laws.christoffel import first_kind, metric, potential_force, require_quadratic
from jaxmech.linalg import QR, Cholesky, cholesky, matvec, row_weights, weighted_gram
from jaxmech.system import EquationsOfMotion, Params, System


@dataclass(frozen=True)
class Contravariant(AbstractFormulation):
    """The contravariant form, for Lagrangians that are quadratic in the velocities.

    Terms linear in the velocities (moving coordinates, magnetic fields) and explicit time are
    supported. M has to be regular: its inverse is the contravariant metric tensor.

    Args:
        eliminate: whether the reactions are eliminated as in (4.3), with the constraints added,
            instead of being computed from the multiplier system (4.1).
    """

    eliminate: bool = False

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """M = g and Q_r - Gamma_r,ab q'^a q'^b from the metric, with the usual A and b.

        With quasi-velocities both are projected on them, as is any M and Q.
        """
        dynamics = system.dynamics
        eom = dynamics.at(q, v, t, params)
        require_quadratic(system, q, v, t, params)
        lagrangian = dynamics.mechanical_lagrangian(q, v, t, params)
        x, speeds = (y[: dynamics.mechanical] for y in (q, dynamics.speeds(q, v, t, params)))
        rate = jnp.concatenate([jnp.ones_like(v[:1]), speeds])
        inertia = (first_kind(lagrangian, x, t) * (rate[:, None] * rate[None, :])[None]).sum((1, 2))
        Q = potential_force(lagrangian, x, t) - inertia
        M, Q = dynamics.of_velocities(metric(lagrangian, x, t)[1:, 1:], Q, q, v, t, params)
        if system.force is not None:
            Q = Q + dynamics.applied_force(q, v, t, params)
        return replace(eom, M=M, Q=Q)

    @without_units
    def solve(self, eom: EquationsOfMotion) -> Law:
        """Solve for accelerations and multipliers at a state; a ValueError if M is singular."""
        mass = _regular(eom)
        free = mass.upper(mass.lower(eom.Q))
        if self.eliminate:
            rows = QR().factor(eom.A)
            E, F = _completed(eom)
            qdd, _ = QR().factor(E).min_norm_solve(F)
            # M qdd - Q = A^T lambda lies in the row space of A, so multiplying it by A keeps
            # lambda.
            _, reactions = rows.min_norm_solve(matvec(eom.A, matvec(eom.M, qdd) - eom.Q))
            return Law(qdd, free, reactions, rows.rank, mass.definite, independent=rows.independent)
        raised = _raised(mass, eom.A)
        rows = QR().factor(eom.A @ raised)
        reactions, _ = rows.min_norm_solve(eom.b - matvec(eom.A, free))
        qdd = free + matvec(raised, reactions)
        return Law(qdd, free, reactions, rows.rank, mass.definite, independent=rows.independent)


def eliminated(eom: EquationsOfMotion) -> tuple[Float[Array, " n n"], Float[Array, " n"]]:
    """E and F of equation (4.3) as printed, with B' = A^+.

    The rank of E is that of M minus that of A: only E qdd = F and A qdd = b together determine the
    motion.

    Args:
        eom: the equations at a state.
    """
    U = QR().factor(eom.A).U  # (A^+ A) = U^T U
    E, F = eom.M - U.T @ (U @ eom.M), eom.Q - matvec(U.T, matvec(U, eom.Q))
    return E, F


def _completed(eom: EquationsOfMotion) -> tuple[Array, Array]:
    """E + A^T W A and F + A^T W b."""
    E, F = eliminated(eom)
    # E alone cannot be inverted as in the paper: its rank is n - m, since B'^T E = 0 for every
    # right inverse B' of A. Multiplied by B'^T, the sum restores the missing A qdd = b.
    W = row_weights(eom.M, eom.A)
    return E + weighted_gram(eom.A, W), F + matvec(eom.A.T, W * eom.b)


def _raised(mass: Cholesky, A: Float[Array, " m n"]) -> Float[Array, " n m"]:
    """g^-1 A^T: the rows of A with their indices raised by the contravariant metric tensor."""
    root = mass.lower(jnp.eye(A.shape[1], dtype=A.dtype))
    return root.T @ (root @ A.T)


def _regular(eom: EquationsOfMotion) -> Cholesky:
    if eom.singular_mass:
        raise ValueError(
            "Argument `formulation` must not be Contravariant() for this system, because its mass "
            "matrix is singular and has no contravariant metric tensor; choose UdwadiaKalaba(), "
            "LagrangeFirstKind(), GaussPrinciple() or Maggi()."
        )
    return cholesky(eom.M)
