"""`RATTLE`: a symplectic method with a fixed step, for long times, and what it requires."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler import hoisted
from jaxmech.integrate.checks import first_that_holds
from jaxmech.integrate.methods.runge_kutta import (
    AbstractMethod,
    Moved,
    Policies,
    StepStart,
    require_udwadia_kalaba,
)
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import UdwadiaKalaba
from jaxmech.linalg import SaddlePoint, matvec, metric, saddle_point
from jaxmech.state import Free, Projection, metric_mass
from jaxmech.status import Status
from jaxmech.system import (
    Holonomic,
    Params,
    System,
    motion_share,
    on_constraints,
)
from jaxmech.utils.probing import cached_by_shapes, concrete_at, depends_on, generic

_ITERATIONS = 10  # of Newton's method in a step, of which three or four are usually enough

# From x (n,) and data to the momentum that the constraint forces have to balance (n,), the
# directions of these forces (m, n), independent of x, and the residual of the constraints (m,).
Equations = Callable[[Array, Any], tuple[Array, Array, Array]]


def _jacobians(equations: Equations, x: Array, data: Any, independent: Array) -> SaddlePoint:
    K, J = jax.jacfwd(lambda x: equations(x, data)[::2])(x)
    return saddle_point(K, equations(x, data)[1], J, independent)


def _corrected(
    equations: Equations, x: Array, data: Any, independent: Array
) -> tuple[Array, Array, Array]:
    """x after a correction, all multipliers, and whether the Jacobians could be factorized."""
    balance, _, level = equations(x, data)
    jacobians = _jacobians(equations, x, data, independent)
    change, multipliers = jacobians.solve(-balance, -level)
    return x + change, multipliers, jacobians.regular


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(
    equations: Equations, guess: Array, data: Any, independent: Array, size: Array
) -> tuple[Array, Array, Array]:
    """The root x of balance(x) - rows^T lambda = 0 and level(x) = 0, lambda, and success.

    Of the rows only the `independent` ones count; `size` is the scale of round-off of x. The
    derivative is that of the implicit function: another solve with the Jacobians at the root, so
    that no iteration is differentiated.
    """
    # Convergence is quadratic: after a correction below sqrt(eps) only round-off is left.
    eps = jnp.finfo(guess.dtype).eps

    def correct(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, multipliers, regular = _corrected(equations, state[0], data, independent)
        # Also no smaller than round-off of x, which for a short step is that of positions over h.
        enough = jnp.sqrt(eps) * (1 + jnp.max(jnp.abs(x))) + size
        return x, multipliers, (jnp.max(jnp.abs(x - state[0])) <= enough) & regular

    def correct_or_rest(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        return jax.lax.cond(state[2], lambda: state, lambda: correct(state))

    start = guess, jnp.zeros(independent.shape, guess.dtype), jnp.asarray(False)
    return jax.lax.fori_loop(0, _ITERATIONS, correct_or_rest, start)


@_root.defjvp
def _root_jvp(
    equations: Equations, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    x, multipliers, _ = root = _root(equations, *primals)
    _, data, independent, _ = primals

    def residual(data: Any) -> tuple[Array, Array]:
        balance, rows, level = equations(x, data)
        return balance - matvec(rows.T, multipliers), level

    _, (force, level) = jax.jvp(residual, (data,), (tangents[1],))
    dx, dmultipliers = _jacobians(equations, x, data, independent).solve(-force, -level)
    return root, (dx, dmultipliers, np.zeros((), jax.dtypes.float0))


@dataclass(frozen=True)
class RATTLE(AbstractMethod):
    """The Störmer-Verlet method with constraints (Andersen 1983), for separable Lagrangians.

    For a constant mass matrix and forces that depend on positions and time alone, with holonomic
    constraints, which may be redundant. Of second order, symplectic and reversible in time: the
    energy error stays bounded over very long times, and momenta are kept to round-off. Only the
    multipliers are implicit; they are found by Newton's method, in up to ten iterations.

    Raises:
        ValueError: by `simulate`, if the system is not as described.
    """

    order = 2
    error_constant = 1.0  # of q

    def require(self, system: System, policies: Policies, *state: Any) -> None:
        """Raise a ValueError unless the system is separable and its constraints holonomic."""
        formulation, stabilization = policies
        does = "solves for the constraint forces itself"
        require_udwadia_kalaba("jm.RATTLE", formulation, does, "`jm.RK4()`")
        if not isinstance(stabilization, Projection | Free):
            raise ValueError(
                "Argument `projection` must be left out for `jm.RATTLE`, whose steps end on the "
                f"constraints, but is {stabilization!r}; it goes with `jm.RK4()`."
            )
        for need, violation in _obstacles(system, *state):
            raise ValueError(
                f"Argument `method` must suit the system: `jm.RATTLE` needs {need}, but "
                f"{violation}; use `jm.RK4()`, which takes all systems."
            )

    def step(self, scheme: Scheme, start: StepStart, extents: Float[Array, " n"] | None) -> Moved:
        """One step, whose end is on the constraints."""
        system, formulation = scheme.system, scheme.formulation
        assert isinstance(formulation, UdwadiaKalaba)
        q, v, t, params, has_length = start.q, start.v, start.t, start.params, start.h != 0
        h = jnp.where(has_length, start.h, 1.0)  # repeated save times have no step between them
        start = StepStart(q, v, t, h, params)
        A = system.dynamics.velocity_jacobian(q, v, t, params)
        rows = metric(metric_mass(system, q, v, t, params), A, formulation.solver)
        # Which rows count is decided at the start, for both ends of the step; the choice has no
        # derivative.
        independent = jax.lax.stop_gradient(rows.independent)
        rounding = 64 * jnp.finfo(q.dtype).eps * (1 + jnp.max(jnp.abs(jax.lax.stop_gradient(q))))
        position = partial(_position_equations, system)
        hoisted_position, traced = hoisted(position, v, start)

        def with_traced(u: Array, data: Any) -> tuple[Array, Array, Array]:
            start, traced = data
            return hoisted_position(traced, u, start) if traced else position(u, start)

        u, _, converged = _root(with_traced, v, (start, traced), independent, rounding / jnp.abs(h))
        end = StepStart(q + h * u, u, t + h, h, params)
        at_end = system.equations(end.q, u, end.t, params)
        pushed = matvec(at_end.M, u) + h / 2 * at_end.Q
        # Linear, since M is constant.
        velocity = partial(_velocity_equations, system)
        new_v, _, regular = _corrected(velocity, u, (end, pushed), independent)
        # Dependent rows are left out; if the constraints are consistent they hold nevertheless.
        reached = jax.lax.cond(
            rows.rank < len(A),
            lambda: on_constraints(
                system, end.q, new_v, end.t, params, extents, motion_share(q.dtype)
            ),
            lambda: jnp.asarray(True),
        )
        status = first_that_holds(
            (~rows.definite, Status.SINGULAR_MASS),
            (has_length & ~(converged & regular), Status.NOT_CONVERGED),
            (has_length & ~reached, Status.PROJECTION_FAILED),
        )
        independent = rows.rank == jnp.asarray(len(A), rows.rank.dtype)
        q, v = jnp.where(has_length, end.q, q), jnp.where(has_length, new_v, v)
        return Moved(q, v, status == Status.OK, status, independent, rows.rank, len(A))


def _position_equations(system: System, u: Array, start: StepStart) -> tuple[Array, Array, Array]:
    """For Ld = h (L(q0, u, t) + L(q1, u, t + h)) / 2, of a separable Lagrangian."""
    q, v, t, h, params = start.q, start.v, start.t, start.h, start.params
    first = system.equations(q, v, t, params)
    # M is constant, so p(q0, v0) is M v0 and the sum needs no momentum of its own.
    balance = matvec(first.M, u - v) - h / 2 * first.Q
    # Divided by h, a correction is of the size of a velocity, as the balance of momenta is.
    level = system.dynamics.position_level(q + h * u, t + h, params) / h
    return balance, system.dynamics.position_jacobian(q, t, params), level


def _velocity_equations(
    system: System, v: Array, data: tuple[StepStart, Array]
) -> tuple[Array, Array, Array]:
    end, pushed = data
    balance = matvec(system.dynamics.mass(end.q, v, end.t, end.params), v) - pushed
    rows = system.dynamics.position_jacobian(end.q, end.t, end.params)
    return balance, rows, system.dynamics.velocity_level(end.q, v, end.t, end.params)


@cached_by_shapes
def _obstacles(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> tuple[tuple[str, str], ...]:
    """What the method needs of a system, each with its violation, tested at generic states."""
    violations = [
        ("holonomic constraints", f"{c.name!r} is {type(c).__name__}")
        for c in system.constraints
        if not isinstance(c, Holonomic)
    ]
    if system.states:
        names = ", ".join(system.states)
        violations.append(("no states of first order", f"the system has {names}"))
    if system.nonideal is not None:
        violations.append(("ideal constraints", "the system has a force `nonideal`"))
    if system.singular_mass:
        violations.append(("a regular mass matrix", "that of the system is singular"))
    if violations:
        return tuple(violations)
    state = q, v, t, params
    constant, of_positions = "a constant mass matrix", "forces that depend only on q and t"
    dependences = [name for k, name in enumerate("qvt") if _depends(system.dynamics.mass, state, k)]
    violations = [(constant, f"that of the system depends on {name}") for name in dependences]
    if system.force is not None and _depends(system.force, state, 1):
        violations.append((of_positions, "`force` depends on v"))
    if not dependences and _depends(system.dynamics.conservative_force, state, 1):
        violations.append(
            (of_positions, "the Lagrangian has gyroscopic terms, a force that depends on v")
        )
    return tuple(violations)


def _depends(fn: Callable[..., Array], state: tuple[Any, ...], k: int) -> bool:
    with_traced, traced = hoisted(fn, *state)

    def call(traced: Any, *state: Any) -> Array:
        return with_traced(traced, *state) if traced else fn(*state)

    base = tuple(generic(x, seed) for seed, x in enumerate((traced, *state)))
    others = [(*base[: 1 + k], generic(state[k], seed), *base[2 + k :]) for seed in (21, 22)]
    points = [base, *others]
    results = list(concrete_at(call, points))
    values = [x for x in results if x is not None and np.isfinite(x).all()]
    if len(values) == len(points):
        # Well above round-off in float32, and far below an intended dependence.
        size = 1e-5 * max(np.abs(x).max(initial=0.0) for x in values)
        return any(np.abs(x - values[0]).max(initial=0.0) > size for x in values[1:])

    # A function without a value at generic states is classified by its operations.
    def moved(x: Any, *arguments: Any) -> Array:
        return call(*arguments[: 1 + k], x, *arguments[1 + k :])

    return depends_on(moved, (base[1 + k], *base[: 1 + k], *base[2 + k :]))
