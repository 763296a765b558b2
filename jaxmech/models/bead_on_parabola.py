r"""Bead on a parabolic wire, without friction.

          x2 ^        /
         \   |       o m        wire x2 = x1^2 (in metres)
          \  |      /           gravity along -x2
           `.|___.'
        -----o-------> x1

Coordinates: x1, x2 [m].

    parameter   default   unit      meaning
    m           1         kg        mass
    g           9.81      m/s^2     gravity

Constraint `wire`: x2 - x1^2 = 0, written as in Bravy, "Lagrangian Multipliers and Superfluous
Variables" (NRL Memorandum Report 6001, 1987), section 10.

Known facts:
- One degree of freedom; the energy is conserved.
- Multiplier: lambda = -m x1'' / (2 x1) away from x1 = 0 (Bravy, section 10), and everywhere
  lambda = m (x2'' + g) = m (g + 2 x1'^2) / (1 + 4 x1^2): at the vertex nothing is singular, only
  Bravy's choice of x1 as the dependent coordinate fails there.
- (1 + 4 x1^2) x1'' + 4 x1 x1'^2 + 2 g x1 = 0.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 2"]


def bead_on_parabola() -> Model:
    """Bead on the wire x2 = x1^2 (sketch and facts: `jaxmech.models.bead_on_parabola`).

    Start variables: x1 [m] and its rate v1 [m/s].
    """
    return Model(
        name="bead_on_parabola",
        summary="bead on the wire x2 = x1^2 under gravity",
        system=System(
            _lagrangian, [Holonomic(_wire, name="wire")], coordinates={"x1": "m", "x2": "m"}
        ),
        params={"m": 1.0, "g": 9.81},
        start={"x1": 1.0, "v1": 0.0},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


def _wire(q: Vector, t: Array, p: Values) -> Array:
    return q[1] - q[0] ** 2


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    x1, v1 = jnp.asarray(start["x1"]), jnp.asarray(start["v1"])
    return vector(x1, x1**2), vector(v1, 2 * x1 * v1)


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    x1 = 0.01 * jnp.sinh(jnp.linspace(-8.0, 8.0, 401))  # to 15 m on either side, dense at 0
    return {"wire": jnp.stack([x1, x1**2], axis=1), "bead": q}
