"""Residuals as functions of the free numbers, for one segment of a recording and for all.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are the free numbers z (p,) of the parameters
and, behind them, the free numbers u of each initial state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmech.assemble import Start, begin
from jaxmech.compiler import batched
from jaxmech.formulations import AbstractFormulation
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.integrate import AbstractDerivative, AbstractMethod, ForwardMode, ReverseMode
from jaxmech.sensitivity.forward import direction_groups
from jaxmech.simulate import simulate
from jaxmech.stabilization import AbstractStabilization
from jaxmech.system import Params, System
from jaxmech.utils.jit_cache import jit_of

Observe = Callable[[Array, Array, Array, Params], Array]


@dataclass(frozen=True)
class FitProblem:
    """The simulation and its comparison with recordings; hashable."""

    system: System
    observe: Observe  # observe(q, v, t, params) returns the sensor values, (d,)
    start: Start | None  # start(q0, v0, params) returns the state; None projects q0 and v0
    layout: ParameterLayout
    method: AbstractMethod
    projection: AbstractStabilization | None
    formulation: AbstractFormulation


class Data(eqx.Module):
    """The numbers of a problem; without the axis S those of one segment."""

    segments: Segments
    leaves: tuple[Array, ...]  # of the parameters where the fit begins
    along_q: Float[Array, "*S k i"]  # directions of the start variables; i = 0 where these are held
    along_v: Float[Array, "*S k j"]  # directions of their rates

    @property
    def free_starts(self) -> int:
        """Free numbers of each initial state, i + j."""
        return self.along_q.shape[2] + self.along_v.shape[2]

    def parts(self, y: Array, size: int) -> tuple[Array, Array]:
        """z (p,) and u (S, i + j) of the unknowns."""
        return y[:size], y[size:].reshape(len(self.along_q), self.free_starts)

    def start_changes(self, u: Float[Array, "S ij"]) -> Float[Array, "S k2"]:
        """Changes of the start variables and of their rates."""
        i = self.along_q.shape[2]
        q = jnp.einsum("ski,si->sk", self.along_q, u[:, :i])
        v = jnp.einsum("ski,si->sk", self.along_v, u[:, i:])
        return jnp.concatenate([q, v], axis=1)


class SegmentRun(eqx.Module):
    """A simulated segment."""

    predicted: Float[Array, "*S T d"]  # predicted sensor values
    residual: Float[Array, "*S T d"]  # weight * (predicted - observed)
    begin: Float[Array, "*S n2"]  # initial state
    end: Float[Array, "*S n2"]  # final state
    status: Any


class Slopes(NamedTuple):
    """Derivatives of segments by the p + i + j numbers that each depends on."""

    residual: Float[Array, "*S pij T d"]
    begin: Float[Array, "*S pij n2"]
    end: Float[Array, "*S pij n2"]


def run_segment(
    problem: FitProblem, z: Array, u: Array, one: Data, derivative: AbstractDerivative
) -> SegmentRun:
    """Simulate one segment, whose data have no axis S."""
    s, i = one.segments, one.along_q.shape[1]
    params = problem.layout.params(z, one.leaves)
    q0, v0 = s.q0 + one.along_q @ u[:i], s.v0 + one.along_v @ u[i:]
    q, v = begin(problem.system, problem.start, q0, v0, s.ts[0], params)
    sol = simulate(
        problem.system, q, v, s.ts, params, method=problem.method, projection=problem.projection,
        formulation=problem.formulation, derivative=derivative, throw=False,
    )  # fmt: skip
    predicted = jax.vmap(lambda q, v, t: problem.observe(q, v, t, params))(sol.q, sol.v, s.ts)
    residual = jnp.where(s.weights > 0, s.weights * (predicted - s.observed), 0.0)
    state = jnp.concatenate([sol.q, sol.v], axis=1)
    return SegmentRun(predicted, residual, state[0], state[s.last], sol.status)


def _over_segments(fn: Callable[[Array, Data], Any], data: Data, u: Array) -> Any:
    def one(u: Array, segment: Segments, along_q: Array, along_v: Array) -> Any:
        return fn(u, Data(segment, data.leaves, along_q, along_v))

    return jax.vmap(one)(u, data.segments, data.along_q, data.along_v)


@jit_of("problem")
def runs(problem: FitProblem, y: Array, data: Data) -> SegmentRun:
    """Simulate all segments; differentiable in reverse mode."""
    z, u = data.parts(y, problem.layout.size)
    return _over_segments(lambda u, one: run_segment(problem, z, u, one, ReverseMode()), data, u)


@jit_of("problem")
def linearized(problem: FitProblem, y: Array, data: Data) -> tuple[SegmentRun, Slopes]:
    """Run all segments with their derivatives, several directions of a segment per trajectory."""
    z, u = data.parts(y, problem.layout.size)
    count = z.size + data.free_starts
    directions = direction_groups(count, y.dtype)

    def along(z: Array, u: Array, directions: Array, one: Data) -> Slopes:
        def whole(z: Array, u: Array) -> Slopes:
            made = run_segment(problem, z, u, one, ForwardMode())
            return Slopes(made.residual, made.begin, made.end)

        def slope(direction: Array) -> Slopes:
            return jax.jvp(whole, (z, u), (direction[: z.size], direction[z.size :]))[1]

        return jax.vmap(slope)(directions)

    def along_all(u: Array, one: Data) -> Slopes:
        # a batch of groups fills the lanes that a few recordings would leave empty
        slopes = jax.vmap(lambda group: batched(along)(z, u, group, one))(directions)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], slopes)

    return runs(problem, y, data), _over_segments(along_all, data, u)
