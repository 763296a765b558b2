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
        occurrences: those of all events, R rows, one event after the other.
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
    """

    # The records are parts of a few arrays, since XLA would compile a copy for each of them.
    occurrences: Occurrences
    counts: Int[Array, " *B E"]
    missed: Int[Array, " *B E"]
    stopped_by: Int[Array, " *B"]
    t_end: Float[Array, " *B"]
    switches: Bool[Array, " *B T C"]
    names: tuple[str, ...] = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)
    has_transition: tuple[bool, ...] = eqx.field(static=True)
    switched: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> EventRecord:
        if name not in self.names:
            raise KeyError(f"`{name}` {not_one_of(name, self.names, 'an event')}")
        k, all_ = self.names.index(name), self.occurrences
        mine = slice(self.rows[k], self.rows[k + 1])
        after = (all_.q_after, all_.v_after) if self.has_transition[k] else (None, None)
        q_after, v_after = (None if x is None else x[..., mine, :] for x in after)
        return EventRecord(
            self.counts[..., k], self.missed[..., k], all_.t[..., mine], all_.q[..., mine, :],
            all_.v[..., mine, :], q_after, v_after, all_.outcome[..., mine, :],
        )  # fmt: skip

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
    t_end = t_last
    for k, event in enumerate(event_set.events):
        if event.terminal:
            t_end = jnp.where(state.stopped_by == k, occurrences.t[event_set.rows[k]], t_end)
    return Events(
        occurrences=occurrences,
        counts=state.counts,
        missed=state.missed,
        stopped_by=state.stopped_by,
        t_end=jnp.where(jnp.isnan(t_failed), t_end, t_failed),
        switches=active,
        names=tuple(event.name for event in event_set.events),
        rows=event_set.rows,
        has_transition=tuple(event.transition is not None for event in event_set.events),
        switched=event_set.names,
    )
