"""`ContactEvents`: the part of gaps and frictions in the events of a run.

Their events are the last of all and their switches too. Whenever one of them occurs, or a
transition of the user that may be followed by impacts, `decide` tells by the law of contact what
becomes of all gaps and frictions, and `apply` gives the velocities and switches after it. A
derivative repeats `apply` with the recorded decisions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.coulomb import both, norm, pairs_of, with_pairs
from jaxmech.integrate.events.friction import (
    KINDS,
    TURNED,
    Rubbing,
    SlidingForce,
    by_slip,
    directions_of,
    discs_of,
    least_norm,
    pressing,
)
from jaxmech.integrate.events.gaps import NO_GAPS, GapDecisions, Gaps, in_place
from jaxmech.integrate.events.impacts import Decided, MotionState, decided_at, gap_states, impulses
from jaxmech.integrate.run_params import RunParams, plain, with_run, with_shared_rows
from jaxmech.integrate.scheme import Scheme
from jaxmech.status import Status
from jaxmech.system import Params, System, near
from jaxmech.utils.jit_cache import kept_by
from jaxmech.utils.probing import depends_on


class After(NamedTuple):
    """A state after an event."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    status: Int[Array, ""]
    active: Bool[Array, " C"]  # constraints with a switch that are on
    outcome: Float[Array, " D"]  # decisions about gaps
    speeds: Float[Array, " n"]  # the largest speeds so far
    multipliers: Float[Array, " G"] | None = None  # of the gaps, if it was decided about them


@dataclass(frozen=True)
class ContactEvents:
    """Gaps and frictions behind `first` events of the user and the `names` of other switches.

    Without any it is false, and has no events and no switches.
    """

    gaps: Gaps = NO_GAPS
    first: int = 0
    names: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gaps)

    @cached_property
    def removable(self) -> dict[str, int]:
        """The number of the switch by which each gap that can be removed is in place."""
        return self.gaps.removable(self.names)

    def without(
        self, active: Bool[Array, " C"], gaps: Bool[Array, " G"] | None = None
    ) -> Bool[Array, " C"]:
        """The switches with some gaps open, or with all of them, and no friction."""
        first, count = len(self.names), self.gaps.count
        if gaps is not None and not count:
            return active
        if gaps is None:
            return active & jnp.asarray(np.arange(active.size) < first)
        closed, others = active[first : first + count], active[first + count :]
        return jnp.concatenate([active[:first], closed & ~gaps, others])

    def all_on(self, params: Params, active: Bool[Array, " C"]) -> RunParams:
        """The parameters with all gaps closed, and all frictions of each kind."""
        mine = np.arange(active.size) >= len(self.names)
        return with_run(params, active=active | jnp.asarray(mine))

    def enabled(self, active: Bool[Array, " C"]) -> Bool[Array, " E"]:
        closed, slides = jnp.split(active[len(self.names) :], [self.gaps.count])
        names, on = self.gaps.switches[: self.gaps.count], jnp.asarray(True)
        in_place = [active[self.removable[x]] if x in self.removable else on for x in names]
        parts = [~closed & jnp.stack(in_place), closed] if names else []
        if self.gaps.frictions:
            sticks, forward, backward = jnp.split(slides, len(KINDS))
            runs = both(forward | backward, discs_of(self.gaps.frictions))
            parts += [by_slip(self.gaps.frictions, x) for x in (sticks, runs)]
        return jnp.concatenate(parts)

    def values(
        self, scheme: Scheme, q: Array, v: Array, t: Array, params: Params, reactions: Any,
        multipliers: Float[Array, " G"] | None,
    ) -> Float[Array, " E"]:  # fmt: skip
        """The functions of the events, given the reactions or multipliers that are known."""
        if self.gaps.frictions or (reactions is None and multipliers is None):
            multipliers = _loads(self.gaps, scheme, q, v, t, params)
        elif reactions is not None:
            parts = [reactions.multipliers[c.name][0] for c in self.gaps.constraints]
            multipliers = jnp.stack(parts)
        assert multipliers is not None
        return jnp.concatenate([self.gaps.values(q, t, plain(params)), multipliers])

    def begun(
        self, scheme: Scheme, state: MotionState, params: Params, active: Bool[Array, " C"]
    ) -> tuple[Bool[Array, " C"], Int[Array, ""], Float[Array, " G"]]:
        """The switches at the start of a run, a status, and the multipliers of gaps."""
        gap = gap_states(self.gaps, scheme.system, state, self.all_on(params, active))

        def decide() -> tuple[Array, Array, Array]:
            decided = self.decide(scheme, jnp.asarray(-1, jnp.int32), state, params, active)
            decisions, hits = decided.decisions, decided.decisions.hit.any()
            # A gap that closes with a velocity is open, until its impact occurs at once.
            decisions = replace(
                decisions,
                closed=decisions.closed & (jnp.abs(gap.rate) <= gap.calm),
                slides=decisions.slides & ~hits,
            )
            pushes = jnp.where(decisions.closed, decided.multipliers, 0.0)
            return self._with_switches(active, decisions), decided.status, pushes

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
        count, first = self.gaps.count, len(self.names)
        nothing = jnp.zeros(count, bool), jnp.asarray(False)
        if not count or extents is None:
            return nothing
        all_on = self.all_on(params, active)

        def values(t: Array) -> Array:
            return system.dynamics.position_level(q, t, all_on)[-count:]

        if not depends_on(values, (t,)):
            return nothing

        def jumped() -> tuple[Array, Array]:
            g, slopes = values(t), system.dynamics.position_jacobian(q, t, all_on)[-count:]
            is_zero = jax.vmap(lambda g, row: near(g[None], row[None], q, extents))(g, slopes)
            closed = active[first : first + count]
            return closed & (g > 0) & ~is_zero, ((g < 0) & ~is_zero).any()

        result: tuple[Array, Array] = jax.lax.cond(turns, jumped, lambda: nothing)
        return result

    def are_met(
        self, system: System, q: Array, t: Array, params: Params, active: Bool[Array, " C"],
        extents: Float[Array, " n"],
    ) -> Bool[Array, ""]:  # fmt: skip
        """Whether no gap that is in place is negative beyond a tolerance."""
        if not self.gaps.count:
            return jnp.asarray(True)
        all_on, count = self.all_on(params, active), self.gaps.count
        values = system.dynamics.position_level(q, t, all_on)[-count:]
        slopes = system.dynamics.position_jacobian(q, t, all_on)[-count:]
        met: Array = near(jnp.minimum(values, 0.0), slopes, q, extents, sizes=(1,) * count)
        return met

    def decide(
        self, scheme: Scheme, index: Array, state: MotionState, params: Params,
        active: Bool[Array, " C"],
    ) -> Decided:  # fmt: skip
        """What becomes of gaps and frictions at an event, of the number `index` among all."""
        occurs = jnp.arange(len(self.gaps.events)) + self.first == index
        all_on, before = self.all_on(params, active), with_run(params, active=active)
        return _decision(self.gaps, scheme)(state, all_on, before, index >= self.first, occurs)

    def apply(
        self, scheme: Scheme, index: Array, state: MotionState, status: Array, params: Params,
        active: Bool[Array, " C"], changes: Array, outcome: Float[Array, " D"] | None,
        extents: Float[Array, " n"] | None,
    ) -> After:  # fmt: skip
        """The state after impacts and releases, which follow any transition of the user.

        Without an `outcome`, which a run has recorded, it is decided. Where the event `changes`
        nothing, all stays as it is.
        """
        number, speeds, multipliers = jnp.asarray(int(Status.OK), jnp.int32), state.speeds, None
        if outcome is None:
            decided = self.decide(scheme, index, state, params, active)
            number, speeds, multipliers = decided.status, decided.speeds, decided.multipliers
            outcome = decided.decisions.packed(state.q.dtype)
        decisions = GapDecisions.unpacked(jax.lax.stop_gradient(outcome), self.gaps)
        all_on = self.all_on(params, active)
        if extents is not None and self.removable:
            # What is put in place must not overlap with what is there.
            met = self.are_met(scheme.system, state.q, state.t, params, active, extents)
            wrong = (status == Status.OK) & ~met & (index < self.first)
            code = jnp.asarray(int(Status.NOT_ON_CONSTRAINT), jnp.int32)
            status = jnp.where(wrong, code, status)
        v = impulses(self.gaps, scheme, decisions, state, all_on, plain(params))
        return After(
            state.q,
            jnp.where(changes, v, state.v),
            jnp.where(changes & (status == Status.OK), number, status),
            jnp.where(changes, self._with_switches(active, decisions), active),
            outcome,
            speeds,
            multipliers,
        )

    def switched(self, active: Bool[Array, " C"], outcome: Float[Array, " D"]) -> Array:
        return self._with_switches(active, GapDecisions.unpacked(outcome, self.gaps))

    def _with_switches(self, active: Bool[Array, " C"], decisions: GapDecisions) -> Array:
        return jnp.concatenate([active[: len(self.names)], decisions.switches])

    def taking_part(
        self, index: Array, before: Bool[Array, " C"], after: Bool[Array, " C"],
        outcome: Float[Array, " D"], changes: Array,
    ) -> Bool[Array, " E"]:  # fmt: skip
        """Flags of all events that take place with one of them, given the switches about it."""
        count, own, first = self.gaps.count, len(self.gaps.frictions), self.first
        sizes = np.cumsum([count, own, own]).tolist()
        (was, stuck, ran, back), (is_, sticks, runs, backs) = (
            jnp.split(active[len(self.names) :], sizes) for active in (before, after)
        )
        hit = GapDecisions.unpacked(outcome, self.gaps).hit
        slips = stuck & (runs | backs)
        stops = (ran & ~runs & (sticks | backs)) | (back & ~backs & (sticks | runs))
        discs = discs_of(self.gaps.frictions)
        turns = jnp.asarray(False)
        if discs:
            slid, slides = both(ran | back, discs), both(runs | backs, discs)
            slips = with_pairs(slips, discs, pairs_of(stuck & slides, discs))
            stops = with_pairs(stops, discs, pairs_of(slid & sticks, discs))
            turns = pairs_of(slid & slides, discs).any()
        slips, stops = (by_slip(self.gaps.frictions, x) for x in (slips, stops))
        own = len(slips)
        turns &= index >= first + 2 * count + own
        parts = [jnp.zeros(first, bool), ~was & (hit | is_), was & ~is_, slips, stops]
        others = jnp.concatenate(parts) & changes
        # A load that some can still hold leaves nothing, and a gap that closes may open at once.
        leaves = (index >= first + count) & (index < first + 2 * count + own)
        alone = (index < first) | (~others.any() & ~leaves & ~turns)
        return jnp.where(jnp.arange(others.size) == index, alone | others, others)

    def switch(self, name: str) -> str:
        """The name of the switch of a constraint; that of a gap tells whether it is closed."""
        return in_place(name) if name in self.gaps.members else name

    def removed(self, names: Iterable[str]) -> list[str]:
        """The switches of what is removed, and so no longer closed, nor sticks or slides."""
        members = [member for name in names for member in self.gaps.members.get(name, [])]
        return [f"{member}{kind}" for member in members for kind in KINDS]


@kept_by(32)
def _decision(gaps: Gaps, scheme: Scheme) -> Callable[..., Decided]:
    """The decisions for the gaps of a run, which are traced once."""
    return jax.jit(partial(decided_at, gaps, scheme))


def _loads(
    gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " E"]:
    """The functions of all events of contacts at a state, but for the gaps themselves.

    They are the multipliers of gaps, what frictions that stick could still hold, and the speeds of
    those that slide; zero where nothing acts.
    """
    count = gaps.equations
    if not gaps.frictions:
        # The law is evaluated once more only where a gap is closed.
        closed = partial(_of_closed, gaps, scheme, q, v, t, params)
        return scheme.if_closed(params, count, closed, lambda: jnp.zeros(count, q.dtype))
    system, frictions, own = scheme.system, gaps.frictions, len(gaps.frictions)
    acts, discs = params.active[-len(gaps.switches) :][:count], discs_of(frictions)

    def of_law() -> Array:
        eom, law = scheme.law(q, v, t, params)
        multipliers = law.multipliers
        rubbing = Rubbing.at(frictions, params, multipliers, count)
        values = jnp.concatenate([multipliers[-count:-own], rubbing.reserves(discs)])
        if len(multipliers) == 1 or gaps.apart:
            return values
        redundant = jnp.asarray(True) if law.independent is None else ~law.independent[-count:]
        # What presses where bodies slide has the multipliers of the law, of minimum norm.
        presses = (pressing(frictions, count - own, q.dtype) > 0) & ~rubbing.sticks[:, None]
        presses = jnp.pad(presses.any(0) | ~rubbing.sticks.any(), (0, own))

        def shared() -> Array:
            smallest = least_norm(eom.A, multipliers)

            def held() -> Array:
                assert isinstance(system.nonideal, SlidingForce)
                found = system.nonideal.margin(system, eom, smallest, (q, v, t, params))
                return found.value * found.units

            alone = smallest[-count:]
            margins = jax.lax.cond(rubbing.sticks.any(), held, lambda: alone)
            return jnp.where(presses, alone, margins)

        return jax.lax.cond((acts & redundant).any(), shared, lambda: values)

    # Where no gap is closed and nothing sticks, speeds are all that matters.
    values = jax.lax.cond(acts.any(), of_law, lambda: jnp.zeros(count, q.dtype))
    speeds = system.dynamics.speeds(q, v, t, params)
    slips = jnp.stack([f.constraint.fn(q, speeds, t, plain(params)) for f in frictions])
    along = directions_of(frictions, params, q.dtype) * slips
    if discs:
        pairs = pairs_of(along, discs).sum(1) - TURNED * norm(pairs_of(slips, discs))
        along = with_pairs(along, discs, pairs[:, None])
    by_event = [by_slip(frictions, x) for x in (values[-own:], along)]
    return jnp.concatenate([values[:-own], *by_event])


def _of_closed(
    gaps: Gaps, scheme: Scheme, q: Array, v: Array, t: Array, params: Params
) -> Float[Array, " G"]:
    """The multipliers of the gaps, by the law in which gaps share rows."""
    slots = np.array(gaps.slots)
    closed = params.active[-len(slots) :]
    shared = replace(scheme, system=with_shared_rows(scheme.system, len(slots)))
    members = slots[None] == np.arange(slots.max() + 1)[:, None]
    eom, law = shared.law(q, v, t, params)
    presses, count = (members & closed[None]).any(1), len(members)

    def smallest() -> Array:
        return least_norm(eom.A, law.multipliers)[-count:]

    # Of minimum norm if any of those that press depends on other rows.
    pushes = smallest() if law.independent is None else law.multipliers[-count:]
    if law.independent is not None and len(law.multipliers) > 1:
        is_redundant = (presses & ~law.independent[-count:]).any()
        pushes = jax.lax.cond(is_redundant, smallest, lambda: pushes)
    earlier = (slots[:, None] == slots[None]) & np.tri(len(slots), k=-1, dtype=bool)
    is_first = closed & ~(earlier & closed[None]).any(1)
    return jnp.where(is_first, jnp.stack([pushes[slot] for slot in gaps.slots]), 0.0)
