"""The contravariant form of the equations of motion, with metric tensor and Christoffel symbols.

For a Lagrangian at most quadratic in the velocities, with time as coordinate q^0 = t, q'^0 = 1,

    L = g_ab q'^a q'^b / 2 + U,    a, b = 0, 1, ..., n

where g_rs (r, s = 1...n) is the mass matrix, g_r0 the part of L linear in the velocities (moving
coordinates, gyroscopic and magnetic terms), and U(t, q) the part independent of velocities, which
includes g_00. With the symbols of the first and of the second kind

    Gamma_r,ab = (dg_ra/dq^b + dg_rb/dq^a - dg_ab/dq^r) / 2,    Gamma^s_ab = g^sr Gamma_r,ab

Lagrange's equations are (Zegzhda, Naumova, Soltakhanov and Yushkov 2016, equation (3.1), with the
total mass included in g)

    g_rs q''^s + Gamma_r,ab q'^a q'^b = Q_r,    Q_r = dU/dq^r + F_r.

The terms with a = 0 or b = 0 are those of a non-stationary basis. Solved for the accelerations they
are (sections 3 and 4)

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

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.laws.base import AbstractFormulation, Law, without_units
from jaxmech.linalg import QR, Cholesky, cholesky, matvec, row_weights, weighted_gram
from jaxmech.system import EquationsOfMotion, Params, Subject, System, with_params
from jaxmech.utils.probing import concrete, generic


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
        # The force of U, the part of the Lagrangian independent of velocities.
        Q = jax.grad(lambda x: lagrangian(x, jnp.zeros_like(x), t))(x) - inertia
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
            E, F = eliminated(eom)
            # E alone cannot be inverted as in the paper: its rank is n - m, since B'^T E = 0 for
            # every right inverse B' of A. Multiplied by B'^T, the sum restores A qdd = b.
            W = row_weights(eom.M, eom.A)
            E, F = E + weighted_gram(eom.A, W), F + matvec(eom.A.T, W * eom.b)
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


Lagrangian: TypeAlias = Callable[[Array, Array, Array], Array]  # of q, v and t


class Christoffel(eqx.Module):
    """Christoffel symbols at a state; the last two indices start with time.

    Attributes:
        first: Gamma_r,ab, shape (n, n + 1, n + 1), symmetric in a and b.
        second: Gamma^s_ab, of the same shape; NaN where the mass matrix is not definite.
    """

    first: Float[Array, " n k k"]
    second: Float[Array, " n k k"]


def metric_tensor(
    system: Subject, q: Any, t: Any = 0.0, params: Params = None
) -> Float[Array, " k k"]:
    """g_ab (n + 1, n + 1) of the kinetic energy, time first; its block [1:, 1:] is M.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.

    Raises:
        ValueError: if the Lagrangian is not quadratic in the velocities, or a shape is wrong.
        TypeError: if `system` is not a `System`.
    """
    lagrangian, q, t = _arguments(system, q, t, params)
    return metric(lagrangian, q, t)


def christoffel_symbols(
    system: Subject, q: Any, t: Any = 0.0, params: Params = None
) -> Christoffel:
    """The Christoffel symbols of the kinetic energy at a state, of the first and second kind.

    Args:
        system: the system, with n coordinates.
        q: coordinates, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.

    Raises:
        ValueError: if the Lagrangian is not quadratic in the velocities, or a shape is wrong.
        TypeError: if `system` is not a `System`.
    """
    lagrangian, q, t = _arguments(system, q, t, params)
    first = first_kind(lagrangian, q, t)
    mass = cholesky(metric(lagrangian, q, t)[1:, 1:])
    root = mass.lower(jnp.eye(q.size, dtype=q.dtype))
    # g^-1 = L^-T L^-1 raises the first index.
    second = jnp.einsum("ks,kr,rab->sab", root, root, first)
    return Christoffel(first, jnp.where(mass.definite, second, jnp.nan))


def first_kind(lagrangian: Lagrangian, q: Array, t: Array) -> Float[Array, " n k k"]:
    """Gamma_r,ab for arguments that are arrays."""
    extended = jnp.concatenate([t[None], q])
    slope = jax.jacfwd(lambda x: metric(lagrangian, x[1:], x[0]))(extended)  # [a, b, c]: dg_ab/dq^c
    twice = slope + slope.transpose(0, 2, 1) - slope.transpose(2, 0, 1)
    return twice[1:] / 2


def require_quadratic(system: System, q: Array, v: Array, t: Array, params: Params) -> None:
    """Raise a ValueError if the mass matrix depends on the velocities, at generic arguments."""

    def masses(q: Array, v: Array, t: Array, params: Params) -> Array:
        is_moved = jnp.arange(v.size) < system.dynamics.mechanical_velocities
        scaled = [jnp.where(is_moved, scale * v, v) for scale in (0.0, 0.1, 1.0)]
        return jnp.stack([system.dynamics.mass(q, v, t, params) for v in scaled])

    difference = concrete(masses, *generic((q, v, t, params), seed=21))
    if difference is None:
        return
    size = np.abs(difference).max(initial=0.0)
    if not np.allclose(difference, difference[:1], rtol=0, atol=1e-5 * size, equal_nan=True):
        raise ValueError(
            "Christoffel symbols need a `lagrangian` that is quadratic in the velocities, but the "
            "mass matrix of this one depends on them; choose another law, such as UdwadiaKalaba()."
        )


def metric(lagrangian: Lagrangian, q: Array, t: Array) -> Float[Array, " k k"]:
    """g_ab: the Hessian of L at rest, bordered by its gradient."""
    momentum = jax.grad(lambda v: lagrangian(q, v, t))
    zeros = jnp.zeros_like(q)
    border = momentum(zeros)
    # The corner g_00 is zero here, because U holds all terms of L without a velocity.
    corner = jnp.zeros((1, 1), q.dtype)
    return jnp.block([[corner, border[None]], [border[:, None], jax.jacfwd(momentum)(zeros)]])


def _arguments(system: Subject, q: Any, t: Any, params: Params) -> tuple[Lagrangian, Array, Array]:
    system, params = with_params(system, params)
    system.require_no_states("take the system without them")
    q, v, t, params = system.plain.arguments(q, q, t, params)
    require_quadratic(system.plain, q, v, t, params)
    return system.dynamics.mechanical_lagrangian(q, v, t, params), q, t
