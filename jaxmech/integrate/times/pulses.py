"""Short pulses of functions of time, found by samples.

The numbers of time and parameters alone from which the forces and constraints are computed are
sampled over a run, those of constraints with their rates. Where their second difference is as large
as their range, and that only in a small part of the run, a step could go over a pulse. There steps
end, closer together the shorter the pulse is.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.integrate.times.corners import Corners, corners_at
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.probing import outside_traces
from jaxmech.utils.tracers import actual

_SAMPLES = 8192  # intervals of a run
_MEMBERS = 16  # of a batch
_SCALES = 8  # distances of the samples of a second difference, each twice the one before
_SHARP = 0.2  # second difference of a pulse, relative to the range
_LEAST = 1e-3  # range of numbers that vary, relative to their size
_ROUNDING = 1e3  # change of a number from sample to sample, by its rates, in units of round-off
_RARE = 0.05  # largest part of the run
_PULSES = 64  # in a run
_FEW = 8  # pulses with steps that end at several distances from each


def pulse_times(
    system: System, q: Any, v: Any, ts: Any, params: Params, corners: Array | None
) -> np.ndarray | None:
    """Times at which a step ends around the pulses of a run; None if its values are not known.

    Pulses at `corners` are left out. For a batch, those of up to 16 members.
    """
    no_times = np.zeros(0)
    if not any(corner.signals for corner in corners_at(system, q, v, ts, params)):
        return no_times
    values = actual((ts, params, corners), _MEMBERS)
    if values is None:
        return None
    if not len(values[0]):
        return no_times
    ends = [no_times]
    for k in range(len(values[0])):
        ts, params, corner_times = jax.tree.map(lambda rows, k=k: rows[k], values)
        samples = outside_traces(_sampled, system, q, v, ts, params)
        if samples is None:
            return None
        places, numbers = (np.asarray(x, float) for x in samples)
        ends.append(_around(places, numbers, no_times if corner_times is None else corner_times))
    return np.unique(np.concatenate(ends))


@jit_of("system")
def _sampled(system: System, q: Any, v: Any, ts: Any, params: Params) -> tuple[Array, Array]:
    """Times (S,), and numbers that vary at them (S, N); others are zero."""
    corners = corners_at(system, q, v, ts, params)
    share = jnp.linspace(0.0, 1.0, _SAMPLES + 1, dtype=ts.dtype)
    places = ts[0] + (ts[-1] - ts[0]) * share
    apart, eps = jnp.abs(places[1] - places[0]), float(jnp.finfo(ts.dtype).eps)

    def numbers(source: Corners, t: Array) -> Array:
        return source.fn(t, params).signals

    columns = []
    for corner in corners:
        levels = [partial(numbers, corner)]
        if not corner.is_force:
            levels += [_rate(levels[0]), _rate(_rate(levels[0]))]
        rows = [jax.vmap(level)(places) for level in levels]
        size = jnp.abs(rows[0]).max(0)
        for power, row in enumerate(rows):
            # A rate that changes nothing from sample to sample is round-off.
            varies = jnp.ptp(row, axis=0) * apart**power > (power > 0) * _ROUNDING * eps * size
            columns.append(jnp.where(varies, row, 0.0))
    return places, jnp.concatenate(columns, axis=1)


def _rate(fn: Any) -> Any:
    return lambda t: jax.jvp(fn, (t,), (jnp.ones_like(t),))[1]


def _around(places: np.ndarray, numbers: np.ndarray, corners: np.ndarray) -> np.ndarray:
    size = np.max(np.abs(numbers), axis=0)
    width = np.ptp(numbers, axis=0)
    varies = np.isfinite(width) & (width > _LEAST * size)
    shapes = numbers[:, varies] / width[varies]
    ends: list[Any] = []
    for apart in 2 ** np.arange(_SCALES):
        change = np.abs(shapes[2 * apart :] - 2 * shapes[apart:-apart] + shapes[: -2 * apart])
        sharp = np.zeros(len(places), bool)
        sharp[apart:-apart] = (change > _SHARP).any(1)
        first, last = (
            np.flatnonzero(np.diff(sharp.astype(int)) == change_of_sharp)
            for change_of_sharp in (1, -1)
        )
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
    start, end = np.minimum(low, high)[:, None], np.maximum(low, high)[:, None]
    return np.asarray(((start <= corners[None]) & (corners[None] <= end)).any(1))
