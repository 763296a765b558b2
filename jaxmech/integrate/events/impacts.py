"""Events of contacts: impacts of gaps that close, and what gaps and frictions do from then on.

Impulses P >= 0 along the gaps that close change the velocities, within the equality constraints, by
Newton's law: in each gap dg/dt+ >= -e dg/dt-, with equality where P > 0. Of gaps that touch, those
that close fastest collide first, together with those that are pressed together already; the others
follow, so that a row of balls passes a blow on. Frictions obey Coulomb's law for the impulse and
the velocity after it. Where such impulses would add energy, which they can if both directions are
coupled (Kane and Levinson), slips are reversed like gaps (Moreau's law with one restitution), or
nothing rebounds: both of these cannot add energy. Then the accelerations decide which gaps stay
closed, and which frictions stick. Both are the law of `coulomb`; without friction it has no rows
of slips.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmech.compiler import jacobian
from jaxmech.integrate.events.coulomb import (
    Coulomb,
    both,
    compliance,
    contact,
    coulomb_forces,
    finite,
    norm,
    pairs_of,
    small,
    swept_forces,
    unit,
    with_pairs,
)
from jaxmech.integrate.events.friction import (
    Rubbing,
    discs_of,
    eighths,
    pressing,
)
from jaxmech.integrate.events.gaps import GapDecisions, Gaps
from jaxmech.integrate.run_params import RunParams, plain, without_last
from jaxmech.integrate.scheme import Scheme
from jaxmech.linalg import LDL, QR, diagonal, matvec, metric
from jaxmech.state import metric_mass
from jaxmech.status import Status
from jaxmech.system import Holonomic, Nonholonomic, Params, System

AS_FAST = 0.999  # relative speed of gaps that close equally fast
ROUNDING = 64.0  # units of round-off of an acceleration that counts as zero
_MOST = 8  # gaps that can be closed at once
_AT_REST = 1e-6  # of the change of a slip by friction in a step: the speed that is none
_SWEEPS = 60  # over the impulses of slips in space
_AHEAD = 1e-3  # of a step: where accelerations that begin at zero are asked
_ROUNDING = 64.0  # round-off of a function and of its rate, relative to the largest of their terms
_APART = 4.0  # the same of the time of an event, in its accuracy
_FAR = 1e6  # round-off of a gap: no closed one is so far from zero, but by a jump


def rounded(
    value: Callable[[Array, Array], Array], q: Array, t: Array, speeds: Array, accuracy: Array
) -> tuple[Array, Array, Array, Array]:
    """The functions value(q, t) at a state, and the sizes of values that count as zero.

    Also the sizes of rates that do, and the rates at the largest `speeds` of the run so far.
    `accuracy` is that of the time.
    """
    g, drift = jax.linearize(lambda t: value(q, t), t)
    slope = jnp.abs(jacobian(lambda q: value(q, t), q))
    size = matvec(slope, jnp.abs(q)) + jnp.abs(drift(t))
    fastest = matvec(slope, speeds) + jnp.abs(drift(jnp.ones_like(t)))
    eps = _ROUNDING * float(jnp.finfo(q.dtype).eps)
    return g, eps * size + _APART * accuracy * fastest, eps * fastest, fastest


class GapStates(NamedTuple):
    """C gaps at a state."""

    value: Float[Array, " C"]
    slope: Float[Array, "C k"]  # derivative of the rate with respect to velocities
    rate: Float[Array, " C"]
    zero: Float[Array, " C"]  # size of a value that counts as zero
    still: Float[Array, " C"]  # size of a rate that counts as zero
    calm: Float[Array, " C"]  # rate below which a gap that touches can stay closed
    rest: Float[Array, " C"]  # speed below which there is no rebound


class Slips(NamedTuple):
    """F slip velocities at a state."""

    slope: Float[Array, "F k"]  # derivative with respect to velocities
    rate: Float[Array, " F"]
    still: Float[Array, " F"]  # size of a rate that counts as zero


class MotionState(NamedTuple):
    """A state of a run, and what its round-off depends on."""

    q: Float[Array, " n"]
    v: Float[Array, " k"]
    t: Float[Array, ""]
    speeds: Float[Array, " n"]  # the largest speeds so far
    h: Float[Array, ""]  # size of the step
    accuracy: Float[Array, ""]  # of the time


class Decided(NamedTuple):
    """What becomes of gaps and frictions at a state."""

    decisions: GapDecisions
    status: Int[Array, ""]
    speeds: Float[Array, " n"]  # the largest speeds so far, or those gained within a step
    multipliers: Float[Array, " C"]  # of the gaps from then on


def rows_of(gaps: Gaps, system: System) -> tuple[list[Holonomic], list[Nonholonomic]]:
    """The constraints of gaps and of frictions in a system."""
    last = system.constraints[len(system.constraints) - gaps.equations :]
    of_gaps = [c for c in last[: gaps.count] if isinstance(c, Holonomic)]
    return of_gaps, [c for c in last[gaps.count :] if isinstance(c, Nonholonomic)]


def gap_states(gaps: Gaps, system: System, state: MotionState, params: Params) -> GapStates:
    """The gaps of a system at a state; `params` have all of them switched on."""
    q, v, t = state.q, state.v, state.t
    if not gaps.count:
        none = jnp.zeros(0, q.dtype)
        return GapStates(none, jnp.zeros((0, v.size), q.dtype), *[none] * 5)
    of_gaps = rows_of(gaps, system)[0]

    def values(q: Array, t: Array) -> Array:
        return jnp.concatenate([c.value(q, t, params) for c in of_gaps])

    slope = jnp.concatenate([c.velocity_jacobian(q, t, params) for c in of_gaps])
    rate = jnp.concatenate([c.speed(q, v, t, params) for c in of_gaps])
    value, zero, still, fastest = rounded(values, q, t, state.speeds, state.accuracy)
    rest = gaps.rest_speeds(fastest)
    return GapStates(value, slope, rate, zero, still, jnp.maximum(still, rest / 2), rest)


def _slips(gaps: Gaps, system: System, state: MotionState, params: Params) -> Slips:
    q, v, t = state.q, state.v, state.t
    if not gaps.frictions:
        none = jnp.zeros(0, q.dtype)
        return Slips(jnp.zeros((0, v.size), q.dtype), none, none)
    speeds = system.dynamics.speeds(q, v, t, params)
    rows = []
    for c in rows_of(gaps, system)[1]:

        def slip(speeds: Array, c: Nonholonomic = c) -> Array:
            return jnp.reshape(c.fn(q, speeds, t, params), ())

        slope = jnp.abs(jax.grad(slip)(speeds))
        size = (slope * jnp.maximum(state.speeds, jnp.abs(speeds))).sum()
        size += jnp.abs(slip(jnp.zeros_like(speeds)))
        rows.append((c.jacobian(q, v, t, params)[0], slip(speeds), small(q) * size))
    return Slips(*(jnp.stack(x) for x in zip(*rows, strict=True)))


class _Slots(NamedTuple):
    """The few of C gaps that take part, in S slots: what is computed for them does not grow."""

    gaps: Bool[Array, "S C"] | None  # the gap in each slot; None if there is a slot for each
    members: Int[Array, ""]  # gaps that take part
    size: int  # S

    @staticmethod
    def of(gaps: Gaps, takes_part: Bool[Array, " C"]) -> "_Slots":
        size = min(len(set(gaps.slots)), _MOST)
        if size == gaps.count:
            return _Slots(None, takes_part.sum(), size)
        ranks = jnp.cumsum(takes_part) - 1
        chosen = takes_part[None] & (ranks[None] == np.arange(size)[:, None])
        return _Slots(chosen, takes_part.sum(), size)

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
    gaps: Gaps, scheme: Scheme, state: MotionState, params: Params, before: RunParams,
    is_still: Bool[Array, ""], occurs: Bool[Array, " E"],
) -> Decided:  # fmt: skip
    """Decide what becomes of gaps and frictions at a state.

    `params` have all gaps switched on, and `before` what was. Without a change of the motion before
    the event, the motion `is_still` that of before. `occurs` flags the event of gaps or frictions.
    """
    state, params, before = jax.lax.stop_gradient((state, params, before))
    system, frictions, user = scheme.system, gaps.frictions, plain(params)
    q, count, own = state.q, gaps.count, len(gaps.frictions)
    base = without_last(system, gaps.equations)

    @jax.jit
    def accelerations(state: MotionState) -> tuple[Array, Array]:
        q, v, t = state.q, state.v, state.t
        qdd = replace(scheme, system=base).law(q, v, t, params)[1].qdd
        return qdd, base.dynamics.speed_rates(q, v, qdd, t, params)

    # Round-off is that of the speeds gained in a step: a body at rest has none to compare with.
    gained = jnp.abs(state.h * accelerations(state)[1])
    state = state._replace(speeds=jnp.maximum(state.speeds, gained))
    discs = discs_of(frictions)
    ends = count, 2 * count, 2 * count + own - len(discs)
    _, opens, slips, stops = jnp.split(occurs, ends)
    if discs:  # both rows of a slip in space
        stops = stops[np.cumsum([not f.is_second for f in frictions]) - 1]
    active = before.active[len(before.active) - len(gaps.switches) :]
    closed, sticks = active[:count], active[count : count + own]

    gap, slip = gap_states(gaps, system, state, params), _slips(gaps, system, state, params)
    # One that a jump in time opens is far from zero all at once.
    closed &= ~(opens & (gap.value > _FAR * gap.zero))
    slots = _Slots.of(gaps, closed | ((gap.value <= gap.zero) & (gap.rate <= gap.calm)))
    e = gaps.restitutions(user, q.dtype) if count else gap.rate
    gap, e, closed = jax.tree.map(slots.of_slots, (gap, e, closed))
    if slots.gaps is not None:  # nothing touches in those that are empty
        gap = gap._replace(value=jnp.where(slots.gaps.any(1), gap.value, 1.0))
    G = slots.of_slots(pressing(frictions, count, q.dtype).T).T
    A = base.dynamics.rows(q, state.v, state.t, params)
    mass = metric_mass(base, q, state.v, state.t, params)
    W, motions = compliance(mass, A, jnp.concatenate([gap.slope, slip.slope]))

    # The limits of frictions, and what presses there beside gaps.
    limits, offset, direction = jnp.zeros((2, 0), q.dtype), slip.rate, slip.rate
    by_gap = jnp.asarray(np.array([f.gap is not None for f in frictions], bool))
    if frictions:
        _, law = scheme.law(q, state.v, state.t, before)
        rubbing = Rubbing.at(frictions, before, law.multipliers, gaps.equations)
        offset, direction = jnp.where(by_gap, 0.0, rubbing.normal), rubbing.directions
        limits, pressed_by = rubbing.limits, jnp.abs(rubbing.normal)

    # Of gaps that touch those that close fastest collide, and those that are pressed together.
    touches = closed | (gap.value <= gap.zero)
    slow = stops
    if discs:
        # A slip in space that only turns has still a speed that friction does not take at once.
        own_W = diagonal(W)[slots.size :]
        lost = limits[1] * pressed_by * own_W
        at_rest = slip.still + (_AT_REST * jnp.abs(state.h) + 10 * state.accuracy) * lost
        speed = norm(pairs_of(slip.rate, discs))
        # Of several, all come to rest at once.
        slow = with_pairs(
            slow, discs, pairs_of(slow, discs).any() & jnp.ones((len(discs), 1), bool)
        )
        slow &= with_pairs(slow, discs, (speed <= pairs_of(at_rest, discs).max(1))[:, None])
    is_calm = jnp.abs(gap.rate) <= jnp.where(closed, gap.calm, gap.still)
    is_calm |= closed & is_still
    rate = jnp.where(closed & is_calm, 0.0, gap.rate)
    closing = touches & (rate < -gap.still)
    fast = jnp.where(closing, -rate / jnp.where(gap.still > 0, gap.still, 1.0), 0.0)
    first = closing & (fast >= AS_FAST * fast.max(initial=0.0))
    rebounds = first & (-e * rate > gap.rest)
    members = first | (touches & is_calm & (closed | ~rebounds.any()))
    w = slip.rate
    if own and not discs:
        # A friction that stops takes along those of the same motion, to round-off.
        own_W = diagonal(W)[slots.size :]
        lost = jnp.where(stops & (own_W > 0), w / jnp.where(own_W > 0, own_W, 1.0), 0.0)
        w = w - matvec(W[slots.size :, slots.size :], lost)
    w = jnp.where((sticks & is_still) | slow, 0.0, w)
    velocity = jnp.concatenate([rate, w])
    hit = _impact(
        W, velocity, first, members & first.any(), jnp.where(rebounds, e, 0.0), G,
        limits[1], jnp.concatenate([gap.still, slip.still]), discs,
    )  # fmt: skip
    rate, w = jnp.split(velocity + matvec(W, hit.impulses), [slots.size])
    w = jnp.where(hit.rubs[:own] & ~hit.rubs[-1:], 0.0, w)

    # Then the accelerations decide about those that are at rest.
    v = state.v + matvec(motions.T, hit.impulses)
    if discs:
        # Slips that stop turn no more, and need no forces for that.
        rows = motions[slots.size :]
        left = jnp.where(w == 0, slip.rate + matvec(slip.slope, v - state.v), 0.0)
        S = jnp.where((w == 0)[:, None] & (w == 0)[None], W[slots.size :, slots.size :], 0.0)
        v -= matvec(rows.T, QR().factor(S).min_norm_solve(left)[0])
    after = state._replace(v=v)
    speeds = base.dynamics.speeds(q, v, state.t, params)

    def asked(qdd: Array, ahead: Array) -> tuple[Array, tuple[Array, Array]]:
        later = after._replace(q=q + ahead * speeds, v=v + ahead * qdd, t=state.t + ahead)
        qdd, _ = accelerations(later)
        r, size = _accelerations_of_rows(gaps, system, later, qdd, params)
        return finite(qdd), (finite(r), finite(size))

    # Where a gap has no acceleration, that which follows at once tells whether it opens.
    times = jnp.stack([jnp.zeros_like(state.h), _AHEAD * state.h])
    _, (both_r, (size, _)) = jax.lax.scan(asked, jnp.zeros_like(v), times)
    r = jnp.where((both_r[0] == 0) & (np.arange(both_r.shape[1]) < count), both_r[1], both_r[0])
    r, size = (
        jnp.concatenate([slots.of_slots(x[:count]), x[count:]]) for x in (r, size)
    )  # fmt: skip
    rests = touches & (jnp.abs(rate) <= gap.calm)
    was_hit = (hit.impulses != 0).any()
    pressed = matvec(G, rests.astype(G.dtype)) > 0
    on = (pressed | ~by_gap) & (limits[0] > 0)
    moving = (jnp.abs(w) > slip.still) & on
    goes_on = is_still & ~was_hit & (w * direction > 0)
    direction = jnp.where(goes_on, direction, jnp.sign(w))
    if discs:
        moving, pairs = both(moving, discs), pairs_of(w, discs)
        direction = with_pairs(direction, discs, unit(pairs))
    direction = jnp.where(moving, direction, 0.0)
    leaves = (opens.any() | slips.any()) & ~was_hit
    found = contact(W, r, size, rests, G, limits, offset, on, direction, leaves, discs)

    by_pushing = matvec(G, found.pushes.astype(G.dtype)) > 0
    on = on & (by_pushing | ~by_gap)
    few = jnp.maximum(slots.members, rests.sum()) <= slots.size
    is_solved = hit.solved & found.solved
    status = jnp.where(is_solved, int(Status.OK), int(Status.CONTACT_UNSOLVED))
    status = jnp.where(few, status, int(Status.TOO_MANY_CONTACTS)).astype(jnp.int32)
    hits, bounces, closed = map(
        slots.of_gaps, (hit.hit, hit.hit & rebounds & hit.rebounds, found.pushes)
    )
    direction = eighths(found.direction, discs)
    slides = (found.sticks, direction > 0, direction < 0)
    decisions = GapDecisions(
        hits, bounces, closed, hit.rubs, jnp.concatenate([on & kind for kind in slides])
    )
    return Decided(decisions, status, state.speeds, slots.of_gaps(found.forces[: slots.size]))


class _Hit(NamedTuple):
    """What an impact of C gaps with F frictions does."""

    impulses: Float[Array, " R"]
    hit: Bool[Array, " C"]
    rubs: Bool[Array, " S"]  # frictions that stick, slide forward and backward; are they reversed
    solved: Bool[Array, ""]
    gain: Float[Array, ""]  # of energy
    rebounds: Bool[Array, ""]  # whether any gap may


def _impact(
    W: Float[Array, "R R"], velocity: Float[Array, " R"], first: Bool[Array, " C"],
    members: Bool[Array, " C"], e: Float[Array, " C"], G: Float[Array, "F C"],
    kinetic: Float[Array, " F"], still: Float[Array, " R"], discs: tuple[int, ...],
) -> _Hit:  # fmt: skip
    """The impact by the first of three laws that does not add energy; the last one cannot.

    Without friction none does.
    """
    count, dtype = len(e), velocity.dtype
    rate, w = jnp.split(velocity, [count])
    if not count:  # frictions alone have no impulse
        none, no = jnp.zeros_like(velocity), jnp.asarray(False)
        rubs = jnp.zeros(3 * len(kinetic) + 1, bool)
        return _Hit(none, jnp.zeros(0, bool), rubs, ~no, none.sum(), no)
    # A force without gaps has no impulse.
    touches = matvec(G, members.astype(dtype)) > 0
    slope = jnp.where(touches, kinetic, 0.0)[:, None] * G
    limits = Coulomb(touches, slope, jnp.zeros_like(w), discs)

    def by_law(law: Float[Array, " 2"]) -> _Hit:
        law = jnp.where(law > 0, 1.0, 0.0)  # which native code knows to be finite
        of_gaps = law[0] * e
        goal = jnp.where(first, 1 + of_gaps, 1.0) * rate
        r = jnp.concatenate([goal, (1 + law[1] * matvec(G, of_gaps)) * w])
        found = coulomb_forces(W, r, members, limits)
        P = jnp.where(first.any(), found.forces, 0.0)
        after = r + matvec(W, P)
        zero = small(r, discs) * (jnp.abs(r) + matvec(jnp.abs(W), found.terms)) + still
        slips = both((jnp.abs(after) > zero)[count:], discs)
        way = after[count:]
        if discs:
            way = eighths(with_pairs(way, discs, unit(pairs_of(way, discs))), discs)
        rubs = matvec(G, found.pushes.astype(dtype)) > 0
        forward, backward = way > 0, way < 0 if discs else ~(way > 0)
        kinds = (~slips, slips & forward, slips & backward)
        reverses = jnp.broadcast_to(law[1:] > 0, (min(len(w), 1),))
        return _Hit(
            P, found.pushes, jnp.concatenate([*(rubs & kind for kind in kinds), reverses]),
            found.solved, P @ (velocity + matvec(W, P) / 2), law[0] > 0,
        )  # fmt: skip

    laws = jnp.asarray([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], dtype)
    if not len(kinetic):
        return by_law(laws[0])
    hits = jax.lax.map(by_law, laws)
    are_finite = jnp.isfinite(hits.impulses)
    hits = hits._replace(
        impulses=jnp.where(are_finite, hits.impulses, 0.0), solved=hits.solved & are_finite.all(1)
    )
    size = matvec(jnp.abs(hits.impulses), jnp.abs(velocity))
    fits = hits.solved & (hits.gain <= float(jnp.finfo(dtype).eps) ** 0.5 * size)
    is_chosen = np.arange(len(laws)) == jnp.where(fits.any(), jnp.argmax(fits), len(laws) - 1)

    def pick(x: Array) -> Array:
        return jnp.where(is_chosen.reshape(-1, *[1] * (x.ndim - 1)), x, 0).sum(0, dtype=x.dtype)

    hit: _Hit = jax.tree.map(pick, hits)
    return hit


def _accelerations_of_rows(
    gaps: Gaps, system: System, state: MotionState, qdd: Float[Array, " k"], params: Params
) -> tuple[Float[Array, " R"], Float[Array, " R"]]:
    """The accelerations of gaps and slips without any force, zero within round-off, and terms."""
    q, v, t = state.q, state.v, state.t
    rows = [c.rows(q, v, t, params) for group in rows_of(gaps, system) for c in group]
    A, b = (jnp.concatenate(x) for x in zip(*rows, strict=True))
    w, size = matvec(A, qdd) - b, matvec(jnp.abs(A), jnp.abs(qdd)) + jnp.abs(b)
    eps = ROUNDING * float(jnp.finfo(q.dtype).eps)
    return jnp.where(jnp.abs(w) <= eps * size, 0.0, w), size


def impulses(
    gaps: Gaps, scheme: Scheme, decisions: GapDecisions, state: MotionState, params: Params,
    user_params: Params,
) -> Float[Array, " k"]:  # fmt: skip
    """The velocities after an event, by the impulses of gaps, frictions and constraints."""
    q, v, t, own = state.q, state.v, state.t, len(gaps.frictions)
    base = without_last(scheme.system, gaps.equations)
    of_gaps, slips = rows_of(gaps, scheme.system)
    rub_sticks, rub_forward, rub_backward, reverses = jnp.split(
        decisions.rubs, [own, 2 * own, 3 * own]
    )
    slots = _Slots.of(gaps, decisions.hit | decisions.closed)
    G = slots.of_slots(pressing(gaps.frictions, gaps.count, q.dtype).T).T
    pushes = slots.of_slots(decisions.hit | decisions.closed)
    acts = jnp.concatenate([pushes, rub_sticks | decisions.slides[:own]])

    def of_rows(gap: list[Array], slip: list[Array]) -> Array:
        parts = [slots.of_slots(jnp.concatenate(gap))] if gap else []
        return jnp.concatenate([*parts, *slip])

    def rates(v: Array) -> Array:
        return of_rows(
            [c.speed(q, v, t, params) for c in of_gaps], [c.value(q, v, t, params) for c in slips]
        )

    slip_slope = [c.jacobian(q, v, t, params) for c in slips]
    slope = of_rows([c.velocity_jacobian(q, t, params) for c in of_gaps], slip_slope)
    e = jnp.zeros(0, q.dtype)
    if gaps.count:
        e = jnp.where(decisions.rebounds, gaps.restitutions(user_params, q.dtype), 0.0)
        e = slots.of_slots(e)
    if own:
        e = jnp.concatenate([e, jnp.where(reverses & rub_sticks, matvec(G, e), 0.0)])
    goal = -e * rates(v)
    A = base.dynamics.velocity_jacobian(q, v, t, params)
    rows = jnp.concatenate([A, jnp.where(acts[:, None], slope, 0.0)])
    mass = metric(metric_mass(base, q, v, t, params), rows, LDL())

    def corrected(v: Array) -> tuple[Array, Array]:
        wrong: Any = jnp.where(acts, rates(v) - goal, 0.0)
        wrong = jnp.concatenate([base.dynamics.velocity_level(q, v, t, params), wrong])
        change, forces = mass.min_norm_solve(wrong)
        return v - change, -forces[len(A) : len(A) + slots.size]

    if own and gaps.count:
        # The impulses of slips, against them, are those of gaps times their limits.
        limits = jnp.stack([f.limit("kinetic", user_params, q.dtype) for f in gaps.frictions])
        pull = (rub_forward.astype(q.dtype) - rub_backward.astype(q.dtype)) * limits
        free = jnp.stack([mass.mass.upper(mass.mass.lower(row[0])) for row in slip_slope])
        after, pushes = corrected(v)
        changes = [corrected(v + row) for row in free]
        by_slips = jnp.stack([x[1] - pushes for x in changes], axis=1)
        discs = discs_of(gaps.frictions)
        if discs:
            # The directions in space are those of the slips after the impact.
            rows = jnp.concatenate(slip_slope)
            W = jnp.stack([matvec(rows, x[0] - after) for x in changes], axis=1)
            left = jnp.concatenate([c.value(q, after, t, params) for c in slips])
            in_space = with_pairs(jnp.zeros(own, bool), discs, jnp.ones((len(discs), 1), bool))
            radius = jnp.where(both(pull != 0, discs), limits, 0.0)

            def swept(_: Any, x: Array) -> Array:
                push = matvec(G, pushes + matvec(by_slips, x))
                x = jnp.where(in_space, x, -pull * push)
                return swept_forces(W, left, x, radius * jnp.maximum(push, 0.0), discs)

            slipped = jax.lax.fori_loop(0, _SWEEPS, swept, jnp.zeros(own, q.dtype))
        else:
            matrix = jnp.eye(own, dtype=q.dtype) + pull[:, None] * (G @ by_slips)
            slipped = QR().factor(matrix).min_norm_solve(-pull * matvec(G, pushes))[0]
        v = v + matvec(free.T, slipped)
    curved = own or any(isinstance(c, Nonholonomic) for c in base.constraints)
    for _ in range(2 if curved else 1):
        v, _ = corrected(v)
    if discs_of(gaps.frictions):
        # What is left of a stop turns, by which redundant rows would contradict each other.
        least = ROUNDING * float(jnp.finfo(v.dtype).eps) * jnp.abs(state.v)
        v -= jax.lax.stop_gradient(jnp.where(jnp.abs(v) <= least, v, 0.0))
    return v
