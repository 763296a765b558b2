r"""The double pendulum: two arms, in their absolute angles and as two bodies with two pins.

               o pivot          phi1, phi2 from upright, clockwise; pi is hanging
           a1  |\
    centre 1   | x
               |  \
           L1     o elbow       friction: pivot on w1, elbow on w1 - w2, air on w1 and on w2
             a2  /
    centre 2    x

    T = (m1 a1^2 + I1 + m2 L1^2) w1^2 / 2 + m2 L1 a2 w1 w2 cos(phi1 - phi2)
        + (m2 a2^2 + I2) w2^2 / 2
    V = (m1 a1 + m2 L1) g cos(phi1) + m2 a2 g cos(phi2)

    parameter      unit      meaning
    m1, m2         kg        masses
    I1, I2         kg m^2    moments of inertia about the centres of mass
    a1, a2         m         from the hinge of an arm to its centre of mass
    L1             m         from the pivot to the elbow
    g              m/s^2     gravity
    zero1, zero2   rad       readings of the encoders at phi = 0
    lag            s         delay of the recorded rates
    ...                      parameters of the friction law

The equations of motion contain five sums of these, and a swing determines only their ratios, so
that four of the first eight can be fitted: a1, L1, I1 and I2, for given masses, g and a2.
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

ARMS = ("1", "2")
SHAPE = ("a1", "L1", "I1", "I2")


def published(values: Any) -> dict[str, float]:
    """The authors' estimate by name, from the ten numbers of the file."""
    return named(values, "m1 m2 a1 a2 L1 I1 I2 k1 k2 g")


# The authors' estimate, whose m1, m2, a2 and g are kept.
AUTHORS = {
    "m1": 9.38439748e-2,
    "m2": 1.37595970e-1,
    "a1": 1.08565215e-1,
    "a2": 1.16779018e-1,
    "L1": 1.72719204e-1,
    "I1": 4.37529430e-4,
    "I2": 1.26882939e-3,
    "g": 9.80858023,
}


@lru_cache
def rig(law: str, coordinates: Coordinates = "angles") -> Rig:
    """Make the double pendulum with a friction law, in "angles" or as "bodies"."""
    found = Law(law)

    def friction(w: Array, p: Params) -> Array:
        """The friction torques on both angles (2,)."""
        first = found.hinge(w[0], p, "1") + found.air(w[0], p, "1")
        elbow = found.hinge(w[0] - w[1], p, "2")
        return jnp.stack([-first - elbow, elbow - found.air(w[1], p, "2")])

    def acceleration(q: Array, w: Array, p: Params) -> Array:
        return _acceleration(q, w, friction(w, p), p)

    def force_on_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
        return friction(v, p)

    def force_on_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
        torques = friction(v[jnp.array([2, 5])], p)
        return jnp.zeros(6).at[jnp.array([2, 5])].set(torques)

    def start_angles(q0: Array, v0: Array, p: Params) -> State:
        return angles_at(q0, v0, p, ARMS, acceleration)

    def start_bodies(q0: Array, v0: Array, p: Params) -> State:
        return _bodies(*start_angles(q0, v0, p), p)

    if coordinates == "angles":
        system = jm.System(_lagrangian_of_angles, (), force_on_angles, coordinates=("phi1", "phi2"))
        observe, start = _observe_angles, start_angles
    else:
        system = jm.System(
            _lagrangian_of_bodies,
            [jm.Holonomic(_pivot, name="pivot"), jm.Holonomic(_elbow, name="elbow")],
            force_on_bodies,
            coordinates=("x1", "y1", "phi1", "x2", "y2", "phi2"),
        )
        observe, start = _observe_bodies, start_bodies
    subject = Identifiable(
        system,
        {**AUTHORS, **found.start(ARMS), **sensors(ARMS)},
        observe,
        start,
        free=(*SHAPE, *found.start(ARMS), *sensors(ARMS)),
        bounds={**dict.fromkeys(SHAPE, (0.0, None)), **found.bounds(ARMS)},
    )
    return Rig(ARMS, subject, acceleration)


def _sums(p: Params) -> tuple[Any, ...]:
    """A, B, C of T = A w1^2/2 + B w1 w2 cos + C w2^2/2, and G1, G2 of V = G1 cos + G2 cos."""
    A = p["m1"] * p["a1"] ** 2 + p["I1"] + p["m2"] * p["L1"] ** 2
    C = p["m2"] * p["a2"] ** 2 + p["I2"]
    G1 = (p["m1"] * p["a1"] + p["m2"] * p["L1"]) * p["g"]
    return A, p["m2"] * p["L1"] * p["a2"], C, G1, p["m2"] * p["a2"] * p["g"]


def _acceleration(q: Array, w: Array, torques: Array, p: Params) -> Array:
    """Solve the equations of motion in closed form."""
    A, B, C, G1, G2 = _sums(p)
    coupling, turning = B * jnp.cos(q[0] - q[1]), B * jnp.sin(q[0] - q[1])
    first = -turning * w[1] ** 2 + G1 * jnp.sin(q[0]) + torques[0]
    second = turning * w[0] ** 2 + G2 * jnp.sin(q[1]) + torques[1]
    cross = jnp.stack([C * first - coupling * second, A * second - coupling * first])
    return cross / (A * C - coupling**2)


def _lagrangian_of_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
    A, B, C, G1, G2 = _sums(p)
    kinetic = 0.5 * A * v[0] ** 2 + B * v[0] * v[1] * jnp.cos(q[0] - q[1]) + 0.5 * C * v[1] ** 2
    return kinetic - G1 * jnp.cos(q[0]) - G2 * jnp.cos(q[1])


def _lagrangian_of_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
    moving = 0.5 * p["m1"] * v[:2] @ v[:2] + 0.5 * p["m2"] * v[3:5] @ v[3:5]
    turning = 0.5 * p["I1"] * v[2] ** 2 + 0.5 * p["I2"] * v[5] ** 2
    return moving + turning - p["g"] * (p["m1"] * q[1] + p["m2"] * q[4])


def _pivot(q: Array, t: Array, p: Params) -> Array:
    return q[:2] - p["a1"] * direction(q[2])


def _elbow(q: Array, t: Array, p: Params) -> Array:
    on_first = q[:2] + (p["L1"] - p["a1"]) * direction(q[2])
    return q[3:5] - p["a2"] * direction(q[5]) - on_first


def _bodies(q: Array, w: Array, p: Params) -> State:
    """Compute positions and rates of both bodies from the two angles."""
    first, elbow = p["a1"] * direction(q[0]), p["L1"] * direction(q[0])
    rate1, rate_elbow = p["a1"] * rate_of(q[0], w[0]), p["L1"] * rate_of(q[0], w[0])
    second = elbow + p["a2"] * direction(q[1])
    rate2 = rate_elbow + p["a2"] * rate_of(q[1], w[1])
    return (
        jnp.concatenate([first, q[:1], second, q[1:]]),
        jnp.concatenate([rate1, w[:1], rate2, w[1:]]),
    )


def _observe_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
    return q + zeros(p, ARMS)


def _observe_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
    return q[jnp.array([2, 5])] + zeros(p, ARMS)
