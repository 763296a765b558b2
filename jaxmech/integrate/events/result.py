"""`Events`: the occurrences of events in a `Solution`."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.event_set import EventSet
from jaxmech.integrate.events.log import EventState, Occurrences
from jaxmech.system import System
from jaxmech.utils.text import not_one_of


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
        records: the occurrences of each event.
        stopped_by: index of the terminal event that ended the trajectory, in the order of the
            arguments; -1 if none did.
        t_end: time until which the trajectory moved [s].
        active: whether each constraint that is switched was on at the saved times, by name, shape
            (T,) each.
        names: names of the events, in the order of the arguments.
    """

    records: dict[str, EventRecord]
    stopped_by: Int[Array, " *B"]
    t_end: Float[Array, " *B"]
    active: dict[str, Bool[Array, " *B T"]]
    names: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> EventRecord:
        if name not in self.records:
            raise KeyError(f"`{name}` {not_one_of(name, self.names, 'an event')}")
        return self.records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.records

    @property
    def reason(self) -> str | None:
        """The name of the terminal event that ended a single trajectory, or None."""
        number = int(np.asarray(self.stopped_by))
        return None if number < 0 else self.names[number]


def events_of(
    event_set: EventSet, system: System, state: EventState, rows: Array, active: Array,
    t_last: Array, t_failed: Array,
) -> Events:  # fmt: skip
    """The events by name, from the last state of a run to the time `t_last`.

    `rows` are their occurrences (R, w). `active` flags the constraints with a switch that are on at
    the save times, shape (T, C).
    """
    if event_set.gaps:
        # Gaps and frictions that take part in one event have copies of a row.
        own = jnp.arange(len(rows))
        source = jax.lax.stop_gradient(jnp.nan_to_num(rows[:, -1], nan=-1.0)).astype(own.dtype)
        rows = rows[jnp.where(source >= 0, source, own)]
    occurrences = Occurrences.unpacked(rows, system.n, system.n_velocities, event_set.words)
    records, t_end = dict[str, EventRecord](), t_last
    for k, event in enumerate(event_set.events):
        event_rows = slice(event_set.rows[k], event_set.rows[k + 1])
        has_transition = event.transition is not None
        records[event.name] = EventRecord(
            count=state.counts[k],
            missed=state.missed[k],
            t=occurrences.t[event_rows],
            q=occurrences.q[event_rows],
            v=occurrences.v[event_rows],
            q_after=occurrences.q_after[event_rows]
            if has_transition and occurrences.q_after is not None
            else None,
            v_after=occurrences.v_after[event_rows]
            if has_transition and occurrences.v_after is not None
            else None,
            outcome=occurrences.outcome[event_rows],
        )
        if event.terminal:
            t_end = jnp.where(state.stopped_by == k, occurrences.t[event_set.rows[k]], t_end)
    return Events(
        records=records,
        stopped_by=state.stopped_by,
        t_end=jnp.where(jnp.isnan(t_failed), t_end, t_failed),
        active={name: active[:, k] for k, name in enumerate(event_set.names)},
        names=tuple(event.name for event in event_set.events),
    )
