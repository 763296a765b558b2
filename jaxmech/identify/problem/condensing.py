"""Elimination of the initial states of segments by the conditions that no jump is left.

With the free numbers z of the parameters and u_k of the initial state of segment k, and matrices
P_k whose rows span the changes of the next initial state, the linearized conditions

    P_k (j_k + d end_k(z, u_k) - d begin_k+1(z, u_k+1)) = 0

of the segments of a recording are A_z dz + A_u du = -h. Of A_u^T = Q_1 R remain

    du = -Q_1 R^-T (h + A_z dz) + Q_2 w,

as many numbers w as a single initial state has (Bock 1987; null space method, Nocedal and Wright
2006, section 16.2). Unlike the recursion from one segment to the next it does not grow along a
chaotic motion, which is as stable backwards in some directions as forwards in others.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Data, Linearized, jumps

_RANK = 1e-8  # share of the largest singular value at which a direction counts as dependent
_LARGEST = 1e100  # numbers above it belong to motions that have exploded
_SMALL = 1e-3  # share of the largest component, below which one has no size of its own


class _Joints(NamedTuple):
    """The linearized jumps behind S segments, in units of the size of the states."""

    jump: np.ndarray  # final state less the next initial state, (S, nm)
    end: np.ndarray  # derivatives of the final state by z and u_k, (S, nm, p + i)
    begin: np.ndarray  # derivatives of the initial state, (S, nm, p + i)


class Condensed(NamedTuple):
    """The numbers (z, u_k) of S segments as functions of P independent numbers (z, w)."""

    maps: np.ndarray  # their derivatives, (S, p + i, P)
    closing: np.ndarray  # their change of smallest norm that closes the jumps, (S, p + i)


def condensed(made: Linearized, data: Data, recording: np.ndarray) -> Condensed:
    """Eliminate the initial states of the segments of each recording, (S,), but for one."""
    p, joints = len(made.numbers), _joints(made, data)
    parts = []
    for number in np.unique(recording):
        chosen = np.flatnonzero(recording == number)
        parts.append((chosen, *_eliminated(_Joints(*(x[chosen] for x in joints)), p)))
    width = p + sum(free.shape[2] for _, _, free, _ in parts)
    count, _, size = joints.end.shape
    maps, closing = np.zeros((count, size, width)), np.zeros((count, size))
    maps[:, :p, :p] = np.eye(p)
    first = p
    for chosen, by_z, free, change in parts:
        maps[chosen, p:, :p] = by_z
        maps[chosen, p:, first : first + free.shape[2]] = free
        closing[chosen, p:] = change
        first += free.shape[2]
    return Condensed(maps, closing)


def state_sizes(begin: Any) -> np.ndarray:
    """The sizes (nm,) of the components of initial states (S, nm), that of the largest for none."""
    sizes = np.sqrt((_bounded(begin) ** 2).mean(0))
    return np.where(sizes > _SMALL * sizes.max(), sizes, max(sizes.max(), 1e-12))


def _joints(made: Linearized, data: Data) -> _Joints:
    unit = 1 / state_sizes(made.run.begin)
    jump = unit * _bounded(jumps(made.run.end, made.run.begin, data))
    slopes = made.slopes.end, made.slopes.begin
    end, begin = (unit[:, None] * np.swapaxes(_bounded(x), 1, 2) for x in slopes)
    return _Joints(jump, end, begin)


def _bounded(values: Any) -> np.ndarray:
    """The numbers, but zero where a motion has failed, whose residuals are infinite."""
    x = np.asarray(values, float)
    return np.where(np.abs(x) < _LARGEST, x, 0.0)


def _eliminated(one: _Joints, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of K segments in a row: du/dz (K, i, p), du/dw (K, i, W), and the closing change (K, i)."""
    count, _, size = one.end.shape
    i = size - p
    A_z, A_u = [], []  # with h as the last column of A_z
    for k in range(count - 1):
        U, sizes, _ = np.linalg.svd(one.begin[k + 1][:, p:], full_matrices=False)
        P = U[:, sizes > _RANK * sizes.max(initial=0.0)].T
        by_u = np.zeros((len(P), count * i))
        by_u[:, k * i : (k + 1) * i] = P @ one.end[k][:, p:]
        by_u[:, (k + 1) * i : (k + 2) * i] = -P @ one.begin[k + 1][:, p:]
        A_u.append(by_u)
        by_z = (one.end[k] - one.begin[k + 1])[:, :p]
        A_z.append(P @ np.column_stack([by_z, one.jump[k]]))
    # A first state may be fixed, or a part of it.
    moving = np.concatenate([one.begin[0][:, p:].any(0), np.ones((count - 1) * i, bool)])
    A = np.concatenate([np.zeros((0, count * i)), *A_u])[:, moving]
    right = np.concatenate([np.zeros((0, p + 1)), *A_z])
    Q, R = np.linalg.qr(A.T, mode="complete")
    rank = len(A)
    du, free = np.zeros((count * i, p + 1)), np.zeros((count * i, len(Q) - rank))
    du[moving] = -Q[:, :rank] @ np.linalg.solve(R[:rank].T, right)
    free[moving] = Q[:, rank:]
    return du[:, :p].reshape(count, i, p), free.reshape(count, i, -1), du[:, p].reshape(count, i)
