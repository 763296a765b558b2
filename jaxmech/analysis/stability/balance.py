"""The equations of motion as a residual, from which equilibria and linearizations are derived."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler import jacobian
from jaxmech.constraints import Acceleration
from jaxmech.first_order import without_states
from jaxmech.formulations import acceleration
from jaxmech.properties import constrains_states, reads_integrals
from jaxmech.system import Params, System


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
