"""Free rigid body, its attitude as a unit quaternion.

            3 ^   ,2          body axes 1, 2, 3 with moments of inertia J1, J2, J3
              |  /
              | /             e = (e0, e1, e2, e3) turns body into space components
              o------> 1      w = 2 conj(e) e': angular velocity in body axes

Coordinates: e0, e1, e2, e3 (no unit), e0 the scalar part.

    parameter   default       unit      meaning
    J           (1, 2, 2.5)   kg m^2    principal moments of inertia, shape (3,)

    L = (J1 w1^2 + J2 w2^2 + J3 w3^2) / 2;   no force, no torque

Constraint `unit`: (e0^2 + e1^2 + e2^2 + e3^2 - 1) / 2 = 0.

Known facts:
- Three degrees of freedom. M = 4 E^T diag(J) E, with E the 3 by 4 matrix of conj(e), has rank 3:
  stretching e costs no energy. The constraint's row A = e makes [M; A] of full column rank.
- Euler's equations J1 w1' = (J2 - J3) w2 w3 and so on; the energy and the angular momentum in space
  are conserved; turning about the middle axis is unstable. w in Jacobi elliptic functions: Landau
  and Lifshitz, "Mechanics", section 37.
- e and -e are the same attitude. The multiplier is not a torque: it is -4 L, because this L is also
  defined, and grows, where e is no unit.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech import meshes
from jaxmech.geometry import line, solid
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Holonomic, System

Quaternion = Float[Array, " 4"]


def free_body() -> Model:
    """Torque-free rigid body with a unit quaternion (facts: `jaxmech.models.free_body`).

    Start variables: e, shape (4,), the attitude (of any length but 0: it is made a unit), and
    w [rad/s], shape (3,), the angular velocity in body axes.
    """
    return Model(
        name="free_body",
        summary="torque-free rigid body, unit quaternion, singular mass matrix",
        system=System(
            _lagrangian, [Holonomic(_unit, name="unit")], coordinates=("e0", "e1", "e2", "e3")
        ),
        params={"J": np.array([1.0, 2.0, 2.5])},
        start={"e": np.array([1.0, 0.0, 0.0, 0.0]), "w": np.array([0.9, 0.0, 0.6])},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Quaternion, v: Quaternion, t: Array, p: Values) -> Array:
    conjugate = jnp.concatenate([q[:1], -q[1:]])
    w = 2 * _product(conjugate, v)[1:]
    return 0.5 * p["J"] @ w**2


def _unit(q: Quaternion, t: Array, p: Values) -> Array:
    return (q @ q - 1) / 2


def _state(start: Values, p: Values) -> tuple[Quaternion, Quaternion]:
    e, w = jnp.asarray(start["e"]), jnp.asarray(start["w"])
    e = e / jnp.sqrt(e @ e)
    return e, 0.5 * _product(e, vector(0.0, *w))


def _product(a: Quaternion, b: Quaternion) -> Quaternion:
    a0, a1, a2, a3 = a
    b0, b1, b2, b3 = b
    return jnp.stack([
        a0 * b0 - a1 * b1 - a2 * b2 - a3 * b3,
        a0 * b1 + a1 * b0 + a2 * b3 - a3 * b2,
        a0 * b2 - a1 * b3 + a2 * b0 + a3 * b1,
        a0 * b3 + a1 * b2 - a2 * b1 + a3 * b0,
    ])  # fmt: skip


def _geometry(q: Quaternion, t: Array, p: Values) -> dict[str, Any]:
    """A box with a side of 1 m along the axis of the smallest moment, the others as 1 / sqrt(J)."""
    conjugate = jnp.concatenate([q[:1], -q[1:]])
    units = jnp.eye(4)[1:]
    axes = jnp.stack([_product(_product(q, unit), conjugate)[1:] for unit in units], axis=1)
    sizes = jnp.sqrt(jnp.min(p["J"]) / p["J"])
    tip = 0.5 * sizes[2] * axes[:, 2]
    body = solid(meshes.box(), jnp.zeros(3), axes * sizes[None])
    return {"body": body, "axis 3": line(tip, 2 * tip), "tip 3": 2 * tip}
