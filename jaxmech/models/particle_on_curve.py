"""Particle on the curve where x1 x2 x3 = c1 meets x1 + x2 = c2, tied to the origin by springs.

        x3 ^   .
           |   '.            surface  x1 x2 x3 = c1
           |     `o m        plane    x1 + x2 = c2
           |  k /   `'--.    spring   k |x|^2 / 2
           o---------------> x1 - x2

Coordinates: x1, x2, x3 [m].

    parameter   default   unit      meaning
    m           1         kg        mass
    k           2         N/m       stiffness of the springs, the same in all three directions
    c1          0.5       m^3       product of the coordinates, not 0
    c2          2         m         sum of the first two

Constraints (Bravy, NRL Memorandum Report 6001, 1987, section 12):
`product`: x1 x2 x3 - c1 = 0,  `sum`: x1 + x2 - c2 = 0.

Known facts:
- One degree of freedom; the energy is conserved.
- m x1'' + k x1 = lambda1 x2 x3 + lambda2, m x2'' + k x2 = lambda1 x1 x3 + lambda2 and
  m x3'' + k x3 = lambda1 x1 x2 (Bravy, section 12). With d = sqrt(c2^2 - 4 c1 / x3) = |x1 - x2|
  and x1 > x2, lambda1 = (m x2'' + k x2 - m x1'' - k x1) / (d x3).
- The two rows of A depend on each other nowhere on the curve: x3 x2 = x3 x1 and x1 x2 = 0 cannot
  hold together there.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import coil
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 3"]


def particle_on_curve() -> Model:
    """Particle on x1 x2 x3 = c1 and x1 + x2 = c2 (facts: `jaxmech.models.particle_on_curve`).

    Start variables: x1 [m], neither 0 nor c2, and its rate v1 [m/s].
    """
    return Model(
        name="particle_on_curve",
        summary="particle on x1 x2 x3 = c1 and x1 + x2 = c2 with springs",
        system=System(
            _lagrangian,
            [Holonomic(_product, name="product"), Holonomic(_sum, name="sum")],
            coordinates={"x1": "m", "x2": "m", "x3": "m"},
        ),
        params={"m": 1.0, "k": 2.0, "c1": 0.5, "c2": 2.0},
        start={"x1": 1.4, "v1": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return 0.5 * p["m"] * v @ v - 0.5 * p["k"] * q @ q


def _product(q: Vector, t: Array, p: Values) -> Array:
    return q[0] * q[1] * q[2] - p["c1"]


def _sum(q: Vector, t: Array, p: Values) -> Array:
    return q[0] + q[1] - p["c2"]


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    x1, v1 = jnp.asarray(start["x1"]), jnp.asarray(start["v1"])
    x2 = p["c2"] - x1
    x3 = p["c1"] / (x1 * x2)
    return vector(x1, x2, x3), vector(v1, -v1, -x3 * (v1 / x1 - v1 / x2))


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Any]:
    share = 0.5 + 0.5 * jnp.tanh(jnp.linspace(-4.0, 4.0, 401))  # of x1 in the sum
    x1, x2 = share * p["c2"], (1 - share) * p["c2"]
    curve = jnp.stack([x1, x2, p["c1"] / (x1 * x2)], axis=1)
    origin = jnp.zeros(3)
    return {"curve": curve, "spring": coil(origin, q), "origin": origin, "particle": q}
