"""`EventSet`: all events of a run, with their functions and their effects on a state."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows
from jaxmech.integrate.events.event import Event
from jaxmech.integrate.events.friction import can_occur
from jaxmech.integrate.events.gaps import NO_GAPS, GapDecisions, Gaps, in_place
from jaxmech.integrate.events.impacts import (
    Decided,
    MotionState,
    decided_at,
    gap_states,
    impulses,
)
from jaxmech.integrate.events.log import EventState, Replay
from jaxmech.integrate.events.multipliers import GapMultipliers
from jaxmech.integrate.events.transitions import After, after_transition
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.switches import Switched, plain, with_switches
from jaxmech.laws import observed_at
from jaxmech.status import Status
from jaxmech.system import Params, System, near
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import kept_by
from jaxmech.utils.probing import depends_on

MOST = 8  # events in a step that change the motion; each of the others occurs once between them
MOST_OF_GAPS = 1000  # the same of a run with gaps, which chatter until they come to rest
IN_SEGMENT = 8  # events of a segment that a derivative can replay, or more if there are more
IN_SEGMENT_OF_GAPS = 32  # the same of a run with gaps
MANY = 2**31 - 1  # states without events
_NEAR = 1e-6  # relative to its change in a step: a smaller function counts as zero


@dataclass(frozen=True)
class EventSet:
    """All events of a run. An empty set is false, and the operations of a run do not grow by it."""

    events: tuple[Event, ...] = ()  # E of them
    inactive: tuple[str, ...] = ()  # constraints that are off at the start
    gaps: Gaps = NO_GAPS  # whose events are the last of all, and whose switches too

    def __bool__(self) -> bool:
        return bool(self.events)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The constraints with a switch, C of them."""
        switched = [e.transition.switches for e in self.own_events if e.transition]
        own = [*self.inactive, *(name for names in switched for name in names)]
        return (*dict.fromkeys(map(self._switch, own)), *self.gaps.switches)

    def _switch(self, name: str) -> str:
        """The name of the switch of a constraint; that of a gap tells whether it is closed."""
        return in_place(name) if name in self.gaps.names else name

    @cached_property
    def _removable(self) -> dict[str, int]:
        return self.gaps.removable(self.names)

    @property
    def own_events(self) -> tuple[Event, ...]:
        """The events without those of the gaps."""
        return self.events[: len(self.events) - len(self.gaps.events)]

    @cached_property
    def has_transitions(self) -> bool:
        """Whether any event changes the state."""
        return any(e.transition for e in self.events)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The first row of the occurrences of each event, and the total number of rows."""
        return tuple(np.cumsum([0, *(e.kept for e in self.events)]).tolist())

    @property
    def words(self) -> int:
        """The numbers that hold the decisions about the gaps at an event."""
        return self.gaps.words

    @property
    def most_changes(self) -> int:
        """Events in a step that may change the motion."""
        return MOST_OF_GAPS if self.gaps else MOST

    def replay(self, dtype: Any) -> Replay:
        """None of the events of a segment so far."""
        # Each of them in a step, and one that changes the motion.
        least = IN_SEGMENT_OF_GAPS if self.gaps else IN_SEGMENT
        capacity = max(least, len(self.events) + 1) if self else 0
        return Replay.none(capacity, self.words, dtype)

    @cached_property
    def one_sided(self) -> Bool[np.ndarray, " E"]:
        """Flags of the events whose functions are positive while they can occur."""
        return np.arange(len(self.events)) >= len(self.own_events)

    def width(self, q: Array, v: Array) -> int:
        """The number of columns of an occurrence: its time and states."""
        return 1 + (q.size + v.size) * (1 + self.has_transitions) + self.words

    def log(self, q: Array, v: Array) -> Float[Array, "R w"]:
        """Empty rows, in which a loop writes the occurrences of all events."""
        row = jnp.zeros(self.width(q, v), q.dtype)
        return empty_rows(self.rows[-1], row) if self else row[None][:0]

    def is_kept(self, counts: Int[Array, " E"]) -> Bool[Array, " R"]:
        """Flags of the rows that are written after so many occurrences of each event."""
        numbers = [np.arange(event.kept) for event in self.events]
        owners = np.repeat(
            np.arange(len(numbers)), [len(event_numbers) for event_numbers in numbers]
        )
        return jnp.asarray(np.concatenate(numbers)) < counts[owners]

    def written_rows(
        self, log: Float[Array, "R w"], counts: Int[Array, " E"]
    ) -> Float[Array, "R w"]:
        """The rows after a run, NaN if they are not written."""
        if not self:
            return log
        return jnp.where(self.is_kept(counts)[:, None], log, jnp.nan)

    def system(self, system: System) -> System:
        """The system, with its gaps as constraints, and with switches if there are any."""
        if self.gaps:
            return self.gaps.switched(system, self.names)
        return with_switches(system, self.names) if self.names else system

    def params(self, params: Params, active: Bool[Array, " C"]) -> Params:
        """The parameters of the system with switches."""
        return Switched(params, active) if self.names else params

    def plain(self, params: Params) -> Params:
        """The parameters that the functions of users expect, without switches and spans of time."""
        return plain(params)

    def active(self) -> Bool[Array, " C"]:
        """Flags of the constraints that are on at the start, without gaps."""
        off = [self._switch(name) for name in self.inactive]
        on = np.array([name not in off for name in self.names], bool)
        return jnp.asarray(on & ~self.of_gaps)

    @cached_property
    def of_gaps(self) -> Bool[np.ndarray, " C"]:
        """Flags of the switches of gaps and frictions."""
        return np.arange(len(self.names)) >= len(self.names) - len(self.gaps.switches)

    def released(self, params: Params) -> Params | None:
        """The parameters without the constraints that an event may switch off; None if all are off.

        Args:
            params: those of the system with switches, with any leading axes.
        """
        transitions = [event.transition for event in self.events if event.transition]
        off = [any(name in transition.off for transition in transitions) for name in self.names]
        if not isinstance(params, Switched) or not (np.asarray(params.active) & off).any():
            return None
        # With leading axes, and in NumPy, the flags do not have the type that `Switched` states.
        return eqx.tree_at(lambda p: p.active, params, params.active & ~np.array(off, bool))

    @property
    def changes(self) -> Bool[Array, " E"]:
        """Flags of the events with a transition."""
        return self.flags([event.transition is not None for event in self.events])

    def of_positions(self, q: Array, v: Array, t: Array, params: Params) -> tuple[bool, ...]:
        """Whether each function depends on q and t alone; `params` are the user's."""

        def is_of_positions(event: Event) -> bool:
            return not depends_on(lambda v: event.value(q, v, t, params), (v,))

        return tuple(not event.needs_reactions and is_of_positions(event) for event in self.events)

    def enabled(self, active: Bool[Array, " C"]) -> Bool[Array, " E"]:
        """Flags of the events that can occur: one that would not switch any constraint cannot."""
        own = {event.name for event in self.own_events}

        def is_enabled(event: Event) -> Any:
            if event.transition is None or not event.transition.switches:
                return jnp.asarray(True)
            on, off = event.transition.on, event.transition.off
            if event.name not in own:  # of a gap, whose switch has its name
                may = active[self._removable[on[0]]] if on and on[0] in self._removable else True
                wrong = [~active[self.names.index(name)] & may for name in on]
                return jnp.stack([*wrong, *(active[self.names.index(name)] for name in off)]).any()
            wrong = [~active[self.names.index(self._switch(name))] for name in on]
            wrong += [active[self.names.index(self._switch(name))] for name in off]
            return jnp.stack(wrong).any()

        if not self.gaps.frictions:
            return jnp.stack([is_enabled(event) for event in self.events])
        slides = self.gaps.flags[-1]
        others = self.events[: -2 * len(self.gaps.frictions)]
        of_frictions = can_occur(active[-slides:])
        if not others:
            return of_frictions
        return jnp.concatenate([jnp.stack([is_enabled(event) for event in others]), of_frictions])

    def values(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params,
        multipliers: Float[Array, " G"] | None = None,
    ) -> Float[Array, " E"]:  # fmt: skip
        """The functions of the events; `params` are those of the scheme's system.

        The `multipliers` of gaps, where they are known, serve those that need nothing else.
        """
        reactions = self._reactions(scheme, q, v, t, params)
        return self._values(scheme, q, v, t, params, reactions, multipliers)

    def values_and_noise(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[Float[Array, " E"], Float[Array, " E"]]:
        """The functions, and sizes of those of reactions that may be errors."""
        reactions = self._reactions(scheme, q, v, t, params)
        values = self._values(scheme, q, v, t, params, reactions, None)
        largest = jnp.zeros_like(t)
        if reactions is not None:
            multipliers = [jnp.abs(x).max(initial=0.0) for x in reactions.multipliers.values()]
            largest = jnp.stack([largest, *multipliers]).max()
        share = float(jnp.finfo(q.dtype).eps) ** 0.5
        return values, jnp.where(self.one_sided, 0.0, share * largest).astype(q.dtype)

    def _reactions(self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> Any:
        if not any(event.needs_reactions for event in self.own_events):
            return None
        return observed_at(scheme.system, scheme.formulation, q, v, t, params)

    def _values(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params, reactions: Any,
        multipliers: Float[Array, " G"] | None,
    ) -> Float[Array, " E"]:  # fmt: skip
        user, of_gaps = self.plain(params), reactions
        if self.gaps.frictions:
            of_gaps = GapMultipliers.at(self.gaps, scheme, q, v, t, params)
        elif self.gaps and reactions is None:
            of_gaps = (
                GapMultipliers.by_name(self.gaps, multipliers)
                if multipliers is not None
                else GapMultipliers.at(self.gaps, scheme, q, v, t, params)
            )
        values = [event.value(q, v, t, user, reactions) for event in self.own_events]
        rest = self.events[len(values) :]
        values += [event.value(q, v, t, user, of_gaps) for event in rest]
        return jnp.stack(values)

    def crossed(
        self, signs: Int[Array, " E"], values: Float[Array, " E"], active: Bool[Array, " C"]
    ) -> Bool[Array, " E"]:
        """Flags of the events between a state with these signs and one with these values."""
        # Zero counts as crossed.
        is_beyond = jnp.where(signs > 0, values <= 0, values >= 0)
        return is_beyond & self.allowed(signs, active)

    def allowed(self, signs: Int[Array, " E"], active: Bool[Array, " C"]) -> Bool[Array, " E"]:
        """Flags of the events that occur if their functions lose these signs."""
        # A crossing goes against the sign before it. One of 0, which is unknown, crosses nothing.
        directions = jnp.asarray([event.direction for event in self.events], signs.dtype)
        allowed = (directions == 0) | (directions == -signs)
        return (signs != 0) & allowed & self.enabled(active)

    def opposite_signs(
        self, signs: Int[Array, " E"], values: Float[Array, " E"], active: Bool[Array, " C"]
    ) -> Bool[Array, " E"]:
        """Flags of the functions with the other sign, in either direction."""
        return (jnp.sign(values) == -signs) & (signs != 0) & self.enabled(active)

    def continued_signs(
        self, signs: Int[Array, " E"], values: Float[Array, " E"], active: Bool[Array, " C"]
    ) -> Int[Array, " E"]:
        """The signs at a state from which the run continues; those of a zero stay."""
        # A zero has no side, so the sign before it stays.
        new = jnp.sign(values).astype(signs.dtype)
        return self.known_signs(jnp.where(values == 0, signs, new), active)

    def signs_at_start(
        self, signs: Int[Array, " E"], first: Float[Array, " E"], last: Float[Array, " E"],
        active: Bool[Array, " C"],
    ) -> Int[Array, " E"]:  # fmt: skip
        """The signs at the start of a part of the motion, given the values at both of its ends."""
        # An event that has just become possible has no sign yet. Were it to wait for that at the
        # end, the function could cross zero on the way. Only a small value, which may be a
        # rounding error, tells nothing.
        is_clear = jnp.abs(first) > _NEAR * jnp.abs(last - first)
        is_new = (signs == 0) & is_clear & self.enabled(active)
        return jnp.where(is_new, jnp.sign(first).astype(signs.dtype), signs)

    def known_signs(self, signs: Int[Array, " E"], active: Bool[Array, " C"]) -> Int[Array, " E"]:
        """The signs of events that can occur, 0 of others; gaps and multipliers are positive."""
        if self.gaps:
            signs = jnp.where(self.one_sided, 1, signs).astype(signs.dtype)
        return jnp.where(self.enabled(active), signs, 0)

    def sides(
        self, scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params
    ) -> Int[Array, " E"]:
        """The sign of each function right after a state, in the direction of h."""
        qdd = scheme.law(q, v, t, params)[1].qdd
        speeds = scheme.system.dynamics.speeds(q, v, t, params)
        values, rates = jax.jvp(
            lambda q, v, t: self.values(scheme, q, v, t, params),
            (q, v, t),
            (speeds, qdd, jnp.ones_like(t)),
        )
        # After a jump the function may be zero but for rounding errors; then its rate determines
        # the sign.
        is_zero = jnp.abs(values) <= _NEAR * jnp.abs(rates * h)
        return jnp.sign(jnp.where(is_zero, rates * h, values)).astype(jnp.int32)

    def start(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[EventState, Int[Array, ""]]:
        """The events before the first step, and a status; `params` are the user's."""
        status = jnp.asarray(int(Status.OK), jnp.int32)
        if not self:
            none, speeds = jnp.zeros(0, q.dtype), jnp.zeros_like(q)
            events = EventState.of(none, self.active(), speeds, self.replay(q.dtype))
            # Always smooth.
            return replace(events, smooth=jnp.asarray(MANY, jnp.int32)), status
        active = self.active()
        speeds = scheme.system.dynamics.speeds(q, v, t, self.params(params, active))
        speeds = jax.lax.stop_gradient(jnp.abs(speeds))
        multipliers = None
        if self.gaps:
            state = MotionState(q, v, t, speeds, jnp.zeros_like(t), jnp.zeros_like(t))
            active, status, multipliers = self._begun(scheme, state, params, active)
        values = self.values(scheme, q, v, t, self.params(params, active), multipliers)
        events = EventState.of(values, active, speeds, self.replay(q.dtype))
        signs = self.continued_signs(events.signs, values, active)
        return replace(events, signs=signs), status

    def _begun(
        self, scheme: Scheme, state: MotionState, params: Params, active: Bool[Array, " C"]
    ) -> tuple[Bool[Array, " C"], Int[Array, ""], Float[Array, " G"]]:
        """The switches at the start of a run, a status, and the multipliers of gaps."""

        def decide() -> tuple[Array, Array, Array]:
            nothing = jnp.asarray(-1, jnp.int32)
            decided = self._decided(scheme, nothing, state, params, active)
            decisions, hits = decided.decisions, decided.decisions.hit.any()
            # A gap that closes with a velocity is open, until its impact occurs at once.
            decisions = replace(
                decisions,
                closed=decisions.closed & (jnp.abs(gap.rate) <= gap.calm),
                slides=decisions.slides & ~hits,
            )
            pushes = jnp.where(decisions.closed, decided.multipliers, 0.0)
            return self._closed(decisions, active), decided.status, pushes

        all_on = self.params(params, active | self.of_gaps)
        gap = gap_states(self.gaps, scheme.system, state, all_on)
        if self.gaps.frictions:
            return decide()
        touches, ok = (gap.value <= gap.zero).any(), jnp.asarray(int(Status.OK), jnp.int32)
        open_ = active, ok, jnp.zeros_like(gap.value)
        begun: tuple[Array, Array, Array] = jax.lax.cond(touches, decide, lambda: open_)
        return begun

    def jumps(
        self, system: System, q: Array, t: Array, params: Params, active: Bool[Array, " C"],
        extents: Float[Array, " n"] | None, turns: Array,
    ) -> tuple[Bool[Array, " G"], Bool[Array, ""]]:  # fmt: skip
        """Flags of closed gaps that a jump in time has opened, and whether one has closed.

        `turns` is whether the functions of the system may jump at t, on whose new side they are.
        """
        nothing = jnp.zeros(self.gaps.count, bool), jnp.asarray(False)
        if not self.gaps.count or extents is None:
            return nothing
        all_on, first = self.params(params, active | self.of_gaps), int(np.argmax(self.of_gaps))

        def values(t: Array) -> Array:
            return system.dynamics.position_level(q, t, all_on)[-self.gaps.count :]

        if not depends_on(values, (t,)):
            return nothing

        def jumped() -> tuple[Array, Array]:
            g, slopes = values(t), system.dynamics.position_jacobian(q, t, all_on)
            rows = slopes[-self.gaps.count :]
            is_zero = jax.vmap(lambda g, row: near(g[None], row[None], q, extents))(g, rows)
            closed = active[first : first + self.gaps.count]
            return closed & (g > 0) & ~is_zero, ((g < 0) & ~is_zero).any()

        result: tuple[Array, Array] = jax.lax.cond(turns, jumped, lambda: nothing)
        return result

    def without(self, active: Bool[Array, " C"], gaps: Bool[Array, " G"]) -> Bool[Array, " C"]:
        """The switches with some gaps open."""
        if not self.gaps.count:
            return active
        before, of_gaps, after = jnp.split(
            active, np.argmax(self.of_gaps) + np.array([0, self.gaps.count])
        )
        return jnp.concatenate([before, of_gaps & ~gaps, after])

    def gaps_are_met(
        self, system: System, q: Array, t: Array, params: Params, extents: Float[Array, " n"]
    ) -> Bool[Array, ""]:
        """Whether no gap is negative beyond a tolerance; `params` have all of them switched on."""
        if not self.gaps.count:
            return jnp.asarray(True)
        count = self.gaps.count
        values = system.dynamics.position_level(q, t, params)[-count:]
        slopes = system.dynamics.position_jacobian(q, t, params)[-count:]
        met: Array = near(jnp.minimum(values, 0.0), slopes, q, extents, sizes=(1,) * count)
        return met

    def flags(self, values: Sequence[bool]) -> Bool[Array, " E"]:
        """Make an array of a property of each event."""
        return jnp.asarray(np.array(values, bool))

    def chosen(self, index: Array, values: Array) -> Array:
        """Select the entry of one event."""
        is_chosen = jnp.arange(len(self.events)) == index
        return jnp.where(is_chosen, values, jnp.zeros_like(values)).sum().astype(values.dtype)

    def interrupts(self, index: Array) -> Array:
        """Whether the motion is another one after an event."""
        return self.chosen(index, self.flags([event.interrupts for event in self.events]))

    def stops(self, index: Array) -> Array:
        """Whether an event is terminal."""
        return self.chosen(index, self.flags([event.terminal for event in self.events]))

    def switched(
        self, index: Array, active: Bool[Array, " C"], outcome: Float[Array, " D"]
    ) -> Bool[Array, " C"]:
        """The switches after an event, with the decisions about the gaps."""
        active = self._switched(index, active)
        if not self.gaps:
            return active
        closed = self._closed(GapDecisions.unpacked(outcome, self.gaps), active)
        return jnp.where(self.chosen(index, self.changes), closed, active)

    def taking_part(
        self, index: Array, before: Bool[Array, " C"], after: Bool[Array, " C"],
        outcome: Float[Array, " D"],
    ) -> Bool[Array, " E"]:  # fmt: skip
        """Flags of the events that take place with one of them, given the switches about it."""
        mine = jnp.arange(len(self.events)) == index
        if not self.gaps:
            return mine
        count, own, first = self.gaps.count, len(self.gaps.frictions), len(self.own_events)
        sizes = np.cumsum([count, own, own]).tolist()
        pairs = (x[len(x) - len(self.gaps.switches) :] for x in (before, after))
        (was, stuck, ran, back), (is_, sticks, runs, backs) = (jnp.split(x, sizes) for x in pairs)
        hit = GapDecisions.unpacked(outcome, self.gaps).hit
        closes, opens = ~was & (hit | is_), was & ~is_
        slips, stops = (
            stuck & (runs | backs),
            (ran & ~runs & (sticks | backs)) | (back & ~backs & (sticks | runs)),
        )
        others = jnp.concatenate([jnp.zeros(first, bool), closes, opens, slips, stops])
        others &= self.chosen(index, self.changes)
        # A load that some can still hold leaves nothing, and a gap that closes may open at once.
        leaves = (index >= first + count) & (index < first + 2 * count + own)
        alone = (index < first) | (~others.any() & ~leaves)
        return jnp.where(mine, alone | others, others)

    def _switched(self, index: Array, active: Bool[Array, " C"]) -> Bool[Array, " C"]:
        for k, event in enumerate(self.events):
            if event.transition is None or not event.transition.switches or self.one_sided[k]:
                continue
            on, off = event.transition.on, event.transition.off
            turned_on, turned_off = ({self._switch(name) for name in names} for names in (on, off))
            # What is removed is no longer closed.
            turned_off |= {gap for name in off for gap in self.gaps.names.get(name, [])}
            switched_on = np.array([name in turned_on for name in self.names])
            switched_off = np.array([name in turned_off for name in self.names])
            active = jnp.where(index == k, (active | switched_on) & ~switched_off, active)
        return active

    def _closed(self, outcome: GapDecisions, active: Bool[Array, " C"]) -> Bool[Array, " C"]:
        return jnp.concatenate([active[: -len(outcome.switches)], outcome.switches])

    def after(
        self, scheme: Scheme, index: Array, state: MotionState, params: Params,
        active: Bool[Array, " C"], outcome: Float[Array, " D"] | None = None,
        extents: Float[Array, " n"] | None = None,
    ) -> "After":  # fmt: skip
        """The state after an event.

        Without an `outcome`, which a run has recorded, it is decided what becomes of the gaps.
        Given extents, the status tells whether the state satisfies the constraints.
        """
        q, v, t = state.q, state.v, state.t
        moved = q, v, jnp.asarray(int(Status.OK), jnp.int32)
        off = active & ~self.of_gaps
        new = self.params(params, self._switched(index, off))
        old = self.params(params, off)
        for k, event in enumerate(self.events):
            if event.transition is None or self.one_sided[k]:
                continue

            def apply_transition(event: Event = event) -> tuple[Array, Array, Array]:
                role = f"the transition of event {event.name!r}"
                with naming_missing(role, self.plain(params)):
                    return after_transition(
                        scheme, event, q, v, t, self.plain(params), old, new, extents
                    )

            moved = jax.lax.cond(index == k, apply_transition, lambda moved=moved: moved)
        if not self.gaps:
            none = jnp.zeros(0, q.dtype)
            return After(*moved, self._switched(index, active), none, state.speeds)
        return self._after_gaps(scheme, index, state, moved, params, active, outcome, extents)

    def _after_gaps(
        self, scheme: Scheme, index: Array, state: MotionState, moved: Any, params: Params,
        active: Bool[Array, " C"], outcome: Float[Array, " D"] | None,
        extents: Float[Array, " n"] | None,
    ) -> "After":  # fmt: skip
        """The state after impacts and releases of gaps, which follow any transition."""
        (q, v, status), own = moved, len(self.own_events)
        state, active = state._replace(q=q, v=v), self._switched(index, active)
        number, speeds = jnp.asarray(int(Status.OK), jnp.int32), state.speeds
        multipliers = None
        if outcome is None:
            decided = self._decided(scheme, index, state, params, active)
            decisions, number, speeds, multipliers = decided
            outcome = decisions.packed(q.dtype)
        decisions = GapDecisions.unpacked(jax.lax.stop_gradient(outcome), self.gaps)
        all_on = self.params(params, active | self.of_gaps)
        if extents is not None and self._removable:
            # What is put in place must not overlap with what is there.
            met = self.gaps_are_met(scheme.system, q, state.t, all_on, extents) | (index >= own)
            wrong = jnp.asarray(int(Status.NOT_ON_CONSTRAINT), jnp.int32)
            status = jnp.where((status == Status.OK) & ~met, wrong, status)
        new_v = impulses(self.gaps, scheme, decisions, state, all_on, self.plain(params))
        changes = self.chosen(index, self.changes)
        return After(
            q,
            jnp.where(changes, new_v, v),
            jnp.where(changes & (status == Status.OK), number, status),
            jnp.where(changes, self._closed(decisions, active), active),
            outcome,
            speeds,
            multipliers,
        )

    def _decided(
        self, scheme: Scheme, index: Array, state: MotionState, params: Params,
        active: Bool[Array, " C"],
    ) -> Decided:  # fmt: skip
        gaps, own = self.gaps, len(self.own_events)
        all_on = self.params(params, active | self.of_gaps)
        decide, is_still = decision_program(gaps, scheme), index >= own
        occurs = jnp.arange(len(gaps.events)) + own == index
        return decide(state, all_on, self.params(params, active), is_still, occurs)


NO_EVENTS = EventSet()


@kept_by(32)
def decision_program(gaps: Gaps, scheme: Scheme) -> Callable[..., Decided]:
    """The decisions for the gaps of a run, which are traced once."""
    return jax.jit(partial(decided_at, gaps, scheme))
