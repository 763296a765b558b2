"""`RATTLE`: a symplectic method with a fixed step, for long times."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmech.consistency import constraint_jacobians, motion_share, on_constraints
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.integrate.methods.runge_kutta import AbstractMethod, Policies
from jaxmech.integrate.methods.variational.newton import (
    NewtonSettings,
    Residual,
    linear_step,
    newton,
)
from jaxmech.integrate.methods.variational.requirements import (
    require_holonomic,
    require_policies,
    require_separable,
)
from jaxmech.linalg import matvec, metric
from jaxmech.stabilization import metric_mass
from jaxmech.system import Params, System
from jaxmech.utils.checks import require_positive_integer
from jaxmech.utils.text import setting


class StepStart(eqx.Module):
    """The state at which a step starts, and its length."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    t: Float[Array, ""]  # [s]
    h: Float[Array, ""]  # [s]
    params: Params


class Momenta(NamedTuple):
    """Momenta of a step, without constraint forces."""

    start: Array  # required at the start of the step minus p(q0, v0), (n,)
    end: Array  # at its end, except for the part of p(q1, v1) without v1, (n,)


def momenta(system: System, start: StepStart, u: Array) -> Momenta:
    """The momenta for Ld = h (L(q0, u, t) + L(q1, u, t + h)) / 2, for separable Lagrangians."""
    params, half = start.params, start.h / 2
    first = system.equations(start.q, start.v, start.t, params)
    last = system.equations(start.q + start.h * u, u, start.t + start.h, params)
    # M is constant, so p(q0, v0) is M v0 and the sum needs no momentum of its own.
    balance = matvec(first.M, u - start.v) - half * first.Q
    return Momenta(balance, matvec(first.M, u) + half * last.Q)


class Advance(eqx.Module):
    """The result of a step, and how it went."""

    q: Float[Array, " n"]
    v: Float[Array, " n"]
    rank: Int[Array, ""]
    definite: Bool[Array, ""]  # whether the mass matrix was positive definite
    converged: Bool[Array, ""]  # whether the equations of the step were solved
    reached: Bool[Array, ""]  # whether the state fulfils dependent constraints too


@dataclass(frozen=True)
class RATTLE(AbstractMethod):
    """The Störmer-Verlet method with constraints (Andersen 1983), for separable Lagrangians.

    For a constant mass matrix and forces that depend on positions and time alone, with holonomic
    constraints, which may be redundant. Of second order, symplectic and reversible in time: the
    energy error stays bounded over very long times, and momenta are kept to round-off. Only the
    multipliers are implicit; they are found by Newton's method.

    Args:
        iterations: maximum number of Newton iterations in a step; if these are not enough, the
            status is `NOT_CONVERGED`.

    Raises:
        ValueError: if `iterations` is not a positive integer; by `simulate`, if the system is not
            as described.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> ts = jnp.linspace(0.0, 10.0, 101)
        >>> sol = jm.simulate(
        ...     model.system, *model.initial(), ts, model.params,
        ...     method=jm.RATTLE(), steps=jm.FixedSteps(per_save=10),
        ... )
        >>> print(sol.position_residual.max() < 1e-14, sol.velocity_residual.max() < 1e-14)
        True True
    """

    order = 2
    error_constant = 1.0  # of q
    iterations: int = setting(
        10, "maximum number of Newton iterations in a step", most=100, kw_only=True
    )

    def __post_init__(self) -> None:
        remedy = "leave it out for 10; three or four are usually enough"
        require_positive_integer("iterations", self.iterations, remedy)

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the system is separable and its constraints holonomic."""
        require_policies("jm.RATTLE", *policies)
        require_holonomic("jm.RATTLE", system)
        require_separable("jm.RATTLE", system, *state)

    def advance(
        self, system: System, formulation: AbstractFormulation, start: StepStart,
        extents: Float[Array, " n"] | None,
    ) -> Advance:  # fmt: skip
        """Compute the state after one step."""
        assert isinstance(formulation, UdwadiaKalaba)
        has_length = start.h != 0  # repeated save times have not
        start = eqx.tree_at(lambda s: s.h, start, jnp.where(has_length, start.h, 1.0))
        q, v, t, h, params = start.q, start.v, start.t, start.h, start.params
        A, _ = constraint_jacobians(system, q, v, t, params)
        rows = metric(metric_mass(system, q, v, t, params), A, formulation.solver)
        # Which rows count is decided at the start, for both ends of the step; the choice has no
        # derivative.
        independent = jax.lax.stop_gradient(rows.independent)
        settings = NewtonSettings(self.iterations, system.singular_mass)
        position = partial(_position_equations, system)
        middle = newton(position, settings, v, start, independent, _rounding(q) / jnp.abs(h))
        u = middle.x
        end = StepStart(q + h * u, u, t + h, h, params)
        velocity = partial(_velocity_equations, system)
        # Linear, since M is constant.
        pushed = end, momenta(system, start, u).end
        last = linear_step(velocity, settings, u, pushed, independent)
        # Dependent rows are left out; if the constraints are consistent they hold nevertheless.
        reached = jax.lax.cond(
            rows.rank < len(A),
            lambda: on_constraints(
                system, end.q, last.x, end.t, params, extents, motion_share(q.dtype)
            ),
            lambda: jnp.asarray(True),
        )
        return Advance(
            jnp.where(has_length, end.q, q),
            jnp.where(has_length, last.x, v),
            rows.rank,
            rows.definite,
            ~has_length | (middle.converged & last.converged),
            ~has_length | reached,
        )


def _position_equations(system: System, u: Array, start: StepStart) -> Residual:
    q, v, t, h, params = start.q, start.v, start.t, start.h, start.params
    return Residual(
        balance=momenta(system, start, u).start,
        rows=constraint_jacobians(system, q, v, t, params)[0],
        # Divided by h, a correction is of the size of a velocity, as the balance of momenta is.
        level=system.dynamics.position_level(q + h * u, t + h, params) / h,
    )


def _velocity_equations(system: System, v: Array, data: tuple[StepStart, Array]) -> Residual:
    (end, pushed), params = data, data[0].params
    return Residual(
        balance=matvec(system.dynamics.mass(end.q, v, end.t, params), v) - pushed,
        rows=constraint_jacobians(system, end.q, end.v, end.t, params)[0],
        level=system.dynamics.velocity_level(end.q, v, end.t, params),
    )


def _rounding(x: Array) -> Array:
    return 64 * jnp.finfo(x.dtype).eps * (1 + jnp.max(jnp.abs(jax.lax.stop_gradient(x))))
