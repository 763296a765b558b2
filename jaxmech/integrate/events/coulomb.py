"""The law of contact among gaps and slips: the generalized inverse with bounds.

With the accelerations a = W x + r of gaps (n) and slips (t), or their velocities in an impact, and
limits s = mu N + d with the pushes N = x_n, the multipliers x satisfy

    0 <= x_n  |  a_n >= 0,    |x_t| <= s,    x_t = -s sign(a_t) where a_t is not zero.

W has any rank: W x, and so the motion, is unique where limits are given, though x is not. So a
friction slips if and only if its acceleration is not zero; that its own multiplier is at a limit
says nothing where another row can carry the rest. As a linear complementarity problem it is

    x_t = sigma - s,    a_t = xi - eta,
    0 <= x_n  |  a_n >= 0,    0 <= sigma  |  xi >= 0,    0 <= eta  |  2 s - sigma >= 0

(Stewart and Trinkle, Int. J. Numer. Methods Eng. 39, 1996, 2673-2691; Pfeiffer and Glocker,
Multibody Dynamics with Unilateral Contacts, 1996, chapter 5).

A slip in space has two rows and a disc, |x_t| <= s, x_t = -s a_t / |a_t|. It is solved as the box
whose first side touches the disc where x_t does: the rows are turned until it does.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxmech.linalg import LDL, QR, complementarity, diagonal, matvec, metric

_FREE = 1e-12  # relative compliance of a row below which equality constraints keep it as it is
_SEARCHES = 20  # of the margin, which needs two or three
_TURNS = 60  # of the rows of discs, at most
_TOUCHES = 1e-9  # share of its radius within which the side of a box touches a disc there
_NEWTON = 8  # steps towards the force of one disc


def compliance(
    M: Float[Array, "k k"], A: Float[Array, "m k"], slope: Float[Array, "R k"]
) -> tuple[Float[Array, "R R"], Float[Array, "R k"]]:
    """The rates by unit impulses along each row, and the velocities (R, k) that they cause.

    M is the mass matrix, and A has the equality constraints, within which bodies move.
    """
    pair = metric(M, A, LDL())
    free = pair.mass.lower(slope.T).T
    within = free
    if len(A):
        C = pair.mass.lower(A.T).T
        within = jax.vmap(lambda y: y - pair.rows.min_norm_solve(matvec(C, y))[0])(free)
    W = (within[:, None] * within[None]).sum(-1)
    is_held = diagonal(W) <= _FREE * (free * free).sum(1)
    W = jnp.where(is_held[:, None] | is_held[None], 0.0, W)
    return W, jax.vmap(pair.mass.upper)(within)


def _finite(x: Array) -> Array:
    """Numbers with zero for those that are not finite, so that products with zero are folded."""
    return jnp.where(jnp.isfinite(x), x, 0.0)


class Coulomb(NamedTuple):
    """What frictions do, of C gaps and F slips."""

    box: Bool[Array, " F"]  # those whose force is within limits, to be found
    slope: Float[Array, "F C"]  # the limits, or the forces of others against w > 0, per push
    offset: Float[Array, " F"]  # the same without pushes
    discs: tuple[int, ...] = ()  # the first of two neighbours that are one slip in space

    def force(self, pushes: Float[Array, " C"]) -> Float[Array, " F"]:
        """The limits, or the forces of others against w > 0."""
        return matvec(self.slope, pushes) + self.offset


class ContactForces(NamedTuple):
    """A solution for C gaps and F slips."""

    forces: Float[Array, " R"]  # all of them
    terms: Float[Array, " R"]  # of which they are sums
    pushes: Bool[Array, " C"]
    solved: Bool[Array, ""]
    others: Bool[Array, " C"]  # those that push in another solution, if there is one


def small(x: Array) -> float:
    """The share of its terms below which a sum counts as zero."""
    return float(jnp.finfo(x.dtype).eps) ** 0.75


def coulomb_forces(
    W: Float[Array, "R R"], r: Float[Array, " R"], members: Bool[Array, " C"], law: Coulomb,
    associated: bool = False, goes_on: bool = False,
) -> ContactForces:  # fmt: skip
    """Forces of the gaps among `members` and of the frictions.

    The `associated` ones minimize 1/2 x^T W x + r^T x within the bounds: where the load can be
    held without accelerations they hold it, and elsewhere gaps open as fast as slips demand. If the
    search `goes_on`, it looks for another solution.
    """
    if not law.discs:
        return _box_forces(W, r, members, law, associated, goes_on)
    count, first = len(members), np.array(law.discs)
    boxes, touches = law.box[first], max(_TOUCHES, small(r))

    def solved(e: Array) -> ContactForces:
        T = jnp.eye(len(r), dtype=r.dtype)
        for (x, y), k, box in zip(e, first + count, boxes, strict=True):
            turned = jnp.stack([jnp.stack([x, y]), jnp.stack([-y, x])])
            T = T.at[k : k + 2, k : k + 2].set(jnp.where(box, turned, jnp.eye(2, dtype=r.dtype)))
        turned_law = law._replace(discs=())
        x = _box_forces(T @ W @ T.T, T @ r, members, turned_law, associated, goes_on)
        return x._replace(forces=T.T @ x.forces, terms=jnp.abs(T.T) @ x.terms)

    def turned(state: Any) -> Any:
        angle, last, last_turn, _, _, number = state
        e = jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1)
        x = solved(e)
        f, a = (pairs_of(y[count:], law.discs) for y in (x.forces, r + matvec(W, x.forces)))
        s = law.force(x.forces[:count])[first]
        M = jnp.stack([W[k : k + 2, k : k + 2] for k in first + count])
        own = disc_force(M, a - jnp.einsum("kij,kj->ki", M, f), s)
        own = jnp.where((jnp.abs(own) > 0).any(1)[:, None], own, f)
        along, beside = (own * e).sum(1), own[:, 1] * e[:, 0] - own[:, 0] * e[:, 1]
        turn = jnp.where(beside == 0, 0.0, jnp.arctan(beside / jnp.where(along == 0, 1.0, along)))
        # The secant method, from the force of each disc alone.
        change = turn - last_turn
        step = -turn * (angle - last) / jnp.where(change == 0, 1.0, change)
        is_usable = (change != 0) & (jnp.abs(step) < 2 * jnp.abs(turn) + touches) & (number > 0)
        step = jnp.where(is_usable, step, turn / 2)
        off = jnp.abs(f[:, 1] * e[:, 0] - f[:, 0] * e[:, 1])
        fits = ((f * f).sum(1) < s * s) | (off <= touches * s)
        is_held = jnp.trace(M, axis1=1, axis2=2) <= 0
        return angle + step, angle, turn, x, (~boxes | fits | is_held).all(), number + 1

    zeros, no = jnp.zeros(len(first), r.dtype), jnp.asarray(False)
    nothing = ContactForces(
        jnp.zeros_like(r), jnp.zeros_like(r), jnp.zeros_like(members), no, jnp.zeros_like(members)
    )
    _, _, _, x, fits, _ = jax.lax.while_loop(
        lambda state: ~state[4] & (state[5] < _TURNS), turned, (zeros, zeros, zeros, nothing, no, 0)
    )
    return x._replace(solved=x.solved & fits)


def pairs_of(x: Shaped[Array, " F"], discs: tuple[int, ...]) -> Shaped[Array, "D 2"]:
    """The components of slips in space."""
    return jnp.stack([x[k : k + 2] for k in discs])


def with_pairs(x: Array, discs: tuple[int, ...], pairs: Array) -> Array:
    """An array of slips (F,) with other values of those in space, (D, 2) or (D, 1) for both."""
    for k, pair in zip(discs, pairs, strict=True):
        x = x.at[k : k + 2].set(pair)
    return x


def both(flags: Bool[Array, " F"], discs: tuple[int, ...]) -> Bool[Array, " F"]:
    """The flags of slips, of those in space if any of the two components has it."""
    return with_pairs(flags, discs, pairs_of(flags, discs).any(1)[:, None]) if discs else flags


def norm(x: Float[Array, "*D 2"]) -> Float[Array, " *D"]:
    """The norms of pairs, whose derivative is zero where they are."""
    square = (x * x).sum(-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _unit(x: Float[Array, "*D 2"], otherwise: Float[Array, "*D 2"]) -> Float[Array, "*D 2"]:
    """The directions of pairs, or other ones of pairs that are zero."""
    size = norm(x)[..., None]
    return jnp.where(size > 0, x / jnp.where(size > 0, size, 1.0), otherwise)


def disc_force(
    M: Float[Array, "*D 2 2"], r: Float[Array, "*D 2"], s: Float[Array, " *D"]
) -> Float[Array, "*D 2"]:
    """The x that minimizes 1/2 x^T M x + r^T x within |x| <= s.

    x = -(M + k)^-1 r with the smallest k >= 0 of |x| <= s, by Newton's method for 1 / |x| from
    below (More and Sorensen, SIAM J. Sci. Stat. Comput. 4, 1983, 553-572).
    """
    (a, b), (_, d) = ((M[..., k, 0], M[..., k, 1]) for k in range(2))
    largest = (a + d) / 2 + norm(jnp.stack([(a - d) / 2, b], axis=-1))
    held = s > 0
    s = jnp.where(held, s, 1.0)
    least = float(jnp.finfo(r.dtype).eps) * largest

    def at(k: Array) -> tuple[Array, Array]:
        # and the product of x with (M + k)^-1 x
        det = (a + k) * (d + k) - b * b
        det = jnp.where(det > 0, det, 1.0)
        x = jnp.stack(
            [b * r[..., 1] - (d + k) * r[..., 0], b * r[..., 0] - (a + k) * r[..., 1]], -1
        )
        x = x / det[..., None]
        work = (d + k) * x[..., 0] ** 2 - 2 * b * x[..., 0] * x[..., 1] + (a + k) * x[..., 1] ** 2
        return x, work / det

    k = jnp.maximum(norm(r) / s - largest, least)
    for _ in range(_NEWTON):
        x, work = at(k)
        size = norm(x)
        step = size * size * (size / s - 1) / jnp.where(work > 0, work, 1.0)
        k = jnp.maximum(k + step, least)
    x, _ = at(k)
    size = norm(x)
    x = x * jnp.where(size > s, s / jnp.where(size > 0, size, 1.0), 1.0)[..., None]
    return jnp.where(held[..., None], x, 0.0)


def swept_forces(
    W: Float[Array, "F F"], r: Float[Array, " F"], x: Float[Array, " F"], s: Float[Array, " F"],
    discs: tuple[int, ...],
) -> Float[Array, " F"]:  # fmt: skip
    """The forces x of slips (F,), after each of those in space in turn has become the best one.

    That is the x that minimizes 1/2 x^T W x + r^T x within its disc, of radius s.
    """
    for k in discs:
        M, own = W[k : k + 2, k : k + 2], x[k : k + 2]
        others = (r + matvec(W, x))[k : k + 2] - matvec(M, own)
        x = x.at[k : k + 2].set(disc_force(M, others, s[k]))
    return x


def _box_forces(
    W: Float[Array, "R R"], r: Float[Array, " R"], members: Bool[Array, " C"], law: Coulomb,
    associated: bool, goes_on: bool,
) -> ContactForces:  # fmt: skip
    """The same where each slip has one component."""
    count, box = len(members), law.box
    Wn, Wt = W[:, :count], W[:, count:]
    # a = Wn pushes + Wt (box sigma - slope pushes - offset) + r
    by_pushes, by_sigma = Wn - Wt @ law.slope, jnp.where(box[None], Wt, 0.0)
    r = r - matvec(Wt, law.offset)
    eye, none = jnp.eye(len(box), dtype=r.dtype), jnp.zeros((count, len(box)), r.dtype)
    top = jnp.concatenate([by_pushes, by_sigma, jnp.concatenate([none, eye])], axis=1)
    if associated:
        by_eta = jnp.where(box[None], -2 * law.slope.T, 0.0)
        work = [top[:count, : -len(box)] - law.slope.T @ top[count:, : -len(box)], by_eta]
        top = jnp.concatenate([jnp.concatenate(work, axis=1), top[count:]])
        r = jnp.concatenate([r[:count] - matvec(law.slope.T, r[count:]), r[count:]])
    M = jnp.concatenate([top, jnp.concatenate([2 * law.slope, -eye, 0 * eye], axis=1)])
    r = jnp.concatenate([r, 2 * law.offset])
    # In units in which all rows are equally compliant, and those without a part far from closing.
    own = diagonal(W)
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    unit = jnp.concatenate([unit, 1 / unit[count:]])
    takes_part = jnp.concatenate([members, box, box])
    both, diagonals = takes_part[:, None] & takes_part[None], jnp.eye(len(r), dtype=bool)
    M = jnp.where(both, unit[:, None] * M * unit[None], (diagonals & ~both).astype(M.dtype))
    r = jnp.where(takes_part, unit * r, 0.0)
    largest = jnp.abs(r).max()
    r = jnp.where(takes_part, r, jnp.where(largest > 0, largest, 1.0))
    found = complementarity(M, r, goes_on=goes_on)
    pushes, sigma, _ = jnp.split(unit * found.z, [count, len(own)])
    pushes = jnp.where(members, pushes, 0.0)
    friction = jnp.where(box, sigma, 0.0) - law.force(pushes)
    forces = jnp.concatenate([pushes, friction])
    terms = jnp.concatenate([pushes, jnp.abs(friction) + jnp.abs(law.force(pushes))])
    basic, others = (x[:count] & members for x in (found.is_basic, found.others))
    return ContactForces(forces, terms, basic, found.solved, others)


class Contact(NamedTuple):
    """What C gaps and F frictions do from then on."""

    forces: Float[Array, " R"]
    pushes: Bool[Array, " C"]
    sticks: Bool[Array, " F"]
    direction: Float[Array, " F"]  # of those that slide, 1 or -1
    solved: Bool[Array, ""]


class _Pass(NamedTuple):
    """The contacts after some of the frictions have started to slide."""

    members: Bool[Array, " C"]
    box: Bool[Array, " F"]
    direction: Float[Array, " F"]
    found: ContactForces
    is_unique: Bool[Array, ""]
    goes_on: Bool[Array, ""]
    number: Int[Array, ""]


def contact(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    members: Bool[Array, " C"], G: Float[Array, "F C"], limits: Float[Array, "2 F"],
    offset: Float[Array, " F"], on: Bool[Array, " F"], direction: Float[Array, " F"],
    leaves: Bool[Array, ""], discs: tuple[int, ...] = (),
) -> Contact:  # fmt: skip
    """Which gaps push, and what frictions do, by the accelerations r without forces.

    `size` has the terms of r, `G` the gaps that press at the frictions that are `on`, which slide
    in a `direction` or stick, and `offset` what presses beside gaps; `limits` are the static and
    the kinetic ones, per push. If the load `leaves` what all of them can hold, those
    that it leaves by are found with limits, and pushes, that are smaller by a little.
    """
    count, (static, kinetic) = len(members), limits
    slack = float(jnp.finfo(r.dtype).eps) ** 0.5

    def law_of(state: _Pass, share: Any) -> Coulomb:
        each = jnp.where(on, jnp.where(state.box, static * share, state.direction * kinetic), 0.0)
        return Coulomb(state.box, each[:, None] * G, each * offset, discs)

    def a_pass(state: _Pass) -> _Pass:
        # What slips drops to its kinetic limit, and the others are asked again.
        less = jnp.where(leaves & (state.number == 0), slack, 0.0)
        pulled = r + less * jnp.concatenate([size[:count], jnp.zeros_like(size[count:])])
        found = coulomb_forces(
            W, pulled, state.members, law_of(state, 1 - less), goes_on=bool(count and len(on))
        )
        a = pulled + matvec(W, found.forces)
        zero = small(r) * (size + matvec(jnp.abs(W), found.terms))
        slips = both(state.box & (jnp.abs(a) > zero)[count:], discs)
        forward = jnp.sign(a[count:])
        if discs:
            pairs = pairs_of(a[count:], discs)
            forward = with_pairs(forward, discs, _unit(pairs, jnp.zeros_like(pairs)))
        opens = (a > zero)[:count]
        return _Pass(
            state.members & ~(opens & (less > 0)), state.box & ~slips,
            jnp.where(slips, forward, state.direction), found,
            ~(opens & found.others).any(), found.solved & (slips.any() | (less > 0)),
            state.number + 1,
        )  # fmt: skip

    no, yes = jnp.zeros_like(members), jnp.asarray(True)
    none = ContactForces(jnp.zeros_like(r), jnp.zeros_like(r), no, yes, no)
    start = _Pass(
        members,
        on & ~both(direction != 0, discs),
        direction,
        none,
        yes,
        yes,
        jnp.zeros((), jnp.int32),
    )
    most = len(on) + 2

    def finite_pass(state: _Pass) -> _Pass:
        # Native code does not know what a loop carries.
        return a_pass(state._replace(direction=_finite(state.direction)))

    end = jax.lax.while_loop(lambda x: x.goes_on & (x.number < most), finite_pass, start)
    is_solved = end.found.solved & jnp.isfinite(end.found.forces).all()
    forces, terms = _finite(end.found.forces), _finite(end.found.terms)
    end = end._replace(
        direction=_finite(end.direction),
        found=end.found._replace(forces=forces, terms=terms, solved=is_solved),
    )
    pushes = end.found.pushes
    if count:
        pushes, forces = _sharing(W, r, size, end.members, law_of(end, 1.0), end.found)
    solved = end.found.solved & end.is_unique
    return Contact(forces, pushes, end.box, jnp.where(end.box, 0.0, end.direction), solved)


def _sharing(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    members: Bool[Array, " C"], law: Coulomb, found: ContactForces,
) -> tuple[Bool[Array, " C"], Float[Array, " R"]]:  # fmt: skip
    """The gaps that push, and all forces: of minimum norm, if they are within their bounds.

    Otherwise those of the solution that was found. Gaps without a push are open, though bodies
    touch there.
    """
    count, share = len(members), small(r)
    zero = share * (size + matvec(jnp.abs(W), found.terms))
    rows = jnp.concatenate([members, law.box])
    rows &= jnp.abs(r + matvec(W, found.forces)) <= zero
    slides = jnp.where(law.box[:, None], 0.0, law.slope)
    offset = jnp.where(law.box, 0.0, law.offset)
    by_pushes = W[:, :count] - W[:, count:] @ slides
    S = jnp.concatenate([by_pushes, W[:, count:]], axis=1)
    S = jnp.where(rows[:, None] & rows[None], S, 0.0)
    goal = jnp.where(rows, -(r - matvec(W[:, count:], offset)), 0.0)
    x = jnp.where(rows, QR().factor(S).min_norm_solve(goal)[0], 0.0)
    pushes, friction = jnp.split(x, [count])
    least = share * jnp.abs(pushes).max(initial=0.0)
    is_valid = (jnp.abs(matvec(S, x) - goal) <= zero).all() & (pushes >= -least).all()
    sizes = jnp.abs(friction)
    if law.discs:
        sizes = with_pairs(sizes, law.discs, norm(pairs_of(friction, law.discs))[:, None])
    is_valid &= (~law.box | (sizes <= law.force(pushes))).all()
    most = share * found.forces[:count].max(initial=0.0)
    needed = found.pushes & (found.forces[:count] > most)
    closed = jnp.where(is_valid, members & (pushes > least), needed)
    friction = jnp.where(law.box, friction, -law.force(pushes))
    forces = jnp.where(is_valid, jnp.concatenate([pushes, friction]), found.forces)
    acts = jnp.concatenate([closed, jnp.ones_like(law.box)])
    return closed, jnp.where(acts, forces, 0.0)


class Margin(NamedTuple):
    """How far a load is from what contacts can hold."""

    value: Float[Array, ""]  # by which, in units, all pushes and all limits could be less
    units: Float[Array, " R"]
    forces: Float[Array, " R"]  # with which they hold it, if they can


def margin(
    W: Float[Array, "R R"], forces: Float[Array, " R"], members: Bool[Array, " C"], law: Coulomb
) -> Margin:
    """How far a load, which `forces` x hold, is from what contacts can hold.

    It is the largest rho with which there are forces y of the same accelerations, W (y - x) = 0,

        y_n >= rho u_n,    |y_t| <= slope y_n + offset - rho u_t

    in the box, with units u. It is zero where the load leaves what all contacts together can hold.
    The dual of this linear program is a search among mechanisms: the multipliers for some rho that
    minimize the acceleration accelerate along one of them, w = W (y - x), on which the load works
    more than the limits allow from rho - w.(y - x) / (u.|w|) on. Each further mechanism lowers rho,
    until there is no acceleration.
    """
    count, box = len(members), law.box
    fixed = jax.lax.stop_gradient
    x, W0 = fixed(forces), fixed(W)
    law0 = law._replace(slope=fixed(law.slope), offset=fixed(law.offset))
    heaviest = jnp.where(members, jnp.abs(x[:count]), 0.0).max(initial=0.0)
    of_gaps = jnp.where(members, heaviest, 0.0)
    most = jnp.where(box, law0.force(of_gaps), 0.0)
    units = jnp.concatenate([of_gaps, jnp.maximum(most, small(x) * most.max(initial=0.0))])
    units = jnp.where(jnp.concatenate([members, box]), units, 0.0)

    def held(rho: Array) -> Array:
        """The forces with the least acceleration in the bounds of some rho."""
        rho = _finite(rho)
        pushes, less = rho * units[:count], jnp.where(box, rho * units[count:], 0.0)
        offset = law0.force(pushes) - less
        r = matvec(W0[:, :count], pushes) - matvec(W0, x)
        found = coulomb_forces(W0, r, members, law0._replace(offset=offset), True)
        return found.forces + jnp.concatenate([pushes, jnp.zeros_like(less)])

    def ratio(w: Array) -> tuple[Array, Array]:
        """The rates at which slips in the box and openings reduce what a mechanism can hold."""
        slips = jnp.abs(w[count:])
        if law.discs:  # of both components as one
            sizes = norm(pairs_of(w[count:], law.discs))
            sizes = jnp.stack([sizes, jnp.zeros_like(sizes)], axis=1)
            slips = with_pairs(slips, law.discs, sizes)
        slips = jnp.where(box, slips, 0.0)
        along = jnp.where(box, slips, w[count:])
        opens = jnp.where(members, w[:count] - matvec(law0.slope.T, along), 0.0)
        return jnp.concatenate([jnp.maximum(opens, 0.0), slips]), along

    def search(state: Any) -> Any:
        rho, _, w, _, number = state
        y = held(rho)
        moved = matvec(W0, y - x)
        zero = small(x) * matvec(jnp.abs(W0), jnp.abs(y) + jnp.abs(x) + units)
        goes_on = (jnp.abs(moved) > zero).any()
        room = units @ ratio(moved)[0]
        step = jnp.where(room > 0, moved @ (y - x) / jnp.where(room > 0, room, 1.0), 0.0)
        lowered = rho - jnp.where(goes_on, step, 0.0)
        w = jnp.where(goes_on, y - x, w)
        return lowered, y, w, goes_on & (room > 0), number + 1

    start = jnp.ones((), x.dtype), x, jnp.zeros_like(x), jnp.asarray(True), 0
    rho, y, change, _, _ = jax.lax.while_loop(
        lambda state: state[3] & (state[4] < _SEARCHES), search, start
    )
    # What is not finite makes the value NaN, and is no factor of a zero.
    rho = rho + jnp.where(jnp.isfinite(y + change).all(), 0.0, jnp.nan)
    y, change = _finite(y), _finite(change)
    # The derivative of the value is that of the Lagrange function of the linear program.
    w = matvec(W0, change)
    rates, along = ratio(w)
    room = units @ rates
    work = w @ forces + change @ matvec(W, x - y) + along @ law.force(y[:count])
    work = work / jnp.where(room > 0, room, 1.0)
    return Margin(rho + work - fixed(work), units, y)
