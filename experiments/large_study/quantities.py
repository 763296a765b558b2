"""The observed quantities of a double pendulum."""

from typing import Any

import jax.numpy as jnp


def height(q: Any, v: Any, t: Any, params: Any) -> Any:
    """The height of the lower mass [m]."""
    return q[3]


def speed(q: Any, v: Any, t: Any, params: Any) -> Any:
    """The speed of the lower mass [m/s]."""
    return jnp.hypot(v[2], v[3])
