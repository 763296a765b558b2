"""The rows of the least-squares problem at one point: residuals and derivatives, in NumPy.

The residuals r (N,) of a segment and their derivatives J (N, P) are reduced to a triangle,
[J r] = Q [[R, c], [0, rho]] with orthonormal Q. The methods of Gauss-Newton type depend on
J^T J = R^T R, J^T r = R^T c and r^T r = c^T c + rho^2 alone, so the P + 1 numbers (c, rho) with the
derivatives (R, 0) replace all N.

Where segments must join, their initial states are eliminated by the conditions that no jump is
left. With the free numbers z of the parameters and u_k of the initial state of segment k, and
matrices P_k whose rows span the changes of the next initial state, the linearized conditions

    P_k (j_k + d end_k(z, u_k) - d begin_k+1(z, u_k+1)) = 0

of the segments of a recording are A_z dz + A_u du = -h. Of A_u^T = Q_1 R remain

    du = -Q_1 R^-T (h + A_z dz) + Q_2 w,

as many numbers w as a single initial state has (Bock 1987; null space method, Nocedal and Wright
2006, section 16.2). Unlike the recursion from one segment to the next it does not grow along a
chaotic motion, which is as stable backwards in some directions as forwards in others.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmech.identify.data.segments import SegmentOrigin
from jaxmech.identify.problem.least_squares import (
    Conditions,
    Data,
    FitProblem,
    Linearized,
    jumps,
    linearized,
)
from jaxmech.identify.problem.noise import AbstractLoss

_RANK = 1e-8  # share of the largest singular value at which a direction counts as dependent
_EXPLODED = 1e100  # numbers above it belong to motions that have exploded
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
    return np.where(np.abs(x) < _EXPLODED, x, 0.0)


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


class Evaluator:
    """Evaluates a problem at points y, and keeps the last evaluation.

    The independent unknowns are all of y, unless jumps between segments must vanish (`hard`): then
    they are those that `condensing` leaves.
    """

    def __init__(
        self, problem: FitProblem, data: Data, recording: np.ndarray, *, hard: bool = False
    ) -> None:
        self.problem, self.data, self.hard = problem, data, hard
        self.recording = recording  # of each segment, (S,)
        self.count = 0  # evaluations so far
        self._last: tuple[bytes, Linearized] | None = None
        self._last_rows: tuple[bytes, Conditions, ResidualRows] | None = None
        self._last_condensed: tuple[bytes, Condensed] | None = None

    def at(self, y: np.ndarray) -> Linearized:
        """All segments at y, with derivatives, as NumPy arrays of double precision."""
        y = np.asarray(y, float)
        key = y.tobytes()
        if self._last is None or self._last[0] != key:
            self.remember(y, jax.device_get(linearized(self.problem, y, self.data)))
            self.count += 1
        assert self._last is not None
        return self._last[1]

    def remember(self, y: np.ndarray, made: Linearized) -> None:
        """Take `made` for the evaluation at y."""
        self._last, self._last_rows = (np.asarray(y, float).tobytes(), made), None
        self._last_condensed = None

    def rows(self, y: np.ndarray, conditions: Conditions) -> ResidualRows:
        """All residuals and their derivatives at y."""
        key, last = np.asarray(y, float).tobytes(), self._last_rows
        if last is None or last[0] != key or last[1] is not conditions:
            last = self._last_rows = key, conditions, self._rows(y, conditions)
        return last[2]

    def _rows(self, y: np.ndarray, conditions: Conditions) -> ResidualRows:
        R = triangles(*self.samples(y, conditions))
        parts = [
            (R[:, :, -1], self._by_unknowns(y, R[:, :, :-1])),
            *self._jumps(y, conditions),
            *self._starts(y, conditions),
        ]
        prior, prior_by_y = self._prior(y, conditions)
        counts = [values.shape[1] for values, _ in parts]
        recording = [np.repeat(self.recording, count) for count in counts]
        values = [values.ravel() for values, _ in parts]
        slopes = [slopes.reshape(-1, slopes.shape[2]) for _, slopes in parts]
        by_y = np.zeros((prior.size, slopes[0].shape[1]))
        by_y[:, : prior_by_y.shape[1]] = prior_by_y
        return _checked(
            np.concatenate([*values, prior]),
            np.concatenate([*slopes, by_y]),
            np.concatenate([*recording, np.full(prior.size, -1)]),
        )

    def condensed(self, y: np.ndarray) -> Condensed:
        """What is left of the unknowns by the conditions that jumps vanish."""
        key, last = np.asarray(y, float).tobytes(), self._last_condensed
        if last is None or last[0] != key:
            made = self.at(y)  # which forgets what belongs to another point
            last = self._last_condensed = key, condensed(made, self.data, self.recording)
        return last[1]

    def map_of(self, y: np.ndarray, k: int) -> np.ndarray:
        """Derivatives of the p + i numbers of segment k by the independent ones, (p + i, P)."""
        if self.hard:
            return self.condensed(y).maps[k]
        p, i = self.problem.layout.size, self.data.free_starts
        selection = np.zeros((p + i, y.size))
        selection[:p, :p] = np.eye(p)
        selection[p:, p + k * i : p + (k + 1) * i] = np.eye(i)
        return selection

    def _by_unknowns(self, y: np.ndarray, by_segment: np.ndarray) -> np.ndarray:
        """Derivatives (S, K, p + i) by what each segment depends on, by the unknowns instead.

        In a last column those along the step that closes the jumps.
        """
        closing = np.zeros(by_segment.shape[::2])
        if self.hard:
            closing = self.condensed(y).closing
        maps = (np.column_stack([self.map_of(y, k), x]) for k, x in enumerate(closing))
        with np.errstate(invalid="ignore", over="ignore"):
            return np.stack([one @ by_y for one, by_y in zip(by_segment, maps, strict=True)])

    def samples(self, y: np.ndarray, conditions: Conditions) -> tuple[np.ndarray, np.ndarray]:
        """Residuals (S, T, d) of single samples, and their derivatives.

        The latter are by what each segment depends on, (S, p + i, T, d).
        """
        made, weight = self.at(y), np.asarray(conditions.sensor_weight, float)
        values, slopes = weight * made.run.residual, weight * made.slopes.residual
        root = np.asarray(conditions.sample_weight, float)
        return root * values, root[:, None] * slopes

    def outer(self, y: np.ndarray, conditions: Conditions) -> np.ndarray:
        """The residuals of the priors of parameters and initial states."""
        starts = [values.ravel() for values, _ in self._starts(y, conditions)]
        return np.concatenate([*starts, self._prior(y, conditions)[0]])

    def _prior(self, y: np.ndarray, conditions: Conditions) -> tuple[np.ndarray, np.ndarray]:
        made, weight = self.at(y), np.asarray(conditions.prior_weight, float)
        known = np.flatnonzero(weight > 0)
        away = np.asarray(made.numbers, float) - np.asarray(conditions.prior_mean, float)
        return weight[known] * away[known], weight[known, None] * np.asarray(made.by_z)[known]

    def _jumps(self, y: np.ndarray, conditions: Conditions) -> list[tuple[np.ndarray, np.ndarray]]:
        following = np.asarray(self.data.segments.following)
        continues = following != np.arange(len(following))
        if self.hard or not continues.any():
            return []
        made = self.at(y)
        ends, begins = (
            self._by_unknowns(y, np.swapaxes(np.asarray(x, float), 1, 2))
            for x in (made.slopes.end, made.slopes.begin)
        )
        weight = np.asarray(conditions.jump_weight, float) * continues[:, None]
        values = weight * (made.run.end - made.run.begin[following])
        return [(values, weight[:, :, None] * (ends - begins[following]))]

    def _starts(self, y: np.ndarray, conditions: Conditions) -> list[tuple[np.ndarray, np.ndarray]]:
        weight = np.asarray(conditions.start_weight, float)
        if not weight.any():
            return []
        p = self.problem.layout.size
        along = weight[:, :, None] * np.asarray(self.data.along, float)
        _, u = self.data.parts(np.asarray(y, float), p)
        by_segment = np.concatenate([np.zeros((*weight.shape, p)), along], axis=2)
        return [(np.einsum("ski,si->sk", along, u), self._by_unknowns(y, by_segment))]


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is ready to be solved."""

    problem: FitProblem
    data: Data
    conditions: Conditions
    origin: SegmentOrigin
    y: np.ndarray  # the unknowns to begin with
    longest: float | None  # longest interval between times [s]
    hard: bool  # whether jumps between segments must vanish
    weighted: bool  # whether residuals are in units of the stated standard deviation
    evaluator: Evaluator
    chooses_steps: bool = False  # whether their number follows from the motion
    loss: AbstractLoss | None = None  # in place of the squares

    @property
    def estimates_noise(self) -> bool:
        """Whether weights follow from residuals, in turns with the fit."""
        several = not self.weighted and self.data.segments.observed.shape[2] > 1
        return several or self.loss is not None


def _checked(values: np.ndarray, jacobian: np.ndarray, recording: np.ndarray) -> ResidualRows:
    """The rows, all of them infinite if one of their numbers cannot be squared.

    The last column of the derivatives is that along the step that closes the jumps.
    """
    with np.errstate(invalid="ignore"):
        good = np.abs(values).max() < _LARGEST and np.abs(jacobian).max() < _LARGEST
    if not good:  # false for NaN, too
        values, jacobian = np.full(values.shape, np.inf), np.zeros(jacobian.shape)
    return ResidualRows(values, jacobian[:, :-1], recording, jacobian[:, -1])


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
        while rows.shape[1] > length:
            rows = _triangles_of_blocks(rows, length)
    R: Any = np.linalg.qr(rows, mode="r")  # numbers that are not finite stay so
    return np.asarray(R)


def _triangles_of_blocks(rows: np.ndarray, length: int) -> np.ndarray:
    """The triangles of all blocks of `length` rows, one below the other, (S, k, P + 1)."""
    count, size, width = rows.shape
    blocks = -(-size // length)
    padded = np.zeros((count, blocks * length, width))
    padded[:, :size] = rows
    R: Any = np.linalg.qr(padded.reshape(count, blocks, length, width), mode="r")
    return np.asarray(R).reshape(count, -1, width)
