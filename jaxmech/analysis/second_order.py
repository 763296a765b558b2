"""Whether motions that are possible to first order are possible to second order.

A velocity u of the null space of A belongs to a motion only if A w = -phi''(u, u) has a solution w,
that is, if s . phi''(u, u) = 0 for every s with A^T s = 0. Where such a form is definite on the
null space the pose is rigid, although A leaves it a velocity (Connelly and Whiteley 1996): a point
between two rods in one line moves like this, and a Stewart platform in Fichter's pose.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.analysis.row_dependence import independence
from jaxmech.analysis.states import Pose
from jaxmech.compiler import native_call
from jaxmech.linalg import unit
from jaxmech.properties import mass_scale
from jaxmech.system import Params, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.jit_cache import jit_of

COMBINATIONS = 200  # of several forms, among which a semidefinite one is sought
LARGE = 0.3  # part of the largest rate, of coordinates that are named as moving


class SecondOrder(NamedTuple):
    """The velocities that A allows at a pose, examined to second order.

    Attributes:
        blocked: number of independent velocities that no motion has.
        moving: names of the coordinates that have them.
        is_decided: whether every other velocity can be continued to second order.
    """

    blocked: int = 0
    moving: tuple[str, ...] = ()
    is_decided: bool = True


def second_order(
    system: System, pose: Pose, generic_poses: Sequence[Pose], tolerance: float
) -> SecondOrder:
    """Examine the null space of the constraints on positions at a pose."""
    scale = mass_scale(pose.metric)
    rows, lengths = unit(pose.A_position / scale)
    usual = np.max([unit(p.A_position / scale)[1] for p in generic_poses], axis=0)
    used = lengths > tolerance * usual  # others, as those of a square, have findings of their own
    rank = independence(rows[used], tolerance).rank
    mechanical = system.dynamics.mechanical
    if rank == used.sum() or rank == mechanical:
        return SecondOrder()
    U, _, V = np.linalg.svd(rows[used][:, :mechanical])
    stresses, directions = U[:, rank:], (V[rank:] / scale[:mechanical]).T
    directions = np.vstack([directions, np.zeros((system.n - mechanical, directions.shape[1]))])
    q, _, t, params = pose.state
    bent = np.asarray(_bent(system, directions.astype(q.dtype), q, t, params), float)
    bent = bent[used] / lengths[used, None, None]
    forms = np.einsum("ms,mab->sab", stresses, bent)
    small = tolerance**0.5 * np.abs(bent).max()  # a stress may be zero where a constraint bends
    free = _free_of(forms, small)
    left = np.abs(free.T @ forms @ free).max(initial=0.0)
    blocked = forms.shape[1] - free.shape[1]
    lost = np.linalg.svd(free.T)[2][free.shape[1] :] if free.size else np.eye(forms.shape[1])
    part = np.linalg.norm(directions @ lost.T * scale[:, None], axis=1)
    moving = [
        name
        for name, x in zip(system.coordinates, part, strict=True)
        if blocked and x > LARGE * part.max()
    ]
    return SecondOrder(blocked, tuple(moving), bool(left <= small))


def _free_of(forms: HostArray, small: float) -> HostArray:
    """The largest subspace found on which no combination of the forms is semidefinite, (f, k)."""
    draw = np.random.default_rng(3)
    count = len(forms)
    weights = np.concatenate([np.eye(count), draw.normal(size=(COMBINATIONS * (count > 1), count))])
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    free = np.eye(forms.shape[1])
    for _ in range(forms.shape[1]):
        for combined in np.einsum("cs,sab->cab", weights, free.T @ forms @ free):
            sizes, vectors = np.linalg.eigh(combined)
            if (sizes <= small).all():
                sizes = -sizes
            if (sizes >= -small).all() and (sizes > small).any():
                free = free @ vectors[:, sizes <= small]
                break
        else:
            break
    return free


@jit_of("system", is_frame=True, is_finite=True)
def _bent(system: System, directions: Array, q: Array, t: Array, params: Params) -> Array:
    """The second derivatives of the constraints on positions along directions, (m, f, f)."""

    def bent(directions: Array, q: Array, t: Array, params: Params) -> Array:
        def level(x: Array) -> Array:
            return system.dynamics.position_level(q + directions @ x, t, params)

        return jax.jacfwd(jax.jacfwd(level))(jnp.zeros(directions.shape[1], q.dtype))

    return native_call(bent, directions, q, t, params)
