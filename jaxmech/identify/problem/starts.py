"""The starts of recordings: whether they are consistent, where they lead, and what may change.

Recorded of an initial state are start variables and their rates (`jaxmech.state.begin`). With a
`start` they may change in every direction, without one along the constraints.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.data.velocity_estimates import rates
from jaxmech.identify.identifiable import Identifiable
from jaxmech.identify.problem.least_squares import FitProblem
from jaxmech.run import simulate
from jaxmech.state import begin
from jaxmech.system import (
    Params,
    constraint_jacobians,
    extents_at,
    function_values,
    named_values,
    on_constraints,
    violations,
)
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.parameters import unread
from jaxmech.utils.text import capital
from jaxmech.utils.units import RATE, dimension, shown_coordinates, si_unit, unit_in_name

# by how much recorded initial states may be off the constraints:
FARTHEST = 2e-2  # relative to the extents of the mechanism, without further knowledge
A_GUESS = 1.0  # the same for coordinates that are only a guess to begin with
DEVIATIONS = 5  # in standard deviations, where these are known
_FEWEST = 3  # samples of a coordinate from which it has a rate
_REMEDY = "check q0 and v0, and that the parameters at the start of the fit belong to them."


@dataclass(frozen=True)
class DefaultSensors:
    """The default of `observe`: the coordinates, and the states of first order."""

    states: int

    def __call__(self, q: Array, v: Array, t: Array, params: Params) -> Array:
        """The values at a state, shape (n,)."""
        return named_values(q, v, self.states)


def require_units(subject: Identifiable, one: Recording) -> None:
    """Raise if a column has another unit than what it stands for: its dimension, or its size."""
    system, pairs = subject.system, list[tuple[str, str]]()
    names = (*shown_coordinates(system.coordinates), *system.states)
    if subject.observe is None:
        pairs += zip(one.sensors, names, strict=False)
    if subject.start is None:
        pairs += zip(one.starts[0], system.coordinates, strict=False)
        rates = [
            x if x in (*system.states, *system.velocities) else f"{x}{RATE}"
            for x in system.velocity_names
        ]
        pairs += zip(one.starts[1], rates, strict=False)
    for label, name in pairs:
        column, unit = unit_in_name(label)
        stated = system.unit(name)
        known = si_unit(stated), si_unit(unit or "")
        same = known[0] and known[1] and known[0][0] == known[1][0]
        if unit and stated and not (same and dimension(unit) == dimension(stated)):
            raise ValueError(
                f"Argument `recordings` must have the units of the coordinates, but {column!r} of "
                f"{one.name} is in {unit}, and {name!r} in {stated}; correct one of them, or give "
                "`observe`."
            )


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


def require_inputs_are_read(
    problem: FitProblem, params: Params, recording: Recording, state: InitialState
) -> None:
    """Raise if no function reads an input."""
    if not recording.inputs:
        return
    q, v, t = state.q, state.v, jnp.asarray(recording.ts[0])

    def read(inputs: Any) -> Any:
        motion_params = problem.system.with_outputs(with_inputs(params, inputs))
        results = [function_values(problem.system, q, v, t, motion_params)]
        results.append(problem.observe(q, v, t, motion_params))
        if problem.start is not None:
            q0, v0 = (jnp.asarray(np.atleast_2d(x)[0]) for x in (recording.q0, recording.v0))
            results.append(problem.start(q0, v0, motion_params))
        return results

    idle = unread(read, recording.inputs)
    for name in recording.inputs:
        if f"{name}.values" in idle:
            raise ValueError(
                f"Argument `inputs` of {recording.name} holds {name!r}, which no function reads; "
                f"call `params[{name!r}](t)` in a function of the system, correct the name, or "
                "leave it out."
            )


def with_guesses(
    problem: FitProblem, params: Params, one: Recording, state: InitialState
) -> Recording:
    """Complete a recording with start variables at every sample: the samples, or a simulation."""
    if one.q0.ndim == 2:
        return one
    if problem.start is not None:
        raise ValueError(
            f"Argument `q0` of {one.name} must have shape (T, {one.q0.size}), and `v0` too: "
            "multiple shooting with `start` needs a guess of both at every sample."
        )
    plain = not problem.system.velocities and not problem.system.states
    if isinstance(problem.observe, DefaultSensors) and plain:
        samples = np.where(one.measured, one.observed, np.nan)
        if (np.isfinite(samples).sum(axis=0) >= _FEWEST).all():
            v = rates(samples, one.ts)
            samples[0], v[0] = one.q0, one.v0
            return replace(one, q0=samples, v0=v)
    params = with_inputs(params, one.inputs)
    sol = simulate(problem.system, state.q, state.v, one.ts, params, **problem.scheme.policies)
    return replace(one, q0=np.asarray(sol.q), v0=np.asarray(sol.v))
