"""The inputs of recordings: one signal for each name, in the place of a parameter."""

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.system import Params, Signal

Inputs = Mapping[str, Signal]

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
        try:
            if not isinstance(given, Signal):
                times, values = given
                signal = Signal(np.asarray(times, float) - origin, values)
            elif origin:
                times = np.asarray(given.ts) - origin
                signal = Signal(times, given.values, given.interpolation, given.delay)
            else:
                signal = given
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"a pair (times, values) or a Signal for {name!r}, but it is neither: {error}"
            ) from error
        signals[name] = signal
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


def with_inputs(params: Params, inputs: Inputs) -> Params:
    """The parameters of a motion with these inputs."""
    return {**params, **inputs} if inputs else params


def stacked(inputs: Sequence[Inputs]) -> dict[str, Signal]:
    """The inputs of S segments as one batch."""
    columns = {name: [segment[name] for segment in inputs] for name in inputs[0]}
    # A power of two, so that signals of other lengths share what was compiled.
    sizes = {name: max(len(x.values) for x in column) for name, column in columns.items()}
    return {
        name: signal_rows(x, 1 << (sizes[name] - 1).bit_length()) for name, x in columns.items()
    }


def signal_rows(signals: Sequence[Signal], size: int | None = None) -> Signal:
    """Signals of one interpolation as the rows of a batch, padded to so many samples.

    Evenly spaced ones keep the bits of their values, unless others are not evenly spaced.
    """
    if any(signal.times is not None for signal in signals):
        parts = [(None, None, signal.ts) for signal in signals]
        signals = [
            eqx.tree_at(
                lambda x: (x.start, x.spacing, x.times), signal, part, is_leaf=lambda x: x is None
            )
            for signal, part in zip(signals, parts, strict=True)
        ]
    most = max(len(signal.values) for signal in signals)
    padded = [_padded(signal, size or most) for signal in signals]
    # By numpy, which compiles no program for each number of segments.
    stack: Signal = jax.tree.map(lambda *rows: jnp.asarray(np.stack(rows)), *padded)
    return stack


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
