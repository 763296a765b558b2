"""The least-squares problem: residuals of all segments, continuity, prior, and their derivatives.

Everything static is in `FitProblem`, everything that is a number in `Data`, so that fits of the
same shape share what was compiled. The unknowns y are the free numbers z (p,) of the parameters
and, behind them, the free numbers u of each initial state.

Recorded of an initial state are start variables and their rates (`jaxmech.state.begin`). With a
`start` they may change in every direction, without one along the constraints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.recording import Recording, followed
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.parameters import ParameterLayout
from jaxmech.integrate import AbstractDerivative, FixedSteps, ForwardMode, ReverseMode, Scheme
from jaxmech.run import quickest_together, simulate, slopes_by_groups
from jaxmech.state import Start, begin
from jaxmech.system import (
    Params,
    System,
    constraint_jacobians,
    extents_at,
    on_constraints,
    violations,
)
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.text import capital

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
    difference = predicted - s.observed
    if s.periods is not None:
        difference = followed(difference, s.weights, s.periods)
    residual = jnp.where(s.weights > 0, s.weights * difference, 0.0)
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


class Linearized(NamedTuple):
    """All segments with their derivatives, and the fitted numbers with theirs."""

    run: SegmentRun
    slopes: Slopes
    numbers: Float[Array, " p"]
    by_z: Float[Array, "p p"]


@jit_of("problem", is_frame=True, is_finite=True, is_brief=True)
def linearized(problem: FitProblem, y: Known, data: Data) -> Linearized:
    """Run all segments with their derivatives, several directions of a segment per trajectory."""
    z, u = data.parts(y, problem.layout.size)

    def slopes(u: Array, one: Data) -> tuple[Slopes, SegmentRun]:
        def whole(x: Array) -> tuple[Slopes, SegmentRun]:
            made = run_segment(problem, x[: z.size], x[z.size :], one, ForwardMode())
            return Slopes(made.residual, made.begin, made.end), made

        x = jnp.concatenate([z, u])
        return slopes_by_groups(whole, x, quickest_together(len(data.along), x.size, x.dtype))

    by_segment, run = _over_segments(slopes, data, u)
    numbers = partial(problem.layout.numbers, leaves=data.leaves)
    return Linearized(run, by_segment, numbers(z), jax.jacfwd(numbers)(z))


def half_square(problem: FitProblem, y: Known, data: Data, conditions: Conditions) -> Array:
    """Half the sum of all squared residuals, differentiable in reverse mode."""
    found = runs(problem, y, data)
    jumped = conditions.jump_weight[None] * jumps(found.end, found.begin, data)
    other = outer_rows(problem, data, conditions, y)
    residual = conditions.sensor_weight[None, None] * found.residual
    return 0.5 * ((residual**2).sum() + (jumped**2).sum() + (other**2).sum())


@jit_of("problem")
def half_squares(problem: FitProblem, ys: Known, data: Data, conditions: Conditions) -> Array:
    """The `half_square` at many points (K, size of y), as one batch."""
    return jax.vmap(lambda y: half_square(problem, y, data, conditions))(ys)


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


# by how much recorded initial states may be off the constraints:
FARTHEST = 2e-2  # relative to the extents of the mechanism, without further knowledge
A_GUESS = 1.0  # the same for coordinates that are only a guess to begin with
DEVIATIONS = 5  # in standard deviations, where these are known
_REMEDY = "check q0 and v0, and that the parameters at the start of the fit belong to them."


class InitialState(NamedTuple):
    """The state for recorded start variables."""

    q: Float[Array, " n"]
    v: Float[Array, " m"]  # the velocities, m = n unless they are quasi-velocities
    consistent: Bool[Array, ""]  # whether it meets the constraints
    extents: Float[Array, " n"]  # of the coordinates
    velocity_extents: Float[Array, " m"]  # velocities at which none moves more in a second
    A_position: Float[Array, "k n"]  # invariants included
    A_velocity: Float[Array, "l m"]


@jit_of("problem", is_frame=True, is_brief=True)
def initial_state(
    problem: FitProblem, q0: Array, v0: Array, t: Array, params: Params
) -> InitialState:
    """The state for start variables (k,) and their velocities (l,)."""
    system = problem.system
    params = system.with_outputs(params)
    q, v = begin(system, problem.start, q0, v0, t, params)
    shapes = (system.n,), (system.n_velocities,)
    if (q.shape, v.shape) != shapes:
        required = " and ".join(dict.fromkeys(map(str, shapes)))
        raise ValueError(
            f"Argument `start` must return q and v of shape {required}, but returns {q.shape} and "
            f"{v.shape}."
        )
    A_position, A_velocity = constraint_jacobians(system, q, v, t, params)
    extents = extents_at(system, q, v, t, params)
    velocity_extents = extents
    if system.velocities:
        A_position = system.plain.dynamics.position_jacobian(q, t, params)
        T = jnp.abs(system.dynamics.kinematics.matrix(q, t, params))
        per_velocity = jnp.where(T > 0, extents[:, None] / jnp.where(T > 0, T, 1.0), jnp.inf)
        velocity_extents = per_velocity.min(0)
    consistent = on_constraints(system, q, v, t, params, extents)
    return InitialState(q, v, consistent, extents, velocity_extents, A_position, A_velocity)


def consistent_start(
    problem: FitProblem, params: Params, recording: Recording, *, free: bool
) -> InitialState:
    """The initial state, which must be recorded as consistently as its noise allows."""
    system, name = problem.system, recording.name
    q0, v0 = (x if x.ndim == 1 else x[0] for x in (recording.q0, recording.v0))
    if not system.velocities and q0.shape != v0.shape:
        raise ValueError(
            f"Argument `v0` of {name} must have the shape of `q0`, {q0.shape}, but has shape "
            f"{v0.shape}."
        )
    if problem.start is None:
        remedy = "other start variables need the argument `start` of fit."
        rates = "rates of coordinates, such as differences of samples, are not these: give them, or"
        for argument, x, size, names, kind, hint in (
            ("q0", q0, system.n, system.coordinates, "coordinates", ""),
            ("v0", v0, system.n_velocities, system.velocity_names, "velocities", f"{rates} "),
        ):
            if x.shape != (size,):
                raise ValueError(
                    f"Argument `{argument}` of {name} must have shape ({size},) for the "
                    f"{kind} {', '.join(names)}, but has shape {x.shape}; {hint}{remedy}"
                )
    params, t = with_inputs(params, recording.inputs), jnp.asarray(recording.ts[0])
    params = system.with_outputs(params)
    state = initial_state(problem, jnp.asarray(q0), jnp.asarray(v0), t, params)
    q, v = state.q, state.v
    sensors = recording.observed.shape[1]
    with naming_missing("`observe`", params):
        predicted = jax.eval_shape(problem.observe, q, v, t, params)
    if getattr(predicted, "shape", None) != (sensors,):
        raise ValueError(
            f"Argument `observe` must return shape ({sensors},), one number for each sensor of "
            f"{name}, but returns {getattr(predicted, 'shape', predicted)}."
        )
    for violation in () if state.consistent else violations(system, q, v, t, params):
        raise ValueError(
            f"{capital(name)} begins off the constraints: {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; "
            + ("`start` must return a consistent state." if problem.start else _REMEDY)
        )
    if problem.start is not None:
        return state
    sds = recording.start_sd or (np.inf, np.inf)
    guess_q, guess_v = (A_GUESS, np.inf) if free else (FARTHEST, FARTHEST)
    # Of velocities relative to themselves, and to the extents per second.
    fast = np.asarray(state.velocity_extents) + np.abs(v0)
    for argument, x, y, sd, far in (
        ("q0", q0, np.asarray(q), sds[0], guess_q * np.asarray(state.extents)),
        ("v0", v0, np.asarray(v), sds[1], guess_v * fast),
    ):
        limit = np.where(np.isfinite(sd), DEVIATIONS * sd, far)
        worst = int(np.argmax(np.abs(y - x) / limit))
        if abs(y - x)[worst] > limit[worst]:
            raise ValueError(
                f"{capital(name)} begins off the constraints by more than its noise: "
                f"{argument}[{worst}] = {x[worst]:.6g} would have to move by "
                f"{abs(y - x)[worst]:.3g}, more than {limit[worst]:.3g}; {_REMEDY}"
            )
    return state


def initial_states(problem: FitProblem, s: Segments, params: Params) -> list[InitialState]:
    """The initial states of all segments."""
    starts = zip(np.asarray(s.q0), np.asarray(s.v0), np.asarray(s.ts)[:, 0], strict=True)
    return [
        initial_state(problem, *start, with_inputs(params, s.inputs_of(k)))
        for k, start in enumerate(starts)
    ]


def free_directions(
    problem: FitProblem, s: Segments, states: Sequence[InitialState], first: np.ndarray
) -> np.ndarray:
    """The directions of the start variables and their velocities, (S, k + l, i).

    The integrals of states of first order keep their starts, which no one measures, in segments
    with which a recording begins (`first`, flags (S,)), and have to join in others.
    """
    if problem.start is not None:
        return np.tile(np.eye(s.start_size), (len(s.q0), 1, 1))
    from scipy.linalg import block_diag, null_space  # slow to import, and seldom needed

    n = problem.system.dynamics.mechanical
    levels = [(state.A_position[:, :n], state.A_velocity) for state in states]
    bases = [tuple(null_space(A, rcond=1e-8) for A in pair) for pair in levels]
    if len({(of_q.shape, of_v.shape) for of_q, of_v in bases}) > 1:
        raise ValueError(
            "Free initial states need starts with the same number of degrees of freedom, but the "
            "rank of the constraints differs from one to another; give `start`, which makes a "
            'state of independent variables, or hold exact starts by `initial_states="fixed"`.'
        )
    integrals = np.eye(problem.system.n - n)[:, : 0 if first.all() else None]
    directions = np.stack([block_diag(of_q, integrals, of_v) for of_q, of_v in bases])
    directions[first, n : problem.system.n] = 0.0
    return directions
