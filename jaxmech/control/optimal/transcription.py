"""An optimal control problem as one of finitely many numbers: multiple shooting.

The unknowns z are the states y at the nodes, in coordinates along the constraints, the controls of
every interval, and the free parameters theta. A *chart* gives the state of a node: a state on the
constraints, and directions along them; y leads along these, from where the state is projected onto
the constraints. So every node lies on them, and continuity is as many equations as there are
degrees of freedom, which are independent however many of the constraints are redundant.

Each interval is a run of its own. With its numbers w = (y, u, theta) of this start it returns its
cost, where it ends and the path conditions: Jacobians and Hessians are blocks, all of which are one
batch.
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
from jaxmech.system import Params, System, constraint_jacobians, extents_at
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
        """The value at a time."""
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
        """The state of a node."""
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
        A_q, A_v = constraint_jacobians(system, q, v, t, params)
        if system.velocities:
            A_q = system.plain.dynamics.position_jacobian(q, t, params)
        return q, v, A_q, A_v, extents_at(system, q, v, t, params)

    return jax.vmap(batched_closure(at, q[0], v[0], ts[0]))(q, v, ts)
