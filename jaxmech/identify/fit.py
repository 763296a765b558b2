"""`fit`: parameters of a system from recordings of its motion."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as short
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxmech.identify.optimize import Solved, TrustRegion, across_kinks, solve, starting_points
from jaxmech.identify.parameters import Parameters, bodies_of, contact_bounds, parameters
from jaxmech.identify.problem import (
    Conditions,
    Data,
    FitProblem,
    Huber,
    Observe,
    Point,
    SegmentOrigin,
    Segments,
    Task,
    evaluated,
    samples,
    state_sizes,
    unrobust,
    with_inputs,
)
from jaxmech.identify.recording import named, require_same_sensors
from jaxmech.identify.result import Fit, result_of
from jaxmech.identify.segments import (
    DefaultSensors,
    InitialState,
    Shooting,
    consistent_start,
    free_directions,
    initial_state,
    motion,
    require_inputs_are_read,
    segments,
    with_chosen_steps,
    with_guesses,
)
from jaxmech.integrate import AbstractMethod, AbstractSteps, FixedSteps, Scheme, method_and_steps
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection, Start
from jaxmech.status import Status
from jaxmech.system import Params, Signal, Subject, with_params
from jaxmech.utils.checks import require_function, require_kind
from jaxmech.utils.text import capital, not_one_of, setting
from jaxmech.utils.traces import first_equal
from jaxmech.utils.trees import leaf_names

InitialStates = Literal["fixed", "free"] | Shooting


@dataclass(frozen=True, eq=False)
class Identifiable:
    """A system, its unknown parameters, and its sensors, in the place of the system in `fit`.

    Its arguments are the arguments of `fit` with the same names; `params` are the initial values of
    the parameters, which `fit` calls `params0`.

    Raises:
        TypeError: if an argument is of the wrong kind.
    """

    system: Subject
    params: Params = None
    observe: Observe | None = None
    start: Start | None = None
    free: Sequence[str] | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    prior: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        system, params = with_params(self.system, self.params)
        object.__setattr__(self, "system", system)
        object.__setattr__(self, "params", params)
        for name in ("observe", "start"):
            if getattr(self, name) is not None:
                require_function(name, getattr(self, name))
                object.__setattr__(self, name, first_equal(getattr(self, name)))


@dataclass(frozen=True, eq=False)
class Settings:
    """The policies of `fit` in one object: its arguments, and keys of its configuration files."""

    optimizer: TrustRegion = setting(TrustRegion(), "optimizer")
    initial_states: InitialStates = setting(
        "free", "whether the initial states of the recordings are fitted too"
    )
    method: AbstractMethod | None = setting(
        None, "how a step is made; RK4, or DormandPrince8 for adaptive steps, by default"
    )
    steps: AbstractSteps | None = setting(FixedSteps(), "how long the steps are")
    projection: AbstractStabilization | None = setting(Projection(), "control of drift")
    formulation: AbstractFormulation = setting(UdwadiaKalaba(), "law of motion")
    loss: Huber | None = setting(None, "a robust loss, against outliers")

    def __post_init__(self) -> None:
        require_kind("optimizer", self.optimizer, TrustRegion, "TrustRegion()")
        if self.loss is not None:
            require_kind("loss", self.loss, Huber, "Huber()")
        if self.initial_states not in ("fixed", "free"):
            example = '"fixed", "free" or Shooting(0.5)'
            require_kind("initial_states", self.initial_states, Shooting, example)
        method, steps = method_and_steps(self.method, self.steps)
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "steps", steps)

    @property
    def horizon(self) -> Shooting | None:
        """The segments into which recordings are cut, if they are."""
        return self.initial_states if isinstance(self.initial_states, Shooting) else None

    @property
    def free_starts(self) -> bool:
        first = self.horizon.first if self.horizon else self.initial_states
        return first == "free"


def prepare(subject: Identifiable, recordings: Any, settings: Settings) -> tuple[Task, Point]:
    """The task that the arguments of `fit` describe, and the point where it begins."""
    recordings = require_same_sensors(named(recordings, "recordings"))
    if subject.system.sampling is not None:
        if settings.horizon is not None:
            raise ValueError(
                "Argument `initial_states` must not be Shooting(...) for a system with "
                "controllers: what they remember is not known in the middle of a recording."
            )
        longest_run = max(float(np.ptp(recording.ts)) for recording in recordings)
        subject = replace(subject, system=subject.system.with_longest_run(longest_run))

    # The numbers to fit, and what is static, for recordings with the same inputs.
    system, shared, free = subject.system, subject.params, subject.free
    if inputs := recordings[0].inputs:
        if not isinstance(shared, Mapping):
            raise TypeError(
                "Argument `params0` must be a dictionary where recordings have inputs, which take "
                f"the places of its entries, but is {short(shared)}."
            )
        shared = {name: value for name, value in shared.items() if name not in inputs}
    if free is None and Signal.all_in(shared):
        # all parameters but the samples of signals
        free = leaf_names(Signal.mapped(lambda _: None, shared))
    bodies, default_bounds = bodies_of(system), contact_bounds(system, shared)
    unknowns = parameters(
        shared, free=free, bounds=subject.bounds, prior=subject.prior, bodies=bodies,
        default_bounds=default_bounds,
    )  # fmt: skip
    observe = subject.observe or DefaultSensors(system)
    policies = settings.method, settings.steps, settings.projection, settings.formulation
    scheme = Scheme.of(system, *policies)
    problem = FitProblem(scheme, observe, subject.start, unknowns.layout)
    params = jax.tree.unflatten(unknowns.layout.structure, unknowns.leaves)

    # Where recordings start, and their segments; and the directions in which starts may change.
    free_starts, horizon = settings.free_starts, settings.horizon
    states = [consistent_start(problem, params, x, free=free_starts) for x in recordings]
    require_inputs_are_read(problem, params, recordings[0], states[0])
    if horizon is not None:
        pairs = zip(recordings, states, strict=True)
        recordings = tuple(with_guesses(problem, params, *pair) for pair in pairs)
    stack, origin = segments(recordings, horizon=horizon)
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
    problem, longest = with_chosen_steps(problem, params, recordings, stack, states)
    if longest is not None and np.diff(np.asarray(stack.ts)).max() * (1 - 1e-9) > longest:
        stack, origin = segments(recordings, horizon=horizon, step=longest)

    sizes = motion(stack)
    task = Task(
        problem, Data(stack, unknowns.leaves, along),
        _conditions(unknowns, stack, origin, states, settings, sizes), origin, longest,
        hard=horizon is not None, weighted=recordings[0].weights is not None,
        chooses_steps=isinstance(scheme.steps, FixedSteps) and scheme.steps.per_save is None,
        loss=settings.loss,
    )  # fmt: skip
    _require_enough(task, settings, subject)
    unmoved = np.zeros(len(origin.recording) * task.data.free_starts)
    at = evaluated(task, np.concatenate([unknowns.layout.first(unknowns.leaves), unmoved]))
    _require_runs(task, at)
    return task, at


def _require_enough(task: Task, settings: Settings, subject: Identifiable) -> None:
    """Raise if there are too few measurements for the unknowns, or for their noise and a prior."""
    count, starts = task.count, len(task.origin.recording) * task.data.free_starts
    size = task.problem.layout.size + starts
    remedy = 'fix parameters by `free`, or exact starts by `initial_states="fixed"`.'
    if count < size:
        raise ValueError(
            f"Argument `recordings` must hold at least as many measurements as there are unknowns, "
            f"but there are {count} for {size}; {remedy}"
        )
    if task.weighted:
        return
    if count <= task.unknowns:
        raise ValueError(
            "Argument `recordings` must hold more measurements than there are unknowns, since "
            "their noise is estimated by what the fit leaves of them, but there are "
            f"{count} for {task.unknowns}; state the noise by `weights`, {remedy}"
        )
    weights = (
        "`weights` = 1 / (standard deviation of the noise): otherwise its weight relative to the "
        "samples is unknown."
    )
    for recording in task.origin.recordings if settings.free_starts else ():
        if recording.start_sd is not None:
            raise ValueError(
                f"Argument `start_sd` of {recording.name} needs {weights} Leave it out, or hold "
                'exact starts by `initial_states="fixed"`.'
            )
    if subject.prior:
        raise ValueError(f"Argument `prior` needs recordings with {weights}")


def _require_runs(task: Task, at: Point) -> None:
    """Raise unless every segment can be simulated, and differentiated, where a fit begins."""
    problem, origin, run = task.problem, task.origin, at.run
    fixed = isinstance(problem.scheme.steps, FixedSteps)
    steps = "shorter steps (`steps`) or " if fixed else ""
    status = np.asarray(run.status)
    lost = ~np.isfinite(np.asarray(run.residual)).all(axis=(1, 2))
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
    unknowns: Parameters, s: Segments, origin: SegmentOrigin, states: Sequence[InitialState],
    settings: Settings, sizes: np.ndarray,
) -> Conditions:  # fmt: skip
    """What weighs how much, with the `sizes` of the motion of the sensors, (d,)."""
    is_relative = origin.recordings[0].weights is None and sizes.size > 1
    sensor_weight = 1 / sizes if is_relative else np.ones(sizes.size)
    start_weight = np.zeros((len(s.q0), s.start_size))
    for k in np.flatnonzero(origin.first) if settings.free_starts else ():
        sd = origin.recordings[origin.recording[k]].start_sd
        if sd is not None:
            start_weight[k] = 1 / np.concatenate(sd)
    jump_weight = np.zeros(states[0].q.size + states[0].v.size)
    if settings.horizon is not None:
        # Jumps must vanish; the unit in which they are weighed on the way: a jump of the size of
        # the motion counts as much as all measurements of a segment.
        scale = state_sizes(np.stack([np.concatenate([state.q, state.v]) for state in states]))
        observed = np.asarray(s.observed, float)
        centred = observed - observed.mean(axis=1, keepdims=True)
        weights = sensor_weight * np.asarray(s.weights, float)
        jump_weight = np.sqrt(((weights * centred) ** 2).sum(axis=(1, 2)).mean()) / scale
    return Conditions(
        prior_mean=unknowns.prior_mean,
        prior_weight=1 / unknowns.prior_sd,
        start_weight=start_weight,
        jump_weight=jump_weight,
        sensor_weight=sensor_weight,
        sample_weight=np.ones((1, 1, 1) if settings.loss is None else s.weights.shape),
    )


RUN = {"method", "steps", "projection", "formulation", "progress"}  # further arguments of `fit`


def fit(
    system: Subject | Identifiable,
    recordings: Any,
    params0: Params = None,
    *,
    observe: Observe | None = None,
    start: Start | None = None,
    free: Sequence[str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
    validation: Any = (),
    initial_states: InitialStates = "free",
    loss: Huber | None = None,
    optimizer: TrustRegion = TrustRegion(),
    **run: Any,
) -> Fit:
    """Fit parameters so that the simulated motion matches the recorded one as closely as possible.

    Minimizes the sum of squares of weight * (predicted - observed) over all measurements, with
    derivatives through the whole simulation, constraints and projection included.

    Args:
        system: the system, with n coordinates; or a model, a mechanism or a robot; or an
            `Identifiable`, in which it stands together with `params0`, `observe`, `start`, `free`,
            `bounds` and `prior`.
        recordings: a `Recording`, or a sequence of recordings of any lengths with the same sensors.
        params0: initial values of the parameters, a pytree of numbers such as a dictionary; by
            default those of the model, mechanism or robot.
        observe: observe(q, v, t, params) returns the sensor values, shape (d,); the coordinates by
            default. Offsets, scales and delays of sensors are parameters like any others.
        start: start(q0, v0, params) returns the consistent state q (n,), v (n,) for recorded start
            variables, such as measured angles. By default the start variables are the coordinates
            and velocities, which are projected onto the constraints.
        free: names of the parameters to fit, or of branches of the tree of parameters; by default
            all numbers. Parameters that are not fitted keep their types. A nested parameter is
            called "arm.length". The name of a body of a mechanism stands for its mass, its centre
            and its inertia, which are then kept physically consistent.
        bounds: bounds by name: (low, high), with None for no bound on that side. By default limits
            of dry friction are not negative, and restitutions from 0 to 1, if they start so.
        prior: priors by name, (mean, standard deviation); needs recordings with weights.
        validation: recordings that are not fitted, for judging the result.
        initial_states: "free" fits them along with the parameters, on the constraints, with
            `Recording.start_sd` as their prior where it is known; "fixed" keeps the recorded
            values, which must then be exact. A first sample is a measurement with noise like any
            other: if it is treated as exact, the intervals miss the true values. `Shooting(...)`
            cuts the recordings into segments, for chaotic motion.
        loss: a robust loss, `Huber()`, for recordings with outliers; by
            default squares.
        optimizer: `TrustRegion()`. With `starts=MultiStart(...)` it begins at random points too. A
            system with impacts or dry friction is fitted from some points around its optimum in any
            case, if the residuals there are not noise: its loss has many minima.
        **run: `method`, `steps`, `projection` and `formulation`, as for `simulate`, and `progress`,
            whether to show the loss. `per_save` of `FixedSteps` is the number of steps per interval
            between samples, by default chosen from the motion at the start, and again at the end if
            that needs more; intervals in which a step would be longer than `max_step` are divided.
            `max_steps` of `Adaptive` applies to each recording, or segment.

    Returns:
        A `Fit`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a name, a shape, a bound, a recording or an initial state is invalid, or
            nothing that was observed depends on a parameter at the start.
        FloatingPointError: if none of the random starting points can be simulated.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> sol = jm.simulate(model.system, q0, v0, ts, model.params)
        >>> recording, guess = jm.Recording(ts, sol.q, q0, v0), {**model.params, "g": 9.0}
        >>> result = fit(model.system, recording, guess, free=["g"])
        >>> print(result.params["g"].round(6))
        9.81
    """
    if isinstance(system, Identifiable):
        subject = system
        if any(x is not None for x in (params0, observe, start, free, bounds, prior)):
            raise ValueError(
                "Argument `system` is an Identifiable, which holds `params0`, `observe`, `start`, "
                "`free`, `bounds` and `prior` already; leave these out, or replace them in it."
            )
    else:
        subject = Identifiable(system, params0, observe, start, free, bounds or {}, prior or {})
    for name in run.keys() - RUN:
        known = (*inspect.signature(fit).parameters.keys() - {"run"}, *RUN)
        raise TypeError(f"Argument `{name}` {not_one_of(name, known, 'an argument of `fit`')}")
    progress = run.pop("progress", False)
    settings = Settings(optimizer, initial_states, loss=loss, **run)
    policy = settings.optimizer
    task, at = prepare(subject, recordings, settings)
    params = jax.tree.unflatten(task.problem.layout.structure, task.data.leaves)
    others = named(validation, "validation")
    if others:
        require_same_sensors((*task.origin.recordings, *others))
    for recording in others:
        consistent_start(task.problem, params, recording, free=settings.free_starts)
    points: Iterable[Point] = [at]
    if policy.starts:  # one after the other, since points are large
        points = (evaluated(task, y) for y in starting_points(task, at.y, policy.starts))
    ends = [solve(task, point, policy, progress=progress) for point in points]
    if not ends:
        raise FloatingPointError(
            "Argument `optimizer`: none of the starting points can be simulated; take a smaller "
            "spread."
        )
    losses = [_final_loss(end) for end in ends] if len(ends) > 1 else [0.0]
    solved = ends[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]
    has_kinks = bool(task.problem.system.unilateral)
    if has_kinks and not (policy.starts or settings.horizon):
        solved = across_kinks(solved, policy)
    return result_of(solved, others)


def _final_loss(solved: Solved) -> float:
    """The loss that decides between the fits of several starting points."""
    task, conditions = solved.task, solved.conditions
    counts = task.seen.sum((0, 1))
    if task.loss is not None:
        r, _ = samples(solved.at, unrobust(conditions))
        scales = counts @ np.log(np.asarray(conditions.sensor_weight))
        return float(task.loss.value(r[task.seen]).sum() - scales)
    if solved.noise is not None:  # the weights differ from fit to fit
        return float(counts @ np.log(solved.noise))
    return solved.history[-1]
