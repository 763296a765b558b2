"""Validate the arguments of a fit and build its least-squares problem."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmech.identify.data.inputs import (
    numbers_besides_signals,
    with_inputs,
    without_inputs,
)
from jaxmech.identify.data.recording import (
    Recording,
    named,
    require_same_sensors,
    states_of_samples,
)
from jaxmech.identify.data.segments import SegmentOrigin, Segments, Shooting, segments
from jaxmech.identify.identifiable import Identifiable, Settings
from jaxmech.identify.problem.body_inertia import bodies_of
from jaxmech.identify.problem.contact_bounds import contact_bounds
from jaxmech.identify.problem.least_squares import (
    Conditions,
    Data,
    FitProblem,
    InitialState,
    consistent_start,
    free_directions,
    initial_states,
)
from jaxmech.identify.problem.parameters import Parameters, parameters
from jaxmech.identify.problem.rows import Point, Task, evaluated, state_sizes
from jaxmech.identify.problem.sensor_noise import first_weights
from jaxmech.identify.problem.steps import with_chosen_steps
from jaxmech.integrate import FixedSteps, Scheme
from jaxmech.run import simulate
from jaxmech.status import Status
from jaxmech.system import Params, function_values, named_values
from jaxmech.utils.parameters import unread
from jaxmech.utils.text import capital
from jaxmech.utils.units import RATE, dimension, shown_coordinates, si_unit, unit_in_name


@dataclass(frozen=True)
class DefaultSensors:
    """The default of `observe`: the coordinates, and the states of first order."""

    states: int

    def __call__(self, q: Array, v: Array, t: Array, params: Params) -> Array:
        """The values at a state, shape (n,)."""
        return named_values(q, v, self.states)


def prepare(subject: Identifiable, recordings: Any, settings: Settings) -> tuple[Task, Point]:
    """The task that the arguments of `fit` describe, and the point where it begins."""
    given = require_same_sensors(named(recordings, "recordings"))
    for one in given:
        _require_units(subject, one)
    subject = _with_controllers(given, subject, settings)
    found, problem = _problem(subject, given[0], settings)
    horizon, scheme = settings.horizon, problem.scheme
    params = jax.tree.unflatten(found.layout.structure, found.leaves)
    free = settings.free_starts
    states = [consistent_start(problem, params, one, free=free) for one in given]
    _require_inputs_are_read(problem, params, given[0], states[0])
    if horizon is not None:
        pairs = zip(given, states, strict=True)
        given = tuple(_with_guesses(problem, params, *pair) for pair in pairs)
    stack, origin = segments(given, horizon=horizon)
    states = initial_states(problem, stack, params)
    problem, longest = with_chosen_steps(problem, params, given, stack, states)
    if longest is not None and np.diff(np.asarray(stack.ts)).max() * (1 - 1e-9) > longest:
        stack, origin = segments(given, horizon=horizon, step=longest)
    weighted = all(one.weights is not None for one in given)
    along = jnp.asarray(np.zeros((len(stack.q0), stack.start_size, 0)))
    if free or horizon is not None:
        directions = free_directions(problem, stack, states, origin.first)
        directions[origin.first] *= free  # those of fixed initial states are zero
        along = jnp.asarray(directions)
    data = Data(stack, found.leaves, along)
    sensor_weight = np.ones(stack.observed.shape[2])
    if not weighted:
        sensor_weight = first_weights(np.asarray(stack.weights), np.asarray(stack.observed))
    conditions = _conditions(found, data, origin, states, settings, sensor_weight)
    y = np.zeros(found.layout.size + len(origin.recording) * data.free_starts)
    hard = horizon is not None and horizon.continuity is None
    chooses = isinstance(scheme.steps, FixedSteps) and scheme.steps.per_save is None
    task = Task(problem, data, conditions, origin, longest, hard, weighted, chooses, settings.loss)
    _require_enough(task, settings, subject)
    at = evaluated(task, y)
    _require_runs(task, at)
    return task, at


def _require_units(subject: Identifiable, one: Recording) -> None:
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


def _problem(
    subject: Identifiable, recording: Recording, settings: Settings
) -> tuple[Parameters, FitProblem]:
    """The fitted parameters, and what is static, for recordings with the same inputs as one."""
    system, shared = subject.system, without_inputs(subject.params, tuple(recording.inputs))
    found = parameters(
        shared,
        free=numbers_besides_signals(shared) if subject.free is None else subject.free,
        bounds=subject.bounds,
        prior=subject.prior,
        bodies=bodies_of(system),
        default_bounds=contact_bounds(system, shared),
    )
    observe = subject.observe or DefaultSensors(system.dynamics.n_states)
    policies = settings.method, settings.steps, settings.projection, settings.formulation
    scheme = Scheme.of(system, *policies)
    return found, FitProblem(scheme, observe, subject.start, found.layout)


def _with_controllers(
    given: tuple[Recording, ...], subject: Identifiable, settings: Settings
) -> Identifiable:
    """The subject with a system for runs as long as the recordings."""
    system = subject.system
    if system.sampling is None:
        return subject
    if settings.horizon is not None:
        raise ValueError(
            "Argument `initial_states` must not be Shooting(...) for a system with controllers: "
            "what they remember is not known in the middle of a recording."
        )
    longest = max(float(np.ptp(one.ts)) for one in given)
    return replace(subject, system=system.with_longest_run(longest))


def _require_enough(task: Task, settings: Settings, subject: Identifiable) -> None:
    """Raise if there are too few measurements for the unknowns, or for their noise and a prior."""
    size, given, starts = task.problem.layout.size, task.origin.recordings, task.data.free_starts
    count, size = sum(one.count for one in given), size + len(task.origin.recording) * starts
    remedy = 'fix parameters by `free`, or exact starts by `initial_states="fixed"`.'
    if count < size:
        raise ValueError(
            f"Argument `recordings` must hold at least as many measurements as there are unknowns, "
            f"but there are {count} for {size}; {remedy}"
        )
    if task.weighted:
        return
    unknowns = task.data.unknowns(task.problem.layout.size, task.origin.first)
    if count <= unknowns:
        raise ValueError(
            "Argument `recordings` must hold more measurements than there are unknowns, since "
            "their noise is estimated by what the fit leaves of them, but there are "
            f"{count} for {unknowns}; state the noise by `weights`, {remedy}"
        )
    weights = (
        "`weights` = 1 / (standard deviation of the noise): otherwise its weight relative to the "
        "samples is unknown."
    )
    for one in given if settings.free_starts else ():
        if one.start_sd is not None:
            raise ValueError(
                f"Argument `start_sd` of {one.name} needs {weights} Leave it out, or hold exact "
                'starts by `initial_states="fixed"`.'
            )
    if subject.prior:
        raise ValueError(f"Argument `prior` needs recordings with {weights}")


def _require_inputs_are_read(
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


def _require_runs(task: Task, at: Point) -> None:
    """Raise unless every segment can be simulated, and differentiated, where a fit begins."""
    problem, origin, found = task.problem, task.origin, at.run
    fixed = isinstance(problem.scheme.steps, FixedSteps)
    steps = "shorter steps (`steps`) or " if fixed else ""
    status = np.asarray(found.status)
    lost = ~np.isfinite(np.asarray(found.residual)).all(axis=(1, 2))
    for k in np.flatnonzero((status != Status.OK) | lost):
        name = origin.recordings[origin.recording[k]].name
        what = Status(int(status[k]))
        if what == Status.OK:
            raise ValueError(f"Argument `observe` gives NaN along {name}.")
        raise ValueError(
            f"{capital(name)} cannot be simulated with the parameters at the start of the fit: "
            f"{what.name}, {what.message}; begin nearer, take {steps}shorter segments (`Shooting`)."
        )
    slopes = np.asarray(at.slopes.residual)
    lost = ~np.isfinite(slopes).all(axis=(1, 2, 3))
    for k in np.flatnonzero(lost):
        raise ValueError(
            f"{capital(origin.recordings[origin.recording[k]].name)} has no derivative by the "
            "unknowns at the start of the fit; `check_gradients` finds the function of the system "
            "that causes it."
        )
    if not slopes.any():
        raise ValueError(
            "Argument `free` must name parameters that the sensors depend on, but at the start of "
            f"the fit no sensor depends on {', '.join(problem.layout.names)}: the system may be "
            "at rest, or an input zero. Record a motion, or begin with other parameters."
        )


def _with_guesses(
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
        sampled = states_of_samples(one)
        if sampled is not None:
            return replace(one, q0=sampled[0], v0=sampled[1])
    params = with_inputs(params, one.inputs)
    sol = simulate(problem.system, state.q, state.v, one.ts, params, **problem.scheme.policies)
    return replace(one, q0=np.asarray(sol.q), v0=np.asarray(sol.v))


def _conditions(
    found: Parameters, data: Data, origin: SegmentOrigin, states: Sequence[InitialState],
    settings: Settings, sensor_weight: np.ndarray,
) -> Conditions:  # fmt: skip
    count = len(data.segments.q0)
    start_weight = np.zeros((count, data.segments.start_size))
    for k in np.flatnonzero(origin.first) if settings.free_starts else ():
        sd = origin.recordings[origin.recording[k]].start_sd
        if sd is not None:
            start_weight[k] = 1 / np.concatenate(sd)
    return Conditions(
        prior_mean=found.prior_mean,
        prior_weight=1 / found.prior_sd,
        start_weight=start_weight,
        jump_weight=_jump_weight(data.segments, states, settings.horizon, sensor_weight),
        sensor_weight=sensor_weight,
        sample_weight=np.ones((1, 1, 1) if settings.loss is None else data.segments.weights.shape),
    )


def _jump_weight(
    s: Segments, states: Sequence[InitialState], horizon: Shooting | None, sensor_weight: np.ndarray
) -> np.ndarray:
    """The weight of a jump in each coordinate and velocity, (n + k,)."""
    size = states[0].q.size + states[0].v.size
    if horizon is None:
        return np.zeros(size)
    if horizon.continuity is not None:
        return np.full(size, 1 / horizon.continuity)
    # Where jumps must vanish, the unit in which they are weighed on the way: a jump of the size of
    # the motion counts as much as all measurements of a segment.
    scale = state_sizes(np.stack([np.concatenate([one.q, one.v]) for one in states]))
    observed = np.asarray(s.observed, float)
    centred = observed - observed.mean(axis=1, keepdims=True)
    weights = sensor_weight * np.asarray(s.weights, float)
    signal = np.sqrt(((weights * centred) ** 2).sum(axis=(1, 2)).mean())
    return np.asarray(signal / scale)
