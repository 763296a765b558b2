"""A skate on an incline: slides along its edge, never across it, and turns freely.

x points down the plane, y across it; the heading is measured from x. Energy is conserved.
"""

import jax.numpy as jnp

import jaxmech as jm


def lagrangian(q, v, t, p):
    kinetic = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2) + 0.5 * p["J"] * v[2] ** 2
    return kinetic + p["m"] * p["g"] * jnp.sin(p["slope"]) * q[0]


def edge(q, v, t, p):
    return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])


skate = jm.System(
    lagrangian, [jm.Nonholonomic(edge, name="edge")], coordinates=("x", "y", "heading")
)
