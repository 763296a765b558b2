r"""The single pendulum: one arm on a hinge, in its angle and as a body with a pin.

    (m a^2 + I) phi'' = m g a sin(phi) - friction      phi = 0 upright, pi hanging

    parameter   unit      meaning
    m, I        kg, kg m2 mass, and moment of inertia about its centre
    a           m         from the hinge to the centre of mass
    g           m/s^2     gravity
    zero        rad       reading of the encoder at phi = 0
    lag         s         delay of the recorded rate
    ...                   parameters of the friction law

A free swing determines only m g a / J and friction / J, where J = m a^2 + I, so that one of m, a, I
and g can be fitted. It is I, the only one that cannot be measured with a scale or a ruler.
"""

from functools import lru_cache
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

import jaxmech as jm
from experiments.measured_pendulum.friction import Law, Params
from experiments.measured_pendulum.rig import (
    Coordinates,
    Rig,
    State,
    angles_at,
    direction,
    named,
    rate_of,
    sensors,
    zeros,
)
from jaxmech.identify.identifiable import Identifiable

ARMS = ("",)


def published(values: Any) -> dict[str, float]:
    """The authors' estimate by name, from the five numbers of the file."""
    return named(values, "a m I k g")


# The authors' estimate, whose a, m and g are kept.
AUTHORS = {"a": 1.47754901e-1, "m": 1.47584572e-1, "I": 1.09118505e-4, "g": 9.81001310}


@lru_cache
def rig(law: str, coordinates: Coordinates = "angles") -> Rig:
    """Make the single pendulum with a friction law, in "angles" or as "bodies"."""
    found = Law(law)

    def friction(w: Array, p: Params) -> Array:
        return found.hinge(w, p, "") + found.air(w, p, "")

    def acceleration(q: Array, w: Array, p: Params) -> Array:
        weight = p["m"] * p["g"] * p["a"] * jnp.sin(q)
        return (weight - friction(w, p)) / (p["m"] * p["a"] ** 2 + p["I"])

    def force_on_angle(q: Array, v: Array, t: Array, p: Params) -> Array:
        return -friction(v, p)

    def force_on_body(q: Array, v: Array, t: Array, p: Params) -> Array:
        return jnp.zeros(3).at[2].set(-friction(v[2], p))

    def start_angle(q0: Array, v0: Array, p: Params) -> State:
        return angles_at(q0, v0, p, ARMS, acceleration)

    def start_body(q0: Array, v0: Array, p: Params) -> State:
        q, w = start_angle(q0, v0, p)
        way, rate = p["a"] * direction(q[0]), p["a"] * rate_of(q[0], w[0])
        return jnp.concatenate([way, q]), jnp.concatenate([rate, w])

    if coordinates == "angles":
        system = jm.System(_lagrangian_of_angle, (), force_on_angle, coordinates=("phi",))
        observe, start = _observe_angle, start_angle
    else:
        system = jm.System(
            _lagrangian_of_body,
            [jm.Holonomic(_pivot, name="pivot")],
            force_on_body,
            coordinates=("x", "y", "phi"),
        )
        observe, start = _observe_body, start_body
    subject = Identifiable(
        system,
        {**AUTHORS, **found.start(ARMS), **sensors(ARMS)},
        observe,
        start,
        free=("I", *found.start(ARMS), *sensors(ARMS)),
        bounds={"I": (0.0, None), **found.bounds(ARMS)},
    )
    return Rig(ARMS, subject, acceleration)


def _lagrangian_of_angle(q: Array, v: Array, t: Array, p: Params) -> Array:
    J = p["m"] * p["a"] ** 2 + p["I"]
    return 0.5 * J * v[0] ** 2 - p["m"] * p["g"] * p["a"] * jnp.cos(q[0])


def _lagrangian_of_body(q: Array, v: Array, t: Array, p: Params) -> Array:
    kinetic = 0.5 * p["m"] * v[:2] @ v[:2] + 0.5 * p["I"] * v[2] ** 2
    return kinetic - p["m"] * p["g"] * q[1]


def _pivot(q: Array, t: Array, p: Params) -> Array:
    return q[:2] - p["a"] * direction(q[2])


def _observe_angle(q: Array, v: Array, t: Array, p: Params) -> Array:
    return q + zeros(p, ARMS)


def _observe_body(q: Array, v: Array, t: Array, p: Params) -> Array:
    return q[2:] + zeros(p, ARMS)
