"""What the derivatives of a rollout with and without events have in common."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from jaxmech.integrate.rollout import segments
from jaxmech.system import Params


class RolloutInputs(eqx.Module):
    """All that a trajectory depends on; `traced` are the values that its system closes over."""

    q0: Any
    v0: Any
    ts: Any
    params: Params
    traced: list[Any]


class SegmentEnds(eqx.Module):
    """States at the ends of the segments, and their tangents or cotangents: shapes (S, n)."""

    q: Array
    v: Array


def segment_starts(x: RolloutInputs, ends: SegmentEnds) -> list[Array]:
    """q and v at the starts of the segments, shapes (S, n)."""
    pairs = (x.q0, ends.q), (x.v0, ends.v)
    return [jnp.concatenate([first[None], rest[:-1]]) for first, rest in pairs]


def segment_times(substeps: int, steps: int) -> Callable[[Array], tuple[Array, Array]]:
    """The save time before each segment and its step size, as a function of the save times."""

    def of(ts: Array) -> tuple[Array, Array]:
        own = segments(ts, substeps, steps)
        return own.t, own.h

    return of


def plus(wrt_start: Array, saves: Array | None) -> Array:
    """Cotangents of the state at the start, with those of the first save; None is zero."""
    return wrt_start if saves is None else wrt_start + saves[0]


def at_ends(cotangent: Array | None, count: int) -> Array | None:
    """Cotangents of the saved states (T, n) at the ends of the segments, without the last save."""
    if cotangent is None:
        return None
    saves = len(cotangent) - 1
    if saves < 2:
        return None
    zeros = jnp.zeros_like(cotangent[:1])
    inner = jnp.concatenate([cotangent[1:-1], zeros])[:, None]
    before = jnp.zeros((saves, count // saves - 1, cotangent.shape[1]), cotangent.dtype)
    return jnp.concatenate([before, inner], axis=1).reshape(count, -1)
