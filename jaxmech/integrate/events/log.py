"""The state of the events during a run: their signs, and their occurrences so far."""

from itertools import accumulate
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Occurrences(eqx.Module):
    """The times and states of occurrences of events, or of one."""

    t: Float[Array, " *R"]
    q: Float[Array, " *R n"]
    v: Float[Array, " *R k"]  # before a transition
    q_after: Float[Array, " *R n"] | None  # after it; None if no event has a transition
    v_after: Float[Array, " *R k"] | None
    outcome: Float[Array, " *R D"]  # decisions about gaps

    def packed(self) -> Float[Array, " *R w"]:
        """All numbers of an occurrence as one row."""
        states = [self.q, self.v, self.q_after, self.v_after]
        known_states = [x for x in states if x is not None]
        return jnp.concatenate([self.t[..., None], *known_states, self.outcome], axis=-1)

    @staticmethod
    def unpacked(rows: Float[Array, " *R w"], n: int, k: int, words: int) -> "Occurrences":
        """The occurrences in rows for n coordinates, k velocities and `words` decisions."""
        pairs = (rows.shape[-1] - 1 - words) // (n + k)
        ends = accumulate([1, *[n, k] * pairs])
        t, *states, outcome = jnp.split(rows, list(ends), axis=-1)
        q, v, *after = states
        q_after, v_after = after or (None, None)
        return Occurrences(t[..., 0], q, v, q_after, v_after, outcome)


class Replay(eqx.Module):
    """The events of a segment of steps, in their order, as a derivative needs them."""

    step: Int[Array, " *S K"]  # index of its step in the segment
    size: Float[Array, " *S K"]  # time from the last change of the motion in that step [s]
    which: Int[Array, " *S K"]  # index of the event
    row: Int[Array, " *S K"]  # row among the `Occurrences`, -1 if it is not kept
    outcome: Float[Array, " *S K D"]  # decisions about gaps
    count: Int[Array, " *S"]  # number of events, more than K if some are missing

    @staticmethod
    def none(capacity: int, words: int, dtype: Any) -> "Replay":
        """No events so far in a segment."""
        zeros, size = jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, dtype)
        outcome = jnp.zeros((capacity, words), dtype)
        return Replay(zeros, size, zeros, zeros, outcome, jnp.zeros((), jnp.int32))

    def added(self, step: Array, size: Array, event: Array, row: Array, outcome: Array) -> "Replay":
        """Append an event."""
        # Beyond the last row events are counted, but not written: a derivative then knows that
        # some are missing.
        is_entry = jnp.arange(len(self.step)) == self.count

        def with_entry(entries: Array, x: Array) -> Array:
            return jnp.where(is_entry, x.astype(entries.dtype), entries)

        columns = [with_entry(y, x) for y, x in zip(self.outcome.T, outcome, strict=True)]

        return Replay(
            with_entry(self.step, step), with_entry(self.size, size), with_entry(self.which, event),
            with_entry(self.row, row), jnp.stack(columns, axis=1) if columns else self.outcome,
            self.count + 1,
        )  # fmt: skip

    def at(self, k: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Step, size, number, row and outcome of entry k."""
        # A comparison and a sum instead of a computed index.
        is_entry = jnp.arange(len(self.step)) == k

        def get(entries: Array) -> Array:
            return jnp.where(is_entry, entries, 0).sum().astype(entries.dtype)

        outcome = jnp.where(is_entry[:, None], self.outcome, 0).sum(0)
        return get(self.step), get(self.size), get(self.which), get(self.row), outcome


class EventState(eqx.Module):
    """The state of E events at a state of the run."""

    signs: Int[Array, " E"]  # of the functions, 0 where unknown
    values: Float[Array, " E"]  # of the functions
    counts: Int[Array, " E"]  # of occurrences
    missed: Int[Array, " E"]  # occurrences that samples show in steps and that were not found
    latest: Float[Array, " E"]  # time of the last occurrence [s]
    active: Bool[Array, " C"]  # constraints with a switch that are on
    stopped_by: Int[Array, ""]  # index of the terminal event that occurred, else -1
    smooth: Int[Array, ""]  # states since the motion last changed at an event
    speeds: Float[Array, " n"]  # largest |dq/dt| at the start and about the events so far
    due: Bool[Array, ""]  # whether a function that is zero makes an event at once
    replay: Replay  # the events of the present segment

    @staticmethod
    def of(values: Array, active: Array, speeds: Array, replay: Replay) -> "EventState":
        """The state before any event, with unknown signs."""
        zeros, zero = jnp.zeros(values.shape, jnp.int32), jnp.zeros((), jnp.int32)
        return EventState(
            signs=zeros,
            values=values,
            counts=zeros,
            missed=zeros,
            latest=jnp.full_like(values, -jnp.inf),
            active=active,
            stopped_by=zero - 1,
            smooth=zero + 1,
            speeds=speeds,
            due=jnp.asarray(False),
            replay=replay,
        )
