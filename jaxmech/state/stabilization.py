"""Stabilization against drift off the constraints.

The differentiated constraints A qdd = b only keep the second derivative of phi at zero, so that
round-off and step errors make phi itself grow. `Projection` moves every state back onto phi = 0 and
psi = 0 in the mass metric; `Baumgarte` feeds the violation back into b; `Free` lets it drift.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import jacobian
from jaxmech.laws import regular
from jaxmech.linalg import LDL, AbstractSolver, cholesky, metric
from jaxmech.system import (
    Acceleration,
    Holonomic,
    Levels,
    Params,
    System,
    extents_at,
    motion_share,
    on_constraints,
)
from jaxmech.utils.checks import require_kind, require_positive_integer
from jaxmech.utils.text import doc, setting


class RowsBefore(NamedTuple):
    """The constraint rows at the stages of a step.

    Attributes:
        dependent: whether some rows were dependent.
        rank: number of independent rows at the first stage.
        extents: the extents of the coordinates at the start of the run, if known.
    """

    dependent: Bool[Array, ""]
    rank: Int[Array, ""]
    extents: Float[Array, " n"] | None = None


@dataclass(frozen=True)
class AbstractStabilization:
    """A policy against drift, in the accelerations and after each step; does nothing by default."""

    def feedback(self, system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
        """The term added to b, shape (m,) or a scalar zero."""
        return jnp.zeros((), q.dtype)

    def after_step(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        before: RowsBefore | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """The state from which to continue, and whether it was reached."""
        return q, v, jnp.asarray(True)


class Free(AbstractStabilization):
    """No stabilization, the same as `projection=None`."""


@dataclass(frozen=True)
class Projection(AbstractStabilization):
    """Move q, and then v, to the nearest point of the constraints after each step; the default.

    Nearest in the metric of M: dq = -M^-1 A^T (A M^-1 A^T)^+ phi, repeated with the same
    factorization (Gauss-Newton). The correction is part of the step and is differentiated with it.

    Args:
        iterations: maximum number of corrections per step; each reduces the error by a factor of
            the size of the first correction, so that two reach round-off unless the step is too
            coarse. With fixed steps and no events, `simulate` makes further corrections only if the
            first one is above the square root of round-off.
        solver: the solver, which also handles dependent rows.

    Raises:
        ValueError: if `iterations` is not a positive integer.
        TypeError: if `solver` is not a solver.

    Example:
        >>> Projection(iterations=3)
        Projection(iterations=3, solver=LDL(tolerance=None))
    """

    iterations: int = setting(2, "Gauss-Newton corrections after each step")
    solver: AbstractSolver = setting(LDL(), "treatment of dependent constraints")
    is_lazy: ClassVar[bool] = False

    def __post_init__(self) -> None:
        remedy = "pass `projection=None` for no projection"
        require_positive_integer("iterations", self.iterations, remedy)
        require_kind("solver", self.solver, AbstractSolver, "LDL()")

    def after_step(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        before: RowsBefore | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """q and v on the constraints, and whether the corrections converged."""
        A_position, A_velocity = system.dynamics.jacobians(q, v, t, params)
        if A_velocity.shape[0] == 0:
            return restored(system, q, t, params), v, jnp.asarray(True)
        M = metric_mass(system, q, v, t, params)
        positions = metric(M, A_position, self.solver)
        # Without nonholonomic constraints one factorization serves both levels.
        is_holonomic = A_position is A_velocity
        velocities = positions if is_holonomic else metric(M, A_velocity, self.solver)
        dynamics, share = system.dynamics, motion_share(q.dtype)
        extents = None if before is None else before.extents

        def corrected_once(q: Array, v: Array) -> tuple[Array, Array, Array]:
            """q and v after one correction of each, and the squared size of both."""
            q = restored(system, q, t, params)
            dq = positions.min_norm_solve(dynamics.position_level(q, t, params))[0]
            dq = dynamics.speeds(q, dq, t, params)
            q = q - dq
            # After the positions, because the constraints on v depend on q. The factors are those
            # of the q before the projection, so one correction is insufficient even where the
            # constraints are linear in v.
            dv = velocities.min_norm_solve(dynamics.velocity_level(q, v, t, params))[0]
            size = jax.lax.stop_gradient((dq * dq).sum() + (dv * dv).sum())
            return q, v - dv, size

        def is_plain(size: Array, share: float) -> Array:
            """Whether corrections are below a share of the extents, and all rows independent."""
            least = 1.0 if extents is None else jnp.min(extents)
            plain = size <= (share * least) ** 2
            for rows in (positions, velocities):
                plain &= rows.rank == len(rows.A)
            return plain if before is None else plain & ~before.dependent

        def is_met(q: Array, v: Array) -> Array:
            """Whether the constraints hold, and no row was kept that is dependent."""
            size = extents_at(system, q, v, t, params) if extents is None else extents
            # The Jacobians before the projection, unless those by quasi-velocities are others.
            jacobians = None if system.velocities else (A_position, A_velocity)
            levels = Levels.at(system, q, v, t, params, jacobians)
            met = on_constraints(system, q, v, t, params, size, share, levels)
            if before is None:
                return met
            # A row may be dependent at the start and at the end of the step, but not between them.
            A = dynamics.velocity_jacobian(q, v, t, params)
            rank_after = metric(M, A, self.solver).rank
            return met & (jnp.maximum(before.rank, rank_after) >= velocities.rank)

        def corrected(q: Array, v: Array) -> tuple[Array, Array, Array]:
            """q and v after all corrections, and whether they are on the constraints."""
            for _ in range(self.iterations):
                q, v, size = corrected_once(q, v)
            # After a small last correction the error is smaller still, unless a row was dropped. So
            # the residuals are recomputed only in the other cases, which are rare.
            plain = is_plain(size, share)
            met = jax.lax.cond(~plain, lambda: is_met(q, v), lambda: jnp.asarray(True))
            return q, v, met

        if self.is_lazy and self.iterations > 1:
            once_q, once_v, size = corrected_once(q, v)
            is_last = is_plain(size, float(jnp.finfo(q.dtype).eps) ** 0.5)
            end = once_q, once_v, jnp.asarray(True)
            new_q, new_v, reached = jax.lax.cond(~is_last, lambda: corrected(q, v), lambda: end)
        else:
            new_q, new_v, reached = corrected(q, v)
        return new_q, new_v, reached & positions.definite

    def lazy(self) -> "LazyProjection":
        """The same projection, for a run through which no derivative goes."""
        return LazyProjection(self.iterations, self.solver)


@dataclass(frozen=True)
class LazyProjection(Projection):
    """A projection that ends with its first correction where that is small.

    The error after a correction is of the order of its square. So a first correction below the
    square root of round-off, which is that of a step of usual size, is the last one. Its second
    derivative is wrong for changes of the state that leave the constraints: derivatives are those
    of a `Projection`.
    """

    is_lazy = True


@dataclass(frozen=True)
class Baumgarte(AbstractStabilization):
    """Feed the violation back: phi'' + 2 alpha phi' + beta^2 phi = 0 and psi' + alpha psi = 0.

    Baumgarte 1972. The drift remains bounded, but not zero, and the step has to resolve the time
    scales of the feedback.

    Args:
        alpha: damping rate [1/s].
        beta: stiffness rate [1/s]; alpha = beta is critical damping.

    Raises:
        ValueError: if a rate is negative.

    Example:
        >>> Baumgarte(alpha=20.0, beta=20.0)
        Baumgarte(alpha=20.0, beta=20.0)
    """

    alpha: float = field(metadata=doc("damping rate [1/s]"))
    beta: float = field(metadata=doc("stiffness rate [1/s]; alpha = beta is critical damping"))

    def __post_init__(self) -> None:
        for name, rate in (("alpha", self.alpha), ("beta", self.beta)):
            if not 0 <= rate < float("inf"):
                raise ValueError(
                    f"Argument `{name}` must be finite and not negative, but is {rate}; negative "
                    "rates make the violation grow."
                )

    def feedback(self, system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
        """-2 alpha phi' - beta^2 phi for holonomic rows, and -alpha psi for nonholonomic rows."""
        terms = []
        for c in system.constraints:
            if isinstance(c, Holonomic):
                position, speed = c.value(q, t, params), c.speed(q, v, t, params)
                terms.append(-2 * self.alpha * speed - self.beta**2 * position)
            elif isinstance(c, Acceleration):
                terms.append(jnp.zeros_like(c.value(q, v, jnp.zeros_like(v), t, params)))
            else:
                terms.append(-self.alpha * c.value(q, v, t, params))
        return jnp.concatenate(terms) if terms else jnp.zeros((), q.dtype)


def restored(system: System, q: Array, t: Array, params: Params) -> Array:
    """q (n,) after one correction onto the invariants, the shortest one.

    One per step keeps them to the square of what a single step misses, which does not add up.
    """
    if not system.invariants:
        return q

    def level(q: Array) -> Array:
        return jnp.concatenate([c.value(q, t, params) for c in system.invariants])

    rows = metric(jnp.eye(q.size, dtype=q.dtype), jacobian(level, q), LDL())
    return q - rows.min_norm_solve(level(q))[0]


def metric_mass(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """The mass matrix, made definite as in `regular` if it is singular, (n, n) or (k, k)."""
    if not system.singular_mass:
        return system.dynamics.mass(q, v, t, params)
    return regular(system.dynamics.at(q, v, t, params))[0]


def coordinate_metric(
    system: System, metric: Array, q: Array, v: Array, t: Array, params: Params
) -> Array:
    """The metric of displacements of the coordinates, (n, n), beside that of the velocities.

    They are the same, unless there are quasi-velocities: then it is the mass matrix of the
    coordinates, which may be singular, and the mean mass for all directions in which no velocity
    leads.
    """
    if system.plain is system:
        return metric
    M = system.plain.dynamics.mass(q, system.dynamics.speeds(q, v, t, params), t, params)
    if system.n_velocities == system.n:
        return M
    T = system.dynamics.kinematics.matrix(q, t, params)
    directions = cholesky(T.T @ T).lower(T.T)  # orthonormal rows
    across = jnp.eye(q.size, dtype=q.dtype) - directions.T @ directions
    mechanical = system.dynamics.mechanical
    return M + jnp.trace(M[:mechanical, :mechanical]) / mechanical * across
