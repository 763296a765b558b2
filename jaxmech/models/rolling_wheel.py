r"""Thin upright wheel rolling without slip on a horizontal plane.

        y ^        theta: heading, phi: rotation of the wheel about its axle
          |   \
          |    \ <- wheel seen from above, along (cos(theta), -sin(theta))
          |     o (x, y)
          |      \
          o---------> x

Coordinates: x, y [m] of the centre, phi, theta [rad].

    parameter   default   unit      meaning
    m           1         kg        mass, spread evenly over a thin disc
    R           0.5       m         radius

    T = m/2 (x'^2 + y'^2) + (m R^2 / 2) phi'^2 / 2 + (m R^2 / 4) theta'^2 / 2

The wheel stays upright: its potential energy m g R is constant and left out.

Constraints (nonholonomic, the point of contact is at rest):
`rolling_x`: x' + R phi' cos(theta) = 0,  `rolling_y`: y' - R phi' sin(theta) = 0.

Source: Alijani, lecture "Lagrange Equations" (TU Delft WB1418-07), "The rolling wheel". The lecture
counts four degrees of freedom, since four coordinates, but only two velocities, can be chosen.

Known facts:
- m x'' = lambda1, m y'' = lambda2, m R^2/2 phi'' = R (lambda1 cos(theta) - lambda2 sin(theta)),
  m R^2/4 theta'' = 0 (the lecture's four equations).
- Together they give phi'' = 0 and theta'' = 0: the centre runs on a circle of radius
  R |phi' / theta'|, and the energy is conserved.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech import meshes
from jaxmech.geometry import solid
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Nonholonomic, System

Vector = Float[Array, " 4"]


def rolling_wheel() -> Model:
    """Upright wheel rolling without slip (sketch and facts: `jaxmech.models.rolling_wheel`).

    Start variables: x, y [m], phi, theta [rad], and the rates spin = phi', turn = theta' [rad/s].
    """
    return Model(
        name="rolling_wheel",
        summary="upright wheel rolling without slip on a plane",
        system=System(
            _lagrangian,
            [
                Nonholonomic(_rolling_x, name="rolling_x"),
                Nonholonomic(_rolling_y, name="rolling_y"),
            ],
            coordinates={"x": "m", "y": "m", "phi": "rad", "theta": "rad"},
        ),
        params={"m": 1.0, "R": 0.5},
        start={"x": 0.0, "y": 0.0, "phi": 0.0, "theta": 0.0, "spin": -3.0, "turn": 1.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    inertia = p["m"] * p["R"] ** 2 / 4  # about a diameter; twice that about the axle
    translation = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2)
    return translation + 0.5 * inertia * (2 * v[2] ** 2 + v[3] ** 2)


def _rolling_x(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return v[0] + p["R"] * v[2] * jnp.cos(q[3])


def _rolling_y(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return v[1] - p["R"] * v[2] * jnp.sin(q[3])


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    theta, spin = start["theta"], start["spin"]
    rim = p["R"] * spin
    q = vector(start["x"], start["y"], start["phi"], theta)
    return q, vector(-rim * jnp.cos(theta), rim * jnp.sin(theta), spin, start["turn"])


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Any]:
    x, y, phi, theta = q
    ahead = vector(jnp.cos(theta), -jnp.sin(theta), 0.0)
    vertical = vector(0.0, 0.0, 1.0)
    rim = jnp.cos(phi) * vertical - jnp.sin(phi) * ahead
    across = jnp.cos(phi) * ahead + jnp.sin(phi) * vertical
    sizes = jnp.stack([p["R"], p["R"], 0.2 * p["R"]])
    axes = jnp.stack([rim, across, jnp.cross(rim, across)], axis=1) * sizes[None]
    wheel = solid(meshes.wheel(), vector(x, y, p["R"]), axes)
    return {"wheel": wheel, "contact": vector(x, y, 0.0)}
