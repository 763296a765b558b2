"""The state of the events during a run, and `Events`: their occurrences in a `Solution`."""

from collections.abc import Iterator
from itertools import accumulate

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.utils.text import not_one_of


class Replay(eqx.Module):
    """The events of a segment of steps, in their order, as a derivative needs them."""

    step: Int[Array, " *S K"]  # index of its step in the segment
    size: Float[Array, " *S K"]  # time from the last change of the motion in that step [s]
    which: Int[Array, " *S K"]  # index of the event
    row: Int[Array, " *S K"]  # row among the occurrences, -1 if it is not kept
    outcome: Float[Array, " *S K D"]  # decisions about gaps
    count: Int[Array, " *S"]  # number of events, more than K if some are missing

    def added(self, step: Array, size: Array, event: Array, row: Array, outcome: Array) -> "Replay":
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


class EventRecord(eqx.Module):
    """The first K occurrences of one event; NaN where there were fewer.

    Attributes:
        count: number of occurrences, also beyond K.
        missed: number of occurrences that were not located: in steps that are too long for the
            function, samples between the ends of the step show that it crosses zero.
        t: times [s], shape (K,).
        q: coordinates, shape (K, n).
        v: velocities, before a transition, shape (K, n).
        q_after: coordinates after a transition, shape (K, n); None for an event without one.
        v_after: velocities after it, shape (K, n); None likewise.
        outcome: what becomes of unilateral constraints, in D numbers for the package itself.
    """

    count: Int[Array, " *B"]
    missed: Int[Array, " *B"]
    t: Float[Array, " *B K"]
    q: Float[Array, " *B K n"]
    v: Float[Array, " *B K k"]
    q_after: Float[Array, " *B K n"] | None
    v_after: Float[Array, " *B K k"] | None
    outcome: Float[Array, " *B K D"]


class Events(eqx.Module):
    """The events of a `Solution` by name. Under `jax.vmap` every array gets a leading batch axis.

    Attributes:
        log: the rows of all events, R of w numbers, one event after the other, as a run leaves
            them: of those without an occurrence the content is undefined.
        counts: number of occurrences of each event.
        missed: number of those that were not located.
        stopped_by: index of the terminal event that ended the trajectory, in the order of the
            arguments; -1 if none did.
        t_end: time until which the trajectory moved [s].
        switches: whether each constraint that is switched was on at the saved times.
        names: names of the events, in the order of the arguments.
        rows: the first row of each event, and the number R of rows.
        has_transition: whether each event has a transition.
        switched: names of the constraints that are switched.
        sizes: numbers n of coordinates and k of velocities, and those that hold decisions.
        has_copies: whether rows may be copies of others, of events that took place together.
    """

    # A record is read where it is asked for: for many events the memory of all is large, most of it
    # is never written, and each copy would take longer than a short run.
    log: Float[Array, "*B R w"]
    counts: Int[Array, " *B E"]
    missed: Int[Array, " *B E"]
    stopped_by: Int[Array, " *B"]
    t_end: Float[Array, " *B"]
    switches: Bool[Array, " *B T C"]
    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    has_transition: tuple[bool, ...] = eqx.field(static=True)
    switched: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)
    has_copies: bool = eqx.field(static=True)

    def __getitem__(self, name: str) -> EventRecord:
        if name not in self.names:
            raise KeyError(f"`{name}` {not_one_of(name, self.names, 'an event')}")
        number = self.names.index(name)
        first, end = self.rows[number : number + 2]
        count, missed = self.counts[..., number], self.missed[..., number]
        mine = np.arange(first, end).reshape(*[1] * np.ndim(self.t_end), -1)
        is_kept = mine - first < count[..., None]
        rows = self.log[..., first:end, :]
        if self.has_copies:
            # Gaps and frictions that take part in one event have copies of a row.
            source = jnp.where(is_kept, jax.lax.stop_gradient(rows[..., -1]), -1)
            source = jnp.where(source >= 0, source, mine).astype(jnp.int32)
            rows = jnp.take_along_axis(self.log, source[..., None], axis=-2)
        rows = jnp.where(is_kept[..., None], rows, jnp.nan)
        n, k, words = self.sizes
        states = [n, k] * ((rows.shape[-1] - 1 - words) // (n + k))  # before, and after
        t, q, v, *after, outcome = jnp.split(rows, list(accumulate([1, *states])), axis=-1)
        q_after, v_after = after if self.has_transition[number] else (None, None)
        return EventRecord(count, missed, t[..., 0], q, v, q_after, v_after, outcome)

    @property
    def active(self) -> dict[str, Bool[Array, " *B T"]]:
        """Whether each constraint that is switched was on at the saved times, shape (T,) each."""
        return {name: self.switches[..., k] for k, name in enumerate(self.switched)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    @property
    def reason(self) -> str | None:
        """The name of the terminal event that ended a single trajectory, or None."""
        number = int(np.asarray(self.stopped_by))
        return None if number < 0 else self.names[number]
