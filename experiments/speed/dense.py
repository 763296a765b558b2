"""A made-up system with nothing to fold: every coordinate acts on every other."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxmech as jm


def dense(n: int) -> jm.models.Model:
    """n coordinates with a full mass matrix that depends on all of them, and n/3 constraints.

        L = (u^T M0 u - q^T q) / 2,  u_i = v_i (1 + 0.1 sin(W q)_i),    B q = 0

    The constraints are linear, but the program is not told so: it finds their second derivatives
    to be zero as it finds any other structure.
    """
    rng = np.random.default_rng(n)
    G = rng.normal(size=(n, n)) / np.sqrt(n)
    W, B = rng.normal(size=(n, n)) / n, rng.normal(size=(max(n // 3, 1), n))
    along = np.eye(n) - np.linalg.pinv(B) @ B

    def lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
        u = v * (1 + 0.1 * jnp.sin(W @ q))
        return 0.5 * p["mass"] * (u @ (G @ G.T + np.eye(n)) @ u) - 0.5 * q @ q

    def state(start: Any, params: Any) -> tuple[Array, Array]:
        return along @ jnp.asarray(start["q"]), along @ jnp.asarray(start["v"])

    system = jm.System(
        lagrangian,
        [jm.Holonomic(lambda q, t, p: B @ q, name="planes")],
        coordinates=tuple(f"q{i}" for i in range(n)),
    )
    rest = {"q": np.zeros(n), "v": np.zeros(n)}
    return jm.models.Model(f"dense_{n}", dense.__name__, system, {"mass": 1.0}, rest, state)
