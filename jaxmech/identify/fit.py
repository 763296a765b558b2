"""`fit`: parameters of a system from recordings of its motion."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmech.identify.data.recording import named, require_same_sensors
from jaxmech.identify.identifiable import Identifiable, InitialStates, Settings
from jaxmech.identify.optimize.loop import Solved, across_kinks, solve, starting_points
from jaxmech.identify.optimize.trust_region import TrustRegion
from jaxmech.identify.outcome import is_noise, result_of
from jaxmech.identify.problem.least_squares import Observe
from jaxmech.identify.problem.noise import Huber
from jaxmech.identify.problem.rows import Point, evaluated, samples, unrobust
from jaxmech.identify.problem.setup import prepare
from jaxmech.identify.problem.starts import consistent_start
from jaxmech.identify.result import Fit
from jaxmech.state import Start
from jaxmech.system import Params, Subject
from jaxmech.utils.text import not_one_of

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
        >>> found = fit(model.system, recording, guess, free=["g"])
        >>> print(found.params["g"].round(6))
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
        solved = across_kinks(solved, policy, is_noise)
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
        return float(counts @ np.log(solved.noise.sd))
    return solved.history[-1]
