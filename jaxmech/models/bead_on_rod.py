"""Bead on a rotating rod, without friction and without gravity.

         x2 ^      /
            |     o m          the rod turns at the constant rate omega about the origin,
            |    /             at t = 0 it points along x1
            |   / x3 = r
            |  /
            | /  omega t       x1 = r cos(omega t)
            o---------> x1     x2 = r sin(omega t)

Coordinates: x1, x2, x3 = r [m], the last one redundant and without mass.

    parameter   default   unit      meaning
    m           1         kg        mass
    omega       1.5       rad/s     rate of the rod

Time-dependent constraints (Bravy, NRL Memorandum Report 6001, 1987, section 11):
`cosine`: x1 - x3 cos(omega t) = 0,  `sine`: x2 - x3 sin(omega t) = 0.

Known facts:
- One degree of freedom. M = diag(m, m, 0) is singular, but [M; A] has full column rank, so the
  acceleration is unique. The drive does work: the energy is not conserved.
- r'' = omega^2 r, so r = r0 cosh(omega t) + (r0' / omega) sinh(omega t).
- Multipliers: lambda1 = m (r'' cos - 2 omega r' sin - omega^2 r cos)(omega t) and
  lambda2 = m (r'' sin + 2 omega r' cos - omega^2 r sin)(omega t). Bravy prints the first term of
  lambda2 without its factor sin(omega t). On the motion both reduce to the force across the rod,
  2 m omega r' (-sin, cos).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.geometry import line
from jaxmech.models.model import Model, Values, vector
from jaxmech.system import Holonomic, System

Vector = Float[Array, " 3"]


def bead_on_rod() -> Model:
    """Bead on a rod that turns at a constant rate (facts: `jaxmech.models.bead_on_rod`).

    Start variables: r [m] and its rate r_rate [m/s].
    """
    return Model(
        name="bead_on_rod",
        summary="bead on a rod turning at a constant rate, massless coordinate r",
        system=System(
            _lagrangian,
            [Holonomic(_cosine, name="cosine"), Holonomic(_sine, name="sine")],
            coordinates={"x1": "m", "x2": "m", "x3": "m"},
        ),
        params={"m": 1.0, "omega": 1.5},
        start={"r": 0.4, "r_rate": 0.2},
        state=_state,
        geometry=_geometry,
    )


def _lagrangian(q: Vector, v: Vector, t: Array, p: Values) -> Array:
    return 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2)


def _cosine(q: Vector, t: Array, p: Values) -> Array:
    return q[0] - q[2] * jnp.cos(p["omega"] * t)


def _sine(q: Vector, t: Array, p: Values) -> Array:
    return q[1] - q[2] * jnp.sin(p["omega"] * t)


def _state(start: Values, p: Values) -> tuple[Vector, Vector]:
    r, r_rate = start["r"], start["r_rate"]
    return vector(r, 0.0, r), vector(r_rate, p["omega"] * r, r_rate)


def _geometry(q: Vector, t: Array, p: Values) -> dict[str, Array]:
    pivot, bead = jnp.zeros(2), q[:2]
    return {"rod": line(pivot, 1.25 * bead), "pivot": pivot, "bead": bead}
