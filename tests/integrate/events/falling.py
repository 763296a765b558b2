"""A ball over a floor and a bead on a hoop, whose events have closed forms."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

import jaxmech as jm

G = 9.81


def _lagrangian(q: Array, v: Array, t: Array, p: Any) -> Array:
    return 0.5 * v @ v - p["g"] * q[1]


def _on_hoop(q: Array, t: Array, p: Any) -> Array:
    return (q @ q - p["R"] ** 2) / 2


def _height(q: Array, v: Array, t: Array, p: Any) -> Array:
    return q[1]


def _rising(q: Array, v: Array, t: Array, p: Any) -> Array:
    return v[1]


def _pressure(q: Array, v: Array, t: Array, p: Any, reactions: Any) -> Array:
    return reactions.multipliers["hoop"][0]


def _restitution(p: Any) -> Array:
    return p["e"]


BALL = jm.System(_lagrangian, coordinates=("x", "y"))
BOUNCE = jm.Event(
    _height, direction=-1, transition=jm.Transition(restitution=_restitution), name="bounce"
)
LANDS = jm.Event(_height, direction=-1, terminal=True, name="lands")
TOP = jm.Event(_rising, direction=-1, name="top")
BALL_PARAMS = {"g": jnp.asarray(G), "e": jnp.asarray(0.9)}
DROPPED = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])

BEAD = jm.System(_lagrangian, [jm.Holonomic(_on_hoop, "hoop")], coordinates=("x", "y"))
LEAVES = jm.Event(_pressure, direction=-1, transition=jm.Transition(off="hoop"), name="leaves")
BEAD_PARAMS = {"g": jnp.asarray(G), "R": jnp.asarray(1.0)}


def released(angle: Any, p: Any) -> tuple[Array, Array]:
    """A bead at rest on the outside of the hoop, an angle from its top."""
    return p["R"] * jnp.stack([jnp.sin(angle), jnp.cos(angle)]), jnp.zeros(2)
