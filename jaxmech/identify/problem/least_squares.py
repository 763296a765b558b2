"""The least-squares problem: residuals of all segments, continuity, prior, and their derivatives.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are those of the parameters, z (p,), and behind
them those of each initial state, u.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.integrate import AbstractDerivative, FixedSteps, ForwardMode, ReverseMode, Scheme
from jaxmech.run import quickest_together, simulate, slopes_by_groups
from jaxmech.state import Start, begin
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of

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
        """The system that is simulated."""
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

    def unknowns(self, size: int, first: np.ndarray) -> int:
        """The number of unknowns with `size` parameters and the segments that begin recordings.

        The initial states of later segments are tied to the segments before.
        """
        return size + int(np.any(np.asarray(self.along), axis=1)[first].sum())

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
    problem: FitProblem, z: Array, u: Array, one: Data, derivative: AbstractDerivative
) -> SegmentRun:
    """Simulate one segment, whose data have no axis S."""
    s = one.segments
    params = with_inputs(problem.layout.params(z, one.leaves), s.inputs)
    params = problem.system.with_outputs(params)
    q0, v0 = jnp.split(jnp.concatenate([s.q0, s.v0]) + one.along @ u, [s.q0.size])
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
    def one(u: Array, segment: Segments, along: Array) -> Any:
        return fn(u, Data(segment, data.leaves, along))

    return jax.vmap(one)(u, data.segments, data.along)


@jit_of("problem")
def runs(problem: FitProblem, y: Known, data: Data) -> SegmentRun:
    """Simulate all segments; differentiable in reverse mode."""
    z, u = data.parts(y, problem.layout.size)
    return _over_segments(lambda u, one: run_segment(problem, z, u, one, ReverseMode()), data, u)


@jit_of("problem", is_frame=True, is_finite=True, is_brief=True)
def linearized(
    problem: FitProblem, y: Known, data: Data
) -> tuple[SegmentRun, Slopes, Float[Array, " p"], Float[Array, "p p"]]:
    """All segments with their derivatives, and the fitted numbers with theirs by z.

    Several directions of a segment share a trajectory.
    """
    z, u = data.parts(y, problem.layout.size)

    def slopes(u: Array, one: Data) -> tuple[Slopes, SegmentRun]:
        def whole(x: Array) -> tuple[Slopes, SegmentRun]:
            made = run_segment(problem, x[: z.size], x[z.size :], one, ForwardMode())
            return Slopes(made.residual, made.begin, made.end), made

        x = jnp.concatenate([z, u])
        return slopes_by_groups(whole, x, quickest_together(len(data.along), x.size, x.dtype))

    by_segment, run = _over_segments(slopes, data, u)
    numbers = partial(problem.layout.numbers, leaves=data.leaves)
    return run, by_segment, numbers(z), jax.jacfwd(numbers)(z)


@jit_of("problem")
def half_squares(problem: FitProblem, ys: Known, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals at many points (K, size of y), as one batch."""

    def half_square(y: Known) -> Array:
        found = runs(problem, y, data)
        jumped = conditions.jump_weight[None] * jumps(found.end, found.begin, data)
        other = outer_rows(problem, data, conditions, y)
        residual = conditions.sensor_weight[None, None] * found.residual
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
