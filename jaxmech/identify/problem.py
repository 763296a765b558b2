"""The least-squares problem: residuals of all segments, continuity, priors, and their derivatives.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are those of the parameters, z (p,), and behind
them those of each initial state, u. The compiled programs simulate; all else is NumPy.

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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmech.identify.parameters import ParameterLayout
from jaxmech.identify.recording import Inputs, Recording
from jaxmech.integrate import AbstractDerivative, FixedSteps, ForwardMode, ReverseMode, Scheme
from jaxmech.run import quickest_together, simulate, slopes_by_groups
from jaxmech.state import Start, begin
from jaxmech.system import Params, Signal, System
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.checks import require_positive
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.text import setting

NORMAL = 1.482602218505602  # standard deviation of a normal distribution in medians of |r|


@dataclass(frozen=True)
class Huber:
    """The Huber loss, for recordings with outliers: r^2 / 2 up to `scale`, a straight line beyond.

    It is convex, so it does not add local minima. Instead of r^2 / 2 of a residual r, in units of
    the noise, a fit minimizes the loss rho(r), by a sequence of weighted least-squares fits with
    the weights w(r) = rho'(r) / r (Huber and Ronchetti, "Robust Statistics", 2009, chapter 7). The
    unit is the median of |r|, which outliers hardly change, divided by that of a normal
    distribution.

    Args:
        scale: residual, in units of the noise, from which the loss is linear. With the default and
            normal noise, an interval is 2.6 % longer than with least squares.

    Raises:
        ValueError: if the scale is not positive.
    """

    scale: float = setting(
        1.345, "residual, in units of the noise, from which the loss is straight"
    )

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)

    def value(self, r: Any) -> Any:
        """The loss of residuals in units of the noise, of NumPy or JAX."""
        xp = r.__array_namespace__()
        inside = xp.minimum(xp.abs(r), self.scale)
        return 0.5 * inside**2 + self.scale * (xp.abs(r) - inside)

    def weight(self, r: HostArray) -> HostArray:
        """The weights of the squares: 1, or scale / |r|."""
        return self.scale / np.maximum(np.abs(r), self.scale)

    def slope(self, r: HostArray) -> HostArray:
        """The second derivative of the loss: 1, or 0."""
        return np.where(np.abs(r) <= self.scale, 1.0, 0.0)


def with_inputs(params: Params, inputs: Inputs) -> Params:
    """The parameters of a motion with these inputs."""
    return {**params, **inputs} if inputs else params


class Segments(eqx.Module):
    """S segments of T times, as arrays."""

    ts: Float[Array, "S T"]  # [s]; short segments are padded with times close to their last
    observed: Float[Array, "S T d"]  # 0 where nothing was measured
    weights: Float[Array, "S T d"]  # 0 where nothing was measured
    q0: Float[Array, "S k"]  # start variables, recorded or guessed
    v0: Float[Array, "S l"]
    last: Int[Array, " S"]  # index of the last time before the padding
    following: Int[Array, " S"]  # the next segment of the same recording, or the segment itself
    inputs: dict[str, Signal]  # signals in the places of parameters

    @property
    def start_size(self) -> int:
        """The number k + l of the start variables and their velocities."""
        return self.q0.shape[1] + self.v0.shape[1]

    def inputs_of(self, k: Any) -> dict[str, Signal]:
        inputs: dict[str, Signal] = jax.tree.map(lambda rows: rows[k], self.inputs)
        return inputs


class SegmentOrigin(NamedTuple):
    """The origin of the rows of the segments."""

    recordings: tuple[Recording, ...]
    recording: np.ndarray  # index of the recording of each segment, (S,)
    rows: tuple[np.ndarray, ...]  # for each segment, the indices of its samples among its times
    samples: tuple[np.ndarray, ...]  # for each segment, the indices of these in the recording

    @property
    def first(self) -> np.ndarray:
        """Flags of the segments that begin a recording, (S,)."""
        return np.diff(self.recording, prepend=-1) != 0

    def gathered(self, values: Any) -> tuple[np.ndarray, ...]:
        """Values of the segments (S, T, d) as one array (samples, d) for each recording."""
        values = np.asarray(values)
        arrays = tuple(np.full((len(r.ts), values.shape[-1]), np.nan) for r in self.recordings)
        for k, (rows, samples) in enumerate(zip(self.rows, self.samples, strict=True)):
            arrays[self.recording[k]][samples] = values[k, rows]
        return arrays


Known = Array | np.ndarray
Observe = Callable[[Array, Array, Array, Params], Array]


@dataclass(frozen=True)
class FitProblem:
    """The simulation and its comparison with recordings; hashable."""

    scheme: Scheme
    observe: Observe  # observe(q, v, t, params) returns the sensor values, (d,)
    start: Start | None  # start(q0, v0, params) returns the state; None projects q0 and v0
    layout: ParameterLayout

    @property
    def system(self) -> System:
        return self.scheme.system


class Data(eqx.Module):
    """The numbers of a problem; without the axis S those of one segment."""

    segments: Segments
    leaves: tuple[Array, ...]  # of the parameters where the fit begins
    along: Float[Array, "*S kl i"]  # directions of start variables and rates; i = 0 if all are held

    @property
    def free_starts(self) -> int:
        """The number i of free numbers of each initial state."""
        return self.along.shape[2]

    def parts(self, y: Any, size: int) -> tuple[Any, Any]:
        """z (p,) and u (S, i) of the unknowns."""
        return y[:size], y[size:].reshape(len(self.along), self.free_starts)

    def start_changes(self, u: Float[Known, "S i"]) -> Float[Array, "S kl"]:
        """Changes of the start variables and of their rates."""
        return jnp.einsum("ski,si->sk", self.along, u)


class Conditions(eqx.Module):
    """Conditions on the unknowns besides the measurements; a weight is 1 / standard deviation."""

    prior_mean: Float[Known, " p"]
    prior_weight: Float[Known, " p"]  # 0 without a prior
    start_weight: Float[Known, "S kl"]  # of the start variables and their rates
    jump_weight: Float[Known, " nm"]  # of the jumps between segments
    sensor_weight: Float[Known, " d"]  # factors on the weights of the samples; 1 if these are given
    sample_weight: Float[Known, "#S #T #d"]  # factors on residuals, of a robust loss


class SegmentRun(eqx.Module):
    """A simulated segment."""

    predicted: Float[Array, "*S T d"]  # predicted sensor values
    residual: Float[Array, "*S T d"]  # weight * (predicted - observed)
    begin: Float[Array, "*S nm"]  # initial state
    end: Float[Array, "*S nm"]  # final state
    status: Any
    error: Float[Array, "*S"] | None  # of the integration, relative; None with fixed steps


class Slopes(NamedTuple):
    """Derivatives of segments by the p + i numbers that each depends on."""

    residual: Float[Array, "*S pi T d"]
    begin: Float[Array, "*S pi nm"]
    end: Float[Array, "*S pi nm"]


def run_segment(
    problem: FitProblem, z: Array, u: Array, data: Data, derivative: AbstractDerivative
) -> SegmentRun:
    """Simulate one segment, whose data have no axis S."""
    s = data.segments
    params = with_inputs(problem.layout.params(z, data.leaves), s.inputs)
    params = problem.system.with_outputs(params)
    q0, v0 = jnp.split(jnp.concatenate([s.q0, s.v0]) + data.along @ u, [s.q0.size])
    q, v = begin(problem.system, problem.start, q0, v0, s.ts[0], params)
    ways = problem.scheme.policies | {"derivative": derivative, "throw": False}
    sol = simulate(problem.system, q, v, s.ts, params, **ways)

    def sensors(q: Array, v: Array, memory: Array, t: Array) -> Array:
        return problem.observe(q, v, t, problem.system.with_outputs(params, memory))

    predicted = jax.vmap(sensors)(sol.q, sol.v, sol.memory, s.ts)
    residual = jnp.where(s.weights > 0, s.weights * (predicted - s.observed), 0.0)
    state = jnp.concatenate([sol.q, sol.v], axis=1)
    # An estimate for fixed steps would cost a tenth of the run, and is known at the end of a fit.
    error = None if isinstance(problem.scheme.steps, FixedSteps) else sol.integration_error
    return SegmentRun(predicted, residual, state[0], state[s.last], sol.status, error)


def _over_segments(fn: Callable[[Array, Data], Any], data: Data, u: Array) -> Any:
    def of_segment(u: Array, segment: Segments, along: Array) -> Any:
        return fn(u, Data(segment, data.leaves, along))

    return jax.vmap(of_segment)(u, data.segments, data.along)


@jit_of("problem")
def runs(problem: FitProblem, y: Known, data: Data) -> SegmentRun:
    """Simulate all segments; differentiable in reverse mode."""
    z, u = data.parts(y, problem.layout.size)
    return _over_segments(lambda u, part: run_segment(problem, z, u, part, ReverseMode()), data, u)


@jit_of("problem", is_frame=True, is_finite=True, is_brief=True)
def linearized(
    problem: FitProblem, y: Known, data: Data
) -> tuple[SegmentRun, Slopes, Float[Array, " p"], Float[Array, "p p"]]:
    """All segments with their derivatives, and the fitted numbers with theirs by z.

    Several directions of a segment share a trajectory.
    """
    z, u = data.parts(y, problem.layout.size)

    def slopes(u: Array, segment: Data) -> tuple[Slopes, SegmentRun]:
        def whole(x: Array) -> tuple[Slopes, SegmentRun]:
            run = run_segment(problem, x[: z.size], x[z.size :], segment, ForwardMode())
            return Slopes(run.residual, run.begin, run.end), run

        x = jnp.concatenate([z, u])
        return slopes_by_groups(whole, x, quickest_together(len(data.along), x.size, x.dtype))

    by_segment, run = _over_segments(slopes, data, u)
    numbers = partial(problem.layout.numbers, leaves=data.leaves)
    return run, by_segment, numbers(z), jax.jacfwd(numbers)(z)


@jit_of("problem")
def half_squares(problem: FitProblem, ys: Known, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals at many points (K, size of y), as one batch."""

    def half_square(y: Known) -> Array:
        run = runs(problem, y, data)
        jumped = conditions.jump_weight[None] * jumps(run.end, run.begin, data)
        other = outer_rows(problem, data, conditions, y)
        residual = conditions.sensor_weight[None, None] * run.residual
        return 0.5 * ((residual**2).sum() + (jumped**2).sum() + (other**2).sum())

    return jax.vmap(half_square)(ys)


def jumps(ends: Known, begins: Known, data: Data) -> Float[Array, "S nm"]:
    """The final state of each segment minus the initial state of the next one, zero without one."""
    following = data.segments.following
    continues = following != jnp.arange(len(following))
    return jnp.where(continues[:, None], ends - begins[following], 0.0)


def outer_rows(problem: FitProblem, data: Data, conditions: Conditions, y: Known) -> Array:
    """Residuals of the priors of parameters and initial states, (p + S (k + l),)."""
    z, u = data.parts(y, problem.layout.size)
    numbers = problem.layout.numbers(z, data.leaves)
    prior = conditions.prior_weight * (numbers - conditions.prior_mean)
    starts = conditions.start_weight * data.start_changes(u)
    return jnp.concatenate([prior, starts.ravel()])


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
        params = self.problem.layout.params(at.y[: at.numbers.size], self.data.leaves)
        return jax.tree.map(jnp.asarray, params)

    @property
    def seen(self) -> np.ndarray:
        """Flags of the measurements, (S, T, d)."""
        return np.asarray(self.data.segments.weights) > 0

    @property
    def count(self) -> int:
        return sum(recording.count for recording in self.origin.recordings)

    @property
    def unknowns(self) -> int:
        """The number of unknowns; starts of later segments are tied to the segments before."""
        free_starts = np.any(np.asarray(self.data.along), axis=1)[self.origin.first]
        return self.problem.layout.size + int(free_starts.sum())


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


def outer(task: Task, at: Point, conditions: Conditions) -> tuple[np.ndarray, np.ndarray]:
    """The residuals of the priors of initial states, (S, k + l), and of parameters, (p,)."""
    _, u = task.data.parts(at.y, at.numbers.size)
    starts = np.einsum("ski,si->sk", np.asarray(task.data.along, float), u)
    numbers = at.numbers - np.asarray(conditions.prior_mean)
    return np.asarray(conditions.start_weight) * starts, np.asarray(
        conditions.prior_weight
    ) * numbers


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
            return np.stack([rows @ by_y for rows, by_y in zip(by_segment, maps, strict=True)])

    starts, prior = outer(task, at, conditions)
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
        parts.append((starts, by_unknowns(by_segment)))
    weight = np.asarray(conditions.prior_weight, float)
    known = np.flatnonzero(weight > 0)
    by_y = np.zeros((known.size, maps[0].shape[1]))
    by_y[:, :p] = weight[known, None] * at.by_z[known]
    recording = [np.repeat(task.origin.recording, values.shape[1]) for values, _ in parts]
    values = np.concatenate([*(values.ravel() for values, _ in parts), prior[known]])
    slopes = np.concatenate([*(x.reshape(-1, x.shape[2]) for _, x in parts), by_y])
    # All of them are infinite if one of the numbers cannot be squared, or is NaN.
    with np.errstate(invalid="ignore"):
        good = np.abs(values).max() < _LARGEST and np.abs(slopes).max() < _LARGEST
    if not good:
        values, slopes = np.full(values.shape, np.inf), np.zeros(slopes.shape)
    rows = np.concatenate([*recording, np.full(known.size, -1)])
    return ResidualRows(values, slopes[:, :-1], rows, slopes[:, -1])


def column_sizes(J: np.ndarray) -> np.ndarray:
    """The lengths of the columns of a matrix (K, P), 1 where one is zero, (P,)."""
    sizes = np.linalg.norm(J, axis=0)
    return np.where(sizes > 0, sizes, 1.0)


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
