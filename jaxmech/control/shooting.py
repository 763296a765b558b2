"""An optimal control problem as one of finitely many numbers: multiple shooting.

The unknowns z are the states y at the nodes, in coordinates along the constraints, the controls of
every interval, and the free parameters theta. A *chart* gives the state of a node: a state on the
constraints, and directions along them; y leads along these, from where the state is projected onto
the constraints. So every node lies on them, and continuity is as many equations as there are
degrees of freedom, which are independent however many of the constraints are redundant.

Each interval is a run of its own. With its numbers w = (y, u, theta) of this start it returns its
cost, where it ends and the path conditions: Jacobians and Hessians are blocks, all of which are one
batch. `NonlinearProgram` is the whole, as Ipopt takes it:
sparse, with bounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.compiler import batched_closure
from jaxmech.integrate import AbstractMethod, FixedSteps, ForwardMode
from jaxmech.run import simulate, slopes_by_groups
from jaxmech.state import onto
from jaxmech.system import Params, Signal, System, extents_at
from jaxmech.utils.jit_cache import jit_of

# Of the running cost, from five states an interval (Boole's rule, of order six).
WEIGHTS = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90
SAMPLED = np.linspace(0.0, 1.0, len(WEIGHTS))


class Ramp(eqx.Module):
    """A control in one interval, as a function of time."""

    begin: Float[Array, ""]
    duration: Float[Array, ""]
    first: Array
    last: Array

    def __call__(self, t: Any) -> Array:
        return self.first + (t - self.begin) / self.duration * (self.last - self.first)


class Charts(NamedTuple):
    """States on the constraints, one for each node, and directions along these.

    Attributes:
        q: coordinates, (N + 1, n).
        v: velocities, (N + 1, m).
        in_q: directions of the coordinates as columns, (N + 1, n, a).
        in_v: directions of the velocities, (N + 1, m, b).
    """

    q: Array
    v: Array
    in_q: Array
    in_v: Array

    @property
    def size(self) -> int:
        """The number of coordinates along the constraints of a node, a + b."""
        return int(self.in_q.shape[-1] + self.in_v.shape[-1])

    def components(self, q: Array, v: Array) -> Array:
        """The components of a state along the directions of one node, from its own."""
        return jnp.concatenate([self.in_q.T @ (q - self.q), self.in_v.T @ (v - self.v)])


@dataclass(frozen=True)
class Transcription:
    """What the functions of the problem depend on besides numbers.

    Attributes:
        system: the system.
        method: that of `simulate`.
        per_sample: steps for each of the four parts of an interval.
        controls: names and shapes of the controls.
        is_linear: whether controls are linear in each interval, or constant.
        free: names and shapes of the free parameters.
        duration: which of them is the duration of the motion.
        cost: the rate of the cost along the motion, as a function of q, v, t and params.
        end_cost: the cost of the last state.
        path: what is not negative along the motion.
        limited: columns that have bounds there, as an array, q or v, and an index.
        end: what is zero at the end.
    """

    system: System
    method: AbstractMethod | None
    per_sample: int
    controls: tuple[tuple[str, tuple[int, ...]], ...]
    is_linear: bool
    free: tuple[tuple[str, tuple[int, ...]], ...]
    duration: str | None
    cost: Callable[..., Any] | None
    end_cost: Callable[..., Any] | None
    path: Callable[..., Any] | None
    limited: tuple[tuple[str, int], ...]
    end: Callable[..., Any] | None

    def split(self, w: Array) -> tuple[Array, Array, dict[str, Array]]:
        """States, controls and the free parameters in the numbers of an interval."""
        per = total(self.controls) * (1 + self.is_linear)
        size = w.size - per - total(self.free)
        return w[:size], w[size : size + per], named(w[size + per :], self.free)

    def times(self, fractions: Any, span: Any, theta: dict[str, Any]) -> Array:
        """The times that are so many parts of the whole motion."""
        duration = span[1] - span[0] if self.duration is None else theta[self.duration]
        return jnp.asarray(span[0] + fractions * duration)

    def with_controls(self, params: Params, u: Array, t: Any = 0.0, duration: Any = 1.0) -> Params:
        """The parameters with the controls of an interval, those at its start and end in a row."""
        starts = named(u, self.controls)
        ends = named(u[u.size - total(self.controls) :], self.controls)
        t, duration = jnp.asarray(t, u.dtype), jnp.asarray(duration, u.dtype)
        return {**params, **{x: Ramp(t, duration, starts[x], ends[x]) for x in starts}}

    def state(self, y: Array, t: Array, chart: Charts, params: Params) -> tuple[Array, Array]:
        along_q = chart.in_q.shape[-1]
        q, v = chart.q + chart.in_q @ y[:along_q], chart.v + chart.in_v @ y[along_q:]
        return onto(self.system, q, v, t, params)

    def interval(
        self, w: Array, ends: Array, chart: Charts, following: Charts, span: Array, params: Params
    ) -> Array:
        """Cost of an interval, its start in its chart, its end in the next, and the path."""
        y, u, theta = self.split(w)
        params = {**params, **theta}
        begin, end = self.times(ends, span, theta)
        params = self.with_controls(params, u, begin, end - begin)
        q, v = self.state(y, begin, chart, params)
        ts = begin + SAMPLED * (end - begin)
        sol = simulate(
            self.system, q, v, ts, params, method=self.method, steps=FixedSteps(self.per_sample),
            derivative=ForwardMode(), throw=False,
        )  # fmt: skip
        rows = sol.q, sol.v, ts
        cost = jnp.zeros(1, q.dtype)
        if self.cost is not None:
            cost_of = partial(_number, "cost", self.cost)
            rates = jax.vmap(cost_of, (0, 0, 0, None))(*rows, params)
            cost = ((end - begin) * WEIGHTS @ rates)[None]
        path = jax.vmap(self.limits, (0, 0, 0, None))(*rows, params)[:-1]
        starts, moved = chart.components(q, v), following.components(sol.q[-1], sol.v[-1])
        return jnp.concatenate([cost, starts, moved, path.ravel()])

    def final(self, w: Array, chart: Charts, span: Array, params: Params) -> Array:
        """Cost of the last state, this state in its chart, what is zero there, and the path."""
        y, u, theta = self.split(w)
        t = self.times(jnp.ones(()), span, theta)
        params = self.with_controls({**params, **theta}, u, t)
        q, v = self.state(y, t, chart, params)
        cost = jnp.zeros(1)
        if self.end_cost is not None:
            cost = _number("end_cost", self.end_cost, q, v, t, params)[None]
        end = [] if self.end is None else [jnp.atleast_1d(self.end(q, v, t, params))]
        path = self.limits(q, v, t, params)
        return jnp.concatenate([cost, chart.components(q, v), *end, path])

    def limits(self, q: Array, v: Array, t: Array, params: Params) -> Array:
        """What has bounds at a state: the conditions of the path, and columns."""
        rows = [{"q": q, "v": v}[array][k][None] for array, k in self.limited]
        if self.path is not None:
            rows.insert(0, jnp.atleast_1d(self.path(q, v, t, params)))
        return jnp.concatenate([*rows, jnp.zeros(0, q.dtype)])


def _number(argument: str, fn: Callable[..., Any], *state: Any) -> Array:
    value = jnp.asarray(fn(*state))
    if value.shape:
        raise ValueError(
            f"Argument `{argument}` must return a number, but it returned shape {value.shape}."
        )
    return value


def total(entries: tuple[tuple[str, tuple[int, ...]], ...]) -> int:
    """How many numbers arrays of these shapes have."""
    return sum(math.prod(shape) for _, shape in entries)


def named(flat: Any, entries: tuple[tuple[str, tuple[int, ...]], ...]) -> dict[str, Any]:
    """The arrays of these names and shapes, one behind another in a row."""
    sizes = [math.prod(shape) for _, shape in entries]
    begins = np.cumsum([0, *sizes])
    return {
        name: flat[begin : begin + size].reshape(shape)
        for (name, shape), begin, size in zip(entries, begins, sizes, strict=False)
    }


@jit_of("problem", is_frame=True, is_finite=True)
def blocks(
    problem: Transcription, w: Array, fractions: Array, charts: Charts, span: Array, params: Params
) -> tuple[Array, Array, Array, Array]:
    """The functions of all intervals and of the end, and their Jacobians.

    Args:
        problem: what the functions depend on.
        w: the numbers of each interval and of the end, (N + 1, w).
        fractions: the times of the nodes as parts of the motion, (N + 1,).
        charts: the charts of the nodes.
        span: the first and the last time [s].
        params: the other parameters.

    Returns:
        Values of `interval` (N, i) and of `final` (e,), and their Jacobians (N, i, w) and (e, w).
    """
    first, second = (jax.tree.map(lambda x, s=s: x[s], charts) for s in (np.s_[:-1], np.s_[1:]))
    last = jax.tree.map(lambda x: x[-1], charts)
    ends = jnp.stack([fractions[:-1], fractions[1:]], axis=1)

    def with_slopes(fn: Callable[[Array], Array], w: Array) -> tuple[Array, Array]:
        # One direction with each run makes the shortest program, and the batch is small.
        slopes, value = slopes_by_groups(lambda w: (fn(w),) * 2, w, together=1)
        return value, slopes.T

    def interval(w: Array, ends: Array, a: Charts, b: Charts) -> tuple[Array, Array]:
        return with_slopes(lambda w: problem.interval(w, ends, a, b, span, params), w)

    values, slopes = jax.vmap(interval)(w[:-1], ends, first, second)
    end, end_slopes = with_slopes(lambda w: problem.final(w, last, span, params), w[-1])
    return values, end, slopes, end_slopes


@jit_of("problem", is_frame=True)
def charted(
    problem: Transcription, q: Array, v: Array, ts: Array, params: Params
) -> tuple[Array, Array, Array, Array, Array]:
    """States (N + 1, n) and (N + 1, m) moved onto the constraints.

    With the rows of the constraints on coordinates and on velocities, and the extents.
    """
    system = problem.system
    params = problem.with_controls(params, jnp.zeros(total(problem.controls), q.dtype))

    def at(q: Array, v: Array, t: Array) -> tuple[Array, Array, Array, Array, Array]:
        q, v = onto(system, q, v, t, params)
        A_q, A_v = system.dynamics.jacobians(q, v, t, params)
        if system.velocities:
            A_q = system.plain.dynamics.position_jacobian(q, t, params)
        return q, v, A_q, A_v, extents_at(system, q, v, t, params)

    return jax.vmap(batched_closure(at, q[0], v[0], ts[0]))(q, v, ts)


ROUNDS = 40  # of searches with charts of their own
REACH = 0.4  # of the extents of the coordinates, how far a node moves in its chart
CHANGE = 1e-7  # of a number, for a difference of Jacobians
PER = SAMPLED.size - 1  # times in an interval at which its path conditions hold
UNFINISHED = -1  # Ipopt's code where the iterations are used up


class NonlinearProgram:
    """Cost and conditions as functions of one vector z, and the search for their optimum.

    z has the states of nodes 1 to N in their charts, the controls, and the free parameters. The
    conditions are, one behind another, continuity (N d), the path in intervals (N 4 p), and the end
    (e + p).
    """

    def __init__(
        self, problem: Transcription, fractions: np.ndarray, ts: np.ndarray,
        params: dict[str, Any], q: np.ndarray, v: np.ndarray, bounds: dict[str, Any],
        limited: list[str],
    ) -> None:  # fmt: skip
        self.problem, self.fractions, self.span = problem, fractions, ts[[0, -1]]
        self.limited = limited
        self.iterations = 0
        self._last: tuple[bytes, tuple[np.ndarray, ...]] | None = None
        names = [name for name, _ in problem.controls]
        # A constant control is that of the middle of its interval.
        times = ts if problem.is_linear else (ts[:-1] + ts[1:]) / 2
        guessed = [np.asarray(jax.vmap(params[x])(times)).reshape(times.size, -1) for x in names]
        u = np.concatenate([np.zeros((times.size, 0)), *guessed], axis=1)
        theta = np.concatenate([[], *(np.ravel(params[name]) for name, _ in problem.free)])
        self.others = {k: x for k, x in params.items() if k not in names}
        self.charts, self.reach = self._charts(q, v, theta)
        size, count = self.charts.size, fractions.size - 1
        self.nodes, self.inputs = count * size, u.shape
        self.z = np.concatenate([np.zeros(self.nodes), u.ravel(), theta])

        # Where the numbers of each interval and of the end are in z, the last place for the start,
        # which is fixed.
        y = np.arange(self.nodes).reshape(count, size)
        starts = np.concatenate([np.full((1, size), self.z.size), y])
        of_u = self.nodes + np.arange(u.size).reshape(u.shape)
        of_u = np.concatenate([of_u, of_u[-1:]])
        of_u = np.concatenate([of_u[:-1], of_u[1:]], axis=1) if problem.is_linear else of_u
        of_theta = np.tile(np.arange(self.nodes + u.size, self.z.size), (count + 1, 1))
        self.index = np.concatenate([starts, of_u[: count + 1], of_theta], axis=1)
        values, end, _, _ = self._blocks(self.z)
        self.rows = (values.shape[1] - 1 - 2 * size) // PER  # of the path, p
        self.ends = end.size - 1 - size - self.rows
        if self.ends > u.size + theta.size:
            raise ValueError(
                f"Argument `end` returns {self.ends} numbers, more than controls and free "
                f"parameters have, {u.size + theta.size}; give more nodes, or fewer conditions."
            )
        self.multiplier = np.zeros(count * (size + PER * self.rows) + self.ends + self.rows)

        # Where the entries of Jacobian and Hessian are, and which are not of the fixed start.
        continuity = np.arange(count * size).reshape(count, size)
        path = continuity.size + np.arange(count * PER * self.rows).reshape(count, -1)
        end = continuity.size + path.size + np.arange(self.ends + self.rows)
        row, column = _places(
            (continuity, self.index[:-1]), (continuity, self.index[1:]), (path, self.index[:-1]),
            (end[None], self.index[-1:]),
        )  # fmt: skip
        self.is_entry = column < self.z.size
        self.places = row[self.is_entry], column[self.is_entry]
        row, column = _places((self.index, self.index))
        self.is_curved = (row >= column) & (row < self.z.size)
        self.curved = row[self.is_curved], column[self.is_curved]

        self.low, self.high = np.full(self.z.size, -np.inf), np.full(self.z.size, np.inf)
        # The numbers of each name in z, a row for each time.
        u, theta = np.split(np.arange(self.nodes, self.z.size), [math.prod(self.inputs)])
        for index, entries in (
            (u.reshape(self.inputs), self.problem.controls), (theta[None], self.problem.free),
        ):  # fmt: skip
            for name, places in jax.vmap(lambda row, e=entries: named(row, e))(index).items():
                low, high = bounds.get(name, (-np.inf, np.inf))
                self.low[places], self.high[places] = low, high
        limits = [bounds[name] for name in self.limited]
        unlimited = self.rows - len(limits)
        least = np.array([0.0] * unlimited + [float(x) for x, _ in limits])
        most = np.array([np.inf] * unlimited + [float(x) for _, x in limits])
        still, zero = np.zeros(count * size), np.zeros(self.ends)
        self.least = np.concatenate([still, np.tile(least, count * PER), zero, least])
        self.most = np.concatenate([still, np.tile(most, count * PER), zero, most])

    def _charts(self, q: Any, v: Any, theta: np.ndarray) -> tuple[Charts, np.ndarray]:
        """Charts about states near the constraints, and how far a node moves along each."""
        from scipy.linalg import block_diag, null_space  # slow to import

        system = self.problem.system
        params = {**self.others, **named(theta, self.problem.free)}
        ts = self.problem.times(self.fractions, self.span, params)
        q, v, *rows = charted(self.problem, q, v, ts, params)
        A_q, A_v, extents = map(np.asarray, rows)
        n = system.dynamics.mechanical
        integrals = np.eye(system.n - n)  # of states of first order
        of_q = [block_diag(null_space(A[:, :n], rcond=1e-8), integrals) for A in A_q]
        of_v = [null_space(A, rcond=1e-8) for A in A_v]
        if len({(x.shape, y.shape) for x, y in zip(of_q, of_v, strict=True)}) > 1:
            raise ValueError(
                "Argument `guess` must lead through states with the same number of degrees of "
                "freedom, but the rank of the constraints differs between them."
            )
        in_q, in_v = np.stack(of_q), np.stack(of_v)
        reach = np.full((len(in_q), in_q.shape[2] + in_v.shape[2]), np.inf)
        if A_q.shape[1] or A_v.shape[1]:  # the latter turn with the coordinates
            per = (np.abs(in_q) / extents[:, :, None]).max(axis=1)
            reach[:, : in_q.shape[2]] = REACH / per
        return Charts(q, v, jnp.asarray(in_q), jnp.asarray(in_v)), reach

    # What Ipopt calls.

    def _blocks(self, z: np.ndarray, change: Any = 0.0) -> tuple[np.ndarray, ...]:
        """Values and Jacobians of the intervals and of the end, where w is changed by so much."""
        key, kept = z.tobytes(), self._last
        if np.ndim(change) == 0 and kept is not None and kept[0] == key:
            return kept[1]
        w = np.append(z, 0.0)[self.index] + change
        values = blocks(self.problem, w, self.fractions, self.charts, self.span, self.others)
        result = tuple(map(np.asarray, values))
        if np.ndim(change) == 0:
            self._last = key, result
        return result

    def _conditions(self, rows: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
        """Ends of intervals in charts, the starts that follow, path and end, or their slopes."""
        size = self.charts.size
        starts = np.concatenate([rows[1:, 1 : 1 + size], end[None, 1 : 1 + size]])
        return rows[:, 1 + size : 1 + 2 * size], starts, rows[:, 1 + 2 * size :], end[1 + size :]

    def objective(self, z: np.ndarray) -> float:
        values, end, _, _ = self._blocks(z)
        return float(values[:, 0].sum() + end[0])

    def constraints(self, z: np.ndarray) -> np.ndarray:
        moved, starts, path, end = self._conditions(*self._blocks(z)[:2])
        return np.concatenate([(moved - starts).ravel(), path.ravel(), end])

    def gradient(self, z: np.ndarray) -> np.ndarray:
        _, _, slopes, end_slopes = self._blocks(z)
        result = np.zeros(z.size + 1)
        np.add.at(result, self.index, np.concatenate([slopes[:, 0], end_slopes[:1]]))
        return result[:-1]

    def jacobianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        return self.places

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        moved, starts, path, end = self._conditions(*self._blocks(z)[2:])
        return np.concatenate([x.ravel() for x in (moved, -starts, path, end)])[self.is_entry]

    def hessianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        return self.curved

    def hessian(self, z: np.ndarray, multipliers: np.ndarray, factor: float) -> np.ndarray:
        """The entries of the Hessian of the Lagrangian, by differences of Jacobians."""
        moved, path, end, last = self._kinds(multipliers)
        count, size = moved.shape
        starts = np.concatenate([np.zeros((1, size)), -moved])
        factors, path = np.full((count, 1), factor), path.reshape(count, -1)
        weights = np.concatenate([factors, starts[:-1], moved, path], axis=1)
        end_weights = np.concatenate([[factor], starts[-1], end, last])

        def gradients(change: Any) -> np.ndarray:
            _, _, slopes, end_slopes = self._blocks(z, change)
            rows = np.einsum("ki,kij->kj", weights, slopes)
            return np.concatenate([rows, end_weights @ end_slopes[None]])

        w = np.append(z, 0.0)[self.index]
        changes = CHANGE * np.maximum(1.0, np.abs(w).max(axis=0))
        first = gradients(0.0)
        rows = [(gradients(x) - first) / x.sum() for x in np.diag(changes)]
        H = np.stack(rows, axis=1)
        return ((H + H.transpose(0, 2, 1)) / 2).ravel()[self.is_curved]

    def intermediate(self, *progress: Any) -> bool:
        self.iterations = progress[1]
        return True

    # The search.

    def solve(self, iterations: int, tolerance: float) -> tuple[int, int]:
        """Search from the present z; Ipopt's code of the end, and how many iterations it took."""
        try:
            import cyipopt
        except ImportError as error:
            raise ImportError(
                'Ipopt is needed: pip install "jaxmech[optimal]", or conda install cyipopt.'
            ) from error
        left = iterations
        for _ in range(ROUNDS):
            reach = self.reach[1:].ravel()
            self.low[: self.nodes], self.high[: self.nodes] = -reach, reach
            solver = cyipopt.Problem(
                n=self.z.size, m=self.least.size, problem_obj=self, lb=self.low, ub=self.high,
                cl=self.least, cu=self.most,
            )  # fmt: skip
            options = {"tol": tolerance, "max_iter": left, "print_level": 0, "sb": "yes"}
            for name, value in options.items():
                solver.add_option(name, value)
            self.z, info = solver.solve(np.clip(self.z, self.low, self.high))
            self.multiplier = info["mult_g"]
            left -= self.iterations
            is_inside = not (np.abs(self.z[: self.nodes]) > 0.99 * reach).any()
            if is_inside or left <= 0:
                break
            # A node has come to the edge of its chart: go on with charts about the present states.
            _, q, v, theta = self._states()
            self.charts, self.reach = self._charts(q, v, theta)
            self.z[: self.nodes], self._last = 0.0, None
        # An optimum at the edge of a chart is none.
        return int(info["status"]) if is_inside else UNFINISHED, iterations - left

    def _states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Times and states of the nodes at the present z, and the free parameters."""
        theta = self.z[self.nodes + math.prod(self.inputs) :]
        params = {**self.others, **named(jnp.asarray(theta), self.problem.free)}
        ts = np.asarray(self.problem.times(self.fractions, self.span, params))
        size = self.charts.size
        y = np.concatenate([np.zeros(size), self.z[: self.nodes]]).reshape(-1, size)
        y_q, y_v = np.split(y, [self.charts.in_q.shape[-1]], axis=1)
        q = self.charts.q + np.einsum("kij,kj->ki", self.charts.in_q, y_q)
        v = self.charts.v + np.einsum("kij,kj->ki", self.charts.in_v, y_v)
        q, v = map(np.asarray, charted(self.problem, q, v, ts, params)[:2])
        return ts, q, v, theta

    # The result.

    def motion(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Times and states of the nodes, and the parameters with controls and free ones."""
        ts, q, v, theta = self._states()
        u = self.z[self.nodes : self.z.size - theta.size].reshape(self.inputs)
        u = u if self.problem.is_linear else np.concatenate([u, u[-1:]])
        values = jax.vmap(lambda row: named(row, self.problem.controls))(jnp.asarray(u))
        way = "linear" if self.problem.is_linear else "hold"
        signals = {name: Signal(ts, x, way) for name, x in values.items()}
        return ts, q, v, {**self.others, **named(jnp.asarray(theta), self.problem.free), **signals}

    def violations(self) -> dict[str, float]:
        """By how much each condition is violated at most, by its name."""
        g = self.constraints(self.z)
        off = np.maximum(np.maximum(self.least - g, g - self.most), 0.0)
        moved, path, end, last = self._kinds(off)
        rows = [f"path[{k}]" for k in range(self.rows - len(self.limited))] + self.limited
        at_path = np.maximum(path.max(axis=(0, 1)), last)
        ends = {f"end[{k}]": float(x) for k, x in enumerate(end)}
        paths = dict(zip(rows, at_path.tolist(), strict=True))
        return {"motion": float(moved.max()), **ends, **paths}

    def multipliers(self) -> dict[str, np.ndarray]:
        """The rates of the cost by what the conditions demand."""
        _, path, end, last = self._kinds(-self.multiplier)
        return {"end": end, "path": np.concatenate([path.sum(axis=1), last[None]])}

    def _kinds(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """Numbers of conditions: continuity (N, d), path (N, 4, p), end, and path at the end."""
        shape = self.fractions.size - 1, PER, self.rows
        places = np.cumsum([self.nodes, math.prod(shape), self.ends])
        moved, path, end, last = np.split(x, places)
        return moved.reshape(shape[0], -1), path.reshape(shape), end, last


def _places(*blocks: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries of batches of blocks, of which each has (B, r) and (B, c)."""
    rows, columns = [], []
    for row, column in blocks:
        rows.append(np.repeat(row, column.shape[1], axis=1).ravel())
        columns.append(np.tile(column, (1, row.shape[1])).ravel())
    return np.concatenate(rows), np.concatenate(columns)
