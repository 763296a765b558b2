"""The inputs of recordings: one signal for each name, in the place of a parameter."""

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.system import Params, Signal, is_signal
from jaxmech.utils.trees import leaf_names

Inputs = Mapping[str, Signal]

_FEWEST = 256  # samples of an input in a segment, where there are as many
_BEYOND = 1e-6  # share of the distance of samples that may lack at the ends


def checked_inputs(inputs: Any, ts: np.ndarray, origin: float) -> dict[str, Signal]:
    """The inputs as signals, with an `origin` subtracted from their times; they must cover the ts.

    Raises:
        ValueError: if an input is not a signal, or ends too early; the message says which.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(f"signals by name, such as {{'torque': (tu, u)}}, but is {short(inputs)}")
    signals = {}
    for name, given in inputs.items():
        signals[name] = signal = _as_signal(name, given, origin)
        times = np.asarray(signal.ts) + float(signal.delay)
        spacing = float(np.diff(times).max())
        # A sample that is held lasts until the next one would follow.
        last = times[-1] + spacing * (signal.interpolation == "hold")
        lacking = _BEYOND * spacing
        if times[0] > ts[0] + lacking or last < ts[-1] - lacking:
            raise ValueError(
                f"samples of {name!r} from {ts[0]:g} s to {ts[-1]:g} s, the times of the "
                f"recording, but they are known from {times[0]:g} s to {last:g} s"
            )
    return signals


def _as_signal(name: str, given: Any, origin: float) -> Signal:
    if isinstance(given, Signal):
        if not origin:
            return given
        return Signal(np.asarray(given.ts) - origin, given.values, given.interpolation, given.delay)
    try:
        times, values = given
        return Signal(np.asarray(times, float) - origin, values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a pair (times, values) or a Signal for {name!r}, but it is neither: {error}"
        ) from error


def with_inputs(params: Params, inputs: Inputs) -> Params:
    """The parameters of a motion with these inputs."""
    return {**params, **inputs} if inputs else params


def without_inputs(params: Params, names: Sequence[str]) -> Params:
    """The parameters that are the same for all recordings.

    Raises:
        TypeError: if they are not a dictionary, in which inputs could have names.
    """
    if not names:
        return params
    if not isinstance(params, Mapping):
        raise TypeError(
            "Argument `params0` must be a dictionary where recordings have inputs, which take the "
            f"places of its entries, but is {short(params)}."
        )
    return {name: value for name, value in params.items() if name not in names}


def numbers_besides_signals(params: Params) -> list[str] | None:
    """The names of all parameters but the samples of signals; None if there are no signals."""
    leaves = jax.tree.leaves(params, is_leaf=is_signal)
    if not any(map(is_signal, leaves)):
        return None
    plain = jax.tree.map(lambda x: None if is_signal(x) else x, params, is_leaf=is_signal)
    return leaf_names(plain)


def stacked(inputs: Sequence[Inputs], ends: Sequence[tuple[float, float]]) -> dict[str, Signal]:
    """The inputs of S segments, each with the samples between its ends, as one batch."""
    names = list(inputs[0])
    return {name: _stacked([segment[name] for segment in inputs], ends) for name in names}


def _stacked(signals: Sequence[Signal], ends: Sequence[tuple[float, float]]) -> Signal:
    if any(signal.times is not None for signal in signals):
        signals = [_with_times(signal) for signal in signals]
    cropped = [_cropped(signal, *pair) for signal, pair in zip(signals, ends, strict=True)]
    most = max(len(signal.values) for signal in cropped)
    # A power of two, so that signals of other lengths share what was compiled.
    return signal_rows(cropped, 1 << (most - 1).bit_length())


def signal_rows(signals: Sequence[Signal], size: int | None = None) -> Signal:
    """Signals of one interpolation as the rows of a batch, padded to so many samples.

    Evenly spaced ones keep the bits of their values, unless others are not evenly spaced.
    """
    if any(signal.times is not None for signal in signals):
        signals = [_with_times(signal) for signal in signals]
    most = max(len(signal.values) for signal in signals)
    padded = [_padded(signal, size or most) for signal in signals]
    # By numpy, which compiles no program for each number of segments.
    stack: Signal = jax.tree.map(lambda *rows: jnp.asarray(np.stack(rows)), *padded)
    return stack


def _with_times(signal: Signal) -> Signal:
    parts = (None, None, signal.ts)
    changed: Signal = eqx.tree_at(_grid, signal, parts, is_leaf=lambda x: x is None)
    return changed


def _grid(signal: Signal) -> Any:
    return signal.start, signal.spacing, signal.times


def _cropped(signal: Signal, first: float, last: float) -> Signal:
    """The samples that the values between two times depend on, with a delay up to the distance.

    For short segments they are more, so that a delay may be longer. Further off the values are NaN
    instead of those of the ends.
    """
    times = np.asarray(signal.ts) + float(signal.delay)
    duration = last - first
    low, high = np.searchsorted(times, (first - duration, last + duration))
    lacking = max(_FEWEST - int(high - low), 0)
    low, high = low - lacking // 2, high + lacking // 2
    # One more than needed on both sides for round-off, one for the slopes of a cubic, and one NaN.
    low, high = max(int(low) - 4, 0), min(int(high) + 4, len(times))
    values = np.array(signal.values)
    values[: low + (low > 0)] = np.nan
    values[high - (high < len(times)) :] = np.nan
    signal = eqx.tree_at(lambda s: s.values, signal, values)
    return _sliced(signal, low, high)


def _sliced(signal: Signal, low: int, high: int) -> Signal:
    values = np.asarray(signal.values)[low:high]
    if signal.times is not None:
        times = np.asarray(signal.times)[low:high]
        return eqx.tree_at(lambda s: (s.times, s.values), signal, (times, values))
    # As the signal itself computes the time.
    start = np.asarray(signal.ts)[low]
    return eqx.tree_at(lambda s: (s.start, s.values), signal, (start, values))


def _padded(signal: Signal, size: int) -> Signal:
    """A signal with more samples, beyond the last one, whose value it keeps."""
    values = np.asarray(signal.values)
    count = len(values)
    values = np.concatenate([values, np.repeat(values[-1:], size - count, axis=0)])
    times: Any = signal.times
    if times is not None:
        times = np.asarray(times)
        more = np.arange(1, size - count + 1, dtype=times.dtype)
        times = np.concatenate([times, times[-1] + more * (times[-1] - times[-2])])
    # The slope of a cubic at its last sample depends on how many there are.
    is_cubic = signal.interpolation == "cubic"
    changed: Signal = eqx.tree_at(
        lambda s: (s.times, s.values, s.count),
        signal,
        (times, values, np.asarray(count, values.dtype) if is_cubic else None),
        is_leaf=lambda x: x is None,
    )
    return changed
