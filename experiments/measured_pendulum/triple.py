r"""The triple pendulum: three arms, in their absolute angles and as three bodies with three pins.

Arm k is drawn as in `double`: its centre of mass is a_k from its hinge, the hinge of the next arm
L_k; phi_k is its angle from upright. Friction in hinge k acts on w_k - w_(k-1), air on w_k.

    T = sum_jk S_jk w_j w_k cos(phi_j - phi_k) / 2 + sum_k I_k w_k^2 / 2,   V = sum_j G_j cos(phi_j)
    S_jk = sum_i m_i l_ij l_ik,  G_j = g sum_i m_i l_ij,   l_ij = L_j, a_j, 0 for j <, =, > i

The equations of motion contain eight of these numbers that are independent, of which a swing
determines the ratios for a given g, so that seven of the parameters can be fitted: a1, a2, L1, L2
and I1, I2, I3, for given masses and a3.
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

ARMS = ("1", "2", "3")
SHAPE = ("a1", "a2", "L1", "L2", "I1", "I2", "I3")
_ANGLES = jnp.array([2, 5, 8])  # of the bodies


def published(values: Any) -> dict[str, float]:
    """The authors' estimate by name, from the fifteen numbers of the file."""
    return named(values, "m1 m2 m3 a1 a2 a3 L1 L2 I1 I2 I3 k1 k2 k3 g")


# The authors' estimate, whose masses, a3 and g are kept.
AUTHORS = {
    "m1": 2.58171998e-1,
    "m2": 2.79427783e-1,
    "m3": 1.18624232e-1,
    "a1": 1.59999928e-1,
    "a2": 2.02939213e-1,
    "a3": 1.83708742e-1,
    "L1": 1.72799737e-1,
    "L2": 2.28700000e-1,
    "I1": 1.00043469e-4,
    "I2": 3.14159516e-4,
    "I3": 1.68739037e-4,
    "g": 9.80834384,
}


@lru_cache
def rig(law: str, coordinates: Coordinates = "angles") -> Rig:
    """Make the triple pendulum with a friction law, in "angles" or as "bodies"."""
    terms = Law(law)

    def friction(w: Array, p: Params) -> Array:
        """The friction torques on the three angles (3,)."""
        relative = w - jnp.concatenate([jnp.zeros(1, w.dtype), w[:-1]])
        hinges = jnp.stack([terms.hinge(relative[k], p, arm) for k, arm in enumerate(ARMS)])
        airs = jnp.stack([terms.air(w[k], p, arm) for k, arm in enumerate(ARMS)])
        return -hinges + jnp.concatenate([hinges[1:], jnp.zeros(1, w.dtype)]) - airs

    def acceleration(q: Array, w: Array, p: Params) -> Array:
        return _acceleration(q, w, friction(w, p), p)

    def force_on_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
        return friction(v, p)

    def force_on_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
        return jnp.zeros(9, v.dtype).at[_ANGLES].set(friction(v[_ANGLES], p))

    def start_angles(q0: Array, v0: Array, p: Params) -> State:
        return angles_at(q0, v0, p, ARMS, acceleration)

    def start_bodies(q0: Array, v0: Array, p: Params) -> State:
        return _bodies(*start_angles(q0, v0, p), p)

    def observe_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
        return q + zeros(p, ARMS)

    def observe_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
        return q[_ANGLES] + zeros(p, ARMS)

    if coordinates == "angles":
        names = {f"phi{arm}": "rad" for arm in ARMS}
        system = jm.System(_lagrangian_of_angles, (), force_on_angles, coordinates=names)
        observe, start = observe_angles, start_angles
    else:
        units = {"x": "m", "y": "m", "phi": "rad"}
        system = jm.System(
            _lagrangian_of_bodies,
            [jm.Holonomic(_pins, name="pins")],
            force_on_bodies,
            coordinates={f"{name}{arm}": unit for arm in ARMS for name, unit in units.items()},
        )
        observe, start = observe_bodies, start_bodies
    subject = Identifiable(
        system,
        {**AUTHORS, **terms.start(ARMS), **sensors(ARMS)},
        observe,
        start,
        free=(*SHAPE, *terms.start(ARMS), *sensors(ARMS)),
        bounds={**dict.fromkeys(SHAPE, (0.0, None)), **terms.bounds(ARMS)},
    )
    return Rig(ARMS, subject, acceleration)


def _levers(p: Params) -> tuple[Array, Array]:
    """The masses (3,), and the distances l_ij (3, 3)."""
    zero = jnp.zeros(())
    rows = (
        (p["a1"], zero, zero),
        (p["L1"], p["a2"], zero),
        (p["L1"], p["L2"], p["a3"]),
    )
    m = jnp.stack([jnp.asarray(p["m" + arm]) for arm in ARMS])
    return m, jnp.stack([jnp.stack([jnp.asarray(x) for x in row]) for row in rows])


def _sums(p: Params) -> tuple[Array, Array, Array]:
    """S (3, 3), the moments of inertia (3,) and G (3,)."""
    m, levers = _levers(p)
    S = (m[:, None, None] * levers[:, :, None] * levers[:, None, :]).sum(0)
    inertias = jnp.stack([jnp.asarray(p["I" + arm]) for arm in ARMS])
    return S, inertias, p["g"] * (m[:, None] * levers).sum(0)


def _acceleration(q: Array, w: Array, torques: Array, p: Params) -> Array:
    """Solve the equations of motion, written out."""
    S, inertias, G = _sums(p)
    between = q[:, None] - q[None]
    M = S * jnp.cos(between) + jnp.diag(inertias)
    Q = G * jnp.sin(q) - (S * jnp.sin(between)) @ w**2 + torques
    return jnp.linalg.solve(M, Q)


def _lagrangian_of_angles(q: Array, v: Array, t: Array, p: Params) -> Array:
    S, inertias, G = _sums(p)
    M = S * jnp.cos(q[:, None] - q[None]) + jnp.diag(inertias)
    return (v[:, None] * M * v[None]).sum() / 2 - (G * jnp.cos(q)).sum()


def _lagrangian_of_bodies(q: Array, v: Array, t: Array, p: Params) -> Array:
    energy = jnp.zeros(())
    for k, arm in enumerate(ARMS):
        x, y, spin = v[3 * k : 3 * k + 3]
        m = p["m" + arm]
        moving = m * (x**2 + y**2) + p["I" + arm] * spin**2
        energy = energy + moving / 2 - m * p["g"] * q[3 * k + 1]
    return energy


def _pins(q: Array, t: Array, p: Params) -> Array:
    """The gap in each hinge, (6,)."""
    hinge, gaps = jnp.zeros(2), []
    for k, arm in enumerate(ARMS):
        centre, along = q[3 * k : 3 * k + 2], direction(q[3 * k + 2])
        gaps.append(centre - p["a" + arm] * along - hinge)
        if arm != ARMS[-1]:
            hinge = centre + (p["L" + arm] - p["a" + arm]) * along
    return jnp.concatenate(gaps)


def _bodies(q: Array, w: Array, p: Params) -> State:
    """Compute positions and rates of the bodies from the angles."""
    _, levers = _levers(p)
    along = jnp.stack([direction(q[k]) for k in range(3)])
    turned = jnp.stack([rate_of(q[k], w[k]) for k in range(3)])
    places, rates = levers @ along, levers @ turned
    return (
        jnp.concatenate([places, q[:, None]], axis=1).ravel(),
        jnp.concatenate([rates, w[:, None]], axis=1).ravel(),
    )
