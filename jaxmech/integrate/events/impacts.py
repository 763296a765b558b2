"""Impacts of gaps that close, and which gaps stay closed.

Impulses P >= 0 along the gaps that close change the velocities, within the equality constraints, by
Newton's law: in each gap dg/dt+ >= -e dg/dt-, with equality where P > 0. Of gaps that touch, those
that close fastest collide first, together with those that are pressed together already; the others
follow, so that a row of balls passes a blow on. Then the accelerations decide which gaps stay
closed. Both are linear complementarity problems (`jaxmech.linalg.complementarity`).
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.integrate.events.friction import SlidingForce
from jaxmech.integrate.events.gaps import GapDecisions, Gaps
from jaxmech.integrate.events.rounding import rounded
from jaxmech.integrate.scheme import Scheme
from jaxmech.linalg import LDL, complementarity, diagonal, matvec, metric
from jaxmech.state import metric_mass
from jaxmech.status import Status
from jaxmech.system import MOST, Holonomic, Nonholonomic, Params, System
from jaxmech.utils.jit_cache import kept_by

AS_FAST = 0.999  # relative speed of gaps that close equally fast
ROUNDING = 64.0  # units of round-off of an acceleration that counts as zero
_FREE = 1e-12  # relative compliance of a gap below which equality constraints keep it as it is


class GapStates(NamedTuple):
    """C gaps at a state."""

    value: Float[Array, " C"]
    slope: Float[Array, "C k"]  # derivative of the rate with respect to velocities
    rate: Float[Array, " C"]
    zero: Float[Array, " C"]  # size of a value that counts as zero
    still: Float[Array, " C"]  # size of a rate that counts as zero
    calm: Float[Array, " C"]  # rate below which a gap that touches can stay closed
    rest: Float[Array, " C"]  # speed below which there is no rebound


class MotionState(NamedTuple):
    """A state of a run, and what its round-off depends on."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]
    speeds: Float[Array, " n"]  # the largest speeds so far
    h: Float[Array, ""]  # size of the step
    accuracy: Float[Array, ""]  # of the time


class Collision(NamedTuple):
    """Which of C gaps collide."""

    touches: Bool[Array, " C"]
    rate: Float[Array, " C"]  # zero in gaps that stay closed
    first: Bool[Array, " C"]  # those that close fastest
    rebounds: Bool[Array, " C"]  # those of them that open again
    members: Bool[Array, " C"]  # those that can have an impulse
    e: Float[Array, " C"]  # the restitution of those that rebound

    @staticmethod
    def of(
        gap: GapStates, e: Float[Array, " C"], closed: Bool[Array, " C"], is_still: Bool[Array, ""]
    ) -> "Collision":
        """The collision of gaps with these restitutions; as for `decided_at`."""
        touches = closed | (gap.value <= gap.zero)
        is_calm = jnp.abs(gap.rate) <= jnp.where(closed, gap.calm, gap.still)
        is_calm |= closed & is_still
        rate = jnp.where(closed & is_calm, 0.0, gap.rate)
        closing = touches & (rate < -gap.still)
        speeds = jnp.where(closing, -rate / jnp.where(gap.still > 0, gap.still, 1.0), 0.0)
        first = closing & (speeds >= AS_FAST * speeds.max(initial=0.0))
        rebounds = first & (-e * rate > gap.rest)
        members = first | (touches & is_calm & (closed | ~rebounds.any()))
        used = jnp.where(rebounds, e, 0.0)
        return Collision(touches, rate, first, rebounds, members & first.any(), used)


@kept_by(32)
def without_gaps(system: System, count: int) -> System:
    """The system without its last constraints, those of gaps and frictions."""
    own = system.nonideal
    equations = replace(
        system,
        constraints=system.constraints[: len(system.constraints) - count],
        nonideal=own.ideal if isinstance(own, SlidingForce) else own,
    )
    return equations.with_singular_mass(system.singular_mass)


def gaps_of(gaps: Gaps, system: System) -> list[Holonomic]:
    """The constraints of gaps in a system."""
    last = system.constraints[len(system.constraints) - gaps.equations :][: gaps.count]
    return [c for c in last if isinstance(c, Holonomic)]


def gap_states(gaps: Gaps, system: System, state: MotionState, params: Params) -> GapStates:
    """The gaps of a system at a state; `params` have all of them switched on."""
    q, v, t = state.q, state.v, state.t
    rows = []
    for constraint in gaps_of(gaps, system):

        def value(q: Array, t: Array, constraint: Holonomic = constraint) -> Array:
            return constraint.value(q, t, params)[0]

        slope = constraint.velocity_jacobian(q, t, params)[0]
        rate = constraint.speed(q, v, t, params)[0]
        rows.append((slope, rate, *rounded(value, q, t, state.speeds, state.accuracy)))
    slope, rate, value_, zero, still, fastest = (jnp.stack(x) for x in zip(*rows, strict=True))
    rest = gaps.rest_speeds(fastest)
    return GapStates(value_, slope, rate, zero, still, jnp.maximum(still, rest / 2), rest)


def compliance(
    system: System, slope: Float[Array, "C k"], state: MotionState, params: Params
) -> tuple[Float[Array, "C C"], Float[Array, "C k"]]:
    """The rates by unit impulses along each gap, and the velocities (C, k) that they cause."""
    q, v, t = state.q, state.v, state.t
    A = system.dynamics.rows(q, v, t, params)
    pair = metric(metric_mass(system, q, v, t, params), A, LDL())
    free = pair.mass.lower(slope.T).T
    within = free
    if len(A):
        C = pair.mass.lower(A.T).T
        within = jnp.stack([y - pair.rows.min_norm_solve(matvec(C, y))[0] for y in free])
    W = (within[:, None] * within[None]).sum(-1)
    is_held = diagonal(W) <= _FREE * (free * free).sum(1)
    W = jnp.where(is_held[:, None] | is_held[None], 0.0, W)
    return W, jnp.stack([pair.mass.upper(y) for y in within])


class Decided(NamedTuple):
    """What becomes of gaps at a state."""

    decisions: GapDecisions
    status: Int[Array, ""]
    speeds: Float[Array, " n"]  # the largest speeds so far, or those gained within a step
    multipliers: Float[Array, " C"]  # of the gaps from then on


class _Slots(NamedTuple):
    """The few of C gaps that take part, in S slots: what is computed for them does not grow."""

    gaps: Bool[Array, "S C"] | None  # the gap in each slot; None if there is a slot for each
    members: Int[Array, ""]  # gaps that take part
    size: int  # S

    @staticmethod
    def of(gaps: Gaps, takes_part: Bool[Array, " C"]) -> "_Slots":
        """Slots for the flagged gaps."""
        size = min(gaps.rows, MOST)
        if size == gaps.count:
            return _Slots(None, takes_part.sum(), size)
        ranks = jnp.cumsum(takes_part) - 1
        chosen = takes_part[None] & (ranks[None] == np.arange(size)[:, None])
        return _Slots(chosen, takes_part.sum(), size)

    @property
    def used(self) -> Bool[Array, " S"] | bool:
        """Flags of the slots with a gap."""
        return True if self.gaps is None else self.gaps.any(1)

    def of_slots(self, x: Array) -> Array:
        """The entries of an array (C, ...) in the slots, zero or false in empty ones."""
        if self.gaps is None:
            return x
        flags = self.gaps.reshape(*self.gaps.shape, *[1] * (x.ndim - 1))
        return jnp.where(flags, x[None], jnp.zeros_like(x)[None]).sum(1, dtype=x.dtype)

    def of_gaps(self, x: Array) -> Array:
        """The entries (C,) of all gaps, from those (S,) of the slots."""
        if self.gaps is None:
            return x
        return jnp.where(self.gaps, x[:, None], jnp.zeros_like(x)[:, None]).sum(0, dtype=x.dtype)


def decided_at(
    gaps: Gaps, scheme: Scheme, state: MotionState, params: Params, user_params: Params,
    closed: Bool[Array, " C"], is_still: Bool[Array, ""], opens: Bool[Array, " C"],
) -> Decided:  # fmt: skip
    """Decide what becomes of gaps at a state.

    `params` have all gaps switched on, `user_params` are those of the user's functions. Gaps that
    were `closed` before have no rate if the motion `is_still` that of before; those that `opens`
    flags are to open.
    """
    state, params, user_params = jax.lax.stop_gradient((state, params, user_params))
    base = without_gaps(scheme.system, gaps.count)
    accelerations = jax.jit(partial(accelerations_of, scheme, base))
    state = with_gained_speeds(state, accelerations(state, params)[1])
    gap = gap_states(gaps, scheme.system, state, params)
    slots = _Slots.of(gaps, closed | ((gap.value <= gap.zero) & (gap.rate <= gap.calm)))
    gap, e, closed, opens = jax.tree.map(
        slots.of_slots, (gap, gaps.restitutions(user_params, state.q.dtype), closed, opens)
    )
    gap = gap._replace(value=jnp.where(slots.used, gap.value, 1.0))
    W, motions = compliance(base, gap.slope, state, params)
    collision = Collision.of(gap, e, closed, is_still)
    goal = jnp.where(collision.first, (1 + collision.e) * collision.rate, 0.0)
    P, hit, could_hit = _pushed(W, goal, collision.members)
    rate = collision.rate + matvec(W, P)
    v = state.v + matvec(motions.T, P)

    rests = collision.touches & (jnp.abs(rate) <= gap.calm) & ~opens
    after = state._replace(v=v)
    qdd, _ = accelerations(after, params)
    w, size = map(slots.of_slots, _separation(gaps_of(gaps, scheme.system), after, qdd, params))
    pushes, needed, could_rest = _pushed(W, w, rests)
    closed_now, multipliers = _shared(W, w, size, rests, pushes, needed)
    status = jnp.where(could_hit & could_rest, int(Status.OK), int(Status.CONTACT_UNSOLVED))
    few = slots.members <= slots.size
    status = jnp.where(few, status, int(Status.TOO_MANY_CONTACTS)).astype(jnp.int32)
    rebounds, none = hit & collision.rebounds, jnp.zeros(0, bool)
    hit, rebounds, closed_now = map(slots.of_gaps, (hit, rebounds, closed_now))
    decisions = GapDecisions(hit, rebounds, closed_now, none, none)
    return Decided(decisions, status, state.speeds, slots.of_gaps(multipliers))


def with_gained_speeds(state: MotionState, accelerations: Float[Array, " n"]) -> MotionState:
    """The state with the speeds gained in a step: one at rest has none to compare with."""
    gained = jnp.abs(state.h * accelerations)
    return state._replace(speeds=jnp.maximum(state.speeds, gained))


def accelerations_of(
    scheme: Scheme, base: System, state: MotionState, params: Params
) -> tuple[Float[Array, " k"], Float[Array, " n"]]:
    """The accelerations with open gaps, and those of the coordinates."""
    q, v, t = state.q, state.v, state.t
    qdd = replace(scheme, system=base).law(q, v, t, params)[1].qdd
    return qdd, base.dynamics.speed_rates(q, v, qdd, t, params)


def _shared(
    W: Float[Array, "C C"], r: Float[Array, " C"], size: Float[Array, " C"],
    rests: Bool[Array, " C"], pushes: Float[Array, " C"], needed: Bool[Array, " C"],
) -> tuple[Bool[Array, " C"], Float[Array, " C"]]:  # fmt: skip
    """The gaps that share the pushes: all with multipliers of minimum norm, if none of them pulls.

    Otherwise those that are `needed`. Gaps without a push are open, though bodies touch there. Also
    the multipliers.
    """
    share = float(jnp.finfo(r.dtype).eps) ** 0.75
    small = share * (size + matvec(jnp.abs(W), pushes))
    stays = rests & (r + matvec(W, pushes) <= small)
    W = jnp.where(stays[:, None] & stays[None], W, 0.0)
    r = jnp.where(stays, r, 0.0)
    multipliers, _ = LDL().factor(W).min_norm_solve(-r)
    least = share * jnp.abs(multipliers).max()
    is_valid = (jnp.abs(r + matvec(W, multipliers)) <= small).all()
    is_valid &= (multipliers >= -least).all()
    shares = jnp.where(
        is_valid, stays & (multipliers > least), needed & (pushes > share * pushes.max())
    )
    return shares, jnp.where(shares, jnp.where(is_valid, multipliers, pushes), 0.0)


def _separation(
    gaps: list[Holonomic], state: MotionState, qdd: Float[Array, " k"], params: Params
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """The second derivative of each gap if all were open, zero within round-off, and its terms."""
    q, v, t = state.q, state.v, state.t
    rows = [c.rows(q, v, t, params) for c in gaps]
    A, b = (jnp.concatenate(x) for x in zip(*rows, strict=True))
    w, size = matvec(A, qdd) - b, matvec(jnp.abs(A), jnp.abs(qdd)) + jnp.abs(b)
    eps = ROUNDING * float(jnp.finfo(q.dtype).eps)
    return jnp.where(jnp.abs(w) <= eps * size, 0.0, w), size


def _pushed(
    W: Float[Array, "C C"], r: Float[Array, " C"], members: Bool[Array, " C"]
) -> tuple[Float[Array, " C"], Bool[Array, " C"], Bool[Array, ""]]:
    """The pushes of `members` by which r + W P is not negative, and which of them may push.

    Also whether there is a solution.
    """
    both = members[:, None] & members[None]
    # In units in which all gaps are equally compliant, and the others are far from closing.
    own = jnp.where(members, diagonal(W), 1.0)
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    eye = jnp.eye(len(r), dtype=bool)
    W = jnp.where(both, unit[:, None] * W * unit[None], (eye & ~both).astype(W.dtype))
    r = jnp.where(members, unit * r, 0.0)
    largest = jnp.abs(r).max()
    found = complementarity(W, jnp.where(members, r, jnp.where(largest > 0, largest, 1.0)))
    return unit * found.z, found.is_basic & members, found.solved


def after_impacts(
    gaps: Gaps, scheme: Scheme, decisions: GapDecisions, state: MotionState, params: Params,
    user_params: Params,
) -> Float[Array, " k"]:  # fmt: skip
    """The velocities after an event, by the impulses of gaps and equality constraints."""
    q, v, t = state.q, state.v, state.t
    base = without_gaps(scheme.system, gaps.count)
    all_gaps = gaps_of(gaps, scheme.system)
    slots = _Slots.of(gaps, decisions.hit | decisions.closed)
    acts = slots.of_slots(decisions.hit | decisions.closed)
    slope = jnp.concatenate([c.velocity_jacobian(q, t, params) for c in all_gaps])
    slope = jnp.where(acts[:, None], slots.of_slots(slope), 0.0)
    e = jnp.where(decisions.rebounds, gaps.restitutions(user_params, q.dtype), 0.0)

    def rates(v: Array) -> Array:
        return slots.of_slots(jnp.concatenate([c.speed(q, v, t, params) for c in all_gaps]))

    goal = -slots.of_slots(e) * rates(v)
    A = base.dynamics.velocity_jacobian(q, v, t, params)
    mass = metric(metric_mass(base, q, v, t, params), jnp.concatenate([A, slope]), LDL())
    curved = any(isinstance(c, Nonholonomic) for c in base.constraints)
    for _ in range(2 if curved else 1):
        wrong: Any = jnp.where(acts, rates(v) - goal, 0.0)
        wrong = jnp.concatenate([base.dynamics.velocity_level(q, v, t, params), wrong])
        v = v - mass.min_norm_solve(wrong)[0]
    return v
