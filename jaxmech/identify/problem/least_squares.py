"""The least-squares problem: residuals of all segments, continuity, prior, and their derivatives.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are the free numbers z (p,) of the parameters
and, behind them, the free numbers u of each initial state.

The residuals r (N,) of a segment and their derivatives J (N, P) are reduced to a triangle,
[J r] = Q [[R, c], [0, rho]] with orthonormal Q. Gauss-Newton and Levenberg-Marquardt depend on
J^T J = R^T R, J^T r = R^T c and r^T r = c^T c + rho^2 alone, so the P + 1 numbers (c, rho) with the
derivatives (R, 0) replace all N.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.assemble import Start, begin
from jaxmech.identify.data.segments import SegmentOrigin, Segments
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.integrate import AbstractDerivative, ForwardMode, ReverseMode, Scheme
from jaxmech.sensitivity.forward import slopes_by_groups
from jaxmech.simulate import simulate
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of

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
        """The system that is simulated."""
        return self.scheme.system


class Data(eqx.Module):
    """The numbers of a problem; without the axis S those of one segment."""

    segments: Segments
    leaves: tuple[Array, ...]  # of the parameters where the fit begins
    along: Float[Array, "*S k2 i"]  # directions of start variables and rates; i = 0 if all are held

    @property
    def free_starts(self) -> int:
        """The number i of free numbers of each initial state."""
        return self.along.shape[2]

    def parts(self, y: Array, size: int) -> tuple[Array, Array]:
        """z (p,) and u (S, i) of the unknowns."""
        return y[:size], y[size:].reshape(len(self.along), self.free_starts)

    def start_changes(self, u: Float[Array, "S i"]) -> Float[Array, "S k2"]:
        """Changes of the start variables and of their rates."""
        return jnp.einsum("ski,si->sk", self.along, u)


class Conditions(eqx.Module):
    """Conditions on the unknowns besides the measurements; a weight is 1 / standard deviation."""

    prior_mean: Float[Array, " p"]
    prior_weight: Float[Array, " p"]  # 0 without a prior
    start_weight: Float[Array, "S k2"]  # of the start variables and their rates
    jump_weight: Float[Array, " n2"]  # of the jumps between segments
    jump_shift: Float[Array, "S n2"]  # added to the weighted jumps; zero for a soft condition

    def with_jumps(self, factor: float, shift: Array) -> "Conditions":
        """The conditions with jumps that weigh more by a factor."""
        return replace(self, jump_weight=self.jump_weight * factor, jump_shift=shift / factor)


@dataclass(frozen=True, eq=False)
class Task:
    """A fit that is ready to be solved."""

    problem: FitProblem
    data: Data
    conditions: Conditions
    origin: SegmentOrigin
    y: Array  # the unknowns to begin with
    longest: float | None  # longest interval between times [s]
    hard: bool  # whether jumps between segments must vanish
    weighted: bool  # whether residuals are in units of the stated standard deviation


class SegmentRun(eqx.Module):
    """A simulated segment."""

    predicted: Float[Array, "*S T d"]  # predicted sensor values
    residual: Float[Array, "*S T d"]  # weight * (predicted - observed)
    begin: Float[Array, "*S n2"]  # initial state
    end: Float[Array, "*S n2"]  # final state
    status: Any


class Slopes(NamedTuple):
    """Derivatives of segments by the p + i numbers that each depends on."""

    residual: Float[Array, "*S pi T d"]
    begin: Float[Array, "*S pi n2"]
    end: Float[Array, "*S pi n2"]


def run_segment(
    problem: FitProblem, z: Array, u: Array, one: Data, derivative: AbstractDerivative
) -> SegmentRun:
    """Simulate one segment, whose data have no axis S."""
    s, params = one.segments, problem.layout.params(z, one.leaves)
    q0, v0 = jnp.split(jnp.concatenate([s.q0, s.v0]) + one.along @ u, 2)
    q, v = begin(problem.system, problem.start, q0, v0, s.ts[0], params)
    ways = problem.scheme.policies | {"derivative": derivative, "throw": False}
    sol = simulate(problem.system, q, v, s.ts, params, **ways)
    predicted = jax.vmap(lambda q, v, t: problem.observe(q, v, t, params))(sol.q, sol.v, s.ts)
    residual = jnp.where(s.weights > 0, s.weights * (predicted - s.observed), 0.0)
    state = jnp.concatenate([sol.q, sol.v], axis=1)
    return SegmentRun(predicted, residual, state[0], state[s.last], sol.status)


def _over_segments(fn: Callable[[Array, Data], Any], data: Data, u: Array) -> Any:
    def one(u: Array, segment: Segments, along: Array) -> Any:
        return fn(u, Data(segment, data.leaves, along))

    return jax.vmap(one)(u, data.segments, data.along)


@jit_of("problem")
def runs(problem: FitProblem, y: Array, data: Data) -> SegmentRun:
    """Simulate all segments; differentiable in reverse mode."""
    z, u = data.parts(y, problem.layout.size)
    return _over_segments(lambda u, one: run_segment(problem, z, u, one, ReverseMode()), data, u)


@jit_of("problem")
def linearized(problem: FitProblem, y: Array, data: Data) -> tuple[SegmentRun, Slopes]:
    """Run all segments with their derivatives, several directions of a segment per trajectory."""
    z, u = data.parts(y, problem.layout.size)

    def slopes(u: Array, one: Data) -> Slopes:
        def whole(x: Array) -> tuple[Slopes, None]:
            made = run_segment(problem, x[: z.size], x[z.size :], one, ForwardMode())
            return Slopes(made.residual, made.begin, made.end), None

        return slopes_by_groups(whole, jnp.concatenate([z, u]))[0]

    return runs(problem, y, data), _over_segments(slopes, data, u)


def triangle(J: Float[Array, "N P"], r: Float[Array, " N"]) -> Float[Array, "P+1 P+1"]:
    """The triangle [[R, c], [0, rho]] of residuals and their derivatives.

    Example:
        >>> print(triangle(jnp.array([[3.0], [4.0]]), jnp.array([5.0, 0.0])))
        [[5. 3.]
         [0. 4.]]
    """
    # Gram-Schmidt in plain operations, since LAPACK in a batch can hang (docs/limits.md)
    columns = jnp.concatenate([J.T, r[None]])
    # so that no square overflows: the residuals of a motion that explodes must not count as zero
    sizes = jnp.abs(columns).max(axis=1, keepdims=True)
    columns = columns / jnp.where(sizes > 0, sizes, 1.0)

    def clear(Q: Array, k: Array) -> tuple[Array, Array]:
        column = columns[k]
        first = Q @ column
        left = column - first @ Q
        second = Q @ left  # twice is enough (Giraud, Langou and Rozloznik 2005)
        left = left - second @ Q
        length = jnp.sqrt(left @ left)
        # a column that depends on those before it gets a zero on the diagonal
        kept = length > 1e-14 * jnp.sqrt(column @ column)
        Q = Q.at[k].set(jnp.where(kept, left / jnp.where(kept, length, 1.0), 0.0))
        return Q, (first + second).at[k].set(jnp.where(kept, length, 0.0))

    _, rows = jax.lax.scan(clear, jnp.zeros_like(columns), jnp.arange(len(columns)))
    return (rows * sizes).T


def rows(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Any]:
    """All residuals (K,), reduced segment by segment, and their derivative as a linear function."""
    size, count = problem.layout.size, len(data.segments.last)
    values, slopes = linearized(problem, y, data)
    J = jnp.moveaxis(slopes.residual.reshape(count, slopes.residual.shape[1], -1), 1, 2)
    R = jax.vmap(triangle)(J, values.residual.reshape(count, -1))
    outer = partial(outer_rows, problem, data, conditions)

    def apply(change: Array) -> Array:
        dz, du = data.parts(change, size)
        each = jnp.concatenate([jnp.broadcast_to(dz, (count, size)), du], axis=1)
        fitted = jnp.einsum("sij,sj->si", R[:, :, :-1], each)
        ends, begins = (jnp.einsum("sjm,sj->sm", x, each) for x in (slopes.end, slopes.begin))
        _, other = jax.jvp(outer, (y,), (change,))
        jumped = conditions.jump_weight[None] * jumps(ends, begins, data)
        return jnp.concatenate([fitted.ravel(), jumped.ravel(), other])

    jumped = _shifted_jumps(values, data, conditions)
    return jnp.concatenate([R[:, :, -1].ravel(), jumped.ravel(), outer(y)]), apply


@jit_of("problem")
def dense(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> tuple[Array, Array]:
    """The values of `rows` (K,) and their derivatives as a matrix, (K, size of y)."""
    values, apply = rows(problem, y, data, conditions)
    return values, jax.vmap(apply)(jnp.eye(y.size)).T


def half_square(problem: FitProblem, y: Array, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals, differentiable in reverse mode."""
    found = runs(problem, y, data)
    jumped = _shifted_jumps(found, data, conditions)
    other = outer_rows(problem, data, conditions, y)
    return 0.5 * ((found.residual**2).sum() + (jumped**2).sum() + (other**2).sum())


@jit_of("problem")
def mean_square(problem: FitProblem, y: Array, data: Data) -> Array:
    """Half the mean square of the measurements alone, from recorded initial states."""
    squares = (runs(problem, y[: problem.layout.size], data).residual ** 2).sum()
    return 0.5 * squares / (data.segments.weights > 0).sum()


@jit_of("problem")
def half_squares(problem: FitProblem, ys: Array, data: Data, conditions: Conditions) -> Array:
    """The `half_square` at many points (K, size of y), as one batch."""
    return jax.vmap(lambda y: half_square(problem, y, data, conditions))(ys)


def jumps(ends: Array, begins: Array, data: Data) -> Float[Array, "S n2"]:
    """The final state of each segment minus the initial state of the next one, zero without one."""
    following = data.segments.following
    continues = following != jnp.arange(len(following))
    return jnp.where(continues[:, None], ends - begins[following], 0.0)


def _shifted_jumps(found: SegmentRun, data: Data, conditions: Conditions) -> Array:
    left = jumps(found.end, found.begin, data)
    return conditions.jump_weight[None] * left + conditions.jump_shift


def outer_rows(problem: FitProblem, data: Data, conditions: Conditions, y: Array) -> Array:
    """Residuals of the priors of parameters and initial states, (p + S 2 k,)."""
    z, u = data.parts(y, problem.layout.size)
    numbers = problem.layout.numbers(z, data.leaves)
    prior = conditions.prior_weight * (numbers - conditions.prior_mean)
    return jnp.concatenate([prior, (conditions.start_weight * data.start_changes(u)).ravel()])
