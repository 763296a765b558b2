"""Bodies with gaps whose motions have closed forms."""

import jax.numpy as jnp
from jaxtyping import Array

import jaxmech as jm

G = 9.81


def free(q, v, t, p):  # type: ignore[no-untyped-def]
    return 0.5 * v @ v


def falling(q, v, t, p):  # type: ignore[no-untyped-def]
    return 0.5 * v @ v - G * q[-1]


def restitution(p):  # type: ignore[no-untyped-def]
    return p["e"]


def height(q: Array, t: Array, p: object) -> Array:
    return q[-1]


BALL = jm.System(
    falling, [jm.Unilateral(height, restitution=restitution, name="floor")], coordinates=("y",)
)


def time_to_rest(e: float, drop: float = 1.0) -> float:
    """The time at which a dropped ball comes to rest."""
    return float((1 + e) / (1 - e) * jnp.sqrt(2 * drop / G))


def row_gaps(q: Array, t: Array, p: object) -> Array:
    return q[1:] - q[:-1] - 0.1


ROW_OF_BALLS = jm.System(
    free, [jm.Unilateral(row_gaps, restitution=restitution, name="balls")],
    coordinates=tuple("abcde"),
)  # fmt: skip


def sliding_limit(p):  # type: ignore[no-untyped-def]
    return p["mu"] * G


SLED = jm.System(
    free, [jm.DryFriction(lambda q, v, t, p: v[0], static=sliding_limit, name="rub")],
    coordinates=("x",),
)  # fmt: skip


def stopping_time(mu: float, speed: float = 2.0) -> float:
    """The time at which the sled stops."""
    return speed / (mu * G)
