"""What is true of a system at almost every state, found without knowing any actual value."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.constraints import Acceleration, Holonomic
from jaxmech.generic import concrete, generic
from jaxmech.linalg import times
from jaxmech.system import Params, System


@dataclass(frozen=True)
class Traits:
    """Structural facts about a system.

    Attributes:
        singular_mass: M lacks full rank at generic states (a unit quaternion, say).
        conserves_energy: nothing depends on time, no force acts, and no constraint does work,
            as every non-ideal one is taken to do.
    """

    singular_mass: bool
    conserves_energy: bool


def traits(system: System, q: Array, v: Array, t: Array, params: Params) -> Traits:
    """Structural facts about a system, asked for at fixed generic arguments of the same shapes.

    A wrong answer never changes a result: an undetected singular M ends in the status
    `SINGULAR_MASS`, and an undetected conservation law leaves the energy drift unreported.

    Args:
        system: the system.
        q: coordinates (n,); like `v`, `t` and `params` only its shape and type matter.
        v: velocities (n,).
        t: time, scalar.
        params: parameters.

    Example:
        >>> import jax.numpy as jnp
        >>> free = System(lambda q, v, t, p: v[0] ** 2 - jnp.sin(t), coordinates=("x", "y"))
        >>> traits(free, jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), None)
        Traits(singular_mass=True, conserves_energy=False)
    """
    points = [generic((q, v, t, params), seed) for seed in (11, 12)]
    masses = [concrete(system.mass, *point) for point in points]
    return Traits(
        singular_mass=all(M is not None and _is_singular(M) for M in masses),
        conserves_energy=_conserves_energy(system, points),
    )


def _conserves_energy(system: System, points: list[tuple[Array, Array, Array, Params]]) -> bool:
    if system.force is not None or system.nonideal is not None:
        return False
    if any(isinstance(c, Acceleration) for c in system.constraints):
        return False
    works = [concrete(lambda *state: _work_sources(system, *state), *point) for point in points]
    return all(work is not None and np.allclose(work, 0, atol=1e-5) for work in works)


def _is_singular(M: np.ndarray) -> bool:
    if not np.isfinite(M).all():
        return False
    return bool(np.linalg.matrix_rank(M, tol=1e-5 * np.abs(M).max()) < M.shape[0])


def _work_sources(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    """dL/dt, and the power that each constraint could put in: A v off its own surface.

    The power of a constraint force is (A v) . lambda. For dphi/dt = A v + phi_t = 0 it vanishes if
    phi_t does; for psi = 0 if A v is psi itself, that is, if psi is linear and homogeneous in v.
    """
    sources = [jax.grad(lambda t: system.lagrangian(q, v, t, params))(t)[None]]
    for constraint in system.constraints:
        if isinstance(constraint, Holonomic):
            still = jnp.zeros_like(v)
            sources.append(constraint.speed(q, still, t, params))
        else:
            A, _ = constraint.rows(q, v, t, params)
            sources.append(times(A, v) - constraint.value(q, v, t, params))
    return jnp.concatenate(sources)
