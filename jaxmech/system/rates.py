"""A system in the rates of its coordinates, for analyses that need them."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.linalg import matvec, null_basis
from jaxmech.system.constraints import Nonholonomic
from jaxmech.system.quasi_velocities import Rates
from jaxmech.system.system import Params, System


def in_rates(system: System, params: Params) -> System:
    """The same system, with the same motions, with the rates of its coordinates for v.

    The rates that quasi-velocities exclude are excluded by the invariants, which are constraints of
    that system, or, if these are fewer or more, by a `Nonholonomic` constraint "kinematics".
    """
    plain = system.plain
    if plain is system:
        return system

    def values(q: Array) -> list[Array]:
        return [c.value(q, jnp.zeros_like(q[0]), params) for c in system.invariants]

    sizes = [x.size for x in jax.eval_shape(values, jnp.zeros(system.n))]
    excluded = system.n - system.n_velocities
    if excluded == sum(sizes):
        return plain
    kinematics = Nonholonomic(_Excluded(system.dynamics.kinematics, excluded), "kinematics")
    return replace(plain, constraints=(*plain.constraints, kinematics))


@dataclass(frozen=True)
class _Excluded:
    """The parts of the rates that no velocities have: Z^T dq/dt with Z^T T = 0."""

    kinematics: Rates
    count: int

    def __call__(self, q: Array, v: Array, t: Array, params: Any) -> Array:
        Z, _ = null_basis(self.kinematics.matrix(q, t, params).T, self.count)
        return matvec(Z.T, v)
