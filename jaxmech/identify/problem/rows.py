"""The rows of the least-squares problem at one point: residuals and derivatives, in NumPy.

The residuals r (N,) of a segment and their derivatives J (N, P) are reduced to a triangle,
[J r] = Q [[R, c], [0, rho]] with orthonormal Q. The methods of Gauss-Newton type depend on
J^T J = R^T R, J^T r = R^T c and r^T r = c^T c + rho^2 alone, so the P + 1 numbers (c, rho) with the
derivatives (R, 0) replace all N.

Where segments must join, their initial states are eliminated by the conditions that no jump is
left. With the unknowns z of the parameters and u_k of the initial state of segment k, and
matrices P_k whose rows span the changes of the next initial state, the linearized conditions

    P_k (j_k + d end_k(z, u_k) - d begin_k+1(z, u_k+1)) = 0

of the segments of a recording are A_z dz + A_u du = -h. Of A_u^T = Q_1 R remain

    du = -Q_1 R^-T (h + A_z dz) + Q_2 w,

as many numbers w as a single initial state has (Bock 1987; null space method, Nocedal and Wright
2006, section 16.2). Unlike the recursion from one segment to the next it does not grow along a
chaotic motion, which is as stable backwards in some directions as forwards in others.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.segments import SegmentOrigin
from jaxmech.identify.problem.least_squares import (
    Conditions,
    Data,
    FitProblem,
    SegmentRun,
    Slopes,
    jumps,
    linearized,
)
from jaxmech.identify.problem.noise import Huber
from jaxmech.system import Params

_RANK = 1e-8  # share of the largest singular value at which a direction counts as dependent
_EXPLODED = 1e100  # numbers above it belong to motions that have exploded
_SMALL = 1e-3  # share of the largest component, below which one has no size of its own


class Condensed(NamedTuple):
    """The numbers (z, u_k) of S segments as functions of P independent numbers (z, w)."""

    maps: np.ndarray  # their derivatives, (S, p + i, P)
    closing: np.ndarray  # their change of smallest norm that closes the jumps, (S, p + i)


def condensed(made: Any, data: Data, recording: np.ndarray) -> Condensed:
    """Eliminate the initial states of the segments of each recording, (S,), but for one."""
    p, unit = len(made.numbers), 1 / state_sizes(made.run.begin)
    # The jumps in units of the size of the states, (S, nm), and the derivatives of final and
    # initial states by z and u_k, (S, nm, p + i).
    jump = unit * _bounded(jumps(made.run.end, made.run.begin, data))
    slopes = made.slopes.end, made.slopes.begin
    ends, begins = (unit[:, None] * np.swapaxes(_bounded(x), 1, 2) for x in slopes)
    size, parts = ends.shape[2], []
    i = size - p
    for number in np.unique(recording):
        chosen = np.flatnonzero(recording == number)
        count = len(chosen)
        A_z, A_u = [np.zeros((0, p + 1))], [np.zeros((0, count * i))]  # h is the last column of A_z
        for k, (here, after) in enumerate(pairwise(chosen)):
            end, begin = ends[here], begins[after]
            U, sizes, _ = np.linalg.svd(begin[:, p:], full_matrices=False)
            P = U[:, sizes > _RANK * sizes.max(initial=0.0)].T
            by_u = np.zeros((len(P), count * i))
            by_u[:, k * i : (k + 1) * i] = P @ end[:, p:]
            by_u[:, (k + 1) * i : (k + 2) * i] = -P @ begin[:, p:]
            A_u.append(by_u)
            A_z.append(P @ np.column_stack([(end - begin)[:, :p], jump[here]]))
        # A first state may be fixed, or a part of it.
        first_moving = begins[chosen[0]][:, p:].any(0)
        moving = np.concatenate([first_moving, np.ones((count - 1) * i, bool)])
        A = np.concatenate(A_u)[:, moving]
        Q, R = np.linalg.qr(A.T, mode="complete")
        rank = len(A)
        du, free = np.zeros((count * i, p + 1)), np.zeros((count * i, len(Q) - rank))
        du[moving] = -Q[:, :rank] @ np.linalg.solve(R[:rank].T, np.concatenate(A_z))
        free[moving] = Q[:, rank:]
        parts.append((chosen, du.reshape(count, i, p + 1), free.reshape(count, i, -1)))
    width = p + sum(free.shape[2] for _, _, free in parts)
    maps, closing = np.zeros((len(ends), size, width)), np.zeros((len(ends), size))
    maps[:, :p, :p] = np.eye(p)
    first = p
    for chosen, du, free in parts:
        maps[chosen, p:, :p], closing[chosen, p:] = du[:, :, :p], du[:, :, p]
        maps[chosen, p:, first : first + free.shape[2]] = free
        first += free.shape[2]
    return Condensed(maps, closing)


def state_sizes(begin: Any) -> np.ndarray:
    """The sizes (nm,) of the components of initial states (S, nm), that of the largest for none."""
    sizes = np.sqrt((_bounded(begin) ** 2).mean(0))
    return np.where(sizes > _SMALL * sizes.max(), sizes, max(sizes.max(), 1e-12))


def _bounded(values: Any) -> np.ndarray:
    """The numbers, but zero where a motion has failed, whose residuals are infinite."""
    x = np.asarray(values, float)
    return np.where(np.abs(x) < _EXPLODED, x, 0.0)


# Numbers of a matrix that one thread decomposes. OpenBLAS hands larger ones to several, which take
# up to 300 times as long to meet where the cores are busy.
_BLOCK = 8192
_LARGEST = 1e150  # numbers above it have squares that overflow


class ResidualRows(NamedTuple):
    """All residuals and their derivatives."""

    values: np.ndarray  # (K,); infinite where the motion fails or explodes
    jacobian: np.ndarray  # by the P independent unknowns, (K, P)
    recording: np.ndarray  # index of the recording that each row belongs to, -1 for a prior, (K,)
    closing: np.ndarray  # change along the step that closes the jumps; 0 if none must vanish, (K,)

    @property
    def finite(self) -> bool:
        """Whether the residuals can be squared."""
        return bool(np.isfinite(self.values).all())

    @property
    def loss(self) -> float:
        """Half the sum of squared residuals."""
        return 0.5 * float(self.values @ self.values) if self.finite else np.inf


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is ready to be solved."""

    problem: FitProblem
    data: Data
    conditions: Conditions
    origin: SegmentOrigin
    longest: float | None  # longest interval between times [s]
    hard: bool  # whether jumps between segments must vanish
    weighted: bool  # whether residuals are in units of the stated standard deviation
    chooses_steps: bool = False  # whether their number follows from the motion
    loss: Huber | None = None  # in place of the squares

    def params(self, at: "Point") -> Params:
        """The parameters at a point."""
        params = self.problem.layout.params(at.y[: at.numbers.size], self.data.leaves)
        return jax.tree.map(jnp.asarray, params)

    @property
    def seen(self) -> np.ndarray:
        """Flags of the measurements, (S, T, d)."""
        return np.asarray(self.data.segments.weights) > 0


class Point(NamedTuple):
    """A task evaluated at unknowns y, with NumPy arrays of double precision.

    The independent unknowns are all of y, unless jumps between segments must vanish (`Task.hard`):
    then they are those of `condensed`.
    """

    y: np.ndarray
    run: SegmentRun
    slopes: Slopes
    numbers: np.ndarray  # that are fitted, (p,)
    by_z: np.ndarray  # their derivatives by the unknowns z, (p, p)
    condensed: Condensed | None = None

    def map_of(self, k: int, data: Data) -> np.ndarray:
        """Derivatives of the p + i numbers of segment k by the independent ones, (p + i, P)."""
        if self.condensed is not None:
            return self.condensed.maps[k]
        p, i = self.numbers.size, data.free_starts
        selection = np.zeros((p + i, self.y.size))
        selection[:p, :p] = np.eye(p)
        selection[p:, p + k * i : p + (k + 1) * i] = np.eye(i)
        return selection


def evaluated(task: Task, y: Any) -> Point:
    """All segments at y, with derivatives."""
    y = np.asarray(y, float)
    return with_joints(task, Point(y, *jax.device_get(linearized(task.problem, y, task.data))))


def with_joints(task: Task, at: Point) -> Point:
    """The point with what is left of its unknowns where jumps must vanish."""
    if not task.hard:
        return at
    return at._replace(condensed=condensed(at, task.data, task.origin.recording))


def samples(at: Point, conditions: Conditions) -> tuple[np.ndarray, np.ndarray]:
    """Residuals (S, T, d) of single samples, and their derivatives.

    The latter are by what each segment depends on, (S, p + i, T, d).
    """
    weight, root = (
        np.asarray(x, float) for x in (conditions.sensor_weight, conditions.sample_weight)
    )
    return root * (weight * at.run.residual), root[:, None] * (weight * at.slopes.residual)


def unrobust(conditions: Conditions) -> Conditions:
    """The conditions without the weights of a robust loss."""
    return replace(conditions, sample_weight=np.ones((1, 1, 1)))


def outer(task: Task, at: Point, conditions: Conditions) -> np.ndarray:
    """The residuals of the priors of parameters and initial states."""
    _, u = task.data.parts(at.y, at.numbers.size)
    starts = np.asarray(conditions.start_weight, float) * task.data.start_changes(u)
    prior = np.asarray(conditions.prior_weight) * (at.numbers - np.asarray(conditions.prior_mean))
    return np.concatenate([np.ravel(starts), prior])


def residual_rows(task: Task, at: Point, conditions: Conditions) -> ResidualRows:
    """All residuals and their derivatives by the independent unknowns.

    They are the triangles of the samples of each segment, then jumps and starts of each, and last
    the priors of the parameters.
    """
    data, p = task.data, at.numbers.size
    closing = np.zeros((len(data.along), p + data.free_starts))
    if at.condensed is not None:
        closing = at.condensed.closing
    maps = [np.column_stack([at.map_of(k, data), x]) for k, x in enumerate(closing)]

    def by_unknowns(by_segment: np.ndarray) -> np.ndarray:
        """Derivatives (S, K, p + i) by the unknowns instead, and along the closing step."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.stack([one @ by_y for one, by_y in zip(by_segment, maps, strict=True)])

    R = triangles(*samples(at, conditions))
    parts = [(R[:, :, -1], by_unknowns(R[:, :, :-1]))]
    following = np.asarray(data.segments.following)
    continues = following != np.arange(len(following))
    if not task.hard and continues.any():
        weight = np.asarray(conditions.jump_weight, float) * continues[:, None]
        ends, begins = (
            by_unknowns(np.swapaxes(np.asarray(x, float), 1, 2))
            for x in (at.slopes.end, at.slopes.begin)
        )
        gaps = weight * (at.run.end - at.run.begin[following])
        parts.append((gaps, weight[:, :, None] * (ends - begins[following])))
    weight = np.asarray(conditions.start_weight, float)
    if weight.any():
        along = weight[:, :, None] * np.asarray(data.along, float)
        by_segment = np.concatenate([np.zeros((*weight.shape, p)), along], axis=2)
        _, u = data.parts(at.y, p)
        parts.append((np.einsum("ski,si->sk", along, u), by_unknowns(by_segment)))
    weight = np.asarray(conditions.prior_weight, float)
    known = np.flatnonzero(weight > 0)
    prior = weight[known] * (at.numbers - np.asarray(conditions.prior_mean, float))[known]
    by_y = np.zeros((known.size, maps[0].shape[1]))
    by_y[:, :p] = weight[known, None] * at.by_z[known]
    recording = [np.repeat(task.origin.recording, values.shape[1]) for values, _ in parts]
    values = np.concatenate([*(values.ravel() for values, _ in parts), prior])
    slopes = np.concatenate([*(x.reshape(-1, x.shape[2]) for _, x in parts), by_y])
    # All of them are infinite if one of the numbers cannot be squared, or is NaN.
    with np.errstate(invalid="ignore"):
        good = np.abs(values).max() < _LARGEST and np.abs(slopes).max() < _LARGEST
    if not good:
        values, slopes = np.full(values.shape, np.inf), np.zeros(slopes.shape)
    rows = np.concatenate([*recording, np.full(prior.size, -1)])
    return ResidualRows(values, slopes[:, :-1], rows, slopes[:, -1])


def triangles(residual: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The triangle [[R, c], [0, rho]] of each of S segments.

    Args:
        residual: residuals of each segment, (S, T, d).
        slopes: their derivatives by P numbers, (S, P, T, d).
    """
    count = len(residual)
    parts = slopes.reshape(count, slopes.shape[1], -1), residual.reshape(count, 1, -1)
    rows = np.swapaxes(np.concatenate(parts, axis=1).astype(float), 1, 2)
    length = _BLOCK // rows.shape[2]
    if length >= 4 * rows.shape[2]:  # so that a triangle is a fraction of its block
        while rows.shape[1] > length:  # the triangles of blocks of rows, one below the other
            blocks, width = -(-rows.shape[1] // length), rows.shape[2]
            padded = np.zeros((count, blocks * length, width))
            padded[:, : rows.shape[1]] = rows
            R: Any = np.linalg.qr(padded.reshape(count, blocks, length, width), mode="r")
            rows = np.asarray(R).reshape(count, -1, width)
    return np.asarray(np.linalg.qr(rows, mode="r"))  # numbers that are not finite stay so
