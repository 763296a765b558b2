r"""Double pendulum in Cartesian coordinates: two point masses on two massless rods.

         y ^
           |
           o----> x
            \
          l1 \  theta1         both angles from the downward vertical, counter-clockwise
              o m1
              |               x1 = l1 sin(theta1),       y1 = -l1 cos(theta1)
           l2 | theta2        x2 = x1 + l2 sin(theta2),  y2 = y1 - l2 cos(theta2)
              o m2            gravity along -y

Coordinates: x1, y1, x2, y2 [m].

    parameter   default   unit      meaning
    m1, m2      1, 1      kg        masses
    l1, l2      1, 1      m         lengths of the rods
    g           9.81      m/s^2     gravity

Constraints, halved so that A holds the vectors along the rods:
`rod1`: (x1^2 + y1^2 - l1^2) / 2 = 0,  `rod2`: ((x2-x1)^2 + (y2-y1)^2 - l2^2) / 2 = 0.
A rod of length l under the tension F has the multiplier -F / l.

Known facts:
- Two degrees of freedom; the energy is conserved; chaotic for large angles.
- The same motion as `double_pendulum_angles`, whose second angle is measured from the first rod.
- Default start (theta = 2 and 2.5 rad, at rest): after 5 s theta1 = 8.19107845941479,
  theta2 = 2.56127521585770 (extrapolation in 80-bit arithmetic, good to 2.8e-11).
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 4"]


def double_pendulum() -> Model:
    """Double pendulum with two rods (sketch and facts: `jaxmech.models.double_pendulum`).

    Start variables: theta1, theta2 [rad], both from the downward vertical, and their rates omega1,
    omega2 [rad/s].
    """
    return Model(
        name="double_pendulum",
        summary="two point masses on two rods, Cartesian coordinates",
        system=System(
            _lagrangian,
            [Holonomic(_rod1, name="rod1"), Holonomic(_rod2, name="rod2")],
            coordinates={"x1": "m", "y1": "m", "x2": "m", "y2": "m"},
        ),
        params={"m1": 1.0, "m2": 1.0, "l1": 1.0, "l2": 1.0, "g": 9.81},
        start={"theta1": 2.0, "theta2": 2.5, "omega1": 0.0, "omega2": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    kinetic = 0.5 * p["m1"] * v[:2] @ v[:2] + 0.5 * p["m2"] * v[2:] @ v[2:]
    return kinetic - p["g"] * (p["m1"] * q[1] + p["m2"] * q[3])


def _rod1(q: Vector, t: Array, p: Values) -> Array:
    return (q[:2] @ q[:2] - p["l1"] ** 2) / 2


def _rod2(q: Vector, t: Array, p: Values) -> Array:
    rod = q[2:] - q[:2]
    return (rod @ rod - p["l2"] ** 2) / 2


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    rod1, rate1 = _rod(p["l1"], start["theta1"], start["omega1"])
    rod2, rate2 = _rod(p["l2"], start["theta2"], start["omega2"])
    q = jnp.concatenate([rod1, rod1 + rod2])
    v = jnp.concatenate([rate1, rate1 + rate2])
    return q, v


def _rod(l: Any, theta: Any, omega: Any) -> tuple[Array, Array]:  # noqa: E741
    sine, cosine = jnp.sin(theta), jnp.cos(theta)
    return l * jnp.stack([sine, -cosine]), l * omega * jnp.stack([cosine, sine])


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    pivot = jnp.zeros(2)
    return {"rods": line(pivot, q[:2], q[2:]), "pivot": pivot, "mass1": q[:2], "mass2": q[2:]}
