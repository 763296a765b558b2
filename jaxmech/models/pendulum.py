r"""Planar pendulum in Cartesian coordinates: a point mass on a massless rod.

         x2 ^
            |
            o----> x1          theta: from the downward vertical, counter-clockwise
            |\
            | \  l             x1 =  l sin(theta)
            |th\               x2 = -l cos(theta)
                o m            gravity along -x2

Coordinates: x1, x2 [m].

    parameter   default   unit      meaning
    m           1         kg        mass
    l           1         m         length of the rod
    g           9.81      m/s^2     gravity

Constraint `rod`: (x1^2 + x2^2 - l^2) / 2 = 0. The half makes A = (x1, x2) and
b = -(x1'^2 + x2'^2), the matrices of Kalaba, Udwadia, Xu and Itiki (1995), equation (25).

Known facts:
- One degree of freedom; the energy is conserved.
- Accelerations: (x1'', x2'') = (0, -g) + s (x1, x2), s = (x2 g - |v|^2) / (x1^2 + x2^2),
  and the multiplier is m s: Kalaba et al., equations (27) and (34). The rod pulls with
  -lambda l along itself.
- M = m I has one eigenvalue, so that no result may depend on its eigenvectors.
- Released at rest from the angle theta0: sin(theta/2) = k sn(K(k^2) - sqrt(g/l) t, k^2) with
  k = sin(theta0/2) (any textbook). The default start, horizontal to the left and at rest, is
  problem A01 of the IFToMM multibody benchmark library.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 2"]


def pendulum() -> Model:
    """Planar pendulum in Cartesian coordinates (sketch and facts: `jaxmech.models.pendulum`).

    Start variables: theta [rad] from the downward vertical, omega = theta' [rad/s].
    """
    return Model(
        name="pendulum",
        summary="point mass on a rod, Cartesian coordinates",
        system=System(
            _lagrangian, [Holonomic(_rod, name="rod")], coordinates={"x1": "m", "x2": "m"}
        ),
        params={"m": 1.0, "l": 1.0, "g": 9.81},
        start={"theta": -jnp.pi / 2, "omega": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


def _rod(q: Vector, t: Array, p: Values) -> Array:
    return (q @ q - p["l"] ** 2) / 2


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    sine, cosine = jnp.sin(start["theta"]), jnp.cos(start["theta"])
    q = p["l"] * jnp.stack([sine, -cosine])
    v = p["l"] * start["omega"] * jnp.stack([cosine, sine])
    return q, v


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    pivot = jnp.zeros(2)
    return {"rod": line(pivot, q), "pivot": pivot, "mass": q}
