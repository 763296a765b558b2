"""The times at which a step of a run ends: given ones, and the samples of inputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.first_order import SampledUpdate
from jaxmech.signal import Signal, is_signal
from jaxmech.system import Params, System
from jaxmech.utils.checks import is_known
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.tracers import actual

_MEMBERS = 1024  # of a batch, for which samples are counted


def step_times(
    system: System, given_times: Float[Array, " G"] | None, ts: Float[Array, " T"], params: Params,
    saves: Any = None,
) -> Any:  # fmt: skip
    """The times at which a step ends: given ones and the knots of inputs; None if there are none.

    Knots outside of the run are left out where the values are known. Last are the times of
    controllers, by the `saves`, which are the ts where these are not known under `jit`.
    """
    parts: list[Any] = [] if given_times is None else [given_times]
    leaves = jax.tree.leaves(params, is_leaf=is_signal)
    signals = [x for x in leaves if is_signal(x) and x.interpolation != "cubic"]
    if signals:
        knots = _knots(signals, ts)
        parts.append(knots[_inside(ts, knots)])
    if system.sampling is not None:
        parts.append(_samples(system.sampling, ts, params, saves))
    parts = [times for times in parts if times.size]
    if not parts:
        return None
    # Known times of controllers stay known under `jit`.
    xp: Any = np if saves is not None and system.sampling is not None and is_known(parts) else jnp
    return xp.concatenate(parts)


def _samples(
    sampling: SampledUpdate, ts: Float[Array, " T"], params: Params, saves: Any
) -> Float[Array | np.ndarray, " K"]:
    """The times of controllers."""
    longest = sampling.longest_run
    times = sampling.controllers.times(ts if saves is None else saves, params, ts.dtype, longest)
    if is_known(times):
        return np.asarray(times, ts.dtype)
    return jnp.asarray(times[_inside(ts, times)], ts.dtype)


@jit_of()
def _knots(signals: list[Signal], ts: Float[Array, " T"]) -> Float[Array, " K"]:
    """The times at which the inputs jump, or have a corner."""
    times = [jax.lax.stop_gradient(signal.ts) + signal.delay for signal in signals]
    return jnp.concatenate(times).astype(ts.dtype)


def _inside(ts: Any, knots: Any) -> np.ndarray:
    """The numbers of the knots that are in the run, of any member of a batch."""
    values = actual((ts, knots), _MEMBERS)
    if values is None or len(values[0]) == _MEMBERS:
        return np.arange(knots.size)
    saves, times = values
    low, high = saves.min(1, keepdims=True), saves.max(1, keepdims=True)
    return np.flatnonzero(((low <= times) & (times <= high)).any(0))
