"""The nonlinear program of a transcription, as Ipopt takes it: sparse, with bounds."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.control.optimal.transcription import (
    SAMPLED,
    Charts,
    Transcription,
    blocks,
    charted,
    named,
)
from jaxmech.system import Signal

ROUNDS = 40  # of searches with charts of their own
REACH = 0.4  # of the extents of the coordinates, how far a node moves in its chart
CHANGE = 1e-7  # of a number, for a difference of Jacobians
PER = SAMPLED.size - 1  # times in an interval at which its path conditions hold


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
        self._set_structures(size, count)
        self._set_bounds(bounds, size, count)

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
        if A_q.shape[1]:
            per = (np.abs(in_q) / extents[:, :, None]).max(axis=1)
            reach[:, : in_q.shape[2]] = REACH / per
        return Charts(q, v, jnp.asarray(in_q), jnp.asarray(in_v)), reach

    def _set_structures(self, size: int, count: int) -> None:
        """Where the entries of Jacobian and Hessian are, and which are not of the fixed start."""
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

    def _set_bounds(self, bounds: dict[str, Any], size: int, count: int) -> None:
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
        own = self.rows - len(limits)
        least = np.array([0.0] * own + [float(x) for x, _ in limits])
        most = np.array([np.inf] * own + [float(x) for _, x in limits])
        still, zero = np.zeros(count * size), np.zeros(self.ends)
        self.least = np.concatenate([still, np.tile(least, count * PER), zero, least])
        self.most = np.concatenate([still, np.tile(most, count * PER), zero, most])

    # What Ipopt calls.

    def _blocks(self, z: np.ndarray, change: Any = 0.0) -> tuple[np.ndarray, ...]:
        """Values and Jacobians of the intervals and of the end, where w is changed by so much."""
        key, kept = z.tobytes(), self._last
        if np.ndim(change) == 0 and kept is not None and kept[0] == key:
            return kept[1]
        w = np.append(z, 0.0)[self.index] + change
        found = blocks(self.problem, w, self.fractions, self.charts, self.span, self.others)
        result = tuple(map(np.asarray, found))
        if np.ndim(change) == 0:
            self._last = key, result
        return result

    def _conditions(self, rows: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
        """Ends of intervals in charts, the starts that follow, path and end, or their slopes."""
        size = self.charts.size
        starts = np.concatenate([rows[1:, 1 : 1 + size], end[None, 1 : 1 + size]])
        return rows[:, 1 + size : 1 + 2 * size], starts, rows[:, 1 + 2 * size :], end[1 + size :]

    def objective(self, z: np.ndarray) -> float:
        """The cost."""
        values, end, _, _ = self._blocks(z)
        return float(values[:, 0].sum() + end[0])

    def constraints(self, z: np.ndarray) -> np.ndarray:
        """The conditions."""
        moved, starts, path, end = self._conditions(*self._blocks(z)[:2])
        return np.concatenate([(moved - starts).ravel(), path.ravel(), end])

    def gradient(self, z: np.ndarray) -> np.ndarray:
        """The gradient of the cost."""
        _, _, slopes, end_slopes = self._blocks(z)
        result = np.zeros(z.size + 1)
        np.add.at(result, self.index, np.concatenate([slopes[:, 0], end_slopes[:1]]))
        return result[:-1]

    def jacobianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the Jacobian."""
        return self.places

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """The entries of the Jacobian."""
        moved, starts, path, end = self._conditions(*self._blocks(z)[2:])
        return np.concatenate([x.ravel() for x in (moved, -starts, path, end)])[self.is_entry]

    def hessianstructure(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the lower triangle of the Hessian."""
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
        """Count the iterations."""
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
            if left <= 0 or not (np.abs(self.z[: self.nodes]) > 0.99 * reach).any():
                break
            # A node has come to the edge of its chart: go on with charts about the present states.
            _, q, v, theta = self._states()
            self.charts, self.reach = self._charts(q, v, theta)
            self.z[: self.nodes], self._last = 0.0, None
        return int(info["status"]), iterations - left

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
