"""Short pulses of functions of time, found by samples.

The forces and the right sides of the constraints are sampled over a run at its initial state. Where
their second difference is as large as their range, and that only in a small part of the run, a step
could go over a pulse. There steps end, closer together the shorter the pulse is.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate.times.corners import functions_of_time
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import cached_by_shapes, depends_on, outside_traces
from jaxmech.utils.tracers import actual

_SAMPLES = 8192  # intervals of a run
_MEMBERS = 16  # of a batch
_SCALES = 8  # distances of the samples of a second difference, each twice the one before
_SHARP = 0.2  # second difference of a pulse, relative to the range
_RARE = 0.05  # largest part of the run
_PULSES = 64  # in a run
_FEW = 8  # pulses with steps that end at several distances from each


def pulse_times(
    system: System, q: Array, v: Array, ts: Array, params: Params, corners: Array | None
) -> np.ndarray:
    """Times at which a step ends around the pulses of a run with known values.

    Pulses at `corners` are left out. For a batch, those of up to 16 members.
    """
    none = np.zeros(0)
    if not _is_timed(system, q, v, np.zeros((), ts.dtype), params):
        return none
    values = actual((q, v, ts, params, corners), _MEMBERS)
    if values is None or not len(values[2]):
        return none
    found = outside_traces(_sampled, system, *values[:-1])
    if found is None:
        return none
    places, forces = (np.asarray(x, float) for x in found)
    known = [none] * len(places) if values[-1] is None else values[-1]
    each = [_around(*member) for member in zip(places, forces, known, strict=True)]
    return np.unique(np.concatenate(each))


@cached_by_shapes
def _is_timed(system: System, q: Array, v: Array, t: Array, params: Params) -> bool:
    """Whether any function of a system depends on time explicitly."""

    def is_timed(fn: Any, state: Any) -> bool:
        return depends_on(lambda t: fn(*state, t, params), (t,))

    return any(is_timed(fn, state) for _, fn, state in functions_of_time(system, q, v))


def _forces(system: System, q: Array, v: Array, t: Array, params: Params) -> Array:
    eom = system.equations(q, v, t, params)
    return jnp.concatenate([eom.Q, eom.b])


@jit_of("system")
def _sampled(system: System, q: Array, v: Array, ts: Array, params: Params) -> tuple[Array, Array]:
    """Times (M, S) and forces at them (M, S, n + m)."""

    def one(q: Array, v: Array, ts: Array, params: Params) -> tuple[Array, Array]:
        share = jnp.linspace(0.0, 1.0, _SAMPLES + 1, dtype=ts.dtype)
        places = ts[0] + (ts[-1] - ts[0]) * share
        return places, jax.vmap(lambda t: _forces(system, q, v, t, params))(places)

    found: tuple[Array, Array] = jax.vmap(one)(q, v, ts, params)
    return found


def _around(places: np.ndarray, forces: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Times around the pulses of one run."""
    size = np.max(np.abs(forces), axis=0)
    width = np.ptp(forces, axis=0)
    varies = np.isfinite(width) & (width > 1e-3 * size)
    shapes = forces[:, varies] / width[varies]
    ends: list[Any] = []
    for apart in 2 ** np.arange(_SCALES):
        change = np.abs(shapes[2 * apart :] - 2 * shapes[apart:-apart] + shapes[: -2 * apart])
        sharp = np.zeros(len(places), bool)
        sharp[apart:-apart] = (change > _SHARP).any(1)
        first, last = (np.flatnonzero(np.diff(sharp.astype(int)) == way) for way in (1, -1))
        if not 0 < len(first) <= _PULSES or sharp.mean() > _RARE:
            continue
        low = places[np.maximum(first + 1 - apart, 0)]
        high = places[np.minimum(last + apart, len(places) - 1)]
        holds = ~_hold(low, high, corners)
        ends += [*low[holds], *high[holds]]
        if len(first) > _FEW:
            break
    return np.array(ends, float)


def _hold(low: np.ndarray, high: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Whether there is a corner within each of some intervals."""
    one, other = np.minimum(low, high)[:, None], np.maximum(low, high)[:, None]
    return np.asarray(((one <= corners[None]) & (corners[None] <= other)).any(1))
