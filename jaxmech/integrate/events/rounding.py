"""Round-off of functions of positions, below which their values and rates count as zero."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_ROUNDING = 64.0  # round-off of a function and of its rate, relative to the largest of their terms
_APART = 4.0  # the same of the time of an event, in its accuracy


class Rounded(NamedTuple):
    """A function of q and t at a state."""

    value: Float[Array, ""]
    zero: Float[Array, ""]  # size of a value that counts as zero
    still: Float[Array, ""]  # size of a rate that counts as zero
    fastest: Float[Array, ""]  # rate at the largest speeds of the motion


def rounded(
    value: Callable[[Array, Array], Array], q: Array, t: Array, speeds: Array, accuracy: Array
) -> Rounded:
    """A function value(q, t) at a state of a run whose largest speeds so far are given.

    `accuracy` is that of the time.
    """

    def drift(dt: Array) -> Array:
        return jnp.abs(jax.jvp(partial(value, q), (t,), (dt,))[1])

    g, slope = jax.value_and_grad(value)(q, t)
    size = jnp.abs(slope) @ jnp.abs(q) + drift(t)
    fastest = jnp.abs(slope) @ speeds + drift(jnp.ones_like(t))
    eps = _ROUNDING * float(jnp.finfo(q.dtype).eps)
    return Rounded(g, eps * size + _APART * accuracy * fastest, eps * fastest, fastest)
