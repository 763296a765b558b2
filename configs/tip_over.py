"""Observed quantities of a double pendulum, for configs/tip_over.toml."""

import jax.numpy as jnp


def speed(q, v, t, params):
    """Speed of the lower mass [m/s]; the coordinates are x1, y1, x2, y2."""
    return jnp.hypot(v[2], v[3])
