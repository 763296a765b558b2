"""The gaps of a run: each of them is a constraint that events switch on and off.

A gap "closes" where it becomes zero, and "opens" where its multiplier does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.events.event import Event, Transition
from jaxmech.integrate.events.friction import (
    KINDS,
    Friction,
    SlidingForce,
    frictions_of,
)
from jaxmech.integrate.run_params import in_run, with_switches
from jaxmech.laws import Observation
from jaxmech.system import DryFriction, Holonomic, Nonholonomic, Params, System, Unilateral
from jaxmech.utils.jit_cache import kept_by
from jaxmech.utils.probing import actual, cached_by_shapes, concrete_at, generic
from jaxmech.utils.trees import ByName

KEPT = 32  # systems
_KEEP = 64  # occurrences of each event that are kept, if there are few events
_FEW = 8  # events
_KEEP_OF_MANY = 8  # occurrences of each of more events; they are written even if there are none
_KEEP_IN_ALL = 512  # occurrences of all events
_MEMBERS = 1000  # of a batch whose restitutions are checked
_EQUAL = 64.0  # units of round-off within which the sum of two gaps is constant
_BITS = 23  # flags in a number, which every floating-point type holds exactly


class GapDecisions(eqx.Module):
    """The decisions at an event about each of C gaps and F frictions."""

    hit: Bool[Array, " C"]  # whether it has an impulse
    rebounds: Bool[Array, " C"]  # whether that is an impact with its restitution
    closed: Bool[Array, " C"]  # whether it is closed from then on
    rubs: Bool[Array, " R"]  # impulses of frictions: `friction.Rubbing`
    slides: Bool[Array, " S"]  # the switches of frictions from then on

    @property
    def switches(self) -> Bool[Array, " D"]:
        """All switches of gaps and frictions from then on."""
        return jnp.concatenate([self.closed, self.slides]) if self.slides.size else self.closed

    def packed(self, dtype: Any) -> Float[Array, " D"]:
        """All flags as a few numbers, and last that of the row in which they are kept."""
        parts = [self.hit, self.rebounds, self.closed]
        flags = jnp.concatenate([*parts, self.rubs, self.slides] if self.slides.size else parts)
        weights = np.zeros((-(-flags.size // _BITS), flags.size))
        bits = np.arange(flags.size)
        weights[bits // _BITS, bits] = 2.0 ** (bits % _BITS)
        packed = jnp.where(flags[None], jnp.asarray(weights, dtype), 0.0).sum(1)
        return jnp.concatenate([packed, jnp.zeros(1, dtype)])

    @staticmethod
    def unpacked(words: Float[Array, " *K D"], gaps: "Gaps") -> "GapDecisions":
        """The decisions about gaps from numbers, or from rows of them."""
        sizes = gaps.flags
        bits = np.arange(sum(sizes))
        halves = jnp.asarray(2.0 ** -(bits % _BITS), words.dtype)
        columns = [words[..., bit // _BITS] for bit in bits]
        shifted = jnp.floor(jnp.stack(columns, axis=-1) * halves)
        flags = shifted - 2 * jnp.floor(shifted / 2) > 0.5
        return GapDecisions(*jnp.split(flags, np.cumsum(sizes)[:-1].tolist(), axis=-1))


@dataclass(frozen=True)
class Gaps:
    """All gaps of a run, and all frictions."""

    unilateral: tuple[Unilateral, ...] = ()
    sizes: tuple[int, ...] = ()  # the number of gaps of each
    frictions: tuple[Friction, ...] = ()  # each of one slip velocity
    slots: tuple[int, ...] = ()  # the row of each gap while any is closed: two may share one
    apart: bool = False  # whether frictions act alone, in velocities that are independent

    @staticmethod
    def of(system: System, q: Array, t: Array, params: Params) -> "Gaps":
        """The gaps of a system, which its functions tell at a state."""
        unilateral = tuple(u for u in system.unilateral if isinstance(u, Unilateral))
        sizes = jax.eval_shape(
            lambda q, t, params: [u.constraint.value(q, t, params) for u in unilateral],
            q, t, params,
        )  # fmt: skip
        gaps = Gaps(unilateral, tuple(size.shape[0] for size in sizes))
        for u, size in zip(gaps.unilateral, gaps.sizes, strict=True):
            values = actual(u.restitutions(size, params, q.dtype), _MEMBERS)
            if values is not None:
                u.require_restitutions(values)
        frictions = frictions_of(system, gaps.names, q, t, params)
        slots = _slots(system, q, t, params) if gaps.count > 1 and not frictions else ()
        alone = not (gaps.count or system.constraints or system.invariants or system.velocities)
        apart = alone and _rank_of_slips(system, q, t, params) == len(frictions)
        slots = slots or tuple(range(gaps.count))
        return replace(gaps, frictions=frictions, slots=slots, apart=apart)

    @cached_property
    def constraints(self) -> tuple[Holonomic, ...]:
        pairs = zip(self.unilateral, self.sizes, strict=True)
        return tuple(u.component(k, size) for u, size in pairs for k in range(size))

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """The names of the gaps of each unilateral constraint."""
        pairs = zip(self.unilateral, self.sizes, strict=True)
        return {u.name: [u.component(k, size).name for k in range(size)] for u, size in pairs}

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The names of the gaps or frictions of each unilateral constraint and dry friction."""
        members = dict(self.names)
        for friction in self.frictions:
            members.setdefault(friction.of.name, []).append(friction.name)
        return members

    @property
    def count(self) -> int:
        return sum(self.sizes)

    @property
    def equations(self) -> int:
        """The number of their constraints, the last ones of a system, those of frictions last."""
        return self.count + len(self.frictions)

    @property
    def flags(self) -> tuple[int, ...]:
        """The numbers of flags in decisions, of each kind."""
        slides = len(self.frictions) * len(KINDS)
        return (*[self.count] * 3, len(self.frictions) * 3 + bool(slides), slides)

    @property
    def words(self) -> int:
        """The numbers that hold the decisions about them at an event."""
        return -(-sum(self.flags) // _BITS) + 1 if self else 0

    def undecided(self, dtype: Any) -> Float[Array, " D"]:
        return jnp.zeros(self.words, dtype)

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The names of their switches, the last ones of a run: of gaps, then of frictions."""
        of_frictions = (f"{f.name}{kind}" for kind in KINDS for f in self.frictions)
        return (*(c.name for c in self.constraints), *of_frictions)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Those at which gaps close, then open, and those at which frictions slip, then stop."""
        gaps = [c.name for c in self.constraints]
        slips = [f.name for f in self.frictions if not f.is_second]
        closes = [Event(_gap, -1, transition=Transition(on=x), name=f"{x} closes") for x in gaps]
        off = [(x, f"{x} opens") for x in gaps] + [(x, f"{x} slips") for x in slips]
        ends = [Event(_load, -1, transition=Transition(off=x), name=name) for x, name in off]
        stops = [Event(_load, -1, transition=Transition(on=x), name=f"{x} stops") for x in slips]
        events = [*closes, *ends, *stops]
        most = _KEEP if len(events) <= _FEW else _KEEP_OF_MANY
        keep = min(most, -(-_KEEP_IN_ALL // max(len(events), 1)))
        return tuple(replace(event, keep=keep) for event in events)

    def system(self, system: System) -> System:
        """The system with a constraint for each gap and each friction."""
        return _with_constraints(system, self) if self else system

    def __bool__(self) -> bool:
        return self.equations > 0

    def switched(self, system: System, names: tuple[str, ...]) -> System:
        """The system with switches, the last of which are those of the gaps and frictions."""
        whole, removable = self.system(in_run(system)), self.removable(names)
        switched = with_switches(whole, names, self.slots, tuple(removable.items()))
        if not self.frictions:
            return switched
        frictions = self.with_places(names).frictions
        last = whole.constraints[-len(frictions) :]  # which have no switches
        slips = tuple(c for c in last if isinstance(c, Nonholonomic))
        states = len(switched.states)
        force = SlidingForce(frictions, slips, switched.nonideal, self.equations, states)
        return replace(switched, nonideal=force)

    def with_places(self, names: tuple[str, ...]) -> "Gaps":
        """The same, whose frictions know the switches, among the names, by which they are there."""
        places = {name: k for k, name in enumerate(names)}
        frictions = [replace(f, in_place=places.get(in_place(f.of.name))) for f in self.frictions]
        return replace(self, frictions=tuple(frictions))

    def removable(self, names: tuple[str, ...]) -> dict[str, int]:
        """The number of the switch, among the names, by which each gap can be removed."""
        return {
            gap: names.index(in_place(name))
            for name, gaps in self.names.items()
            for gap in gaps
            if in_place(name) in names
        }

    def joined(self, observation: Observation) -> Observation:
        """An observation with all gaps of a unilateral constraint under its name."""
        names = self.members
        single = {name for parts in names.values() for name in parts}

        def joined(values: dict[str, Array], join: Callable[[list[Array]], Array]) -> Any:
            others = {name: x for name, x in values.items() if name not in single}
            parts = {name: [values[k] for k in group] for name, group in names.items()}
            return ByName(others | {name: join(part) for name, part in parts.items()})

        along = partial(jnp.concatenate, axis=-1)
        return replace(
            observation,
            multipliers=joined(observation.multipliers, along),
            reactions=joined(observation.reactions, lambda x: jnp.stack(x).sum(0)),
            residuals=joined(observation.residuals, along),
        )

    def values(self, q: Array, t: Array, params: Params) -> Float[Array, " C"]:
        """The gaps at a state; `params` are the user's."""
        values = [u.constraint.value(q, t, params).astype(q.dtype) for u in self.unilateral]
        return jnp.concatenate([jnp.zeros(0, q.dtype), *values])

    def negative(self, q: Array, t: Array, params: Params) -> list[tuple[str, float]]:
        """The names and values of negative gaps at a known state."""
        values = {c.name: float(c.value(q, t, params)[0]) for c in self.constraints}
        return [(name, value) for name, value in values.items() if value < 0]

    def restitutions(self, params: Params, dtype: Any) -> Float[Array, " C"]:
        """The restitution of each gap; `params` are the user's."""
        pairs = zip(self.unilateral, self.sizes, strict=True)
        return jnp.concatenate([u.restitutions(size, params, dtype) for u, size in pairs])

    def are_lawful(self, params: Params, dtype: Any) -> Bool[Array, ""]:
        """Whether restitutions are from 0 to 1, and limits of friction not negative and in order.

        Numbers are checked where they are stated, functions of `params`, the user's, by each run.
        """
        lawful = jnp.asarray(True)
        for u, size in zip(self.unilateral, self.sizes, strict=True):
            if callable(u.restitution):
                e = u.restitutions(size, params, dtype)
                lawful &= ((e >= 0) & (e <= 1)).all()
        for friction in {f.of.name: f for f in self.frictions}.values():
            if callable(friction.of.static) or callable(friction.of.kinetic):
                static, kinetic = (
                    friction.of.limits(argument, friction.size, params, dtype)
                    for argument in ("static", "kinetic")
                )
                lawful &= ((kinetic >= 0) & (kinetic <= static)).all()
        return lawful

    def rest_speeds(self, fastest: Float[Array, " C"]) -> Float[Array, " C"]:
        """The speeds of rebounds that do not take place, given the largest speeds of each gap."""
        stated = np.repeat(
            [np.nan if u.rest_speed is None else u.rest_speed for u in self.unilateral], self.sizes
        )
        share = float(jnp.finfo(fastest.dtype).eps) ** 0.375
        return jnp.where(np.isnan(stated), share * fastest, stated).astype(fastest.dtype)


NO_GAPS = Gaps()


def in_place(name: str) -> str:
    """The name of the switch by which a gap or friction is removed and put in place."""
    return f"{name} in place"


@cached_by_shapes
def _rank_of_slips(system: System, q: Array, t: Array, params: Params) -> int:
    """The number of independent slip velocities at almost every state."""
    stated = [u for u in system.unilateral if isinstance(u, DryFriction)]

    def rows(q: Array, v: Array, t: Array, params: Params) -> Array:
        return jnp.concatenate([f.constraint.jacobian(q, v, t, params) for f in stated])

    state = generic(q, 2), generic(q, 3), generic(t, 2), generic(params, 1)
    (J,) = concrete_at(rows, [state]) if stated else (None,)
    return 0 if J is None else int(np.linalg.matrix_rank(J))


@cached_by_shapes
def _slots(system: System, q: Array, t: Array, params: Params) -> tuple[int, ...]:
    """A number for each gap, the same for two with a constant sum, such as the stops of a joint.

    They are not closed at once.
    """
    unilateral = [u for u in system.unilateral if isinstance(u, Unilateral)]

    def values(q: Array, t: Array, params: Params) -> Array:
        return jnp.concatenate([u.constraint.value(q, t, params) for u in unilateral])

    known = generic(params, 1)
    first, second = concrete_at(
        values, [(generic(q, seed), generic(t, seed), known) for seed in (2, 3)]
    )
    if first is None or second is None:
        return ()
    small = _EQUAL * float(np.finfo(first.dtype).eps) * (np.abs(first) + np.abs(second))
    rows: list[int] = []  # the first gap of each
    slots: list[int] = []
    for k, change in enumerate(second - first):
        opposite = [
            row for row, j in enumerate(rows)
            if slots.count(row) == 1 and abs(change) > small[k]
            and abs(change + second[j] - first[j]) <= small[k] + small[j]
        ]  # fmt: skip
        slots.append(opposite[0] if opposite else len(rows))
        rows += [] if opposite else [k]
    return tuple(slots)


@kept_by(KEPT)
def _with_constraints(system: System, gaps: Gaps) -> System:
    # Those of the system, whose functions may be others than those of the gaps.
    own = tuple(u for u in system.unilateral if isinstance(u, Unilateral))
    stated = {u.name: u for u in system.unilateral if isinstance(u, DryFriction)}
    rows = Gaps(own, gaps.sizes).constraints
    slips = [stated[f.of.name].component(f.number, f.size, f.each) for f in gaps.frictions]
    return replace(system, constraints=(*system.constraints, *rows, *slips), unilateral=())


def _gap(q: Array, v: Array, t: Array, params: Any) -> Array:
    """The function of the events of gaps, which `Gaps.values` computes for all together."""
    raise NotImplementedError


def _load(q: Array, v: Array, t: Array, params: Any, reactions: Any) -> Array:
    """The same of their other events, of which `ContactEvents.values` gives all by one law."""
    raise NotImplementedError
