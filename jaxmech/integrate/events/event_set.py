"""`EventSet`: all events of a run, with their functions and their effects on a state.

It is made from the arguments of `simulate` and the gaps of its system.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import empty_rows
from jaxmech.integrate.events.contact_events import After, ContactEvents
from jaxmech.integrate.events.event import Event, names_of
from jaxmech.integrate.events.gaps import NO_GAPS, Gaps
from jaxmech.integrate.events.impacts import MotionState
from jaxmech.integrate.events.log import EventState, Replay
from jaxmech.integrate.run_params import plain, with_run, with_switches
from jaxmech.integrate.scheme import Scheme
from jaxmech.laws import observed_at
from jaxmech.linalg import LDL, metric
from jaxmech.state import metric_mass
from jaxmech.status import Status
from jaxmech.system import (
    Params,
    System,
    motion_share,
    near,
    rate,
)
from jaxmech.utils.caller import USE_FLOAT64, PrecisionWarning, warn_caller
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.probing import actual, depends_on

MOST = 8  # events in a step that change the motion; each of the others occurs once between them
MOST_OF_GAPS = 1000  # the same of a run with gaps, which chatter until they come to rest
IN_SEGMENT = 8  # events of a segment that a derivative can replay, or more if there are more
IN_SEGMENT_OF_GAPS = 32  # the same of a run with gaps
MANY = 2**31 - 1  # states without events: always smooth
ROUNDINGS = 4.0  # units of round-off of the time, to which an event is located
_ITERATIONS = 2  # for velocities on constraints that are not linear in them
_NEAR = 1e-6  # relative to its change in a step: a smaller function counts as zero


@dataclass(frozen=True)
class EventSet:
    """All events of a run. An empty set is false, and the operations of a run do not grow by it.

    `params` are those of the user unless stated otherwise, and `active` flags the constraints with
    a switch that are on.
    """

    events: tuple[Event, ...] = ()  # E of them, those of gaps and frictions last
    inactive: tuple[str, ...] = ()  # constraints that are off at the start
    gaps: Gaps = NO_GAPS

    def __bool__(self) -> bool:
        return bool(self.events)

    @staticmethod
    def of(system: System, events: Any, inactive: Any) -> "EventSet":
        """The checked and named events of a run, without gaps."""
        if isinstance(events, Event) or not isinstance(events, Iterable):
            events = (events,)
        named_events = tuple(_named(event, k) for k, event in enumerate(events, start=1))
        names_off = names_of("inactive", inactive)
        if not (named_events or names_off):
            return NO_EVENTS
        _require_names(named_events)
        _require_constraints(system, "Argument `inactive`", names_off)
        if not (named_events or system.unilateral):
            # Switches are those of events: one that never occurs.
            named_events = (Event(lambda q, v, t, params: 1.0, name="never"),)
        for event in named_events:
            if event.transition is not None:
                subject = f"The transition of event {event.name!r}"
                _require_constraints(system, subject, event.transition.switches)
        return EventSet(named_events, names_off)

    def with_gaps(self, system: System, q: Array, ts: Array, params: Params) -> "EventSet":
        """The events of a run with those of the gaps of its system.

        Its functions tell at the initial state how many gaps there are.
        """
        if not (self or system.unilateral):
            return self  # and no program for ts[0]
        values = actual(ts, 1)
        if values is not None and values.size:
            eps = float(np.finfo(values.dtype).eps)
            largest, duration = np.abs(values).max(), np.ptp(values)
            rounding = ROUNDINGS * eps * largest
            if 0 < max(1e-6, 1000 * eps) * duration < rounding:
                warn_caller(
                    f"times near {largest:g} s are rounded in {values.dtype}, so events are "
                    f"located to {rounding:.1g} s only, and their states likewise; subtract the "
                    f"first time from all times, or {USE_FLOAT64}.",
                    PrecisionWarning,
                )
        gaps = Gaps.of(system, q, ts[0], params)
        events = (*self.events, *gaps.events)
        _require_names(events)
        return replace(self, events=events, gaps=gaps)

    @property
    def own_events(self) -> tuple[Event, ...]:
        """The events of the user, without those of gaps and frictions."""
        return self.events[: len(self.events) - len(self.gaps.events)]

    @cached_property
    def contact(self) -> ContactEvents:
        """Gaps and frictions, behind the events and switches of the user."""
        contact = ContactEvents(self.gaps)
        names = [*self.inactive]
        names += [n for e in self.own_events if e.transition for n in e.transition.switches]
        switches = tuple(dict.fromkeys(map(contact.switch, names)))
        return ContactEvents(self.gaps.with_places(switches), len(self.own_events), switches)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The switches of constraints, C of them."""
        return (*self.contact.names, *self.gaps.switches)

    @cached_property
    def has_transitions(self) -> bool:
        return any(e.transition for e in self.events)

    @cached_property
    def of_motions(self) -> tuple[bool, ...]:
        return tuple(not event.needs_reactions for event in self.events)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The first row of the occurrences of each event, and the total number of rows."""
        return tuple(np.cumsum([0, *(e.kept for e in self.events)]).tolist())

    @cached_property
    def one_sided(self) -> Bool[np.ndarray, " E"]:
        """Flags of the events whose functions are positive while they can occur."""
        return np.arange(len(self.events)) >= len(self.own_events)

    # What a run records.

    def replay(self, dtype: Any) -> Replay:
        """None of the events of a segment so far."""
        # Each of them in a step, and one that changes the motion.
        least = IN_SEGMENT_OF_GAPS if self.contact else IN_SEGMENT
        capacity = max(least, len(self.events) + 1) if self else 0
        zeros, size = jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, dtype)
        outcome = jnp.zeros((capacity, self.gaps.words), dtype)
        return Replay(zeros, size, zeros, zeros, outcome, jnp.zeros((), jnp.int32))

    def width(self, q: Array, v: Array) -> int:
        """The number of columns of an occurrence: its time and states."""
        return 1 + (q.size + v.size) * (1 + self.has_transitions) + self.gaps.words

    def log(self, q: Array, v: Array) -> Float[Array, "R w"]:
        """Empty rows, in which a loop writes the occurrences of all events."""
        row = jnp.zeros(self.width(q, v), q.dtype)
        return empty_rows(self.rows[-1], row, sparse=True) if self else row[None][:0]

    def is_kept(self, counts: Int[Array, " E"]) -> Bool[Array, " R"]:
        """Flags of the rows that are written after so many occurrences of each event."""
        kept = [event.kept for event in self.events]
        owners = np.repeat(np.arange(len(kept)), kept)
        return jnp.asarray(np.arange(self.rows[-1]) - np.array(self.rows)[owners]) < counts[owners]

    # Switches.

    def system(self, system: System) -> System:
        """The system, with its gaps as constraints, and with switches if there are any."""
        if self.gaps:
            return self.gaps.switched(system, self.names)
        return with_switches(system, self.names) if self.names else system

    def params(self, params: Params, active: Bool[Array, " C"] | None) -> Params:
        return with_run(params, active=active) if self.names else params

    def active(self) -> Bool[Array, " C"]:
        """Flags of the constraints that are on at the start, without gaps."""
        off = map(self.contact.switch, self.inactive)
        return jnp.asarray(self._of(self.contact.names) & ~self._of(off))

    def _of(self, names: Iterable[str]) -> Bool[np.ndarray, " C"]:
        flagged = set(names)
        return np.array([name in flagged for name in self.names], bool)

    def released(self, params: Params) -> Params | None:
        """The parameters without the constraints that an event may switch off; None if all are off.

        They are those of the system with switches, with any leading axes.
        """
        off = self._of({n for e in self.events if e.transition for n in e.transition.off})
        if not (off.any() and (np.asarray(params.active) & off).any()):
            return None
        # With leading axes, and in NumPy, the flags do not have the type that `RunParams` states.
        return eqx.tree_at(lambda p: p.active, params, params.active & ~off)

    def switched(
        self, index: Array, active: Bool[Array, " C"], outcome: Float[Array, " D"]
    ) -> Bool[Array, " C"]:
        """The switches after an event, with the decisions about the gaps."""
        active = self._switched(index, active)
        if not self.contact:
            return active
        return jnp.where(
            self.chosen(index, self.changes), self.contact.switched(active, outcome), active
        )

    def _switched(self, index: Array, active: Bool[Array, " C"]) -> Bool[Array, " C"]:
        for k, event in enumerate(self.own_events):
            if event.transition is not None and event.transition.switches:
                switch, names = self.contact.switch, event.transition.off
                on = self._of(map(switch, event.transition.on))
                off = self._of([*map(switch, names), *self.contact.removed(names)])
                active = jnp.where(index == k, (active | on) & ~off, active)
        return active

    def enabled(self, active: Bool[Array, " C"]) -> Bool[Array, " E"]:
        """Flags of the events that can occur: one that would not switch any constraint cannot."""

        def is_enabled(event: Event) -> Array:
            transition = event.transition
            if transition is None or not transition.switches:
                return jnp.asarray(True)
            numbers = [self.names.index(self.contact.switch(n)) for n in transition.switches]
            off = len(transition.on)
            wrong = [~active[k] for k in numbers[:off]] + [active[k] for k in numbers[off:]]
            return jnp.stack(wrong).any()

        own = [jnp.stack([is_enabled(e) for e in self.own_events])] if self.own_events else []
        return jnp.concatenate([*own, self.contact.enabled(active)]) if self.contact else own[0]

    # Functions.

    def of_positions(self, q: Array, v: Array, t: Array, params: Params) -> tuple[bool, ...]:
        """Whether each function depends on q and t alone."""
        user = plain(params)
        own = (
            not event.needs_reactions
            and not depends_on(lambda v, event=event: event.value(q, v, t, user), (v,))
            for event in self.own_events
        )
        return (*own, *(k < self.gaps.count for k in range(len(self.gaps.events))))

    def functions(
        self, q: Array, v: Array, t: Array, params: Params, chosen: Sequence[bool] | None = None
    ) -> Float[Array, " E"]:
        """The functions without reactions, or the `chosen` ones of them, and zero for others.

        The gaps of a constraint are evaluated together.
        """
        params = plain(params)
        pairs = zip(self.own_events, self.of_motions if chosen is None else chosen, strict=False)
        own = [event.value(q, v, t, params) if flag else 0.0 for event, flag in pairs]
        loads = jnp.zeros(len(self.gaps.events) - self.gaps.count, q.dtype)
        gaps = self.gaps.values(q, t, params)
        return jnp.concatenate([jnp.array(own, q.dtype), gaps, loads])

    def values(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params,
        multipliers: Float[Array, " G"] | None = None,
    ) -> Float[Array, " E"]:  # fmt: skip
        """The functions of the events; `params` are those of the scheme's system.

        The `multipliers` of gaps, where they are known, serve those that need nothing else.
        """
        return self.values_and_noise(scheme, q, v, t, params, multipliers)[0]

    def values_and_noise(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params,
        multipliers: Float[Array, " G"] | None = None,
    ) -> tuple[Float[Array, " E"], Float[Array, " E"]]:  # fmt: skip
        """The functions, and sizes of those of reactions that may be errors."""
        reactions, largest = None, jnp.zeros_like(t)
        if any(event.needs_reactions for event in self.own_events):
            reactions = observed_at(scheme.system, scheme.formulation, q, v, t, params)
            sizes = [jnp.abs(x).max(initial=0.0) for x in reactions.multipliers.values()]
            largest = jnp.stack([largest, *sizes]).max()
        own = [event.value(q, v, t, plain(params), reactions) for event in self.own_events]
        values = jnp.array(own, q.dtype)
        if self.contact:
            others = self.contact.values(scheme, q, v, t, params, reactions, multipliers)
            values = jnp.concatenate([values, others])
        share = float(jnp.finfo(q.dtype).eps) ** 0.5
        return values, jnp.where(self.one_sided, 0.0, share * largest).astype(q.dtype)

    # Signs: that of a function before an event, 0 where it is unknown.

    def allowed(self, signs: Int[Array, " E"], active: Bool[Array, " C"]) -> Bool[Array, " E"]:
        """Flags of the events that occur if their functions lose these signs."""
        # A crossing goes against the sign before it. One of 0, which is unknown, crosses nothing.
        directions = jnp.asarray([event.direction for event in self.events], signs.dtype)
        allowed = (directions == 0) | (directions == -signs)
        return (signs != 0) & allowed & self.enabled(active)

    def crossed(
        self, signs: Int[Array, " E"], values: Float[Array, " E"], active: Bool[Array, " C"]
    ) -> Bool[Array, " E"]:
        """Flags of the events between a state with these signs and one with these values."""
        # Zero counts as crossed.
        is_beyond = jnp.where(signs > 0, values <= 0, values >= 0)
        return is_beyond & self.allowed(signs, active)

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
        if self.contact:
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

    # Properties by number.

    def flags(self, values: Sequence[bool]) -> Bool[Array, " E"]:
        return jnp.asarray(np.array(values, bool))

    @property
    def changes(self) -> Bool[Array, " E"]:
        return self.flags([event.transition is not None for event in self.events])

    def chosen(self, index: Array, values: Array) -> Array:
        is_chosen = jnp.arange(len(self.events)) == index
        return jnp.where(is_chosen, values, jnp.zeros_like(values)).sum().astype(values.dtype)

    def interrupts(self, index: Array) -> Array:
        return self.chosen(index, self.flags([event.interrupts for event in self.events]))

    def stops(self, index: Array) -> Array:
        return self.chosen(index, self.flags([event.terminal for event in self.events]))

    # Effects.

    def start(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
    ) -> tuple[EventState, Int[Array, ""]]:
        """The events before the first step, and a status."""
        status, active = jnp.asarray(int(Status.OK), jnp.int32), self.active()
        values, speeds, smooth = jnp.zeros(0, q.dtype), jnp.zeros_like(q), MANY
        signs = jnp.zeros(len(self.events), jnp.int32)
        if self:
            speeds = scheme.system.dynamics.speeds(q, v, t, self.params(params, active))
            speeds, multipliers, smooth = jax.lax.stop_gradient(jnp.abs(speeds)), None, 1
            if self.contact:
                state = MotionState(q, v, t, speeds, jnp.zeros_like(t), jnp.zeros_like(t))
                active, status, multipliers = self.contact.begun(scheme, state, params, active)
            values = self.values(scheme, q, v, t, self.params(params, active), multipliers)
            signs = self.continued_signs(signs, values, active)
        zeros, no = jnp.zeros(values.shape, jnp.int32), jnp.asarray(False)
        events = EventState(
            signs, values, counts=zeros, missed=zeros, latest=jnp.full_like(values, -jnp.inf),
            active=active, stopped_by=jnp.asarray(-1, jnp.int32),
            smooth=jnp.asarray(smooth, jnp.int32), speeds=speeds, due=no,
            replay=self.replay(q.dtype),
        )  # fmt: skip
        return events, status

    def after(
        self, scheme: Scheme, index: Array, state: MotionState, params: Params,
        active: Bool[Array, " C"], outcome: Float[Array, " D"] | None = None,
        extents: Float[Array, " n"] | None = None,
    ) -> After:  # fmt: skip
        """The state after an event: after its transition, and then impacts and releases.

        Without an `outcome`, which a run has recorded, it is decided what becomes of the gaps.
        Given extents, the status tells whether the state satisfies the constraints.
        """
        q, v, t = state.q, state.v, state.t
        moved = q, v, jnp.asarray(int(Status.OK), jnp.int32)
        off = self.contact.without(active)
        old, new = self.params(params, off), self.params(params, self._switched(index, off))
        for k, event in enumerate(self.own_events):
            if event.transition is None:
                continue

            def apply_transition(event: Event = event) -> tuple[Array, Array, Array]:
                role = f"the transition of event {event.name!r}"
                with naming_missing(role, plain(params)):
                    return _after_transition(
                        scheme, event, q, v, t, plain(params), old, new, extents
                    )

            moved = jax.lax.cond(index == k, apply_transition, lambda moved=moved: moved)
        q, v, status = moved
        active = self._switched(index, active)
        if not self.contact:
            return After(q, v, status, active, jnp.zeros(0, q.dtype), state.speeds)
        return self.contact.apply(
            scheme, index, state._replace(q=q, v=v), status, params, active,
            self.chosen(index, self.changes), outcome, extents,
        )  # fmt: skip


NO_EVENTS = EventSet()


def _after_transition(
    scheme: Scheme, event: Event, q: Array, v: Array, t: Array, plain: Params, old: Params,
    new: Params, extents: Float[Array, " n"] | None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """q and v after the transition of an event, and a status.

    `plain` are the parameters of the user, `old` and `new` those with the switches before and after
    it. Given extents, the status tells whether the state satisfies the constraints.
    """
    transition, system = event.transition, scheme.system
    assert transition is not None
    if transition.fn is not None:
        q, v = _new_state(event, transition.fn(q, v, t, plain), q, v)
    if transition.restitution is not None:
        restitution = transition.restitution
        e = jnp.asarray(restitution(plain) if callable(restitution) else restitution, q.dtype)
        v = _rebound(scheme, event, e, q, v, t, plain, old)
    A_position, A_velocity = system.dynamics.jacobians(q, v, t, new)
    if system.velocities:
        A_position = system.dynamics.position_jacobian(q, t, new)
    status = jnp.asarray(int(Status.OK), jnp.int32)
    if extents is not None:
        level, share = system.dynamics.position_level(q, t, new), motion_share(q.dtype)
        sizes = system.dynamics.sizes_of_levels(q, v, t, new)[0]
        met = near(level, A_position, q, extents, share, sizes)
        status = jnp.where(met, status, int(Status.NOT_ON_CONSTRAINT)).astype(jnp.int32)
    if len(A_velocity):
        mass = metric(metric_mass(system, q, v, t, new), A_velocity, LDL())
        for _ in range(_ITERATIONS):
            v = v - mass.min_norm_solve(system.dynamics.velocity_level(q, v, t, new))[0]
    return q, v, status


def _rebound(
    scheme: Scheme, event: Event, e: Array, q: Array, v: Array, t: Array, plain: Params,
    params: Params,
) -> Array:  # fmt: skip
    # The velocities after an impact, by an impulse along dg/dq within the constraints.
    system = scheme.system

    def gap(q: Array, t: Array) -> Array:
        return event.value(q, v, t, plain)[None]

    if depends_on(lambda v: event.value(q, v, t, plain), (v,)):
        raise ValueError(
            f"Event {event.name!r} must be a gap that depends on q, t and params only, because "
            "its transition has a restitution, but it depends on v; give the jump of v by "
            "`Transition(fn)`."
        )
    A = system.dynamics.velocity_jacobian(q, v, t, params)
    # The impulse and those of the joints at once, so that the joints hold after the impact.
    slope, speeds = jax.jacfwd(gap)(q, t), system.dynamics.speeds(q, v, t, params)
    slope = system.dynamics.kinematics.rows(slope, q, t, params)
    rows = jnp.concatenate([A, slope])
    wrong = jnp.concatenate([
        system.dynamics.velocity_level(q, v, t, params), (1 + e) * rate(gap, q, speeds, t)
    ])  # fmt: skip
    mass = metric(metric_mass(system, q, v, t, params), rows, LDL())
    return v - mass.min_norm_solve(wrong)[0]


def _new_state(event: Event, result: Any, q: Array, v: Array) -> tuple[Array, Array]:
    shapes = f"{q.shape}" if q.shape == v.shape else f"{q.shape} and {v.shape}"
    requirement = f"The transition of event {event.name!r} must return q and v of shape {shapes}"
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ValueError(f"{requirement}, but returned {result!r}.")
    new_q, new_v = (jnp.asarray(x) for x in result)
    for x, old in ((new_q, q), (new_v, v)):
        if x.shape != old.shape:
            raise ValueError(f"{requirement}, but returned shape {x.shape}.")
    return new_q.astype(q.dtype), new_v.astype(q.dtype)


def _require_names(events: Sequence[Event]) -> None:
    names = [event.name for event in events]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"Argument `events` must have distinct names, but {name!r} is given twice."
            )


def _named(event: Any, number: int) -> Event:
    if not isinstance(event, Event):
        raise TypeError(
            f"Argument `events` must hold Event objects, but holds {event!r}; wrap the function, "
            "for example Event(fn, name=...)."
        )
    if event.name:
        return event
    name = getattr(event.fn, "__name__", "<lambda>")
    return replace(event, name=f"event{number}" if name == "<lambda>" else name)


def _require_constraints(system: System, subject: str, names: tuple[str, ...]) -> None:
    parts = [*system.constraints, *system.unilateral]
    names_of_system = [part.name for part in parts]
    for name in names:
        if name not in names_of_system:
            known_names = ", ".join(names_of_system) or "none"
            raise ValueError(
                f"{subject} must name constraints of the system, but names {name!r}. "
                f"Its constraints: {known_names}."
            )
