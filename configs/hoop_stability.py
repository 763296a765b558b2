"""A bead on a hoop that turns freely about its vertical diameter, for `jaxmech modes`."""

import jax.numpy as jnp

import jaxmech as jm

GRAVITY = 9.81


def _lagrangian(q, v, t, p):
    """`angle` is measured from the bottom [rad], `turn` is that of the hoop."""
    across = p["R"] * v[1] * jnp.sin(q[0])
    kinetic = p["m"] * ((p["R"] * v[0]) ** 2 + across**2) / 2 + p["J"] * v[1] ** 2 / 2
    return kinetic + p["m"] * GRAVITY * p["R"] * jnp.cos(q[0])


bead = jm.System(_lagrangian, coordinates=("angle", "turn"))
