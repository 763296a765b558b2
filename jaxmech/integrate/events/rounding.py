"""Round-off of functions of positions, below which their values and rates count as zero."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.compiler import jacobian
from jaxmech.linalg import matvec

ROUNDINGS = 4.0  # units of round-off of the time, to which an event is located
_ROUNDING = 64.0  # round-off of a function and of its rate, relative to the largest of their terms
_APART = 4.0  # the same of the time of an event, in its accuracy


class Rounded(NamedTuple):
    """E functions of q and t at a state."""

    value: Float[Array, " E"]
    zero: Float[Array, " E"]  # size of a value that counts as zero
    still: Float[Array, " E"]  # size of a rate that counts as zero
    fastest: Float[Array, " E"]  # rate at the largest speeds of the motion


def rounded(
    value: Callable[[Array, Array], Array], q: Array, t: Array, speeds: Array, accuracy: Array
) -> Rounded:
    """The functions value(q, t) at a state of a run whose largest speeds so far are given.

    `accuracy` is that of the time.
    """
    g, drift = jax.linearize(lambda t: value(q, t), t)
    slope = jnp.abs(jacobian(lambda q: value(q, t), q))
    size = matvec(slope, jnp.abs(q)) + jnp.abs(drift(t))
    fastest = matvec(slope, speeds) + jnp.abs(drift(jnp.ones_like(t)))
    eps = _ROUNDING * float(jnp.finfo(q.dtype).eps)
    return Rounded(g, eps * size + _APART * accuracy * fastest, eps * fastest, fastest)
