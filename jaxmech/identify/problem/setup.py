"""Validate the arguments of a fit and build its least-squares problem."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from reprlib import repr as short
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.recording import named, require_same_sensors
from jaxmech.identify.data.segments import SegmentOrigin, segments
from jaxmech.identify.identifiable import Identifiable, Settings
from jaxmech.identify.problem.body_inertia import bodies_of
from jaxmech.identify.problem.contact_bounds import contact_bounds
from jaxmech.identify.problem.least_squares import Conditions, Data, FitProblem
from jaxmech.identify.problem.parameters import Parameters, parameters
from jaxmech.identify.problem.rows import Point, Task, evaluated, state_sizes
from jaxmech.identify.problem.sensor_noise import motion
from jaxmech.identify.problem.starts import (
    DefaultSensors,
    InitialState,
    consistent_start,
    free_directions,
    initial_state,
    require_inputs_are_read,
    require_units,
    with_guesses,
)
from jaxmech.identify.problem.steps import with_chosen_steps
from jaxmech.integrate import FixedSteps, Scheme
from jaxmech.status import Status
from jaxmech.system import is_signal
from jaxmech.utils.text import capital
from jaxmech.utils.trees import leaf_names


def prepare(subject: Identifiable, recordings: Any, settings: Settings) -> tuple[Task, Point]:
    """The task that the arguments of `fit` describe, and the point where it begins."""
    given = require_same_sensors(named(recordings, "recordings"))
    if subject.system.sampling is not None:
        if settings.horizon is not None:
            raise ValueError(
                "Argument `initial_states` must not be Shooting(...) for a system with "
                "controllers: what they remember is not known in the middle of a recording."
            )
        longest_run = max(float(np.ptp(one.ts)) for one in given)
        subject = replace(subject, system=subject.system.with_longest_run(longest_run))

    # The numbers to fit, and what is static, for recordings with the same inputs.
    system, shared, inputs, free = subject.system, subject.params, given[0].inputs, subject.free
    if inputs:
        if not isinstance(shared, Mapping):
            raise TypeError(
                "Argument `params0` must be a dictionary where recordings have inputs, which take "
                f"the places of its entries, but is {short(shared)}."
            )
        shared = {name: value for name, value in shared.items() if name not in inputs}
    if free is None and any(map(is_signal, jax.tree.leaves(shared, is_leaf=is_signal))):
        # all parameters but the samples of signals
        free = leaf_names(
            jax.tree.map(lambda x: None if is_signal(x) else x, shared, is_leaf=is_signal)
        )
    found = parameters(
        shared,
        free=free,
        bounds=subject.bounds,
        prior=subject.prior,
        bodies=bodies_of(system),
        default_bounds=contact_bounds(system, shared),
    )
    observe = subject.observe or DefaultSensors(system.dynamics.n_states)
    policies = settings.method, settings.steps, settings.projection, settings.formulation
    scheme = Scheme.of(system, *policies)
    problem = FitProblem(scheme, observe, subject.start, found.layout)
    params = jax.tree.unflatten(found.layout.structure, found.leaves)

    # Where recordings start, and their segments; and the directions in which starts may change.
    free_starts, horizon = settings.free_starts, settings.horizon
    for one in given:
        require_units(subject, one)
    states = [consistent_start(problem, params, one, free=free_starts) for one in given]
    require_inputs_are_read(problem, params, given[0], states[0])
    if horizon is not None:
        pairs = zip(given, states, strict=True)
        given = tuple(with_guesses(problem, params, *pair) for pair in pairs)
    stack, origin = segments(given, horizon=horizon)
    if horizon is not None:
        begins = zip(
            np.asarray(stack.q0), np.asarray(stack.v0), np.asarray(stack.ts)[:, 0], strict=True
        )
        states = [
            initial_state(problem, *begin, with_inputs(params, stack.inputs_of(k)))
            for k, begin in enumerate(begins)
        ]
    along = jnp.asarray(np.zeros((len(stack.q0), stack.start_size, 0)))
    if free_starts or horizon is not None:
        directions = free_directions(problem, stack, states, origin.first)
        directions[origin.first] *= free_starts  # those of fixed initial states are zero
        along = jnp.asarray(directions)

    # The steps; intervals that are too long for them are divided.
    problem, longest = with_chosen_steps(problem, params, given, stack, states)
    if longest is not None and np.diff(np.asarray(stack.ts)).max() * (1 - 1e-9) > longest:
        stack, origin = segments(given, horizon=horizon, step=longest)

    # What weighs how much.
    weighted = all(one.weights is not None for one in given)
    sensor_weight = np.ones(stack.observed.shape[2])
    if not weighted and sensor_weight.size > 1:  # one over the motion of each
        sensor_weight = 1 / motion(np.asarray(stack.weights), np.asarray(stack.observed))
    data = Data(stack, found.leaves, along)
    task = Task(
        problem, data, _conditions(found, data, origin, states, settings, sensor_weight), origin,
        longest, hard=horizon is not None, weighted=weighted,
        chooses_steps=isinstance(scheme.steps, FixedSteps) and scheme.steps.per_save is None,
        loss=settings.loss,
    )  # fmt: skip
    _require_enough(task, settings, subject)
    unmoved = np.zeros(len(origin.recording) * data.free_starts)
    at = evaluated(task, np.concatenate([found.layout.first(found.leaves), unmoved]))
    _require_runs(task, at)
    return task, at


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
    s, jump_weight = data.segments, np.zeros(states[0].q.size + states[0].v.size)
    if settings.horizon is not None:
        # Jumps must vanish; the unit in which they are weighed on the way: a jump of the size of
        # the motion counts as much as all measurements of a segment.
        scale = state_sizes(np.stack([np.concatenate([one.q, one.v]) for one in states]))
        observed = np.asarray(s.observed, float)
        centred = observed - observed.mean(axis=1, keepdims=True)
        weights = sensor_weight * np.asarray(s.weights, float)
        jump_weight = np.sqrt(((weights * centred) ** 2).sum(axis=(1, 2)).mean()) / scale
    return Conditions(
        prior_mean=found.prior_mean,
        prior_weight=1 / found.prior_sd,
        start_weight=start_weight,
        jump_weight=jump_weight,
        sensor_weight=sensor_weight,
        sample_weight=np.ones((1, 1, 1) if settings.loss is None else data.segments.weights.shape),
    )
