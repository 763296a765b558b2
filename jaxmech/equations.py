"""Equations of motion from a Lagrangian and constraints, by automatic differentiation.

    M = d2L/dv2,    Q = dL/dq - (d2L/dv dq) v - d2L/dv dt + F

so that without constraints M a = Q. With the constraints A qdd = b and their multipliers,

    M qdd = Q + A^T lambda,    A qdd = b

(Lagrange's equations of the first kind; Kalaba, Udwadia, Xu and Itiki 1995, equation (1)).
A^T lambda is the force of the constraints on the system.
"""

from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.compiler import jacobian

# Whether M lacks full rank; if it does, also the rows of A that compensate for it, if known.
SingularMass: TypeAlias = bool | tuple[int, ...]
# The gradients dL/dq and dL/dv, (n,) each, of a Lagrangian at q, v and t; the velocities may be
# quasi-velocities, the gradients are those by coordinates and their rates.
Slopes: TypeAlias = Callable[[Array, Array, Array], tuple[Array, Array]]


class EquationsOfMotion(eqx.Module):
    """The equations at one state: M a = Q without the constraints, and the constraints A a = b.

    The result of `System.equations`, see `System`.

    Attributes:
        M: mass matrix, shape (n, n).
        Q: generalized force, shape (n,).
        A: constraint matrix, shape (m, n), rows in the order of the system's constraints.
        b: right-hand side, shape (m,).
        singular_mass: whether M lacks full rank, or the rows of A that compensate for it.
    """

    M: Float[Array, " n n"]
    Q: Float[Array, " n"]
    A: Float[Array, " m n"]
    b: Float[Array, " m"]
    singular_mass: SingularMass = eqx.field(static=True, default=False)


def mass_matrix(slopes: Slopes, q: Array, v: Array, t: Array) -> Float[Array, " n k"]:
    """The mass matrix M = d2L/dv2 (n, n); with k quasi-velocities M T (n, k)."""
    return jacobian(lambda v: slopes(q, v, t)[1], v)


def generalized_force(
    slopes: Slopes, q: Array, v: Array, t: Array, change: Array | None = None,
    speeds: Array | None = None,
) -> Float[Array, " n"]:  # fmt: skip
    """The generalized force Q (n,), without the non-conservative one.

    `change` has the accelerations of velocities that are given functions of time. With
    quasi-velocities the `speeds` (n,) are the rates of the coordinates, and the force is that of
    the coordinates for constant velocities, Q - M (dT/dt) u.
    """
    along = v if speeds is None else speeds, jnp.ones_like(t)
    transported = jax.jvp(lambda q, t: slopes(q, v, t)[1], (q, t), along)[1]
    if change is not None:
        transported = transported + jax.jvp(lambda v: slopes(q, v, t)[1], (v,), (change,))[1]
    return slopes(q, v, t)[0] - transported
