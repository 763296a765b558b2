"""From free numbers to residuals, for one piece of a recording and for all of them.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are the free numbers z (p,) of the parameters
and, behind them, the free numbers u (k,) of each start.
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
    """What is simulated and compared; hashable.

    Attributes:
        system: the system.
        observe: observe(q, v, t, params) gives what the sensors show, (d,).
        start: start(q0, v0, params) gives the state; None for the projection onto the constraints.
        layout: of the parameters.
        method: of integration.
        projection: against drift.
        formulation: law of motion.
    """

    system: System
    observe: Observe
    start: Start | None
    layout: ParameterLayout
    method: AbstractMethod
    projection: AbstractStabilization | None
    formulation: AbstractFormulation


class Data(eqx.Module):
    """The numbers of a problem.

    Attributes:
        segments: the pieces of the recordings.
        leaves: the parameters at the start of the fit.
        along_q: directions of the start variables, (S, k, i); i = 0 where they are held.
        along_v: of their rates, (S, k, j).
    """

    segments: Segments
    leaves: tuple[Array, ...]
    along_q: Float[Array, "*S k i"]
    along_v: Float[Array, "*S k j"]

    @property
    def free_starts(self) -> int:
        """Free numbers of each start."""
        return self.along_q.shape[2] + self.along_v.shape[2]

    def parts(self, y: Array, size: int) -> tuple[Array, Array]:
        """z (p,) and u (S, k) of the unknowns."""
        return y[:size], y[size:].reshape(len(self.along_q), self.free_starts)


class SegmentRun(eqx.Module):
    """A piece as it is computed.

    Attributes:
        predicted: what the sensors should have shown, (T, d).
        residual: weight * (predicted - observed), (T, d).
        begin: the state at its start, (2 n,).
        end: the state at its end, (2 n,).
        status: of the trajectory.
    """

    predicted: Float[Array, "*S T d"]
    residual: Float[Array, "*S T d"]
    begin: Float[Array, "*S m"]
    end: Float[Array, "*S m"]
    status: Any


def run_segment(
    problem: FitProblem, z: Array, u: Array, piece: Data, derivative: AbstractDerivative
) -> SegmentRun:
    """One piece: `piece` is the data of a single one, without the axis S."""
    s = piece.segments
    params = problem.layout.params(z, piece.leaves)
    along = piece.along_q.shape[1]
    q0 = s.q0 + piece.along_q @ u[:along]
    v0 = s.v0 + piece.along_v @ u[along:]
    q, v = begin(problem.system, problem.start, q0, v0, s.ts[0], params)
    sol = simulate(
        problem.system, q, v, s.ts, params, method=problem.method, projection=problem.projection,
        formulation=problem.formulation, derivative=derivative, throw=False,
    )  # fmt: skip
    predicted = jax.vmap(lambda q, v, t: problem.observe(q, v, t, params))(sol.q, sol.v, s.ts)
    measured = s.weights > 0
    residual = jnp.where(measured, s.weights * (predicted - s.observed), 0.0)
    state = jnp.concatenate([sol.q, sol.v], axis=1)
    return SegmentRun(predicted, residual, state[0], state[s.last], sol.status)


def over_pieces(fn: Callable[..., Any], data: Data, u: Array) -> Any:
    """fn(u_s, piece) for every piece."""

    def one(u: Array, segment: Segments, along_q: Array, along_v: Array) -> Any:
        return fn(u, Data(segment, data.leaves, along_q, along_v))

    return jax.vmap(one)(u, data.segments, data.along_q, data.along_v)


@jit_of("problem")
def runs(problem: FitProblem, y: Array, data: Data) -> SegmentRun:
    """All pieces, for gradients in reverse mode."""
    z, u = data.parts(y, problem.layout.size)
    return over_pieces(lambda u, piece: run_segment(problem, z, u, piece, ReverseMode()), data, u)


class Slopes(NamedTuple):
    """Derivatives of pieces by the p + k numbers that each depends on.

    Attributes:
        residual: (S, p + k, T, d).
        begin: (S, p + k, 2 n).
        end: (S, p + k, 2 n).
    """

    residual: Array
    begin: Array
    end: Array


@jit_of("problem")
def linearized(problem: FitProblem, y: Array, data: Data) -> tuple[SegmentRun, Slopes]:
    """All pieces with their derivatives: every few directions of a piece are a trajectory."""
    z, u = data.parts(y, problem.layout.size)
    count = z.size + data.free_starts
    directions = direction_groups(count, y.dtype)

    def along(z: Array, u: Array, directions: Array, piece: Data) -> Slopes:
        def whole(z: Array, u: Array) -> Slopes:
            made = run_segment(problem, z, u, piece, ForwardMode())
            return Slopes(made.residual, made.begin, made.end)

        def one(direction: Array) -> Slopes:
            return jax.jvp(whole, (z, u), (direction[: z.size], direction[z.size :]))[1]

        return jax.vmap(one)(directions)

    def along_all(u: Array, piece: Data) -> Slopes:
        slopes = jax.vmap(lambda group: batched(along)(z, u, group, piece))(directions)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], slopes)

    return runs(problem, y, data), over_pieces(along_all, data, u)
