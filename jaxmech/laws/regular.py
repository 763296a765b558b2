"""Equations made regular: a singular mass with constraint rows added, units removed."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.laws.base import Law
from jaxmech.linalg import cholesky, coordinate_units, matvec, row_weights, unit_rows, weighted_gram
from jaxmech.system import EquationsOfMotion


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
    return eom.M + weighted_gram(A, W), eom.Q + matvec(A.T, W * b)


def free_acceleration(eom: EquationsOfMotion) -> Float[Array, " n"]:
    """The acceleration a = M^-1 Q without constraints, unless M is singular."""
    M, Q = regular(eom)
    mass = cholesky(M)
    return mass.upper(mass.lower(Q))


def without_units(solve: Callable[..., Law]) -> Callable[..., Law]:
    """Let a law of motion solve equations with a unit diagonal of M and unit rows of A."""

    @wraps(solve)
    def in_units(law: Any, eom: EquationsOfMotion, *, independent: Any = None) -> Law:
        eom, x, y = without_units_of(eom, independent)
        in_scaled_units = solve(law, eom)
        qdd, free, multipliers = (
            x * in_scaled_units.qdd,
            x * in_scaled_units.free,
            y * in_scaled_units.multipliers,
        )
        return replace(in_scaled_units, qdd=qdd, free=free, multipliers=multipliers)

    return in_units


def without_units_of(
    eom: EquationsOfMotion, independent: Bool[Array, " m"] | None = None
) -> tuple[EquationsOfMotion, Float[Array, " n"], Float[Array, " m"]]:
    """The equations without units, zero in rows that must not be kept, and their units."""
    x = coordinate_units(eom.M, eom.A)
    A = eom.A * x[None, :]
    _, y = jax.lax.stop_gradient(unit_rows(A))
    y = y if independent is None else jnp.where(independent, y, 0.0)
    M, Q, A, b = x[:, None] * eom.M * x[None, :], x * eom.Q, y[:, None] * A, y * eom.b
    return replace(eom, M=M, Q=Q, A=A, b=b), x, y
