"""`Signal`: a recorded input, such as a motor torque or a road, as a function of time."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.utils.checks import as_numbers, has_finite_numbers, is_known

Interpolation = Literal["hold", "linear", "cubic"]

_ROUND_OFF = 4.0  # largest deviation of evenly spaced times, in units of round-off
_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


class Signal(eqx.Module):
    """Samples of an input as a function of time, for use as an entry of the parameters.

    The functions of a system call it: `params["torque"](t)`. Before the first sample it has the
    value of the first one, and after the last sample that of the last one. It is a pytree, so it
    may be batched, and its `values` and its `delay` may be differentiated and fitted; its times are
    data. Steps end where it jumps or has a corner, so that the motion is as accurate as with a
    smooth function.

    Args:
        ts: times of the samples [s], shape (N,) with N >= 2, strictly increasing. If they are
            evenly spaced, a value takes the same few operations for any N; otherwise the neighbours
            are searched.
        values: the samples, shape (N,), or (N, k) for k numbers.
        interpolation: "hold" keeps a sample until the next one (zero-order hold), like the output
            of a controller; "linear"; or "cubic", whose slope at each sample is that of the
            parabola through it and its neighbours (at the ends, that of the line to the neighbour),
            of third order and with a continuous rate.
        delay: time by which the input is delayed [s]: its value at time t is the sampled one at t -
            delay.

    Raises:
        ValueError: if a shape or the interpolation is wrong, the times do not increase, or a number
            is not finite.

    Example:
        >>> import jax.numpy as jnp
        >>> torque = Signal([0.0, 1.0, 2.0], [0.0, 2.0, 2.0])
        >>> print(torque(0.25), torque(1.5), Signal([0.0, 1.0], [5.0, 6.0], "hold")(0.9))
        0.5 2.0 5.0
    """

    start: Float[Array, ""] | None  # first time and distance of evenly spaced samples
    spacing: Float[Array, ""] | None
    times: Float[Array, " N"] | None  # of others
    values: Float[Array, "N ..."]
    delay: Float[Array, ""]
    count: Float[Array, ""] | None  # of the samples of a cubic one without its padding, if any
    interpolation: Interpolation = eqx.field(static=True)

    def __init__(
        self, ts: Any, values: Any, interpolation: Any = "linear", delay: Any = 0.0
    ) -> None:
        ts, self.values, self.delay = _checked(ts, values, interpolation, delay)
        spacing = even_spacing(ts)
        is_even = spacing is not None
        self.start = ts[0] if is_even else None
        self.spacing = jnp.asarray(spacing, ts.dtype) if is_even else None
        self.times = None if is_even else ts
        self.count = None
        self.interpolation = interpolation

    @property
    def ts(self) -> Float[Array, " N"]:
        """The times of the samples [s], without the delay."""
        if self.times is not None:
            return self.times
        assert self.start is not None
        assert self.spacing is not None
        return self.start + self.spacing * jnp.arange(len(self.values), dtype=self.start.dtype)

    def missing(self, first: float, last: float) -> str:
        """What lacks of the samples of a motion between two times, in words; empty if nothing."""
        times = np.asarray(self.ts) + float(self.delay)
        spacing = float(np.diff(times).max())
        # A sample that is held lasts until the next one would follow.
        end = times[-1] + spacing * (self.interpolation == "hold")
        if times[0] <= first + _BEYOND * spacing and end >= last - _BEYOND * spacing:
            return ""
        return (
            f"samples from {first:g} s to {last:g} s, the times of the motion, but they are known "
            f"from {times[0]:g} s to {end:g} s"
        )

    def __call__(self, t: Any) -> Array:
        """The value at a time, a number or shape (k,)."""
        even = self.start, self.spacing
        grid = jax.lax.stop_gradient(even if self.times is None else (self.times,))
        local_t = jnp.asarray(t) - self.delay
        arguments = local_t, grid, self.values
        value: Array
        if self.interpolation == "cubic":
            value = smooth_signal(*arguments, jax.lax.stop_gradient(self.count))
        else:
            value = jumping_signal(*arguments, interpolation=self.interpolation)
        return value

    def thinned(self, most: int, axis: int = 0) -> "Signal":
        """A smooth signal with at most so many of the samples, for a rough run.

        The samples lie along `axis` of the values, behind the axes of a batch.
        """
        stride = -(-self.values.shape[axis] // most)
        kept = (slice(None),) * axis + (slice(None, None, stride),)
        changes = {
            "spacing": None if self.spacing is None else self.spacing * stride,
            "times": None if self.times is None else self.times[kept],
            "values": self.values[kept],
            "count": None if self.count is None else jnp.ceil(self.count / stride),
            "interpolation": "cubic",
        }
        thinned = object.__new__(Signal)
        for field in fields(Signal):
            leaf = changes.get(field.name, getattr(self, field.name))
            object.__setattr__(thinned, field.name, leaf)
        return thinned

    @staticmethod
    def all_in(params: Any) -> "list[Signal]":
        """The signals among parameters."""
        leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Signal))
        return [x for x in leaves if isinstance(x, Signal)]

    @staticmethod
    def mapped(fn: Callable[["Signal"], Any], params: Any) -> Any:
        """The parameters with `fn(signal)` in place of each signal among them."""

        def leaf(x: Any) -> Any:
            return fn(x) if isinstance(x, Signal) else x

        return jax.tree.map(leaf, params, is_leaf=lambda x: isinstance(x, Signal))


@partial(jax.jit, static_argnames=("interpolation",))
def jumping_signal(
    t: Array, grid: tuple[Array, ...], values: Array, *, interpolation: Interpolation
) -> Array:
    """The value of a signal with a jump or a corner at each of its N samples.

    `grid` are the first time and the spacing of even samples, or the times of others.
    """
    k, share, _ = _interval(t, grid, len(values))
    first, last = _sample(values, k), _sample(values, k + 1)
    if interpolation == "hold":
        return jnp.where(share < 1, first, last)  # after the last sample its value
    return first + jnp.clip(share, 0.0, 1.0) * (last - first)


@jax.jit
def smooth_signal(t: Array, grid: tuple[Array, ...], values: Array, samples: Array | None) -> Array:
    """The value of a cubic signal of so many samples, by default all; see `jumping_signal`."""
    count = len(values) if samples is None else samples.astype(jnp.int32)
    k, share, (before, width, after) = _interval(t, grid, count)
    share = jnp.clip(share, 0.0, 1.0)
    first, last = _sample(values, k), _sample(values, k + 1)
    change = last - first
    # The changes from the sample before and to the one after; at the ends as if on a line.
    earlier = jnp.where(k > 0, first - _sample(values, k - 1), change * (before / width))
    following = _sample(values, k + 2) - last
    later = jnp.where(k + 2 < count, following, change * (after / width))
    # Slopes of the parabolas, times the width.
    first_slope = (width * width * earlier / before + before * change) / (before + width)
    last_slope = (width * width * later / after + after * change) / (after + width)
    rest = 1.0 - share
    bend = rest * (first_slope - change) + share * (change - last_slope)
    return first + share * change + share * rest * bend


def _sample(values: Array, k: Array) -> Array:
    index = jnp.clip(k, 0, len(values) - 1)
    sample: Array = jax.lax.dynamic_index_in_dim(values, index, keepdims=False)
    return sample


def _interval(
    t: Array, grid: tuple[Array, ...], count: Any
) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """The interval k of a time, the share of it that has passed, and widths around it.

    They are those of the intervals before it, of it, and after it.
    """
    if len(grid) == 2:
        start, spacing = grid
        position = (t - start) / spacing
        k = jnp.clip(jnp.floor(position), 0, count - 2).astype(jnp.int32)
        return k, position - k, (spacing, spacing, spacing)
    (times,) = grid
    k = jnp.clip(jnp.searchsorted(times, t, side="right").astype(jnp.int32) - 1, 0, count - 2)
    low, high = _sample(times, k), _sample(times, k + 1)
    width = high - low
    before = jnp.where(k > 0, low - _sample(times, k - 1), width)
    after = jnp.where(k + 2 < count, _sample(times, k + 2) - high, width)
    return k, (t - low) / width, (before, width, after)


def even_spacing(ts: Any) -> float | None:
    """The distance of evenly spaced times, or None if they are not, or not known."""
    if not is_known(ts):
        return None
    times = np.asarray(ts, float)
    spacing = (times[-1] - times[0]) / (len(times) - 1)
    even = times[0] + spacing * np.arange(len(times))
    # No more, since steps end where the samples are to within round-off.
    allowed = _ROUND_OFF * float(np.finfo(np.asarray(ts).dtype).eps) * np.abs(times).max()
    return float(spacing) if np.abs(times - even).max() <= allowed else None


def _checked(ts: Any, values: Any, interpolation: Any, delay: Any) -> tuple[Any, Any, Any]:
    if interpolation not in get_args(Interpolation):
        raise ValueError(
            'Argument `interpolation` must be "hold", "linear" or "cubic", but is '
            f"{interpolation!r}."
        )
    numbers = {"ts": ts, "values": values, "delay": delay}
    converted = []
    for name, value in numbers.items():
        x = as_numbers(name, value)
        x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float)
        if is_known(x) and not has_finite_numbers(x):
            raise ValueError(
                f"Argument `{name}` must hold finite numbers, but holds NaN or an infinite one; an "
                "input must be known at every sample: interpolate it, or leave the sample out."
            )
        converted.append(x)
    times, samples, late = converted
    if times.ndim != 1 or times.size < 2:
        raise ValueError(
            f"Argument `ts` must have shape (N,) with N >= 2 samples, but has shape {times.shape}."
        )
    if samples.ndim not in (1, 2) or len(samples) != times.size:
        raise ValueError(
            f"Argument `values` must have shape ({times.size},), or ({times.size}, k) for k "
            f"numbers, but has shape {samples.shape}."
        )
    if is_known(times) and not (np.diff(np.asarray(times)) > 0).all():
        raise ValueError(
            "Argument `ts` must be strictly increasing, but is not; sort the samples and drop "
            "repeated times."
        )
    if late.ndim:
        raise ValueError(f"Argument `delay` must be a number, but has shape {late.shape}.")
    return times, samples, late
