"""Centred moments: mean and spread of weighted numbers of any size, exact to round-off.

The spread of numbers that are large beside their differences is lost in the rounding of their mean,
and squares overflow beyond 1e154 and vanish below 1e-154. So a state holds, for each number,

    centre      one of the values
    exponent    e, such that all values are about 2^e from the centre, or nearer
    offset      the mean less the centre, in units of 2^e

and the sums of squares about the mean, in units of 4^e, for the statistic. Scaling by powers of two
is exact. Numbers below the least normal one count as zero, as in all of JAX on a CPU.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.ensemble.statistics.protocol import State

_NONE = -(2**15)  # exponent of zero, far below that of any number


class Pooled(NamedTuple):
    """Two states in common units.

    Attributes:
        state: the sums and means of both.
        between: the difference of the means.
        share: share of the second state in the weight of both.
        scales: the factors by which both states are scaled.
    """

    state: State
    between: Array
    share: Array
    scales: tuple[Array, Array]


def exponent_of(size: Array) -> Array:
    """The least e such that numbers are below 2^e; far below all others for zero."""
    return jnp.where(size >= jnp.finfo(size.dtype).tiny, jnp.frexp(size)[1], _NONE)


def scaled(value: Array, exponent: Array) -> Array:
    """Numbers times 2^exponent; those that are too small are zero."""
    # Two factors, because one might overflow; and no `ldexp` of each value, which takes longer.
    largest = 2 * (int(jnp.finfo(value.dtype).maxexp) - 4)
    exponent = jnp.clip(exponent, -largest, largest)
    unit = jnp.ones((), value.dtype)
    return value * jnp.ldexp(unit, exponent // 2) * jnp.ldexp(unit, exponent - exponent // 2)


def centred(value: Array, weight: Array) -> tuple[State, Array]:
    """The state of values of shape (B, ...), and their distances from the mean in its units.

    Weights have the same shape, or that of all axes but the last; they are zero for values that do
    not count, which must be zero, too.
    """
    total = weight.sum(0)
    w = weight.reshape(weight.shape + (1,) * (value.ndim - weight.ndim))
    counts = w > 0
    # Scaled before they are subtracted: their difference might overflow, or be too small.
    size = exponent_of(jnp.abs(value).max(0))
    value = scaled(value, -size[None])
    first = jnp.broadcast_to(counts, value.shape).argmax(0)
    centre = jnp.take_along_axis(value, first[None], 0)
    away = jnp.where(counts, value - centre, 0)
    exponent = exponent_of(jnp.abs(away).max(0))
    away = scaled(away, -exponent[None])
    offset = (w * away).sum(0) / jnp.where(w.sum(0) > 0, w.sum(0), 1)
    state = {
        "weight": total,
        "squares": (weight**2).sum(0),
        "centre": scaled(centre[0], size),
        "exponent": jnp.maximum(size + exponent, _NONE),
        "offset": offset,
    }
    return state, jnp.where(counts, away - offset[None], 0)


def pooled(first: State, second: State) -> Pooled:
    """Two states in common units, with sums and means by the formulas of Chan, Golub and LeVeque.

    "Algorithms for computing the sample variance", The American Statistician 37, 1983.
    """
    total = first["weight"] + second["weight"]
    share = second["weight"] / jnp.where(total > 0, total, 1)
    # The centre of a state without any weight is of no account.
    mine, theirs = jnp.asarray(first["centre"]), jnp.asarray(second["centre"])
    mine = jnp.where(first["weight"] > 0, mine, theirs)
    theirs = jnp.where(second["weight"] > 0, theirs, mine)
    size = exponent_of(jnp.maximum(jnp.abs(mine), jnp.abs(theirs)))
    apart = scaled(theirs, -size) - scaled(mine, -size)
    exponents = (first["exponent"], second["exponent"], size + exponent_of(jnp.abs(apart)))
    exponent = jnp.maximum(jnp.maximum(*exponents[:2]), exponents[2])
    unit = jnp.ones((), mine.dtype)
    scales = tuple(scaled(unit, part - exponent) for part in exponents[:2])
    mean_difference = scaled(apart, size - exponent)
    mean_difference += second["offset"] * scales[1] - first["offset"] * scales[0]
    state = {
        "weight": total,
        "squares": first["squares"] + second["squares"],
        "centre": mine,
        "exponent": exponent,
        "offset": first["offset"] * scales[0] + mean_difference * share,
    }
    return Pooled(state, mean_difference, share, (scales[0], scales[1]))


def mean_of(state: State) -> np.ndarray:
    """The mean of a state on the host."""
    offset = np.ldexp(np.asarray(state["offset"], float), np.asarray(state["exponent"]) - 1)
    return np.asarray(2 * (np.asarray(state["centre"], float) / 2 + offset))  # may not overflow


def effective_count(state: State) -> np.ndarray:
    """Kish's effective number of values: with weights of one, their count."""
    weight, squares = (np.asarray(state[name], float) for name in ("weight", "squares"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(weight**2 / squares)
