"""Recordings cut into segments and stacked as one batch; missing and padded samples weigh zero."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmech.identify.data.inputs import Inputs, stacked
from jaxmech.identify.data.recording import Recording
from jaxmech.system import Signal
from jaxmech.utils.checks import require_positive
from jaxmech.utils.text import doc, setting

_MOST_DOUBLED = 1024  # times up to which their number is a power of two
_ROUND_OFF = 6.0  # distance of times that count as equal, in units of round-off
_PADDING = 1e-9  # spacing of the times that pad a segment, relative to its duration


@dataclass(frozen=True)
class Shooting:
    """Multiple shooting (Bock 1983): cuts each recording into segments with free initial states.

    After some seconds the state of a chaotic motion depends too strongly on the parameters to be
    followed numerically; over short segments it does not. In the solution each segment begins where
    the previous one ends (Gauss-Newton steps with the states between segments eliminated). The
    first guesses of the initial states are the samples if the sensors are the coordinates, and
    otherwise a simulation or the guesses of a `Recording`.

    Args:
        length: length of a segment [s], about the time in which a deviation grows tenfold.
        first: "free" fits the initial states of the recordings too, "fixed" keeps those recorded.

    Raises:
        ValueError: if the length is not positive.
    """

    length: float = field(metadata=doc("length of a segment [s]"))
    first: Literal["fixed", "free"] = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )

    def __post_init__(self) -> None:
        require_positive("length", self.length)


class Segments(eqx.Module):
    """S segments of T times, as arrays."""

    ts: Float[Array, "S T"]  # [s]; short segments are padded with times close to their last
    observed: Float[Array, "S T d"]  # 0 where nothing was measured
    weights: Float[Array, "S T d"]  # 0 where nothing was measured
    q0: Float[Array, "S k"]  # start variables, recorded or guessed
    v0: Float[Array, "S l"]
    last: Int[Array, " S"]  # index of the last time before the padding
    following: Int[Array, " S"]  # the next segment of the same recording, or the segment itself
    inputs: dict[str, Signal]  # signals in the places of parameters

    @property
    def start_size(self) -> int:
        """The number k + l of the start variables and their velocities."""
        return self.q0.shape[1] + self.v0.shape[1]

    def inputs_of(self, k: Any) -> dict[str, Signal]:
        """The inputs of one segment."""
        inputs: dict[str, Signal] = jax.tree.map(lambda rows: rows[k], self.inputs)
        return inputs


class SegmentOrigin(NamedTuple):
    """The origin of the rows of the segments."""

    recordings: tuple[Recording, ...]
    recording: np.ndarray  # index of the recording of each segment, (S,)
    rows: tuple[np.ndarray, ...]  # for each segment, the indices of its samples among its times
    samples: tuple[np.ndarray, ...]  # for each segment, the indices of these in the recording

    @property
    def first(self) -> np.ndarray:
        """Flags of the segments that begin a recording, (S,)."""
        return np.diff(self.recording, prepend=-1) != 0

    def gathered(self, values: Any) -> tuple[np.ndarray, ...]:
        """Values of the segments (S, T, d) as one array (samples, d) for each recording."""
        values = np.asarray(values)
        arrays = tuple(np.full((len(r.ts), values.shape[-1]), np.nan) for r in self.recordings)
        for k, (rows, samples) in enumerate(zip(self.rows, self.samples, strict=True)):
            arrays[self.recording[k]][samples] = values[k, rows]
        return arrays


class _Segment(NamedTuple):
    recording: int
    ts: np.ndarray
    rows: np.ndarray
    samples: np.ndarray
    counts: np.ndarray  # false for the first sample of a later segment, the last of the one before


def segments(
    recordings: Sequence[Recording], *, horizon: Shooting | None = None, step: float | None = None
) -> tuple[Segments, SegmentOrigin]:
    """Cut recordings at the horizon, divide intervals longer than `step` [s], and pad."""
    slices = [
        s for k, recording in enumerate(recordings) for s in _slices(k, recording, horizon, step)
    ]
    # A number of times that recordings of similar lengths share, so that they share programs.
    count = max(len(s.ts) for s in slices)
    size = 1 << (count - 1).bit_length()
    if count > _MOST_DOUBLED:
        size = -(-count // _MOST_DOUBLED) * _MOST_DOUBLED
    rows = [_padded(s, recordings[s.recording], size) for s in slices]
    numbers = np.array([s.recording for s in slices])
    following = np.arange(len(slices))
    following[:-1] += numbers[1:] == numbers[:-1]
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    inputs = stacked([recordings[s.recording].inputs for s in slices])
    ts, observed, weights, q0, v0, last = map(jnp.asarray, columns)
    counted = (tuple(getattr(s, x)[s.counts] for s in slices) for x in ("rows", "samples"))
    return (
        Segments(ts, observed, weights, q0, v0, last, jnp.asarray(following), inputs),
        SegmentOrigin(tuple(recordings), numbers, *counted),
    )


def _slices(
    number: int, recording: Recording, horizon: Shooting | None, step: float | None
) -> list[_Segment]:
    intervals = len(recording.ts) - 1
    duration = recording.ts[-1] - recording.ts[0]
    # 1 - 1e-9: a duration of 3 * 0.1 is three segments of 0.1 in spite of round-off
    count = 1 if horizon is None else int(np.ceil(duration / horizon.length * (1 - 1e-9)))
    ends = np.unique(np.linspace(0, intervals, min(max(count, 1), intervals) + 1).round())
    pieces = []
    for first, last in zip(ends[:-1].astype(int), ends[1:].astype(int), strict=True):
        samples = np.arange(first, last + 1)
        knots = ends_of_steps(recording.inputs, *recording.ts[[first, last]])
        ts, rows = merged(recording.ts[samples], knots)
        if step is not None:  # no interval is longer
            counts = np.maximum(1, np.ceil(np.diff(ts) / step * (1 - 1e-9)).astype(int))
            places = np.concatenate([[0], np.cumsum(counts)])
            ts, rows = np.interp(np.arange(places[-1] + 1), places, ts), places[rows]
        pieces.append(_Segment(number, ts, rows, samples, (samples > first) | (first == 0)))
    return pieces


def ends_of_steps(inputs: Inputs, first: float, last: float) -> np.ndarray:
    """The times between two times at which an input jumps, or has a corner."""
    knots = (
        np.asarray(signal.ts) + float(signal.delay)
        for signal in inputs.values()
        if signal.interpolation != "cubic"
    )
    times = np.unique(np.concatenate([np.zeros(0), *knots]))
    return times[(times > first) & (times < last)]


def merged(ts: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times with others between them, and the indices of the former; equal ones count once."""
    if not others.size:
        return ts, np.arange(len(ts))
    eps = float(np.finfo(jnp.result_type(float)).eps)
    near = _ROUND_OFF * eps * np.abs(ts).max()
    after = np.searchsorted(ts, others)
    distances = [np.abs(ts[np.clip(k, 0, len(ts) - 1)] - others) for k in (after - 1, after)]
    new = others[np.minimum(*distances) > near]
    new = new[np.diff(new, prepend=-np.inf) > near]
    times = np.sort(np.concatenate([ts, new]))
    return times, np.searchsorted(times, ts)


def _padded(segment: _Segment, recording: Recording, size: int) -> tuple[Any, ...]:
    """The row of `Segments` for a segment, all but `following` and `inputs`."""
    ts = segment.ts
    # times must increase, so the padding moves on a little: more than round-off, too little to cost
    gap = max(_PADDING * (ts[-1] - ts[0]), 64 * np.finfo(float).eps * abs(ts[-1]))
    times = np.concatenate([ts, ts[-1] + gap * np.arange(1, size - len(ts) + 1)])
    samples = recording.observed[segment.samples]
    stated = 1.0 if recording.weights is None else recording.weights
    sample_weights = np.broadcast_to(stated, recording.observed.shape)[segment.samples]
    observed, weights = np.zeros((2, size, samples.shape[1]))
    observed[segment.rows] = np.nan_to_num(samples)
    weights[segment.rows] = sample_weights * np.isfinite(samples) * segment.counts[:, None]
    q0, v0 = recording.q0, recording.v0
    if q0.ndim == 2:
        guessed = np.flatnonzero(np.isfinite(q0).all(1) & np.isfinite(v0).all(1))
        nearest = guessed[np.abs(guessed - segment.samples[0]).argmin()]
        q0, v0 = q0[nearest], v0[nearest]
    return times, observed, weights, q0, v0, len(ts) - 1
