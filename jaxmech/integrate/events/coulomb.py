"""Coulomb's law among gaps and slips, as a linear complementarity problem.

With the velocities or accelerations a = W lambda + r of gaps (n) and slips (t), normal forces
N = G lambda_n + d and limits mu N, it is

    lambda_t = sigma - mu N,    a_t = xi - eta
    0 <= lambda_n  |  a_n >= 0,    0 <= sigma  |  xi >= 0,    0 <= eta  |  2 mu N - sigma >= 0

(Stewart and Trinkle, Int. J. Numer. Methods Eng. 39, 1996, 2673-2691; Pfeiffer and Glocker,
Multibody Dynamics with Unilateral Contacts, 1996, chapter 5).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmech.linalg import LDL, QR, complementarity, diagonal, matvec

_KEPT = 1e-9  # relative compliance of a slip below which others keep it as it is
_FULL = 1e-12  # relative distance from a limit that counts as none


class Coulomb(NamedTuple):
    """What frictions do, of C gaps and F slips."""

    box: Bool[Array, " F"]  # those whose force is within limits, to be found
    slope: Float[Array, "F C"]  # the limits, or the forces of others against w > 0, per push
    offset: Float[Array, " F"]  # the same without pushes


class ContactForces(NamedTuple):
    """A solution for C gaps and F slips."""

    forces: Float[Array, " R"]  # all of them
    pushes: Bool[Array, " C"]
    sticks: Bool[Array, " F"]
    direction: Float[Array, " F"]  # of those that slide, 1 or -1
    solved: Bool[Array, ""]


def coulomb_forces(
    W: Float[Array, "R R"], r: Float[Array, " R"], members: Bool[Array, " C"], law: Coulomb
) -> ContactForces:
    """Forces of the gaps among `members` and of the frictions."""
    count = len(members)
    Wn, Wt, box = W[:, :count], W[:, count:], law.box
    # a = Wn pushes + Wt (box sigma - slope pushes - offset) + r
    by_pushes, by_sigma = Wn - Wt @ law.slope, jnp.where(box[None], Wt, 0.0)
    r = r - matvec(Wt, law.offset)
    eye, none = jnp.eye(len(box), dtype=r.dtype), jnp.zeros((count, len(box)), r.dtype)
    M = jnp.concatenate([
        jnp.concatenate([by_pushes, by_sigma, jnp.concatenate([none, eye])], axis=1),
        jnp.concatenate([2 * law.slope, -eye, 0 * eye], axis=1),
    ])  # fmt: skip
    r = jnp.concatenate([r, 2 * law.offset])
    own = diagonal(W)
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    unit = jnp.concatenate([unit, 1 / unit[count:]])
    takes_part = jnp.concatenate([members, box, box])
    both, diagonals = takes_part[:, None] & takes_part[None], jnp.eye(len(r), dtype=bool)
    M = jnp.where(both, unit[:, None] * M * unit[None], (diagonals & ~both).astype(M.dtype))
    r = jnp.where(takes_part, unit * r, 0.0)
    largest = jnp.abs(r).max()
    found = complementarity(M, jnp.where(takes_part, r, jnp.where(largest > 0, largest, 1.0)))
    z, is_basic = unit * found.z, found.is_basic & takes_part
    pushes, sigma, _ = jnp.split(z, [count, len(own)])
    is_push, is_sigma, is_eta = jnp.split(is_basic, [count, len(own)])
    friction = jnp.where(box, sigma, 0.0) - matvec(law.slope, pushes) - law.offset
    direction = jnp.where(is_eta, -1.0, 1.0)
    sticks = box & is_sigma & ~is_eta
    return ContactForces(
        jnp.concatenate([pushes, friction]), is_push, sticks,
        jnp.where(box & ~sticks, direction, 0.0).astype(r.dtype), found.solved,
    )  # fmt: skip


def shared_forces(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    members: Bool[Array, " C"], law: Coulomb, found: ContactForces,
) -> ContactForces:  # fmt: skip
    """The solution in which all that can share the load do so, or the one that was found.

    Redundant rows share it with multipliers of minimum norm.
    """
    count, share = len(members), float(jnp.finfo(r.dtype).eps) ** 0.75
    small = share * (size + matvec(jnp.abs(W), jnp.abs(found.forces)))
    rows = jnp.concatenate([members, law.box])
    rows &= jnp.abs(r + matvec(W, found.forces)) <= small
    closed, sticks = jnp.split(rows, [count])
    slides = jnp.where(law.box[:, None], 0.0, law.slope)
    offset = jnp.where(law.box, 0.0, law.offset)
    by_pushes = W[:, :count] - W[:, count:] @ slides
    S = jnp.where(
        rows[:, None] & rows[None], jnp.concatenate([by_pushes, W[:, count:]], axis=1), 0.0
    )
    goal = jnp.where(rows, -(r - matvec(W[:, count:], offset)), 0.0)
    x, _ = QR().factor(S).min_norm_solve(goal)
    pushes, friction = jnp.split(jnp.where(rows, x, 0.0), [count])
    least = share * jnp.abs(pushes).max(initial=0.0)
    limits = matvec(law.slope, pushes) + law.offset
    is_valid = (jnp.abs(matvec(S, x) - goal) <= small).all() & (pushes >= -least).all()
    is_valid &= (~sticks | (jnp.abs(friction) <= (1 - _FULL) * limits)).all()
    is_valid &= ~(law.box & ~sticks).any()
    friction = jnp.where(law.box, friction, -limits)
    shared = ContactForces(
        jnp.concatenate([pushes, friction]), closed & (pushes > least), sticks,
        jnp.zeros_like(friction), found.solved,
    )  # fmt: skip
    most = share * found.forces[:count].max(initial=0.0)
    needed = found._replace(pushes=found.pushes & (found.forces[:count] > most))
    return jax.tree.map(lambda x, y: jnp.where(is_valid, x, y), shared, needed)


def are_kept(W: Float[Array, "R R"], acts: Bool[Array, " R"], count: int) -> Bool[Array, " F"]:
    """Flags of the slips that the rows which act keep as they are."""
    among = jnp.where(acts[:, None] & acts[None], W, 0.0)
    factor = LDL().factor(among)
    columns = jnp.where(acts[:, None], W, 0.0)[:, count:]
    responses = jnp.stack([factor.min_norm_solve(column)[0] for column in columns.T])
    rest = diagonal(W)[count:] - (columns.T * responses).sum(1)
    held: Array = rest <= _KEPT * diagonal(W)[count:]
    return held


def has_alternative(
    W: Float[Array, "R R"], r: Float[Array, " R"], size: Float[Array, " R"],
    rests: Bool[Array, " C"], law: Coulomb, found: ContactForces,
) -> Bool[Array, ""]:  # fmt: skip
    """Whether a gap that opens could as well push, as friction that slides pulls it shut then.

    This is the paradox of Painlevé with two solutions; without any, `coulomb_forces` says so.
    """
    count, share = len(rests), float(jnp.finfo(r.dtype).eps) ** 0.75
    slides = jnp.where(law.box[:, None], 0.0, law.slope)
    own = diagonal(W)[:count] - (W[:count, count:] * slides.T).sum(1)
    small = share * (size + matvec(jnp.abs(W), jnp.abs(found.forces)))
    opens = (r + matvec(W, found.forces) > small)[:count]
    could_push: Array = rests & ~found.pushes & opens & (own < 0)
    return could_push.any()
