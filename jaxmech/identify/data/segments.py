"""Recordings as one batch of pieces of equal shape: what is missing or filled up weighs nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.shooting import Shooting

_FILLING = 1e-9  # of its duration: how far apart the times are that fill up a piece


class Segments(eqx.Module):
    """S pieces of T times, as arrays.

    Attributes:
        ts: times [s], shape (S, T); short pieces are filled up with times close to their last.
        observed: what was measured, (S, T, d); 0 where nothing was.
        weights: of each measurement, (S, T, d); 0 where there was none.
        q0: recorded, or guessed, start variables, (S, k).
        v0: their rates, (S, k).
        last: the place of the last time that is not filling, (S,).
        following: the piece that goes on where this one ends, itself where there is none, (S,).
    """

    ts: Float[Array, "S T"]
    observed: Float[Array, "S T d"]
    weights: Float[Array, "S T d"]
    q0: Float[Array, "S k"]
    v0: Float[Array, "S k"]
    last: Int[Array, " S"]
    following: Int[Array, " S"]


@dataclass(frozen=True, eq=False)
class SegmentOrigin:
    """Where the rows of the pieces come from.

    Attributes:
        recordings: they.
        recording: of each piece, (S,), the number of its recording.
        rows: for each piece, the places of its samples among its times.
        samples: for each piece, the places of the same samples in its recording.
    """

    recordings: tuple[Recording, ...]
    recording: np.ndarray
    rows: tuple[np.ndarray, ...]
    samples: tuple[np.ndarray, ...]

    def gathered(self, values: Any) -> list[np.ndarray]:
        """Values of the pieces (S, T, d), by recording, each (samples, d)."""
        values = np.asarray(values)
        whole = [np.full((len(r.ts), values.shape[-1]), np.nan) for r in self.recordings]
        for piece, (rows, samples) in enumerate(zip(self.rows, self.samples, strict=True)):
            whole[self.recording[piece]][samples] = values[piece, rows]
        return whole


class _Piece(NamedTuple):
    recording: int
    ts: np.ndarray
    rows: np.ndarray
    samples: np.ndarray
    counts: np.ndarray  # whether a sample weighs here: the first of a later piece does not


def segments(
    recordings: Sequence[Recording],
    *,
    horizon: Shooting | None = None,
    step: float | None = None,
    substeps: int = 1,
) -> tuple[Segments, SegmentOrigin]:
    """Cuts, refines and fills up.

    Args:
        recordings: with the same sensors, at least one.
        horizon: into which pieces.
        step: the largest step of integration [s]; longer intervals between samples get times in
            between.
        substeps: steps of integration from one time to the next.

    Returns:
        The pieces and where they come from.
    """
    pieces = [
        piece
        for number, recording in enumerate(recordings)
        for piece in _pieces(number, recording, horizon, None if step is None else step * substeps)
    ]
    size = max(len(piece.ts) for piece in pieces)
    filled = [_filled(p, recordings[p.recording], size) for p in pieces]
    starts = [_start(p, recordings[p.recording]) for p in pieces]
    following = [
        k + (k + 1 < len(pieces) and pieces[k + 1].recording == p.recording)
        for k, p in enumerate(pieces)
    ]
    found = Segments(
        ts=jnp.asarray(np.stack([_times(p.ts, size) for p in pieces])),
        observed=jnp.asarray(np.stack([x for x, _ in filled])),
        weights=jnp.asarray(np.stack([w for _, w in filled])),
        q0=jnp.asarray(np.stack([q for q, _ in starts])),
        v0=jnp.asarray(np.stack([v for _, v in starts])),
        last=jnp.asarray([len(p.ts) - 1 for p in pieces]),
        following=jnp.asarray(following),
    )
    numbers = np.array([p.recording for p in pieces])
    kept = tuple((p.rows[p.counts], p.samples[p.counts]) for p in pieces)
    return found, SegmentOrigin(
        tuple(recordings), numbers, tuple(r for r, _ in kept), tuple(s for _, s in kept)
    )


def _pieces(
    number: int, recording: Recording, horizon: Shooting | None, step: float | None
) -> list[_Piece]:
    intervals = len(recording.ts) - 1
    duration = recording.ts[-1] - recording.ts[0]
    count = 1 if horizon is None else int(np.ceil(duration / horizon.length * (1 - 1e-9)))
    ends = np.unique(np.linspace(0, intervals, min(max(count, 1), intervals) + 1).round())
    found = []
    for first, last in zip(ends[:-1].astype(int), ends[1:].astype(int), strict=True):
        samples = np.arange(first, last + 1)
        ts, rows = _refined(recording.ts[samples], step)
        found.append(_Piece(number, ts, rows, samples, (samples > first) | (first == 0)))
    return found


def _refined(ts: np.ndarray, step: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The times with others in between, so that no interval is longer, and where they stay."""
    if step is None:
        return ts, np.arange(len(ts))
    counts = np.maximum(1, np.ceil(np.diff(ts) / step * (1 - 1e-9)).astype(int))
    parts = [
        start + (stop - start) * np.arange(count) / count
        for start, stop, count in zip(ts[:-1], ts[1:], counts, strict=True)
    ]
    return np.concatenate([*parts, ts[-1:]]), np.concatenate([[0], np.cumsum(counts)])


def _times(ts: np.ndarray, size: int) -> np.ndarray:
    """Filled up with times that are almost the last, which take no motion to reach."""
    gap = max(_FILLING * (ts[-1] - ts[0]), 64 * np.finfo(float).eps * abs(ts[-1]))
    return np.concatenate([ts, ts[-1] + gap * np.arange(1, size - len(ts) + 1)])


def _filled(piece: _Piece, recording: Recording, size: int) -> tuple[np.ndarray, np.ndarray]:
    taken = recording.observed[piece.samples]
    whole = np.broadcast_to(
        1.0 if recording.weights is None else recording.weights, recording.observed.shape
    )
    observed, weights = np.zeros((2, size, taken.shape[1]))
    observed[piece.rows] = np.nan_to_num(taken)
    weights[piece.rows] = whole[piece.samples] * np.isfinite(taken) * piece.counts[:, None]
    return observed, weights


def _start(piece: _Piece, recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    q0, v0 = recording.q0, recording.v0
    if q0.ndim == 1:
        return q0, v0
    known = np.flatnonzero(np.isfinite(q0).all(1) & np.isfinite(v0).all(1))
    nearest = known[np.abs(known - piece.samples[0]).argmin()]
    return q0[nearest], v0[nearest]
