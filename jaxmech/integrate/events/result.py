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
        x = self.occurrences(number)
        has_transition = self.has_transition[number]
        after = (x.q_after, x.v_after) if has_transition else (None, None)
        counts = self.counts[..., number], self.missed[..., number]
        return EventRecord(*counts, x.t, x.q, x.v, *after, x.outcome)

    def occurrences(self, number: int) -> Occurrences:
        """The first K occurrences of the event of this number; NaN where there were fewer."""
        first, end = self.rows[number : number + 2]
        mine = np.arange(first, end).reshape(*[1] * np.ndim(self.t_end), -1)
        is_kept = mine - first < self.counts[..., number, None]
        rows = self.log[..., first:end, :]
        if self.has_copies:
            # Gaps and frictions that take part in one event have copies of a row.
            source = jnp.where(is_kept, jax.lax.stop_gradient(rows[..., -1]), -1)
            source = jnp.where(source >= 0, source, mine).astype(jnp.int32)
            rows = jnp.take_along_axis(self.log, source[..., None], axis=-2)
        return Occurrences.unpacked(jnp.where(is_kept[..., None], rows, jnp.nan), *self.sizes)

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
    t_end = t_last
    for k, event in enumerate(event_set.events):
        if event.terminal:
            t_end = jnp.where(state.stopped_by == k, rows[event_set.rows[k], 0], t_end)
    return Events(
        log=rows,
        counts=state.counts,
        missed=state.missed,
        stopped_by=state.stopped_by,
        t_end=jnp.where(jnp.isnan(t_failed), t_end, t_failed),
        switches=active,
        names=tuple(event.name for event in event_set.events),
        rows=event_set.rows,
        has_transition=tuple(event.transition is not None for event in event_set.events),
        switched=event_set.names,
        sizes=(system.n, system.n_velocities, event_set.words),
        has_copies=bool(event_set.gaps),
    )
