"""The family of all multipliers of a motion.

Kalaba, Udwadia, Xu and Itiki 1995, equation (17): with C = A M^-1/2 and an arbitrary vector w3,

    lambda = (C^T)^+ C^+ (b - A a) + (I - C C^+) w3

The first part has minimum norm, the second is the redistribution of load between redundant
constraints. A^T lambda is the same for every w3, because C^T C C^+ = (C C^+ C)^T = C^T. So a single
multiplier of a redundant constraint is a convention, and only A^T lambda and the motion can be
measured.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmech.laws.acceleration import acceleration, null_projector
from jaxmech.laws.base import AbstractFormulation
from jaxmech.laws.udwadia_kalaba import UdwadiaKalaba
from jaxmech.linalg import matvec
from jaxmech.system import Subject, with_params


class MultiplierFamily(eqx.Module):
    """Every lambda with M qdd = Q + A^T lambda, for the qdd of the motion.

    The result of `multiplier_family`.

    Attributes:
        smallest: the member of minimum norm, shape (m,).
        projector: I - C C^+, shape (m, m), zero for independent constraints.
        dimension: number of undetermined directions, m minus the rank of A.
        constraint_force: A^T lambda, the same for all members, shape (n,).
    """

    smallest: Float[Array, " m"]
    projector: Float[Array, " m m"]
    dimension: Int[Array, ""]
    constraint_force: Float[Array, " n"]

    def member(self, w3: Any) -> Float[Array, " m"]:
        """The multipliers that belong to w3 (m,): the member nearest to it."""
        w3, shape = jnp.asarray(w3, self.smallest.dtype), self.smallest.shape
        if w3.shape != shape:
            raise ValueError(f"Argument `w3` must have shape {shape}, but has shape {w3.shape}.")
        return self.smallest + matvec(self.projector, w3)


def multiplier_family(
    system: Subject,
    q: Any,
    v: Any,
    t: Any = 0.0,
    params: Any = None,
    *,
    formulation: AbstractFormulation = UdwadiaKalaba(),
) -> MultiplierFamily:
    """The family of all multipliers at one state.

    Args:
        system: the system, with n coordinates and m constraint equations.
        q: coordinates, shape (n,).
        v: velocities, shape (n,).
        t: time [s].
        params: the parameters that the functions of the system expect.
        formulation: the law of motion that determines the minimum-norm multipliers.

    Raises:
        ValueError: if an argument or the result of a function of the system has the wrong shape.
        TypeError: if `system` is not a `System`.
    """
    system, params = with_params(system, params)
    motion = acceleration(system, q, v, t, params, formulation=formulation)
    projector = null_projector(system.equations(q, v, t, params))
    return MultiplierFamily(
        smallest=motion.multipliers,
        projector=projector,
        dimension=projector.shape[0] - motion.rank,
        constraint_force=motion.constraint_force,
    )
