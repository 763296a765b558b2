"""Steps in which the function of an event turns more than once, so that events may hide in them.

In a mechanism that constraints move, and in one that turns uniformly, a step may have no error and
be of any length. Between its ends the motion is that of a cubic; there the rates of the functions
are sampled at places without regularity, so that no oscillation can look slow at all of them.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxmech.consistency import reach
from jaxmech.integrate.events.event_set import EventSet
from jaxmech.system import Params, System

_PLACES = (0.0, 0.083, 0.211, 0.372, 0.457, 0.619, 0.738, 0.917, 1.0)  # in a step from 0 to 1

State = tuple[Array, Array]  # q and v


def most_turns(
    watch: EventSet, system: System, start: State, end: State, t: Array, h: Array, params: Params
) -> Int[Array, ""]:
    """How often the rate of a function changes its sign in a step, at most.

    Functions of reactions do not count.
    """
    start, end, t, h, params = jax.lax.stop_gradient((start, end, t, h, params))
    plain_params = watch.plain(params)
    first, last = (
        (q, system.speeds(q, v, time, params)) for (q, v), time in ((start, t), (end, t + h))
    )

    def motion(u: Array) -> State:
        q, speeds = _between(first, last, h, u)
        return q, system.from_speeds(q, speeds, t + u * h, params)

    counts = [
        _turns(event, motion, end, t, h, plain_params)
        for event in watch.events
        if not event.needs_reactions
    ]
    return jnp.stack([jnp.zeros((), jnp.int32), *counts]).max()


def _turns(
    event: Any, motion: Callable[[Array], State], end: State, t: Array, h: Array, params: Params
) -> Array:
    in_q, in_v = jax.jacfwd(lambda q, v: event.value(q, v, t + h, params)[None], (0, 1))(*end)
    # Slower changes may be errors of the motion.
    share = float(jnp.finfo(t.dtype).eps) ** 0.375
    least = share * (reach(in_q, end[0]) + reach(in_v, end[1]))[0]

    def value(u: Array) -> Array:
        return event.value(*motion(u), t + u * h, params)

    def look(so_far: tuple[Array, Array], u: Array) -> tuple[tuple[Array, Array], None]:
        sign, turns = so_far
        rate = jax.jvp(value, (u,), (jnp.ones_like(u),))[1]
        new = jnp.where(jnp.abs(rate) > least, jnp.sign(rate), 0.0).astype(jnp.int32)
        return (jnp.where(new == 0, sign, new), turns + (sign * new < 0)), None

    zero = jnp.zeros((), jnp.int32)
    (_, turns), _ = jax.lax.scan(look, (zero, zero), jnp.asarray(_PLACES, t.dtype))
    return turns


def _between(start: State, end: State, h: Array, u: Array) -> State:
    """q and its rate at a fraction u of a step between two such pairs."""
    displacement, first, last = end[0] - start[0], h * start[1], h * end[1]
    second, third = 3 * displacement - 2 * first - last, first + last - 2 * displacement
    q = start[0] + u * (first + u * (second + u * third))
    return q, (first + u * (2 * second + 3 * u * third)) / jnp.where(h == 0, 1.0, h)
