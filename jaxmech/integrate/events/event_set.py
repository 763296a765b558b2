"""`EventSet`: all events of a run, with their functions and their effects on a state."""

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
from jaxmech.consistency import constraint_jacobians, motion_share, near, sizes_of_levels
from jaxmech.constraints import rate
from jaxmech.formulations import observed_at
from jaxmech.integrate.events.event import Event, names_of
from jaxmech.integrate.events.log import EventState, Replay
from jaxmech.integrate.events.switches import Switched, with_switches
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.times.spans import Timed
from jaxmech.linalg import LDL, metric
from jaxmech.stabilization import metric_mass
from jaxmech.system import Params, System
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.probing import depends_on

_NEAR = 1e-6  # relative to its change in a step: a smaller function counts as zero
_ITERATIONS = 2  # for velocities on constraints that are not linear in them


@dataclass(frozen=True)
class EventSet:
    """All events of a run."""

    events: tuple[Event, ...]  # E of them
    inactive: tuple[str, ...] = ()  # constraints that are off at the start

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The constraints with a switch, C of them."""
        switched = [e.transition.switches for e in self.events if e.transition]
        return tuple(
            dict.fromkeys([*self.inactive, *(name for names in switched for name in names)])
        )

    @cached_property
    def has_transitions(self) -> bool:
        """Whether any event changes the state."""
        return any(e.transition for e in self.events)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The first row of the occurrences of each event, and the total number of rows."""
        return tuple(np.cumsum([0, *(e.kept for e in self.events)]).tolist())

    def width(self, q: Array, v: Array) -> int:
        """The number of columns of an occurrence: its time and states."""
        return 1 + (q.size + v.size) * (1 + self.has_transitions)

    def log(self, q: Array, v: Array) -> Float[Array, "R w"]:
        """Empty rows, in which a loop writes the occurrences of all events."""
        return empty_rows(self.rows[-1], jnp.zeros(self.width(q, v), q.dtype))

    def is_kept(self, counts: Int[Array, " E"]) -> Bool[Array, " R"]:
        """Flags of the rows that are written after so many occurrences of each event."""
        places = [np.arange(event.kept) for event in self.events]
        owners = np.repeat(np.arange(len(places)), [len(event_places) for event_places in places])
        return jnp.asarray(np.concatenate(places)) < counts[owners]

    def written_rows(
        self, log: Float[Array, "R w"], counts: Int[Array, " E"]
    ) -> Float[Array, "R w"]:
        """The rows after a run, NaN if they are not written."""
        return jnp.where(self.is_kept(counts)[:, None], log, jnp.nan)

    def system(self, system: System) -> System:
        """The system, with switches if there are any."""
        return with_switches(system, self.names) if self.names else system

    def params(self, params: Params, active: Bool[Array, " C"]) -> Params:
        """The parameters of the system with switches."""
        return Switched(params, active) if self.names else params

    def plain(self, params: Params) -> Params:
        """The parameters that the functions of users expect, without switches and spans of time."""
        while isinstance(params, Switched | Timed):
            params = params.params
        return params

    def active(self) -> Bool[Array, " C"]:
        """Flags of the constraints that are on at the start."""
        return jnp.asarray(np.array([name not in self.inactive for name in self.names], bool))

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

        def is_enabled(event: Event) -> Any:
            if event.transition is None or not event.transition.switches:
                return jnp.asarray(True)
            wrong = [~active[self.names.index(name)] for name in event.transition.on]
            wrong += [active[self.names.index(name)] for name in event.transition.off]
            return jnp.stack(wrong).any()

        return jnp.stack([is_enabled(event) for event in self.events])

    def values(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
    ) -> Float[Array, " E"]:
        """The functions of the events; `params` are those of the scheme's system."""
        reactions = None
        if any(event.needs_reactions for event in self.events):
            reactions = observed_at(scheme.system, scheme.formulation, q, v, t, params)
        plain_params = self.plain(params)
        return jnp.stack([event.value(q, v, t, plain_params, reactions) for event in self.events])

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
        return jnp.where(self.enabled(active), jnp.where(values == 0, signs, new), 0)

    def sides(
        self, scheme: Scheme, q: Array, v: Array, t: Array, h: Array, params: Params
    ) -> Int[Array, " E"]:
        """The sign of each function right after a state, in the direction of h."""
        qdd = scheme.law(q, v, t, params)[1].qdd
        speeds = scheme.system.speeds(q, v, t, params)
        values, rates = jax.jvp(
            lambda q, v, t: self.values(scheme, q, v, t, params),
            (q, v, t),
            (speeds, qdd, jnp.ones_like(t)),
        )
        # After a jump the function may be zero but for rounding errors; then its rate determines
        # the sign.
        is_zero = jnp.abs(values) <= _NEAR * jnp.abs(rates * h)
        return jnp.sign(jnp.where(is_zero, rates * h, values)).astype(jnp.int32)

    def start(self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params) -> EventState:
        """Initialize before the first step; `params` are the user's."""
        active, zero = self.active(), jnp.zeros((), jnp.int32)
        all_params = self.params(params, active)
        values = self.values(scheme, q, v, t, all_params)
        speeds = scheme.system.speeds(q, v, t, all_params)
        zeros = jnp.zeros(len(self.events), jnp.int32)
        return EventState(
            signs=self.continued_signs(zeros, values, active),
            values=values,
            counts=zeros,
            missed=zeros,
            latest=jnp.full_like(values, -jnp.inf),
            active=active,
            stopped_by=zero - 1,
            smooth=zero + 1,
            speeds=jax.lax.stop_gradient(jnp.abs(speeds)),
            due=jnp.asarray(False),
            replay=Replay.none(len(self.events), q.dtype),
        )

    def flags(self, values: Sequence[bool]) -> Bool[Array, " E"]:
        """Make an array of a property of each event."""
        return jnp.asarray(np.array(values, bool))

    def chosen(self, index: Array, values: Array) -> Array:
        """Select the entry of one event."""
        is_chosen = jnp.arange(len(self.events)) == index
        return jnp.where(is_chosen, values, jnp.zeros_like(values)).sum().astype(values.dtype)

    def cuts(self, index: Array) -> Array:
        """Whether the motion is another one after an event."""
        return self.chosen(index, self.flags([event.cuts for event in self.events]))

    def stops(self, index: Array) -> Array:
        """Whether an event is terminal."""
        return self.chosen(index, self.flags([event.terminal for event in self.events]))

    def switched(self, index: Array, active: Bool[Array, " C"]) -> Bool[Array, " C"]:
        """The switches after an event."""
        for k, event in enumerate(self.events):
            if event.transition is None or not event.transition.switches:
                continue
            switched_on = np.array([name in event.transition.on for name in self.names])
            switched_off = np.array([name in event.transition.off for name in self.names])
            active = jnp.where(index == k, (active | switched_on) & ~switched_off, active)
        return active

    def after(
        self, scheme: Scheme, index: Array, q: Array, v: Array, t: Array, params: Params,
        active: Bool[Array, " C"], extents: Float[Array, " n"] | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """q and v after an event, and, given extents, whether they satisfy the constraints."""
        moved = q, v, jnp.asarray(True)
        new = self.params(params, self.switched(index, active))
        old = self.params(params, active)
        for k, event in enumerate(self.events):
            if event.transition is None:
                continue

            def apply_transition(event: Event = event) -> tuple[Array, Array, Array]:
                role = f"the transition of event {event.name!r}"
                with naming_missing(role, self.plain(params)):
                    return self._after(scheme, event, q, v, t, params, old, new, extents)

            moved = jax.lax.cond(index == k, apply_transition, lambda moved=moved: moved)
        return moved

    def _after(
        self, scheme: Scheme, event: Event, q: Array, v: Array, t: Array, params: Params,
        old: Params, new: Params, extents: Float[Array, " n"] | None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        transition, system = event.transition, scheme.system
        assert transition is not None
        if transition.fn is not None:
            q, v = _new_state(event, transition.fn(q, v, t, self.plain(params)), q, v)
        if transition.restitution is not None:
            restitution = transition.restitution
            e = jnp.asarray(
                restitution(self.plain(params)) if callable(restitution) else restitution, q.dtype
            )
            v = self._rebound(scheme, event, e, q, v, t, old)
        A_position, A_velocity = constraint_jacobians(system, q, v, t, new)
        if system.quasi is not None:
            A_position = system.position_jacobian(q, t, new)
        met = jnp.asarray(True)
        if extents is not None:
            level, share = system.position_level(q, t, new), motion_share(q.dtype)
            sizes = sizes_of_levels(system, q, v, t, new)[0]
            met = near(level, A_position, q, extents, share, sizes)
        if len(A_velocity):
            mass = metric(metric_mass(system, q, v, t, new), A_velocity, LDL())
            for _ in range(_ITERATIONS):
                v = v - mass.min_norm_solve(system.velocity_level(q, v, t, new))[0]
        return q, v, met

    def _rebound(
        self, scheme: Scheme, event: Event, e: Array, q: Array, v: Array, t: Array, params: Params
    ) -> Array:
        # The velocities after an impact, by an impulse along dg/dq within the constraints.
        system, plain_params = scheme.system, self.plain(params)

        def gap(q: Array, t: Array) -> Array:
            return event.value(q, v, t, plain_params)[None]

        if depends_on(lambda v: event.value(q, v, t, plain_params), (v,)):
            raise ValueError(
                f"Event {event.name!r} must be a gap that depends on q, t and params only, because "
                "its transition has a restitution, but it depends on v; give the jump of v by "
                "`Transition(fn)`."
            )
        A = constraint_jacobians(system, q, v, t, params)[1]
        # The impulse and those of the joints at once, so that the joints hold after the impact.
        slope, speeds = jax.jacfwd(gap)(q, t), system.speeds(q, v, t, params)
        if system.quasi is not None:
            slope = slope @ system.quasi.matrix(q, t, params)
        rows = jnp.concatenate([A, slope])
        wrong = jnp.concatenate([
            system.velocity_level(q, v, t, params), (1 + e) * rate(gap, q, speeds, t)
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


def event_set_of(system: System, events: Any, inactive: Any) -> EventSet | None:
    """The checked and named events of a run; None if there are none and no constraint is off."""
    events_given = (
        (events,) if isinstance(events, Event) or not isinstance(events, Iterable) else events
    )
    named_events = tuple(_named(event, k) for k, event in enumerate(events_given, start=1))
    names_off = names_of("inactive", inactive)
    if not named_events:
        if names_off:
            raise ValueError(
                "Argument `inactive` must be empty where no event switches a constraint on, but "
                f"names {names_off[0]!r}; leave that constraint out of the system."
            )
        return None
    names = [event.name for event in named_events]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"Argument `events` must have distinct names, but {name!r} is given twice."
            )
    _require_constraints(system, "Argument `inactive`", names_off)
    for event in named_events:
        if event.transition is not None:
            place = f"The transition of event {event.name!r}"
            _require_constraints(system, place, event.transition.switches)
    return EventSet(named_events, names_off)


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


def _require_constraints(system: System, place: str, names: tuple[str, ...]) -> None:
    names_of_system = [constraint.name for constraint in system.constraints]
    for name in names:
        if name not in names_of_system:
            known_names = ", ".join(names_of_system) or "none"
            raise ValueError(
                f"{place} must name constraints of the system, but names {name!r}. "
                f"Its constraints: {known_names}."
            )
