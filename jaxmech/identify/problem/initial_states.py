"""The initial states of recordings and segments, and the directions in which a fit may change them.

Recorded are start variables and their rates (`jaxmech.assemble.begin`). With a `start` they may
change in every direction, without one along the constraints.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmech.assemble import begin
from jaxmech.consistency import constraint_jacobians, extents_at, on_constraints, violations
from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.problem.least_squares import FitProblem
from jaxmech.system import Params
from jaxmech.utils.checks import naming_missing
from jaxmech.utils.jit_cache import jit_of
from jaxmech.utils.text import capital

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
    q, v = system.completed(*begin(system, problem.start, q0, v0, t, params))
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
    system = problem.system
    q0, v0 = (x if x.ndim == 1 else x[0] for x in (recording.q0, recording.v0))
    _require_start_shapes(problem, recording, q0, v0)
    params, t = with_inputs(params, recording.inputs), jnp.asarray(recording.ts[0])
    state = initial_state(problem, jnp.asarray(q0), jnp.asarray(v0), t, params)
    q, v = state.q, state.v
    sensors = recording.observed.shape[1]
    with naming_missing("`observe`", params):
        predicted = jax.eval_shape(problem.observe, q, v, t, params)
    if getattr(predicted, "shape", None) != (sensors,):
        raise ValueError(
            f"Argument `observe` must return shape ({sensors},), one number for each sensor of "
            f"{recording.name}, but returns {getattr(predicted, 'shape', predicted)}."
        )
    for violation in () if state.consistent else violations(system, q, v, t, params):
        raise ValueError(
            f"{capital(recording.name)} begins off the constraints: {violation.name!r} has a "
            f"{violation.level} residual of {violation.size:.3g}; "
            + ("`start` must return a consistent state." if problem.start else _REMEDY)
        )
    if problem.start is None:
        _require_near(recording, (q0, v0), state, free=free)
    return state


def _require_start_shapes(
    problem: FitProblem, recording: Recording, q0: np.ndarray, v0: np.ndarray
) -> None:
    """Raise unless recorded starts fit the system, or each other for `start` to work on."""
    system, is_plain = problem.system, not problem.system.velocities
    if is_plain and q0.shape != v0.shape:
        raise ValueError(
            f"Argument `v0` of {recording.name} must have the shape of `q0`, {q0.shape}, but has "
            f"shape {v0.shape}."
        )
    if problem.start is not None:
        return
    remedy = "other start variables need the argument `start` of fit."
    if q0.shape != (system.n,):
        raise ValueError(
            f"Argument `q0` of {recording.name} must have shape ({system.n},) for the coordinates "
            f"{', '.join(system.coordinates)}, but has shape {q0.shape}; {remedy}"
        )
    if v0.shape != (system.n_velocities,):
        raise ValueError(
            f"Argument `v0` of {recording.name} must have shape ({system.n_velocities},) for the "
            f"velocities {', '.join(system.velocity_names)}, but has shape {v0.shape}; rates of "
            f"coordinates, such as differences of samples, are not these: give them, or {remedy}"
        )


def _require_near(
    recording: Recording,
    recorded: tuple[np.ndarray, np.ndarray],
    state: InitialState,
    *,
    free: bool,
) -> None:
    """Raise if the recorded start variables had to move far to meet the constraints."""
    sds, extents = recording.start_sd or (np.inf, np.inf), np.asarray(state.extents)
    guesses = (A_GUESS, np.inf) if free else (FARTHEST, FARTHEST)
    # Of velocities relative to themselves, and to the extents per second.
    sizes = extents, np.asarray(state.velocity_extents) + np.abs(recorded[1])
    reached = state.q, state.v
    rows = zip(("q0", "v0"), recorded, map(np.asarray, reached), sizes, sds, guesses, strict=True)
    for name, x, y, size, sd, guess in rows:
        limit = np.where(np.isfinite(sd), DEVIATIONS * sd, guess * size)
        worst = int(np.argmax(np.abs(y - x) / limit))
        if abs(y - x)[worst] > limit[worst]:
            raise ValueError(
                f"{capital(recording.name)} begins off the constraints by more than its noise: "
                f"{name}[{worst}] = {x[worst]:.6g} would have to move by "
                f"{abs(y - x)[worst]:.3g}, more than {limit[worst]:.3g}; {_REMEDY}"
            )


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
    with which a recording begins (`first`, flags (S,)), and have to join in others. So do the
    states of controllers.
    """
    if problem.start is not None:
        return np.tile(np.eye(s.start_size), (len(s.q0), 1, 1))
    from scipy.linalg import block_diag, null_space  # slow to import, and seldom needed

    n = problem.system.n - len(problem.system.states)
    free_v = problem.system.n_velocities - problem.system.held
    levels = [(state.A_position[:, :n], state.A_velocity[:, :free_v]) for state in states]
    bases = [tuple(null_space(A, rcond=1e-8) for A in pair) for pair in levels]
    if len({(of_q.shape, of_v.shape) for of_q, of_v in bases}) > 1:
        raise ValueError(
            "Free initial states need starts with the same number of degrees of freedom, but the "
            "rank of the constraints differs from one to another; give `start`, which makes a "
            'state of independent variables, or hold exact starts by `initial_states="fixed"`.'
        )
    integrals = np.eye(problem.system.n - n)[:, : 0 if first.all() else None]
    held = np.zeros((problem.system.held, 0))
    directions = np.stack([block_diag(of_q, integrals, of_v, held) for of_q, of_v in bases])
    directions[first, n : problem.system.n] = 0.0
    return directions
