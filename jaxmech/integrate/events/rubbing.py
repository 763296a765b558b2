"""Impacts and contacts with friction: which gaps push, which frictions stick, and which slide.

Both follow the law of `coulomb`. An impact obeys Newton's law in each gap, and Coulomb's law for
the impulse and the velocity after it. Where such impulses would add energy, which they can if both
directions are coupled (Kane and Levinson), slips are reversed like gaps (Moreau's law with one
restitution), or nothing rebounds: both of these cannot add energy.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.integrate.events.coulomb import (
    ContactForces,
    Coulomb,
    are_kept,
    coulomb_forces,
    has_alternative,
    shared_forces,
)
from jaxmech.integrate.events.friction import KINDS, Rubbing
from jaxmech.integrate.events.gaps import GapDecisions, Gaps
from jaxmech.integrate.events.impacts import (
    ROUNDING,
    Collision,
    Decided,
    GapStates,
    MotionState,
    accelerations_of,
    compliance,
    gap_states,
    gaps_of,
    with_gained_speeds,
    without_gaps,
)
from jaxmech.integrate.scheme import Scheme
from jaxmech.integrate.switches import Switched, plain
from jaxmech.linalg import LDL, QR, matvec, metric
from jaxmech.state import metric_mass
from jaxmech.status import Status
from jaxmech.system import MOST, Nonholonomic, Params, System

_PASSES = 3  # in which frictions that start to slide drop to their kinetic limits


class Slips(NamedTuple):
    """F slip velocities at a state."""

    slope: Float[Array, "F k"]  # derivative with respect to velocities
    rate: Float[Array, " F"]
    still: Float[Array, " F"]  # size of a rate that counts as zero


def slips_of(gaps: Gaps, system: System) -> list[Nonholonomic]:
    """The constraints of frictions in a system."""
    last = system.constraints[len(system.constraints) - len(gaps.frictions) :]
    return [c for c in last if isinstance(c, Nonholonomic)]


def _slips(gaps: Gaps, scheme: Scheme, state: MotionState, params: Params) -> Slips:
    q, v, t, system = state.q, state.v, state.t, scheme.system
    speeds = system.dynamics.speeds(q, v, t, params)
    share = float(jnp.finfo(q.dtype).eps) ** 0.75
    rows = []
    for c in slips_of(gaps, system):

        def slip(speeds: Array, c: Nonholonomic = c) -> Array:
            return jnp.reshape(c.fn(q, speeds, t, params), ())

        slope = jnp.abs(jax.grad(slip)(speeds))
        size = (slope * jnp.maximum(state.speeds, jnp.abs(speeds))).sum()
        size += jnp.abs(slip(jnp.zeros_like(speeds)))
        rows.append((c.jacobian(q, v, t, params)[0], slip(speeds), share * size))
    return Slips(*(jnp.stack(x) for x in zip(*rows, strict=True)))


def _of_gaps(gaps: Gaps, dtype: Any) -> Float[np.ndarray, "F C"]:
    """Which gap presses at each friction."""
    pressing = np.zeros((len(gaps.frictions), gaps.count), dtype)
    for k, friction in enumerate(gaps.frictions):
        if friction.gap is not None:
            pressing[k, friction.gap] = 1
    return pressing


class _Frictions(NamedTuple):
    """F frictions before an event, and C gaps that may press there."""

    G: Float[Array, "F C"]  # which gap presses
    by_gap: Bool[Array, " F"]  # whether one does
    static: Float[Array, " F"]
    kinetic: Float[Array, " F"]
    offset: Float[Array, " F"]  # what presses beside gaps
    multipliers: Float[Array, " F"]
    sticks: Bool[Array, " F"]
    direction: Float[Array, " F"]  # of those that slide

    @staticmethod
    def before(gaps: Gaps, scheme: Scheme, state: MotionState, params: Switched) -> "_Frictions":
        """Those at a state, with the switches before the event."""
        frictions, dtype = gaps.frictions, state.q.dtype
        _, law = scheme.law(state.q, state.v, state.t, params)
        rubbing = Rubbing.at(frictions, params, law.multipliers[-gaps.equations :], law.multipliers)
        by_gap = jnp.asarray(np.array([f.gap is not None for f in frictions]))
        static, kinetic = (
            jnp.stack([f.limit(argument, plain(params), dtype) for f in frictions])
            for argument in ("static", "kinetic")
        )
        sticks = params.active[-len(KINDS) * len(frictions) :][: len(frictions)]
        return _Frictions(
            jnp.asarray(_of_gaps(gaps, dtype), dtype), by_gap, static, kinetic,
            jnp.where(by_gap, 0.0, rubbing.normal), rubbing.multipliers, sticks, rubbing.directions,
        )  # fmt: skip

    def pressed(self, closed: Bool[Array, " C"]) -> Bool[Array, " F"]:
        """Flags of those that a gap presses, or that no gap does, and that have a limit."""
        by_closed = matvec(self.G, closed.astype(self.G.dtype)) > 0
        return (by_closed | ~self.by_gap) & (self.static > 0)


class _Pass(NamedTuple):
    """The frictions after a pass of the decision."""

    box: Bool[Array, " F"]
    direction: Float[Array, " F"]
    held: Bool[Array, " F"]
    found: ContactForces


def rubbed_at(
    gaps: Gaps, scheme: Scheme, state: MotionState, params: Params, before: Switched,
    is_still: Bool[Array, ""], occurs: Bool[Array, " E"],
) -> Decided:  # fmt: skip
    """Decide what becomes of gaps and frictions at a state.

    `params` have all gaps switched on, and `before` what was. Without a change of the motion before
    the event, the motion `is_still` that of before. `occurs` flags the event of gaps or frictions.
    """
    state, params, before = jax.lax.stop_gradient((state, params, before))
    count, own = gaps.count, len(gaps.frictions)
    base = without_gaps(scheme.system, gaps.equations)
    accelerations = jax.jit(partial(accelerations_of, scheme, base))
    state = with_gained_speeds(state, accelerations(state, params)[1])
    _, opens, slips, stops = jnp.split(occurs, [count, 2 * count, 2 * count + own])
    frictions = _Frictions.before(gaps, scheme, state, before)
    closed = before.active[-len(gaps.switches) :][:count]
    gap, slip = _gaps_at(gaps, scheme.system, state, params), _slips(gaps, scheme, state, params)
    W, motions = compliance(base, jnp.concatenate([gap.slope, slip.slope]), state, params)

    e = gaps.restitutions(plain(params), gap.rate.dtype) if count else gap.rate
    collision = Collision.of(gap, e, closed, is_still)
    w = jnp.where((frictions.sticks & is_still) | stops, 0.0, slip.rate)
    impact = _Impact(
        W, jnp.concatenate([collision.rate, w]), collision.first, collision.members, collision.e,
        frictions,
    )  # fmt: skip
    hit = impact.decided()
    rate, w = jnp.split(impact.velocity + matvec(W, hit.impulses), [count])
    w = jnp.where(hit.rubs[:own] & ~hit.rubs[-1], 0.0, w)

    after = state._replace(v=state.v + matvec(motions.T, hit.impulses))
    qdd, _ = accelerations(after, params)
    r, size = _accelerations_of_rows(gaps, scheme.system, after, qdd, params)
    rests = collision.touches & (jnp.abs(rate) <= gap.calm) & ~opens
    was_hit = (hit.impulses != 0).any()
    # One that has just slipped slides against its multiplier, and one that slides goes on.
    forced = slips & ~was_hit & frictions.pressed(rests)
    moving = (jnp.abs(w) > slip.still) & ~forced & frictions.pressed(rests)
    goes_on = is_still & ~was_hit & (w * frictions.direction > 0)
    direction = jnp.where(goes_on, frictions.direction, jnp.sign(w))
    direction = jnp.where(forced, -jnp.sign(frictions.multipliers), direction)
    direction = jnp.where(moving | forced, direction, 0.0)
    contact = _contact(W, r, size, rests, frictions, moving, direction, forced)

    found, on = contact.found, frictions.pressed(contact.found.pushes)
    slides = (found.sticks, contact.direction > 0, contact.direction < 0, contact.held)
    few = jnp.maximum(collision.members.sum(), rests.sum()) <= MOST
    is_solved = hit.solved & found.solved
    status = jnp.where(is_solved, int(Status.OK), int(Status.CONTACT_UNSOLVED))
    status = jnp.where(few, status, int(Status.TOO_MANY_CONTACTS)).astype(jnp.int32)
    flags = jnp.concatenate([on & kind for kind in slides])
    decisions = GapDecisions(
        hit.hit, hit.hit & collision.rebounds & hit.rebounds, found.pushes, hit.rubs, flags
    )
    return Decided(decisions, status, state.speeds, found.forces[:count])


def _gaps_at(gaps: Gaps, system: System, state: MotionState, params: Params) -> GapStates:
    if gaps.count:
        return gap_states(gaps, system, state, params)
    none = jnp.zeros(0, state.q.dtype)
    return GapStates(none, jnp.zeros((0, state.v.size), none.dtype), *[none] * 5)


def _contact(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    rests: Bool[Array, " C"], frictions: _Frictions, moving: Bool[Array, " F"],
    direction: Float[Array, " F"], forced: Bool[Array, " F"],
) -> _Pass:  # fmt: skip
    """Which gaps push, and what frictions do, by the accelerations without forces."""
    on = frictions.pressed(rests)

    def a_pass(_: Any, last: _Pass) -> _Pass:
        limit = jnp.where(last.box | last.held, frictions.static, frictions.kinetic)
        limit = jnp.where(on, jnp.where(last.box, limit, last.direction * limit), 0.0)
        law = Coulomb(last.box, limit[:, None] * frictions.G, limit * frictions.offset)
        found = shared_forces(W, r, size, rests, law, coulomb_forces(W, r, rests, law))
        is_open = has_alternative(W, r, size, rests, law, found)
        found = found._replace(solved=found.solved & ~is_open)
        direction = jnp.where(last.box, found.direction, last.direction)
        acts = jnp.concatenate([found.pushes, found.sticks])
        held = on & ~moving & (direction != 0) & are_kept(W, acts, len(rests))
        return _Pass(found.sticks, direction, held, found)

    nothing = ContactForces(
        jnp.zeros_like(r), jnp.zeros_like(rests), jnp.zeros_like(on), jnp.zeros_like(direction),
        jnp.asarray(True),
    )  # fmt: skip
    start = _Pass(on & ~moving & ~forced, direction, forced, nothing)
    end: _Pass = jax.lax.fori_loop(0, _PASSES, a_pass, start)
    return end


class _Hit(NamedTuple):
    """What an impact does."""

    impulses: Float[Array, " R"]
    hit: Bool[Array, " C"]
    rubs: Bool[Array, " S"]  # frictions that stick, slide forward and backward; are they reversed
    solved: Bool[Array, ""]
    gain: Float[Array, ""]  # of energy
    rebounds: Bool[Array, ""]  # whether any gap may


class _Impact(NamedTuple):
    """An impact of C gaps with F frictions."""

    W: Float[Array, "R R"]
    velocity: Float[Array, " R"]
    first: Bool[Array, " C"]
    members: Bool[Array, " C"]
    e: Float[Array, " C"]
    frictions: _Frictions

    def decided(self) -> _Hit:
        """By the first of three laws that does not add energy; the last one cannot."""
        laws = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]) if len(self.e) else np.zeros((1, 2))
        hits = jax.lax.map(self._by_law, jnp.asarray(laws, self.e.dtype))
        size = matvec(jnp.abs(hits.impulses), jnp.abs(self.velocity))
        share = float(jnp.finfo(size.dtype).eps) ** 0.5
        fits = hits.solved & (hits.gain <= share * size)
        index = jnp.where(fits.any(), jnp.argmax(fits), len(laws) - 1)
        is_chosen = np.arange(len(laws)) == index

        def pick(x: Array) -> Array:
            return jnp.where(is_chosen.reshape(-1, *[1] * (x.ndim - 1)), x, 0).sum(0, dtype=x.dtype)

        hit: _Hit = jax.tree.map(pick, hits)
        return hit

    def _by_law(self, law: Float[Array, " 2"]) -> _Hit:
        G, dtype = self.frictions.G, self.e.dtype
        rate, w = jnp.split(self.velocity, [len(self.e)])
        e = law[0] * self.e
        goal = jnp.where(self.first, 1 + e, 1.0) * rate
        # A force without gaps has no impulse.
        touches = matvec(G, self.members.astype(dtype)) > 0
        limits = jnp.where(touches, self.frictions.kinetic, 0.0)[:, None] * G
        coulomb = Coulomb(touches, limits, jnp.zeros_like(w))
        r = jnp.concatenate([goal, (1 + law[1] * matvec(G, e)) * w])
        found = coulomb_forces(self.W, r, self.members, coulomb)
        P = jnp.where(self.first.any(), found.forces, 0.0)
        rubs = matvec(G, (found.pushes & self.members).astype(dtype)) > 0
        kinds = (found.sticks, found.direction > 0, found.direction < 0)
        return _Hit(
            P, found.pushes, jnp.concatenate([*(rubs & kind for kind in kinds), law[1:] > 0]),
            found.solved, P @ (self.velocity + matvec(self.W, P) / 2), law[0] > 0,
        )  # fmt: skip


def _accelerations_of_rows(
    gaps: Gaps, system: System, state: MotionState, qdd: Float[Array, " k"], params: Params
) -> tuple[Float[Array, " R"], Float[Array, " R"]]:
    """The accelerations of gaps and slips without any force, zero within round-off, and terms."""
    q, v, t = state.q, state.v, state.t
    rows = [c.rows(q, v, t, params) for c in (*gaps_of(gaps, system), *slips_of(gaps, system))]
    A, b = (jnp.concatenate(x) for x in zip(*rows, strict=True))
    w, size = matvec(A, qdd) - b, matvec(jnp.abs(A), jnp.abs(qdd)) + jnp.abs(b)
    eps = ROUNDING * float(jnp.finfo(q.dtype).eps)
    return jnp.where(jnp.abs(w) <= eps * size, 0.0, w), size


def after_rubbing(
    gaps: Gaps, scheme: Scheme, decisions: GapDecisions, state: MotionState, params: Params,
    user_params: Params,
) -> Float[Array, " k"]:  # fmt: skip
    """The velocities after an event, by the impulses of gaps, frictions and constraints."""
    q, v, t = state.q, state.v, state.t
    base = without_gaps(scheme.system, gaps.equations)
    of_gaps, slips = gaps_of(gaps, scheme.system), slips_of(gaps, scheme.system)
    size = len(slips)
    rub_sticks, rub_forward, rub_backward, reverses = jnp.split(
        decisions.rubs, [size, 2 * size, 3 * size]
    )
    sticks = decisions.slides[:size]
    acts = jnp.concatenate([decisions.hit | decisions.closed, rub_sticks | sticks])
    slip_slope = jnp.concatenate([c.jacobian(q, v, t, params) for c in slips])
    slope = jnp.concatenate([*(c.velocity_jacobian(q, t, params) for c in of_gaps), slip_slope])
    G = jnp.asarray(_of_gaps(gaps, q.dtype), q.dtype)
    e = jnp.zeros(0, q.dtype)
    if gaps.count:
        e = jnp.where(decisions.rebounds, gaps.restitutions(user_params, q.dtype), 0.0)
    e = jnp.concatenate([e, jnp.where(reverses & rub_sticks, matvec(G, e), 0.0)])

    def rates(v: Array) -> Array:
        return jnp.concatenate([
            *(c.speed(q, v, t, params) for c in of_gaps), *(c.value(q, v, t, params) for c in slips)
        ])  # fmt: skip

    goal = -e * rates(v)
    A = base.dynamics.velocity_jacobian(q, v, t, params)
    rows = jnp.concatenate([A, jnp.where(acts[:, None], slope, 0.0)])
    mass = metric(metric_mass(base, q, v, t, params), rows, LDL())
    limits = jnp.stack([f.limit("kinetic", user_params, q.dtype) for f in gaps.frictions])
    pull = (rub_forward.astype(q.dtype) - rub_backward.astype(q.dtype)) * limits

    def corrected(v: Array) -> tuple[Array, Array]:
        wrong: Any = jnp.where(acts, rates(v) - goal, 0.0)
        wrong = jnp.concatenate([base.dynamics.velocity_level(q, v, t, params), wrong])
        change, impulses = mass.min_norm_solve(wrong)
        return v - change, -impulses[len(A) : len(A) + gaps.count]

    if gaps.count:
        # The impulses of slips, against them, are those of gaps times their limits.
        free = jnp.stack([mass.mass.upper(mass.mass.lower(row)) for row in slip_slope])
        _, pushes = corrected(v)
        by_slips = jnp.stack([corrected(v + row)[1] - pushes for row in free], axis=1)
        matrix = jnp.eye(size, dtype=q.dtype) + pull[:, None] * (G @ by_slips)
        slipped = QR().factor(matrix).min_norm_solve(-pull * matvec(G, pushes))[0]
        v = v + matvec(free.T, slipped)
    for _ in range(2):
        v, _ = corrected(v)
    return v
