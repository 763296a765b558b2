"""The equations of motion as a residual, and the degrees of freedom that constraints leave."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.analysis.states import State
from jaxmech.compiler import jacobian, native_program
from jaxmech.laws import acceleration
from jaxmech.linalg import unit
from jaxmech.system import (
    Acceleration,
    Params,
    System,
    constrains_states,
    constraint_jacobians,
    reads_integrals,
    violations,
    without_states,
)
from jaxmech.utils.probing import actual, cached_by_shapes, generic, outside_traces

Freedom = tuple[int, int, int]  # numbers of positions, velocities and accelerations


class Balance(NamedTuple):
    """The residuals of the equations of motion at a state, its accelerations and multipliers."""

    force: Any  # M a - Q - A^T lambda - C, shape (n,)
    rows: Any  # A a - b, shape (m,)
    pull: Any  # A^T lambda, shape (n,)
    speed: Any  # residual of the constraints at the velocity level, shape (l,)


def balance(
    system: System, q: Array, v: Array, t: Array, params: Params, a: Array, multipliers: Array
) -> Balance:
    """The equations of motion at (q, v, a, t), by derivatives along the motion: M is not formed.

    The rows and multipliers of `Acceleration` constraints come last.
    """
    first = system.dynamics.mechanical
    states = system.n - first
    rates, state_rates = system.dynamics.state_rates(q, v, t, params), a[first:]
    a = jnp.concatenate([a[:first], rates])

    level, rate = _level_and_rate(system, q, v, t, params, a)
    aim, servo_pull = jax.vjp(lambda a: _servo(system, q, v, t, params, a), a)
    _, pulled = jax.vjp(lambda v: system.dynamics.velocity_level(q, v, t, params), v)
    pull = pulled(multipliers[: level.size])[0] + servo_pull(multipliers[level.size :])[0]
    pull = without_states(pull, states)
    along = v, a, jnp.ones_like(t)
    (by_q, _), (_, rate_of_momentum) = jax.jvp(
        lambda *state: system.dynamics.slopes(*state, params), (q, v, t), along
    )
    force = (
        without_states(rate_of_momentum - by_q, states)
        - pull
        - system.dynamics.applied_force(q, v, t, params)
    )
    if system.nonideal is not None:
        # The multipliers move with the state here, since the friction depends on them.
        multipliers_of_law = acceleration(system, q, v, t, params).multipliers
        force = force - system.dynamics.nonideal_force(q, v, multipliers_of_law, t, params)
    force = jnp.concatenate([force[:first], state_rates - rates])
    return Balance(force, jnp.concatenate([rate, aim]), pull, level)


def _level_and_rate(
    system: System, q: Array, v: Array, t: Array, params: Params, a: Array
) -> tuple[Array, Array]:
    def speed(q: Array, v: Array, t: Array) -> Array:
        return system.dynamics.velocity_level(q, v, t, params)

    return jax.jvp(speed, (q, v, t), (v, a, jnp.ones_like(t)))


def _servo(system: System, q: Array, v: Array, t: Array, params: Params, a: Array) -> Array:
    servos = [c for c in system.constraints if isinstance(c, Acceleration)]
    values = [c.value(q, v, a, t, params) for c in servos]
    return jnp.concatenate([jnp.zeros((0,), q.dtype), *values])


def parameter_reach(force: Callable[[Params], Array], params: Params) -> Array:
    """The effect of relative changes of all parameters on forces, which balance at an equilibrium.

    It remains where the stiffness vanishes too, at a fold.
    """
    numbers, constants = eqx.partition(params, eqx.is_inexact_array)
    draw = np.random.default_rng(17)  # different changes, so that their effects do not cancel
    moves = jax.tree.map(
        lambda x: x * jnp.asarray(draw.uniform(0.5, 1.5, x.shape), x.dtype), numbers
    )
    return jnp.abs(jax.jvp(lambda p: force(eqx.combine(p, constants)), (numbers,), (moves,))[1])


def acceleration_rows(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """The rows of the constraints on the accelerations, shape (m, n), in the order of `balance`."""
    if constrains_states(system, q, v, t, params):
        raise ValueError(
            "Argument `system` must have constraints without states of first order to be "
            f"linearized, but one contains {' or '.join(system.states)}; write its reaction as a "
            "force, or look at a simulation."
        )
    first = system.dynamics.mechanical
    rates = system.dynamics.state_rates(q, v, t, params)

    def rows(a: Array) -> Array:
        a = jnp.concatenate([a[:first], rates])
        rate = _level_and_rate(system, q, v, t, params, a)[1]
        return jnp.concatenate([rate, _servo(system, q, v, t, params, a)])

    return jacobian(rows, jnp.zeros_like(q))


def held_integrals(
    system: System, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " s n"]:
    """Rows that hold the integrals of states of first order, where nothing depends on them."""
    rows = jnp.eye(system.n, dtype=q.dtype)[system.dynamics.mechanical :]
    return rows[:0] if reads_integrals(system, q, v, t, params) else rows


def row_order(system: System, sizes: tuple[int, ...]) -> np.ndarray:
    """The order of the rows of the system with `Acceleration` constraints last."""
    servo = [isinstance(c, Acceleration) for c in system.constraints]
    return np.argsort(np.repeat(servo, sizes), kind="stable")


SAMPLES = 4  # number of batch members whose ranks are counted
ASIDE = 1e-3  # relative distance of the states with which a pose is compared


def require_consistent(system: System, state: State) -> None:
    """Raise a ValueError that names a constraint violated by a known state."""
    for violation in violations(system, *state):
        raise ValueError(
            f"Arguments `q` and `v` must meet the constraints, but {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; `assemble` them first."
        )


def freedom_at(system: System, state: State) -> Freedom:
    """The numbers of positions, velocities and accelerations that the constraints leave free.

    They are counted at the state, or at members of the batch under `jax.vmap`; under `jit`, where
    values are unknown, at generic arguments.
    """
    members = actual(state, SAMPLES)
    if members is None:
        return _generic_freedom(system, *state)
    leaves, structure = jax.tree.flatten(members)
    states = [jax.tree.unflatten(structure, x) for x in zip(*map(jnp.asarray, leaves), strict=True)]
    return min(_freedom(_rows(system, *member)) for member in states)


def require_regular(system: System, state: State, freedom: Freedom) -> None:
    """Raise a ValueError where the rank of the constraints is smaller than at states nearby."""
    q, v, t, params = state
    A_p, A_v, _ = map(np.asarray, _rows(system, *state))
    if not freedom[0] or not A_v.shape[0]:
        return
    draw = np.random.default_rng(3)
    for _ in range(2):
        change = draw.uniform(-1, 1, system.n) * (1 + np.abs(np.asarray(q)))
        change = change - np.linalg.pinv(A_p, rcond=1e-6) @ (A_p @ change)
        moved = _rows(system, q + ASIDE * jnp.asarray(change, q.dtype), v, t, params)
        for level, A, freedom_rows in zip(
            ("positions", "velocities"), moved[:2], freedom[:2], strict=True
        ):
            # Singular values that vanish in a singular pose are of the order of ASIDE at this
            # distance from it.
            rank = int((_singular_values(A) > 0.03 * ASIDE).sum())
            if rank > system.n - freedom_rows:
                raise ValueError(
                    "Argument `q` must not be a singular pose, but the constraints on "
                    f"{level} have rank {system.n - freedom_rows} there and {rank} nearby; move "
                    "away from it, to where the degrees of freedom are well defined."
                )


@native_program("system")
def _rows(system: System, q: Array, v: Array, t: Array, params: Params) -> tuple[Array, ...]:
    """The rows of the constraints on positions, velocities and accelerations."""
    A_p, A_v = constraint_jacobians(system, q, v, t, params)
    A_p = jnp.concatenate([A_p, held_integrals(system, q, v, t, params)])
    servo = [c.rows(q, v, t, params)[0] for c in system.constraints if isinstance(c, Acceleration)]
    return A_p, A_v, jnp.concatenate([A_v, *servo])


def _singular_values(rows: Any) -> np.ndarray:
    rows, lengths = unit(np.asarray(rows))
    return np.linalg.svd(rows[lengths > 0], compute_uv=False)


def _freedom(rows: tuple[Any, ...]) -> Freedom:
    n = rows[0].shape[1]
    tolerance = float(jnp.finfo(rows[0].dtype).eps) ** 0.5
    ranks = [int((_singular_values(A) > tolerance).sum()) for A in rows]
    return n - ranks[0], n - ranks[1], n - ranks[2]


@cached_by_shapes
def _generic_freedom(system: System, q: Array, v: Array, t: Array, params: Params) -> Freedom:
    rows = outside_traces(_rows, system, *generic((q, v, t, params), seed=21))
    if rows is None:
        raise ValueError(
            "Argument `freedom` must be given here, since the functions of the system close over "
            "values that are being traced; pass (positions, velocities, accelerations), as "
            "`structure` counts."
        )
    return _freedom(rows)
