"""Chaplygin sleigh: a rigid body on a plane, carried by one knife edge and two free feet.

        y ^         C o          C: centre of mass, a ahead of the edge
          |          /
          |       a /            the edge at (x, y) slides only along (cos(theta), sin(theta))
          |        /
          |   ====o (x, y)
          |      / theta
          o---------> x          seen from above, no gravity in the plane

Coordinates: x, y [m] of the knife edge, theta [rad].

    parameter   default   unit      meaning
    m           2         kg        mass
    I           0.7       kg m^2    moment of inertia about the centre of mass
    a           0.4       m         from the edge to the centre of mass

    T = m/2 |C'|^2 + I/2 theta'^2,   C = (x + a cos(theta), y + a sin(theta))

Constraint `edge` (nonholonomic): -x' sin(theta) + y' cos(theta) = 0.

Known facts (Bloch, "Nonholonomic Mechanics and Control", section 1.7), with u the speed along the
edge and w = theta':
- Two velocities are free. u' = a w^2, (I + m a^2) w' = -m a u w.
- The energy E is conserved, and yet the motion is not reversible: u -> U = sqrt(2 E / m), w -> 0.
  In closed form u = U tanh(k t + s0), w = W sech(k t + s0), k = m a U / (I + m a^2), W^2 = 2 E /
  (I + m a^2); theta follows from the Gudermannian, x and y by quadrature.
- From the default start it slides backwards, turns around and ends sliding forwards.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import line, outline
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Nonholonomic, System

Vector = Float[Array, " 3"]


def chaplygin_sleigh() -> Model:
    """Sleigh on a knife edge (sketch and facts: `jaxmech.models.chaplygin_sleigh`).

    Start variables: x, y [m], theta [rad], speed [m/s] along the edge, omega = theta' [rad/s].
    """
    return Model(
        name="chaplygin_sleigh",
        summary="rigid body on a plane carried by a knife edge",
        system=System(
            _lagrangian,
            [Nonholonomic(_edge, name="edge")],
            coordinates={"x": "m", "y": "m", "theta": "rad"},
        ),
        params={"m": 2.0, "I": 0.7, "a": 0.4},
        start={"x": 0.0, "y": 0.0, "theta": 0.0, "speed": -0.5, "omega": 1.1},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    across = p["a"] * v[2]  # speed of the centre of mass relative to the edge
    cx, cy = v[0] - across * jnp.sin(q[2]), v[1] + across * jnp.cos(q[2])
    return 0.5 * p["m"] * (cx**2 + cy**2) + 0.5 * p["I"] * v[2] ** 2


def _edge(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return -v[0] * jnp.sin(q[2]) + v[1] * jnp.cos(q[2])


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    theta, speed = start["theta"], start["speed"]
    q = vector(start["x"], start["y"], theta)
    return q, vector(speed * jnp.cos(theta), speed * jnp.sin(theta), start["omega"])


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    edge, a = q[:2], p["a"]
    along = vector(jnp.cos(q[2]), jnp.sin(q[2]))
    lateral = vector(-along[1], along[0])
    feet = (edge + a * (1.5 * along + side * 0.75 * lateral) for side in (1, -1))
    return {
        "body": outline(edge, *feet),
        "blade": line(edge - 0.4 * a * along, edge + 0.4 * a * along),
        "center": edge + a * along,
        "edge": edge,
    }
