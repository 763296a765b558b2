"""`fit`: parameters of a system from recordings of its motion."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from jaxmech.assemble import Start
from jaxmech.formulations import AbstractFormulation, UdwadiaKalaba
from jaxmech.identify.data.recording import Recording, named
from jaxmech.identify.data.segments import Shooting, segments
from jaxmech.identify.fit_warnings import horizon_of, remarks
from jaxmech.identify.inference.normal_equations import normal
from jaxmech.identify.optimize.checkpoint import checkpoint
from jaxmech.identify.optimize.gradient_descent import Descent, Validation
from jaxmech.identify.optimize.levenberg_marquardt import LevenbergMarquardt
from jaxmech.identify.optimize.loop import Solved, beginnings, solve
from jaxmech.identify.optimize.multistart import MultiStart
from jaxmech.identify.problem.checks import alike, require_starts
from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.residuals import Data, Observe, SegmentRun, runs
from jaxmech.identify.problem.setup import InitialStates, Task, prepare
from jaxmech.identify.result import Fit, Point, Predicted
from jaxmech.integrate import RK4, AbstractMethod
from jaxmech.stabilization import AbstractStabilization, Projection
from jaxmech.system import Params, System

Optimizer = LevenbergMarquardt | Descent | Any  # or an optax transformation


def fit(
    system: System,
    recordings: Any,
    params0: Params,
    *,
    observe: Observe | None = None,
    start: Start | None = None,
    optimizer: Optimizer = LevenbergMarquardt(),
    free: Sequence[str] | None = None,
    bounds: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
    initial_states: InitialStates = "free",
    horizon: Shooting | None = None,
    validation: Any = (),
    multistart: MultiStart | None = None,
    method: AbstractMethod = RK4(),
    projection: AbstractStabilization | None = Projection(),
    formulation: AbstractFormulation = UdwadiaKalaba(),
    step: float | None = None,
    folder: Any = None,
    progress: bool = False,
) -> Fit:
    """The parameters with which the simulated motion is nearest to the recorded one.

    Minimizes the sum of squares of weight * (predicted - observed) over all measurements, with
    derivatives through the whole simulation, constraints and projection included.

    Args:
        system: the system, with n coordinates.
        recordings: a `Recording`, or several of any lengths with the same sensors.
        params0: where the fit begins, a pytree of numbers such as a dictionary.
        observe: observe(q, v, t, params) gives what the sensors show, shape (d,); the coordinates
            by default. Offsets, scales and delays of sensors are parameters like others.
        start: start(q0, v0, params) gives the consistent state q (n,), v (n,) for recorded start
            variables, such as measured angles. By default they are coordinates and velocities,
            and are put onto the constraints.
        optimizer: `LevenbergMarquardt()`, `Descent(...)`, or an optax transformation.
        free: names of the parameters to fit, or of branches of them; by default all that are
            floating-point numbers. A nested one is called "arm.length".
        bounds: by name, (low, high), None for an open side, or `PhysicalInertia()`.
        prior: by name, (mean, standard deviation); needs recordings with weights.
        initial_states: "free" to be fitted along with the parameters, on the constraints, held to
            `Recording.start_sd` where that is known; or "fixed" at what was recorded, for starts
            that are exact. A first sample is a measurement with noise like any other: taken as
            exact it gives intervals that miss the truth. A fit with fixed starts tests whether the
            recordings agree, and warns.
        horizon: `Shooting(...)` cuts the recordings into pieces; for chaotic motion.
        validation: recordings that are not fitted, for a look at the result, and for the
            `patience` of `Descent`, the only thing that they can decide.
        multistart: random beginnings, of which the best are fitted.
        method: Runge-Kutta method, with its steps per interval between samples.
        projection: against drift, as for `simulate`.
        formulation: law of motion.
        step: largest step [s]; longer intervals between samples are divided.
        folder: keeps the state of the fit there after each step; the same call goes on from it.
        progress: whether to show the loss while it falls.

    Returns:
        A `Fit`.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: a name, a shape, a bound, a recording or a start cannot be meant, or nothing
            that was observed depends on a parameter.
        FloatingPointError: the steps of a descent are too long.

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
    policy = optimizer
    if isinstance(policy, optax.GradientTransformation):
        policy = Descent(policy)
    if not isinstance(policy, LevenbergMarquardt | Descent):
        raise TypeError(
            "Argument `optimizer` must be LevenbergMarquardt(), Descent(...) or an optax "
            f"transformation, but is {optimizer!r}."
        )
    task = prepare(
        system, recordings, params0, observe=observe, start=start, free=free, bounds=bounds,
        prior=prior, initial_states=initial_states, horizon=horizon, step=step, method=method,
        projection=projection, formulation=formulation,
    )  # fmt: skip
    others = named(validation, "validation")
    if others:
        alike((*task.origin.recordings, *others))
        require_starts(task.problem, task.parameters, others, free=initial_states == "free")
    _require_possible(policy, task, others)
    watched = _validation(task, others) if isinstance(policy, Descent) and others else None
    tasks = beginnings(task, multistart) if multistart else [task]
    ends = []
    for number, one in enumerate(tasks):
        kept = checkpoint(_of(folder, number, len(tasks)), one, policy)
        ends.append((one, solve(one, policy, watched, checkpoint=kept, progress=progress)))
    return _finished(*min(ends, key=lambda end: end[1].history[-1]), others, params0)


def _of(folder: Any, number: int, count: int) -> Any:
    from pathlib import Path

    return folder if folder is None or count == 1 else Path(folder) / f"start-{number}"


def _require_possible(policy: Any, task: Task, others: Sequence[Recording]) -> None:
    if not isinstance(policy, Descent):
        return
    if policy.patience is not None and not others:
        raise ValueError("Argument `validation` must hold recordings where `patience` is given.")
    goes_on = task.data.segments.following != jnp.arange(len(task.data.segments.last))
    if policy.batch is not None and bool(goes_on.any()):
        raise ValueError(
            "Argument `batch` draws recordings, which multiple shooting cuts into pieces that hang "
            "together; leave out `batch` or `horizon`."
        )


def _held(task: Task, recordings: Sequence[Recording]) -> tuple[Data, Any]:
    """Whole recordings from their recorded starts."""
    step = None if task.step is None else task.step * task.problem.method.count
    pieces, origin = segments(recordings, step=step)
    nothing = jnp.zeros((*pieces.q0.shape, 0))
    return Data(pieces, task.data.leaves, nothing, nothing), origin


def _validation(task: Task, others: Sequence[Recording]) -> Validation:
    data, _ = _held(task, others)
    count, size = data.segments.q0.shape
    zero = jnp.zeros(task.problem.layout.size)
    states = 2 * task.problem.system.n
    conditions = Conditions(
        zero, zero, jnp.zeros((count, 2 * size)), jnp.zeros(states), jnp.zeros((count, states))
    )
    return Validation(data, conditions)


def _finished(task: Task, solved: Solved, others: Sequence[Recording], params0: Params) -> Fit:
    problem, data, recordings = task.problem, task.data, task.origin.recordings
    z, u = data.parts(solved.y, problem.layout.size)
    params = problem.layout.params(z, data.leaves)
    found = normal(task, solved.y, solved.conditions)
    made = runs(problem, solved.y, data)
    train = Predicted(recordings, tuple(task.origin.gathered(made.predicted)))
    squares = float((made.residual**2).sum())
    count = sum(one.count for one in recordings)
    unknowns = problem.layout.size + _free_starts(task)
    return Fit(
        params=params,
        params0=params0,
        names=problem.layout.names,
        values=found.values,
        train=train,
        train_from_start=_from_start(task, z, u, train),
        validation=_predicted(task, z, others),
        initial_states=_starts(task, u, made),
        history=solved.history,
        converged=solved.converged,
        information=found.information,
        informations=found.informations,
        prior=found.prior,
        scores=found.scores,
        noise=float(np.sqrt(squares / max(count - unknowns, 1))),
        trusted=task.weighted,
        count=count,
        unknowns=unknowns,
        notes=tuple(remarks(task, solved, made, train.residuals, unknowns)),
        horizon=partial(horizon_of, task, made, params),
        point=Point(problem.layout, z, data.leaves, partial(_nearby, task, solved)),
    )


def _from_start(task: Task, z: Array, u: Array, train: Predicted) -> Predicted:
    """The fitted recordings from their recorded starts, with what is already compiled."""
    if not u.size:
        return train
    if len(task.origin.recording) > len(task.origin.recordings):
        return _predicted(task, z, task.origin.recordings)
    made = runs(task.problem, jnp.concatenate([z, jnp.zeros(u.size)]), task.data)
    return Predicted(train.recordings, tuple(task.origin.gathered(made.predicted)))


def _nearby(task: Task, solved: Solved) -> tuple[Any, Any]:
    """Values and information at parameters a few percent away, where nothing is round."""
    size = task.problem.layout.size
    moved = np.random.default_rng(0).uniform(-0.03, 0.03, size)
    found = normal(task, solved.y.at[:size].add(moved), solved.conditions)
    return found.values, found.information


def _free_starts(task: Task) -> int:
    """Unknowns of the starts; those of later pieces are tied to what comes before."""
    first = np.diff(task.origin.recording, prepend=-1) != 0
    return sum(
        int(np.any(np.asarray(along), axis=1)[first].sum())
        for along in (task.data.along_q, task.data.along_v)
    )


def _starts(task: Task, u: Array, made: SegmentRun) -> tuple[Any, ...]:
    """Start variables and rates of each recording, on the constraints."""
    first = np.flatnonzero(np.diff(task.origin.recording, prepend=-1) != 0)
    n = task.problem.system.n
    if task.problem.start is None:
        return tuple((np.asarray(x[:n]), np.asarray(x[n:])) for x in made.begin[first])
    s, along = task.data.segments, task.data.along_q.shape[2]
    q = s.q0 + jnp.einsum("ski,si->sk", task.data.along_q, u[:, :along])
    v = s.v0 + jnp.einsum("ski,si->sk", task.data.along_v, u[:, along:])
    return tuple((np.asarray(q[k]), np.asarray(v[k])) for k in first)


def _predicted(task: Task, z: Array, recordings: Sequence[Recording]) -> Predicted:
    if not recordings:
        return Predicted((), ())
    data, origin = _held(task, recordings)
    found = runs(task.problem, z, data)
    return Predicted(tuple(recordings), tuple(origin.gathered(found.predicted)))
