"""Stabilization against drift off the constraints.

The differentiated constraints A qdd = b only keep the second derivative of phi at zero, so that
round-off and step errors make phi itself grow. `Projection` moves every state back onto phi = 0 and
psi = 0 in the mass metric; `Baumgarte` feeds the violation back into b; `Free` lets it drift.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.consistency import constraint_jacobians, extents_at, motion_share, near, near_rates
from jaxmech.constraints import Acceleration, Holonomic
from jaxmech.formulations.regular import regular
from jaxmech.linalg import LDL, AbstractSolver, metric
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_kind, require_positive_integer
from jaxmech.utils.field_docs import doc, setting


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
    """A policy against drift, in the accelerations and after each step; by default none."""

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
        iterations: corrections per step; each reduces the error by a factor of the size of the
            first correction, so that two reach round-off unless the step is too coarse.
        solver: the solver, which also handles dependent rows.

    Raises:
        ValueError: `iterations` is not a positive integer.
        TypeError: `solver` is not a solver.

    Example:
        >>> Projection(iterations=3)
        Projection(iterations=3, solver=LDL(tolerance=None))
    """

    iterations: int = setting(2, "Gauss-Newton corrections after each step", most=100)
    solver: AbstractSolver = setting(LDL(), "treatment of dependent constraints")

    def __post_init__(self) -> None:
        remedy = "pass `projection=None` for no projection"
        require_positive_integer("iterations", self.iterations, remedy)
        require_kind("solver", self.solver, AbstractSolver, "LDL()")

    def after_step(
        self, system: System, q: Array, v: Array, t: Array, params: Params,
        before: RowsBefore | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """q and v on the constraints, and whether the corrections converged."""
        A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
        if A_velocity.shape[0] == 0:
            return q, v, jnp.asarray(True)
        M = metric_mass(system, q, v, t, params)
        positions = metric(M, A_position, self.solver)
        # Without nonholonomic constraints one factorization serves both levels.
        same = A_position is A_velocity
        velocities = positions if same else metric(M, A_velocity, self.solver)
        for _ in range(self.iterations):
            dq = positions.smallest(system.position_level(q, t, params))[0]
            q = q - dq
        for _ in range(self.iterations):
            # After the positions, because the constraints on v depend on q. The factors are those
            # of the q before the projection, so one correction is insufficient even where the
            # constraints are linear in v.
            dv = velocities.smallest(system.velocity_level(q, v, t, params))[0]
            v = v - dv

        extents, share = None if before is None else before.extents, motion_share(q.dtype)

        def is_right() -> Array:
            size = extents_at(system, q, v, t, params) if extents is None else extents
            level = system.position_level(q, t, params)
            met = near(level, A_position, q, size, share) & ~is_misled()
            level = system.velocity_level(q, v, t, params)
            return met & near_rates(level, A_velocity, v, q, size, share)

        def is_misled() -> Array:
            """Whether a row was kept that is dependent at the start and at the end of the step."""
            if before is None:
                return jnp.asarray(False)
            A = constraint_jacobians(system, q, v, t, params)[1]
            after = metric(M, A, self.solver).rank
            return jnp.maximum(before.rank, after) < velocities.rank

        # After a small last correction the error is smaller still, unless a row was dropped. So the
        # residuals are recomputed only in the other cases, which are rare.
        size = jax.lax.stop_gradient((dq * dq).sum() + (dv * dv).sum())
        least = 1.0 if extents is None else jnp.min(extents)
        plain = size <= (share * least) ** 2
        plain &= (positions.rank == len(A_position)) & (velocities.rank == len(A_velocity))
        if before is not None:
            plain &= ~before.dependent
        reached = jax.lax.cond(~plain, is_right, lambda: jnp.asarray(True))
        return q, v, reached & positions.definite


@dataclass(frozen=True)
class Baumgarte(AbstractStabilization):
    """Feed the violation back: phi'' + 2 alpha phi' + beta^2 phi = 0 and psi' + alpha psi = 0.

    Baumgarte 1972. The drift remains bounded, but not zero, and the step has to resolve the time
    scales of the feedback.

    Args:
        alpha: damping rate [1/s].
        beta: stiffness rate [1/s]; alpha = beta is critical damping.

    Raises:
        ValueError: a rate is negative.

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


def metric_mass(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """The mass matrix, made definite as in `regular` if it is singular, (n, n)."""
    if not system.singular_mass:
        return system.mass(q, v, t, params)
    return regular(system.equations(q, v, t, params))[0]
