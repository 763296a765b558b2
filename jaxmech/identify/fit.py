"""`fit`: parameters of a system from recordings of its motion."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxmech.identify.data.recording import Recording, named, require_same_sensors
from jaxmech.identify.data.segments import Shooting
from jaxmech.identify.identifiable import Identifiable, InitialStates, Optimizer, Settings
from jaxmech.identify.optimize.gradient_descent import Descent
from jaxmech.identify.optimize.loop import (
    MultiStart,
    Solved,
    across_kinks,
    solve,
    starting_points,
)
from jaxmech.identify.optimize.trust_region import TrustRegion
from jaxmech.identify.outcome import held_out, is_noise, result_of
from jaxmech.identify.problem.least_squares import (
    Data,
    Observe,
    consistent_start,
    half_square,
    mean_square,
)
from jaxmech.identify.problem.noise import AbstractLoss
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.sensor_noise import log_likelihood
from jaxmech.identify.problem.setup import prepare
from jaxmech.identify.problem.steps import with_steps
from jaxmech.identify.result import Fit
from jaxmech.integrate import AbstractMethod, AbstractSteps
from jaxmech.laws import AbstractFormulation, UdwadiaKalaba
from jaxmech.state import AbstractStabilization, Projection, Start
from jaxmech.system import Params, Subject


def fit(
    system: Subject | Identifiable,
    recordings: Any,
    params0: Params = None,
    *,
    observe: Observe | None = None,
    start: Start | None = None,
    optimizer: Optimizer = TrustRegion(),
    free: Sequence[str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
    initial_states: InitialStates = "free",
    horizon: Shooting | None = None,
    validation: Any = (),
    multistart: MultiStart | None = None,
    loss: AbstractLoss | None = None,
    method: AbstractMethod | None = None,
    steps: AbstractSteps | None = None,
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    progress: bool = False,
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
        optimizer: `TrustRegion()`, `Descent(...)`, or an optax transformation.
        free: names of the parameters to fit, or of branches of the tree of parameters; by default
            all numbers. Parameters that are not fitted keep their types. A nested parameter is
            called "arm.length". The name of a body of a mechanism stands for its mass, its centre
            and its inertia, which are then kept physically consistent.
        bounds: bounds by name: (low, high), with None for no bound on that side, or
            `PhysicalInertia()`.
        prior: priors by name, (mean, standard deviation); needs recordings with weights.
        initial_states: "free" fits them along with the parameters, on the constraints, with
            `Recording.start_sd` as their prior where it is known; "fixed" keeps the recorded
            values, which must then be exact. A first sample is a measurement with noise like any
            other: if it is treated as exact, the intervals miss the true values. A fit with fixed
            initial states tests whether the recordings agree with them, and warns if not.
        horizon: `Shooting(...)` to cut the recordings into segments, for chaotic motion.
        validation: recordings that are not fitted, for judging the result. They do not influence
            the fit, except with the `patience` of `Descent`.
        multistart: random starting points, of which the best are fitted. By default a system with
            impacts or dry friction is fitted from some points around its optimum too, if the
            residuals there are not noise: its loss has many minima.
        loss: a robust loss, `Huber()`, `Cauchy()` or `StudentT()`, for recordings with outliers; by
            default squares.
        method: the integration method, as for `simulate`.
        steps: the step size policy. `per_save` of `FixedSteps` is the number of steps per interval
            between samples, by default chosen from the motion at the start, and again at the end if
            that needs more; intervals in which a step would be longer than `max_step` are divided.
            `max_steps` of `Adaptive` applies to each recording, or segment with a `horizon`.
        projection: stabilization against drift, as for `simulate`.
        formulation: law of motion.
        progress: whether to show the loss.

    Returns:
        A `Fit`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if a name, a shape, a bound, a recording or an initial state is invalid, or
            nothing that was observed depends on a parameter at the start.
        FloatingPointError: if the steps of a descent are too long.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxmech as jm
        >>> model = jm.models.pendulum()
        >>> q0, v0 = model.initial()
        >>> ts = jnp.linspace(0.0, 1.0, 101)
        >>> sol = jm.simulate(model.system, q0, v0, ts, model.params)
        >>> found = fit(
        ...     model.system, Recording(ts, sol.q, q0, v0), {**model.params, "g": 9.0}, free=["g"]
        ... )
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
    settings = Settings(
        optimizer, initial_states, horizon, multistart, method, steps, projection, formulation,
        loss,
    )  # fmt: skip
    policy = settings.optimizer
    if isinstance(policy, optax.GradientTransformation):
        policy = Descent(policy)
    if not isinstance(policy, TrustRegion | Descent):
        raise TypeError(
            "Argument `optimizer` must be TrustRegion(), Descent(...) or an optax "
            f"transformation, but is {settings.optimizer!r}."
        )
    if isinstance(policy, Descent) and settings.loss:
        raise ValueError("Argument `loss` needs the optimizer TrustRegion(), but it is a descent.")
    _require_joints(policy, settings)
    task = prepare(subject, recordings, settings)
    params = jax.tree.unflatten(task.problem.layout.structure, task.data.leaves)
    others = named(validation, "validation")
    if others:
        require_same_sensors((*task.origin.recordings, *others))
    for recording in others:
        consistent_start(task.problem, params, recording, free=settings.initial_states == "free")
    deciding = _deciding(policy, task, others)
    tasks = starting_points(task, multistart) if multistart else [task]
    if not tasks:
        raise FloatingPointError(
            "Argument `multistart`: none of the starting points can be simulated; take a smaller "
            "spread."
        )
    ends = []
    for task in tasks:
        solved = solve(task, policy, deciding, progress)
        ends.append((with_steps(task, solved.per_save), solved))
    losses = [_final_loss(*end, policy, deciding) for end in ends] if len(ends) > 1 else [0.0]
    task, solved = ends[int(np.argmin(np.nan_to_num(losses, nan=np.inf)))]
    has_kinks = bool(task.problem.system.unilateral)
    if has_kinks and isinstance(policy, TrustRegion) and not (multistart or horizon):
        solved = across_kinks(task, solved, policy, is_noise)
        task = with_steps(task, solved.per_save)
    return result_of(task, solved, others, subject.params)


def _require_joints(policy: Any, settings: Settings) -> None:
    """Raise if segments cannot be joined as the settings demand."""
    horizon = settings.horizon
    if horizon is None:
        return
    if isinstance(policy, Descent) and horizon.continuity is None:
        raise ValueError(
            "Argument `horizon` must have a `continuity` for a descent, such as "
            f"Shooting({horizon.length:g}, continuity=1e-3): jumps vanish by TrustRegion() alone."
        )


def _final_loss(task: Task, solved: Solved, policy: Any, validation: Data | None) -> float:
    """The loss that decides between the fits of several starting points."""
    if validation is not None:
        return float(mean_square(task.problem, solved.y, validation))
    if isinstance(policy, Descent):  # its last loss is that of a batch, before the last step
        return float(half_square(task.problem, jnp.asarray(solved.y), task.data, solved.conditions))
    if task.loss is not None:
        return -log_likelihood(task, solved.y, solved.conditions)
    if solved.noise is not None:  # the weights differ from fit to fit
        counts = (np.asarray(task.data.segments.weights) > 0).sum((0, 1))
        return float(counts @ np.log(solved.noise.sd))
    return solved.history[-1]


def _deciding(policy: Any, task: Task, others: Sequence[Recording]) -> Data | None:
    """The validation recordings that decide when a descent stops, if any do."""
    if not isinstance(policy, Descent):
        return None
    if policy.patience is not None and not others:
        raise ValueError("Argument `validation` must hold recordings where `patience` is given.")
    if policy.batch is not None and not task.origin.first.all():
        raise ValueError(
            "Argument `batch` draws recordings, which multiple shooting cuts into segments that "
            "depend on each other; leave out `batch` or `horizon`."
        )
    return None if policy.patience is None else held_out(task, others)[0]
