"""A system in the rates of its coordinates, for analyses that do not take quasi-velocities."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.quasi_velocities import IN_RATES, require_plain_velocities
from jaxmech.system import Params, System


def in_rates(system: System, params: Params, subject: str = "Argument `system`") -> System:
    """The same system with the rates of its coordinates for v.

    It has the same motions where as many rates are excluded by the invariants as there are fewer
    velocities than coordinates.

    Raises:
        ValueError: if quasi-velocities exclude motions that no invariant excludes.
    """
    if system.quasi is None:
        return system

    def values(q: Array) -> list[Array]:
        return [c.value(q, jnp.zeros_like(q[0]), params) for c in system.invariants]

    sizes = [x.size for x in jax.eval_shape(values, jnp.zeros(system.n))]
    if system.n - system.n_velocities != sum(sizes):
        require_plain_velocities(system.velocities, subject, IN_RATES)
    return system.plain
