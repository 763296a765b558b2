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

A slip in space has two rows and a disc, |x_t| <= s, x_t = -s a_t / |a_t|: with such slips it is a
problem of second-order cones, and solved by an interior-point method.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxmech.linalg import (
    LDL,
    QR,
    column_space_projector,
    complementarity,
    diagonal,
    matvec,
    metric,
)

_FREE = 1e-12  # relative compliance of a row below which equality constraints keep it as it is
_SEARCHES = 20  # of the margin, which needs two or three
_CONES = 50  # steps of the interior-point method, which needs about 15
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


def finite(x: Array) -> Array:
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


def small(x: Array, discs: tuple[int, ...] = ()) -> float:
    """The share of its terms below which a sum counts as zero."""
    return float(jnp.finfo(x.dtype).eps) ** (0.5 if discs else 0.75)


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
    return _cone_forces(W, r, members, law, associated)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def slip_forces(
    discs: tuple[int, ...], W: Float[Array, "F F"], r: Float[Array, " F"], s: Float[Array, " F"],
    box: Bool[Array, " F"],
) -> Float[Array, " F"]:  # fmt: skip
    """The forces of slips in space that minimize 1/2 x^T W x + r^T x within discs of radius s.

    Those outside of the box have none.
    """
    law = Coulomb(box, jnp.zeros((len(r), 0), r.dtype), s, discs)
    return coulomb_forces(W, r, jnp.zeros(0, bool), law).forces


@slip_forces.defjvp
def _slip_forces_jvp(
    discs: tuple[int, ...], primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    """By the conditions of the minimum: W x + r + k x = 0, and |x| = s where k > 0."""
    (W, r, s, box), (dW, dr, ds, _) = primals, tangents
    x = slip_forces(discs, W, r, s, box)
    forces, radius = pairs_of(x, discs), pairs_of(s, discs)[:, 0]
    size = norm(forces)
    bound = (size > (1 - small(r, discs)) * radius) & (radius > 0)
    work = -(forces * pairs_of(matvec(W, x) + r, discs)).sum(1)
    k = jnp.where(bound, jnp.maximum(work, 0.0) / jnp.where(bound, size, 1.0) ** 2, 0.0)
    each = with_pairs(jnp.zeros_like(x), discs, jnp.stack([k, k], axis=1))
    S = jnp.where(box[:, None] & box[None], W, 0.0) + jnp.diag(each)
    rows = jnp.stack(
        [
            jnp.zeros_like(x).at[d : d + 2].set(jnp.where(at, x[d : d + 2], 0.0))
            for d, at in zip(discs, bound, strict=True)
        ]
    )
    inside = jnp.diag(jnp.where(bound, 0.0, 1.0))
    system = jnp.block([[S, rows.T], [rows, inside]])
    change = jnp.where(box, -(matvec(dW, x) + dr), 0.0)
    grown = jnp.where(bound, radius * pairs_of(ds, discs)[:, 0], 0.0)
    dx, _ = QR().factor(system).min_norm_solve(jnp.concatenate([change, grown]))
    return x, dx[: len(x)]


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


def unit(x: Float[Array, "*D 2"], otherwise: Any = 0.0) -> Float[Array, "*D 2"]:
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


class _Cone(NamedTuple):
    """An iterate of the interior-point method, with C gaps and D slips of two rows."""

    x: Float[Array, " R"]  # the forces
    opens: Float[Array, " C"]  # accelerations of gaps
    speed: Float[Array, " D"]
    slip: Float[Array, "D 2"]  # accelerations of slips
    share: Float[Array, ""]  # of the products that the next step is to leave
    wrong: Float[Array, ""]
    goes_on: Bool[Array, ""]
    number: Int[Array, ""]


def _cone_forces(
    W: Float[Array, "R R"], r: Float[Array, " R"], members: Bool[Array, " C"], law: Coulomb,
    associated: bool,
) -> ContactForces:  # fmt: skip
    """The same with slips in space, by an interior-point method.

    The pair of a limit and a force is in a cone, as is that of a speed z and a slip a_t,

        0 <= x_n  |  a_n >= 0,    s z + x_t.a_t = 0,    s a_t + z x_t = 0,    |x_t| <= s,

    and Newton's method follows the solutions with a small positive number m in place of the first
    two zeros (Alizadeh, Haeberly and Overton, SIAM J. Optim. 8, 1998, 746-768). Of solutions that
    are not unique it takes one in the middle: what can push, pushes.
    """
    count, box, eps = len(members), law.box, float(jnp.finfo(r.dtype).eps)
    slides, rest = jnp.where(box[:, None], 0.0, law.slope), jnp.where(box, 0.0, law.offset)
    A = jnp.concatenate([W[:, :count] - W[:, count:] @ slides, W[:, count:]], axis=1)
    r = r - matvec(W[:, count:], rest)
    # Each slip has two rows, of which the second may have nothing in it.
    first = [k for k in range(len(box)) if k - 1 not in law.discs]
    rows = [count + y for k in first for y in (k, k + 1 if k in law.discs else len(box))]
    place = [count + rows.index(count + k) for k in range(len(box))]
    order, slips = np.array([*range(count), *rows]), len(first)
    part = jnp.concatenate([members, box, jnp.zeros(1, bool)])[order]
    A = jnp.pad(A, ((0, 1), (0, 1)))[order][:, order]
    A = jnp.where(part[:, None] & part[None], A, 0.0)
    r = jnp.where(part, jnp.pad(r, (0, 1))[order], 0.0)
    # In units in which all rows are equally compliant, and the largest acceleration is one.
    own = diagonal(A)
    pairs = own[count:].reshape(slips, 2).max(1)
    own = jnp.concatenate([own[:count], jnp.repeat(pairs, 2)])
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    held = jnp.where(box, law.offset, 0.0)[np.array(first)] / unit[count::2]
    largest = jnp.maximum(jnp.abs(unit * r).max(), eps**0.5 * held.max())
    largest = jnp.where(largest > 0, largest, 1.0)
    A, r = unit[:, None] * A * unit[None], unit * r / largest
    r = jnp.where(part, r, jnp.concatenate([jnp.ones(count), jnp.zeros(2 * slips)]))
    takes_part, of_slip = box[np.array(first)], unit[count::2]
    slope = law.slope[np.array(first)] * unit[None, :count] / of_slip[:, None]
    slope = jnp.where(takes_part[:, None], slope, 0.0)
    offset = jnp.maximum(law.offset[np.array(first)] / of_slip / largest, eps)
    offset = jnp.where(takes_part, offset, 1.0)
    work = slope if associated else jnp.zeros_like(slope)
    dslope = jnp.concatenate([slope, jnp.zeros((slips, 2 * slips), r.dtype)], axis=1)
    eye = jnp.eye(len(r), dtype=r.dtype)

    def of_pairs(x: Array) -> Array:
        return x[count:].reshape(slips, 2, *x.shape[1:])

    def inside(x: Array, change: Array) -> Array:
        """The largest step in which positive numbers stay positive."""
        return jnp.where(change < 0, -x / jnp.where(change < 0, change, 1.0), jnp.inf).min()

    def in_cone(s: Array, x: Array, ds: Array, dx: Array) -> Array:
        """The largest step in which |x| stays below s."""
        a, b = ds * ds - (dx * dx).sum(1), s * ds - (x * dx).sum(1)
        c = s * s - (x * x).sum(1)
        root = b * b - a * c
        speed = jnp.sqrt(jnp.maximum(root, 0.0)) - b
        ends = (root >= 0) & (speed > 0)
        step = jnp.where(ends, jnp.maximum(c, 0.0) / jnp.where(ends, speed, 1.0), jnp.inf)
        return step.min()

    def newton(state: _Cone) -> _Cone:
        x, push, z, w, share = state.x, state.opens, state.speed, state.slip, state.share
        xt, s = of_pairs(x), matvec(slope, x[:count]) + offset
        a = matvec(A, x) + r
        wrong_n = a[:count] - push - matvec(work.T, z)
        wrong_t = of_pairs(a) - w
        c0, c1 = s * z + (xt * w).sum(1), s[:, None] * w + z[:, None] * xt
        gap = ((push * x[:count]).sum() + c0.sum()) / (count + slips)
        wrong = jnp.maximum(jnp.abs(wrong_n).max(initial=0.0), jnp.abs(wrong_t).max())
        goal, e = share * gap, xt / s[:, None]
        # dz = z_free + by_change dx, eliminated, and so are the changes of openings and slips.
        z_free = (goal - c0 - (xt * wrong_t).sum(1)) / s
        by_change = (
            -(z / s)[:, None] * dslope
            - ((w / s[:, None])[:, :, None] * of_pairs(eye)).sum(1)
            - (e[:, :, None] * of_pairs(A)).sum(1)
        )
        turns = (
            (z / s)[:, None, None] * of_pairs(eye)
            + e[:, :, None] * by_change[:, None]
            + (w / s[:, None])[:, :, None] * dslope[:, None]
        )
        ratio, least = push / x[:count], eps**0.75 * eye
        top = A[:count] + ratio[:, None] * eye[:count] - work.T @ by_change
        K = jnp.concatenate([top, A[count:] + turns.reshape(2 * slips, len(r))]) + least
        free_t = -c1 / s[:, None] - wrong_t - e * z_free[:, None]
        free_n = (goal - push * x[:count]) / x[:count] - wrong_n + matvec(work.T, z_free)
        goals = jnp.concatenate([free_n, free_t.reshape(-1)])
        change = QR(tolerance=eps).factor(K).min_norm_solve(goals)[0]
        moved, dz = matvec(A, change), z_free + matvec(by_change, change)
        dw, ds = of_pairs(moved) + wrong_t, matvec(slope, change[:count])
        dpush = moved[:count] + wrong_n - matvec(work.T, dz)
        most = jnp.minimum(in_cone(s, xt, ds, of_pairs(change)), in_cone(z, w, dz, dw))
        if count:
            most = jnp.minimum(most, inside(x[:count], change[:count]))
            most = jnp.minimum(most, inside(push, dpush))
        step = jnp.minimum(jnp.maximum(0.9, 1 - gap) * most, 1.0)
        fast = jnp.where(gap > 1e-3, 0.1, 0.01)
        share = jnp.where(step > 0.9, fast, jnp.where(step > 0.5, 0.2, 0.6))
        is_finite = jnp.isfinite(step) & jnp.isfinite(change).all()
        goes_on = ((gap > eps**0.8) | (wrong > eps**0.65)) & is_finite
        step = jnp.where(goes_on, step, 0.0)
        change, dpush, dz, dw = (
            jnp.where(is_finite, y, 0.0) for y in (change, dpush, dz, dw)
        )  # fmt: skip
        return _Cone(
            x + step * change, push + step * dpush, z + step * dz, w + step * dw, share,
            jnp.maximum(gap, wrong), goes_on, state.number + 1,
        )  # fmt: skip

    ones, pair = jnp.ones(len(r), r.dtype), jnp.zeros((slips, 2), r.dtype)
    start = _Cone(
        jnp.concatenate([ones[:count], pair.reshape(-1)]), ones[:count],
        1 / jnp.maximum(matvec(slope, ones[:count]) + offset, 1.0), pair,
        jnp.asarray(0.1, r.dtype), jnp.asarray(1.0, r.dtype), jnp.asarray(True), jnp.asarray(0),
    )  # fmt: skip
    end = jax.lax.while_loop(lambda x: x.goes_on & (x.number < _CONES), newton, start)
    solved = (end.wrong < eps**0.5) & jnp.isfinite(end.x).all()
    x = unit * largest * finite(end.x)
    pushes = jnp.where(members, x[:count], 0.0)
    friction = jnp.where(box, x[np.array(place)], 0.0) - matvec(slides, pushes) - rest
    terms = jnp.concatenate([pushes, jnp.abs(friction) + jnp.abs(law.force(pushes))])
    is_basic = members & (end.x[:count] > end.opens)
    return ContactForces(
        jnp.concatenate([pushes, friction]), terms, is_basic, solved, jnp.zeros_like(members)
    )


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
    slack = float(jnp.finfo(r.dtype).eps) ** (1 / 3 if discs else 0.5)

    def law_of(state: _Pass, share: Any) -> Coulomb:
        each = jnp.where(on, jnp.where(state.box, static * share, state.direction * kinetic), 0.0)
        return Coulomb(state.box, each[:, None] * G, each * offset, discs)

    def a_pass(state: _Pass) -> _Pass:
        # Native code does not know what a loop carries.
        state = state._replace(direction=finite(state.direction))
        # What slips drops to its kinetic limit, and the others are asked again.
        less = jnp.where(leaves & (state.number == 0), slack, 0.0)
        pulled = r + less * jnp.concatenate([size[:count], jnp.zeros_like(size[count:])])
        found = coulomb_forces(
            W, pulled, state.members, law_of(state, 1 - less), goes_on=bool(count and len(on))
        )
        a = pulled + matvec(W, found.forces)
        zero = small(r, discs) * (size + matvec(jnp.abs(W), found.terms))
        # Friction opposes what it lets slip: the other way, what is left is round-off of pivots.
        opposed = (a * found.forces <= 0)[count:]
        slips = both(state.box & (jnp.abs(a) > zero)[count:] & opposed, discs)
        forward = jnp.sign(a[count:])
        if discs:
            forward = with_pairs(forward, discs, unit(pairs_of(a[count:], discs)))
        opens = (a > zero)[:count]
        return _Pass(
            state.members & ~(opens & (less > 0)), state.box & ~slips,
            jnp.where(slips, forward, state.direction), found,
            ~(opens & found.others).any(), found.solved & (slips.any() | (less > 0)),
            state.number + 1,
        )  # fmt: skip

    no, yes = jnp.zeros_like(members), jnp.asarray(True)
    none = ContactForces(jnp.zeros_like(r), jnp.zeros_like(r), no, yes, no)
    box, number = on & ~both(direction != 0, discs), jnp.zeros((), jnp.int32)
    start = _Pass(members, box, direction, none, yes, yes, number)
    most = len(on) + 2

    end = jax.lax.while_loop(lambda x: x.goes_on & (x.number < most), a_pass, start)
    is_solved = end.found.solved & jnp.isfinite(end.found.forces).all()
    forces, terms = finite(end.found.forces), finite(end.found.terms)
    end = end._replace(
        direction=finite(end.direction),
        found=end.found._replace(forces=forces, terms=terms, solved=is_solved),
    )
    pushes = end.found.pushes
    if count:
        pushes, forces = _sharing(W, r, size, end.members, law_of(end, 1.0), end.found)
    solved = end.found.solved & end.is_unique
    return Contact(forces, pushes, end.box, jnp.where(end.box, 0.0, end.direction), solved)


class _Shares(NamedTuple):
    """How contacts share a load."""

    members: Bool[Array, " C"]  # gaps that may push
    forces: Float[Array, " R"]
    is_valid: Bool[Array, ""]
    goes_on: Bool[Array, ""]


def _sharing(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    members: Bool[Array, " C"], law: Coulomb, found: ContactForces,
) -> tuple[Bool[Array, " C"], Float[Array, " R"]]:  # fmt: skip
    """The gaps that push, and all forces: of minimum norm, if they are within their bounds.

    Otherwise those of the solution that was found. Gaps without a push are open, though bodies
    touch there.
    """
    count, share = len(members), small(r, law.discs)
    zero = share * (size + matvec(jnp.abs(W), found.terms))
    calm = jnp.concatenate([members, law.box]) & (jnp.abs(r + matvec(W, found.forces)) <= zero)
    slides = jnp.where(law.box[:, None], 0.0, law.slope)
    rest = r - matvec(W[:, count:], jnp.where(law.box, 0.0, law.offset))
    S0 = jnp.concatenate([W[:, :count] - W[:, count:] @ slides, W[:, count:]], axis=1)

    def shared(state: _Shares) -> _Shares:
        pressed = matvec(law.slope, state.members.astype(r.dtype)) + law.offset > 0
        rows = calm & jnp.concatenate([state.members, law.box & pressed])
        S, within = (jnp.where(rows[:, None] & rows[None], x, 0.0) for x in (S0, W))
        goal = jnp.where(rows, -rest, 0.0)
        if len(law.box):
            # Within the rows of W, as in the law of a run; sliding has other rows in S.
            P = column_space_projector(within)
            x = matvec(P, QR().factor(S @ P).min_norm_solve(goal)[0])
        else:
            x = QR().factor(S).min_norm_solve(goal)[0]
        x = jnp.where(rows, x, 0.0)
        wrong = jnp.where(calm, rest + matvec(S0, x), 0.0)
        pushes, fits = x[:count], (jnp.abs(wrong) <= zero).all()
        pulls = pushes < -share * jnp.abs(pushes).max(initial=0.0)
        least = pulls & (pushes <= pushes.min(initial=0.0))
        pulled = pulls.any()
        return _Shares(
            state.members & ~least, x, fits & ~pulled, fits & pulled & (slides != 0).any()
        )

    end = _Shares(members, jnp.zeros_like(r), jnp.asarray(False), jnp.asarray(True))
    # Those of minimum norm may pull: where others slide, gaps are relieved until none pulls.
    end = jax.lax.while_loop(lambda x: x.goes_on, shared, end) if len(law.box) else shared(end)
    is_valid = end.is_valid & jnp.isfinite(end.forces).all()
    pushes, friction = jnp.split(finite(end.forces), [count])
    least = share * jnp.abs(pushes).max(initial=0.0)
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
        rho = finite(rho)
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
        share = small(x, law.discs)
        share = share**0.75 if law.discs else share  # at a bound without an acceleration
        zero = share * matvec(jnp.abs(W0), jnp.abs(y) + jnp.abs(x) + units)
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
    y, change = finite(y), finite(change)
    # The derivative of the value is that of the Lagrange function of the linear program.
    w = matvec(W0, change)
    rates, along = ratio(w)
    room = units @ rates
    work = w @ forces + change @ matvec(W, x - y) + along @ law.force(y[:count])
    work = work / jnp.where(room > 0, room, 1.0)
    return Margin(rho + work - fixed(work), units, y)
