r"""Double pendulum in relative angles: the same mechanism without any constraint.

           o--------
            \ theta1           theta1 from the downward vertical,
          l1 \                theta2 from the extension of the first rod,
              o m1            both counter-clockwise
              |\
              | \ theta2
           l2 |   (extension of rod 1)
              o m2            gravity downwards

Coordinates: theta1, theta2 [rad].

    parameter   default   unit      meaning
    m1, m2      1, 1      kg        masses
    l1, l2      1, 1      m         lengths of the rods
    g           9.81      m/s^2     gravity

No constraint: minimal coordinates. With equal masses this is the double pendulum of Alijani's
lecture "Lagrange Equations" (TU Delft WB1418-07), here with m1 and m2 apart:

    T = (m1 + m2)/2 l1^2 theta1'^2 + m2/2 l2^2 (theta1' + theta2')^2
        + m2 l1 l2 theta1' (theta1' + theta2') cos(theta2)
    V = -(m1 + m2) g l1 cos(theta1) - m2 g l2 cos(theta1 + theta2)

Known facts:
- Two degrees of freedom; M depends on theta2 alone and is positive definite everywhere; the energy
  is conserved.
- theta1 and theta1 + theta2 are the absolute angles of `double_pendulum`: the default starts of
  both are the same state.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import System

Vector = Float[Array, " 2"]


def double_pendulum_angles() -> Model:
    """Double pendulum in relative angles (facts: `jaxmech.models.double_pendulum_angles`).

    Start variables: theta1 [rad] from the downward vertical, theta2 [rad] from the first rod, and
    their rates omega1, omega2 [rad/s].
    """
    return Model(
        name="double_pendulum_angles",
        summary="two point masses on two rods, relative angles, no constraint",
        system=System(_lagrangian, coordinates={"theta1": "rad", "theta2": "rad"}),
        params={"m1": 1.0, "m2": 1.0, "l1": 1.0, "l2": 1.0, "g": 9.81},
        start={"theta1": 2.0, "theta2": 0.5, "omega1": 0.0, "omega2": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    l1, l2 = p["l1"], p["l2"]
    first, second = v[0], v[0] + v[1]
    speed2 = (l1 * first) ** 2 + (l2 * second) ** 2 + 2 * l1 * l2 * first * second * jnp.cos(q[1])
    kinetic = 0.5 * p["m1"] * (l1 * first) ** 2 + 0.5 * p["m2"] * speed2
    height1 = -l1 * jnp.cos(q[0])
    height2 = height1 - l2 * jnp.cos(q[0] + q[1])
    return kinetic - p["g"] * (p["m1"] * height1 + p["m2"] * height2)


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    q = vector(start["theta1"], start["theta2"])
    return q, vector(start["omega1"], start["omega2"])


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    second = q[0] + q[1]
    pivot = jnp.zeros(2)
    mass1 = p["l1"] * vector(jnp.sin(q[0]), -jnp.cos(q[0]))
    mass2 = mass1 + p["l2"] * vector(jnp.sin(second), -jnp.cos(second))
    return {"rods": line(pivot, mass1, mass2), "pivot": pivot, "mass1": mass1, "mass2": mass2}
