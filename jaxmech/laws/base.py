"""The interface of a law of motion, and equations made regular.

A singular mass has constraint rows added, and units are removed.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.linalg import (
    Pivots,
    cholesky,
    coordinate_units,
    matvec,
    row_weights,
    unit_rows,
    weighted_gram,
)
from jaxmech.system import EquationsOfMotion, Params, SingularMass, System, near


class Partition(eqx.Module):
    """The dependent coordinates and velocities of one step; the others are integrated."""

    positions: Pivots  # of the position constraints; the coordinates of their columns are dependent
    velocities: Pivots  # of the velocity constraints
    usable: Bool[Array, ""]  # whether all of these pivots are well above zero
    extents: Float[Array, " n"]  # of the coordinates
    iterations: int = eqx.field(static=True)  # of Newton's method for the positions
    velocity_iterations: int = eqx.field(static=True)

    def complete(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Array, Array, Bool[Array, ""]]:
        """The state with dependent q and v computed from the independent ones."""
        dynamics = system.dynamics

        def positions(q: Array) -> Array:
            return system.plain.dynamics.position_level(q, t, params)  # invariants too

        def velocities(v: Array) -> Array:
            return dynamics.velocity_level(q, v, t, params)

        # The residual may be that of sqrt(eps) of the extents, before a last correction.
        size = {"extents": self.extents, "share": float(jnp.finfo(q.dtype).eps) ** 0.5}
        holds = partial(near, **size)
        q, q_found = self._root(positions, q, self.positions, self.iterations, holds)

        def hold(level: Array, A: Array, v: Array) -> Array:
            A = dynamics.kinematics.rows_of_speeds(A, q, t, params)
            return near(level, A, q, rates=dynamics.speeds(q, v, t, params), **size)

        v, v_found = self._root(velocities, v, self.velocities, self.velocity_iterations, hold)
        return q, v, q_found & v_found

    def _root(
        self, level: Callable[[Array], Array], x: Array, chosen: Pivots, iterations: int,
        holds: Callable[[Array, Array, Array], Array],
    ) -> tuple[Array, Array]:  # fmt: skip
        """Solve level(x) = 0 for the dependent components of x; also whether that succeeded."""
        if chosen.sizes.size == 0:
            return x, jnp.asarray(True)

        def newton(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            A = jax.jacfwd(level)(state[0])
            # In a step without a chart nothing moves, instead of moving by an unusable inverse.
            B = jnp.where(self.usable, chosen.inverse(A), 0.0)
            return state[0] - matvec(B, level(state[0])), A, B

        zero_slopes = jnp.zeros((chosen.rows.shape[1], x.size), x.dtype)
        new, A, B = jax.lax.fori_loop(0, iterations, newton, (x, zero_slopes, zero_slopes.T))
        # The last correction has the same inverse. Rows without a pivot may contradict the others.
        residual = level(new)
        nearly = holds(residual, A, new)
        return jnp.where(nearly, new - matvec(B, residual), x), nearly | ~self.usable


class Law(eqx.Module):
    """The solution of a law of motion at one state.

    Attributes:
        qdd: accelerations with the constraints, shape (n,).
        free: accelerations without them, shape (n,).
        multipliers: some lambda with M qdd = Q + A^T lambda, shape (m,).
        rank: number of independent constraint equations.
        definite: whether the mass matrix (with the constraints, if it is singular) was positive
            definite; if not, the other fields are meaningless.
        nonideal_force: C in M qdd = Q + A^T lambda + C, shape (n,); None for ideal constraints.
        converged: whether the multipliers that C depends on were found; None if C does not.
        independent: flags of the constraint equations (for `SVD()` singular values) counted as
            independent, shape (m,); None where the law does not know.
    """

    qdd: Float[Array, " n"]
    free: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]
    nonideal_force: Float[Array, " n"] | None = None
    converged: Bool[Array, ""] | None = None
    independent: Bool[Array, " m"] | None = None


@dataclass(frozen=True)
class AbstractFormulation(abc.ABC):
    """A law of motion: from M, Q, A, b to accelerations and multipliers."""

    def equations(
        self, system: System, q: Array, v: Array, t: Array, params: Params
    ) -> EquationsOfMotion:
        """M, Q, A and b at a state."""
        system.require_no_gaps()
        return system.dynamics.at(q, v, t, params)

    def chart(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        extents: Float[Array, " n"] | None = None,
    ) -> Partition | None:  # fmt: skip
        """The chart for the step from this state; None where all coordinates are integrated.

        `extents` are those of the coordinates (`consistency`), by default at this state.
        """
        return None

    def takes_as_singular(self, detected: SingularMass) -> SingularMass:
        """Whether M is treated as singular, given the result of its detection."""
        return detected

    @abc.abstractmethod
    def solve(self, eom: EquationsOfMotion, *, independent: Bool[Array, " m"] | None = None) -> Law:
        """Solve for accelerations and multipliers; only rows in `independent` may count as such."""


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
        x = coordinate_units(eom.M, eom.A)
        A = eom.A * x[None, :]
        _, y = jax.lax.stop_gradient(unit_rows(A))
        # Zero in rows that must not be kept.
        y = y if independent is None else jnp.where(independent, y, 0.0)
        M, Q, A, b = x[:, None] * eom.M * x[None, :], x * eom.Q, y[:, None] * A, y * eom.b
        scaled = solve(law, replace(eom, M=M, Q=Q, A=A, b=b))
        return replace(
            scaled, qdd=x * scaled.qdd, free=x * scaled.free, multipliers=y * scaled.multipliers
        )

    return in_units
