"""The warnings of a fit: its optimization, noise, initial states, bounds, and horizon."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.segments import Segments
from jaxmech.identify.data.wraps import jumps
from jaxmech.identify.inertial.possible import impossible
from jaxmech.identify.inference.independence import Autocorrelation, correlation
from jaxmech.identify.inference.information import Numbers, percent
from jaxmech.identify.inference.normal_equations import basis
from jaxmech.identify.noise.losses import NORMAL
from jaxmech.identify.noise.outliers import outliers
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.initial_states import free_directions, initial_states
from jaxmech.identify.problem.least_squares import Data, Linearized, SegmentRun
from jaxmech.identify.problem.rows import Evaluator, ResidualRows, Task
from jaxmech.integrate import FixedSteps
from jaxmech.sensitivity.growth import Growth, growth_warning, sensitivity_growth
from jaxmech.simulate import SimulationError
from jaxmech.system import Params
from jaxmech.velocities.rates import in_rates

RARE = 1e-4  # probability below which noise alone is rejected
FACTOR = 1.1  # largest accepted error of the stated noise, and with it of all intervals
FALSE_ALARM = 1e-3  # probability with which exact initial states are suspected
EXACT = 1e-6  # share of the motion below which residuals are numerical errors
_MEDIAN = 0.37  # efficiency of the median of sizes as an estimate of the noise
_PEAK = 2.0  # growth along a motion, relative to that at its end
_ACCURACY = 1e-3  # to which round-off may grow, as in `growth_warning`
_SAVES = 100  # save times at which the growth is evaluated


def remarks(
    task: Task, solved: Solved, made: SegmentRun, residuals: Sequence[np.ndarray], unknowns: int
) -> Iterator[str]:
    """The warnings of a fit, but for its horizon.

    Args:
        task: the fit.
        solved: its end.
        made: the motion there.
        residuals: independent residuals of each recording, in units of a stated noise, (T, d).
        unknowns: the number of unknowns.
    """
    if solved.stuck:
        fixed = isinstance(task.problem.scheme.steps, FixedSteps)
        better = "shorter steps (`steps`)" if fixed else "smaller tolerances (`steps`)"
        yield (
            f"Stuck after {solved.evaluations} evaluations: no step reduces the loss, although the "
            "linear model predicts it. The simulation fails nearby or is too sensitive; use "
            f"{better}, shorter segments (`horizon`), bounds, other initial parameters, or a "
            "smaller learning rate of a descent."
        )
    elif not solved.end.converged:
        yield (
            f"Not converged, since {solved.end.reason}: allow more, or start closer; a descent may "
            "need another learning rate. The intervals are not valid yet."
        )
    yield from jumps(task.origin.recordings)
    found = _held_starts(task, solved, made), _misfit(task, solved.y, made, residuals, unknowns)
    yield from filter(None, found)
    z = solved.y[: task.problem.layout.size]
    params = task.problem.layout.known(z, task.data.leaves)
    inputs = task.origin.recordings[0].inputs
    yield from filter(None, [impossible(task.problem.system, with_inputs(params, inputs))])
    if task.loss is None and correlated(task, made, residuals) is None:
        yield from _outliers(task, made, residuals)
    names = task.problem.layout.names
    if solved.end.at_bound:
        held = ", ".join(
            f"{names[k]} ({slope:.3g} of the loss for a change by one)"
            for k, slope in solved.end.at_bound
        )
        yield (
            f"At the bound: {held}. The recordings fit better beyond the bounds; fix the parameter "
            "there, or reconsider the model. Its interval is not valid."
        )
    if task.data.segments.ts.dtype == jnp.float32:
        yield "Computed in single precision: set jax_enable_x64 for a reliable fit."


def _outliers(task: Task, made: SegmentRun, residuals: Sequence[Numbers]) -> Iterator[str]:
    far = outliers(residuals, task.origin.recordings)
    if len(far) and _share(task, made) > EXACT:
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )


def horizon_of(task: Task, made: SegmentRun, params: Params) -> tuple[Growth, str] | None:
    """The growth of changes along the longest segment, and a warning; None without a derivative."""
    s, system, policies = task.data.segments, task.problem.system, task.problem.scheme.policies
    k = _longest(s)
    params = with_inputs(params, s.inputs_of(k))
    ts = np.asarray(s.ts)[k, : int(np.asarray(s.last)[k]) + 1]
    # All of them where they have the samples of inputs.
    stride = 1 if s.inputs else -(-(len(ts) - 1) // _SAVES)
    if isinstance(steps := task.problem.scheme.steps, FixedSteps):
        policies["steps"] = replace(steps, per_save=steps.count * stride)
    q0, v0 = (jnp.asarray(x) for x in np.split(made.begin[k], [system.n]))
    v0 = system.speeds(q0, v0, jnp.asarray(ts[0]), params)
    try:
        system = in_rates(system, params)
        growth = sensitivity_growth(system, q0, v0, ts[::stride], params, **policies)
    except (SimulationError, ValueError):
        return None
    return growth, growth_warning(growth, change=_change(task, made))


def _longest(s: Segments) -> int:
    """The index of the segment that lasts longest."""
    ts, last = np.asarray(s.ts), np.asarray(s.last)
    return int(np.argmax(ts[np.arange(len(last)), last] - ts[:, 0]))


def _change(task: Task, made: SegmentRun) -> float:
    """The size of a change that matters, relative to the motion: that of the residuals."""
    return float(np.clip(_share(task, made), 1e-6, 0.1))


def may_grow(task: Task, made: Linearized) -> bool:
    """Whether `horizon_of` may warn, by the growth of the free initial state to the end alone.

    It is known from the Jacobian, while `horizon_of` compiles programs of its own.
    """
    p, k = task.problem.layout.size, _longest(task.data.segments)
    begin, end = (np.asarray(x, float)[k, p:].T for x in (made.slopes.begin, made.slopes.end))
    if not begin.any() or not np.isfinite(end).all():
        return True
    n = task.problem.system.n
    transition = end @ np.linalg.pinv(begin)
    # the rate that makes coordinates comparable with velocities, as in `sensitivity_growth`
    stiffness, inertia = np.sum(transition[n:, :n] ** 2), np.sum(transition[:n, n:] ** 2)
    rate = (stiffness / inertia) ** 0.25 if stiffness > 0 and inertia > 0 else 1.0
    scale = np.repeat([rate, 1.0], [n, len(begin) - n])
    factor = np.linalg.norm(scale[:, None] * transition / scale, 2)
    eps = float(np.finfo(task.data.segments.ts.dtype).eps)
    return bool(_PEAK * factor * max(_change(task, made.run), eps / _ACCURACY) >= 1)


def correlated(
    task: Task, made: SegmentRun, residuals: Sequence[Numbers]
) -> Autocorrelation | None:
    """The correlation of the residuals (T, d) in time; None if they may be independent."""
    if not _share(task, made) > EXACT:
        return None
    return correlation(residuals, task.origin.recordings)


def _misfit(
    task: Task, y: np.ndarray, made: SegmentRun, residuals: Sequence[Numbers], unknowns: int
) -> str:
    """A warning about the residuals of a fit, or an empty text if they look like noise."""
    # They must be independent of one another, whether their noise is stated or estimated. In units
    # of a stated noise their sum of squares has a chi-square distribution, too.
    alike = correlated(task, made, residuals)
    if task.weighted:
        squares, count = _squares(task, y, residuals)
        if task.loss is not None:  # of which a median knows as much as 0.37 of the samples
            squares, count = _MEDIAN * squares, round(_MEDIAN * (count - unknowns)) + unknowns
        if message := _compare_with_stated(squares, count - unknowns, alike):
            return message
    if alike is None:
        return ""
    left = _share(task, made)
    return (
        f"Misfit: the residuals, {percent(left)} of the motion, are not noise: {_alike(alike)}"
        f". {_CAUSE} Intervals that assume independent residuals are too short"
        f"{_remedy(task)}."
    )


def _remedy(task: Task) -> str:
    return "" if task.noise else "; if the model is right, fit with noise=AR1()"


_CAUSE = "The model lacks something, or the times, a unit or a column are wrong, or a filter."


def _alike(correlated: Autocorrelation) -> str:
    return (
        f"neighbours in time are correlated ({correlated.neighbours:.2f}, p of Ljung and Box "
        f"{_chance(correlated.chance)})"
    )


def _share(task: Task, made: SegmentRun) -> float:
    """Size of the residuals relative to the recorded motion (root mean squares)."""
    segments = task.data.segments
    weights, observed = np.asarray(segments.weights), np.asarray(segments.observed)
    seen = weights > 0
    mean = np.where(seen, observed, 0).sum((0, 1)) / np.maximum(seen.sum((0, 1)), 1)
    sensors = np.asarray(task.conditions.sensor_weight)
    signal = np.where(seen, sensors * weights * (observed - mean), 0.0)
    residual = sensors * np.asarray(made.residual)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((residual**2).sum() / (signal**2).sum()))


def _compare_with_stated(squares: float, degrees: int, correlated: Autocorrelation | None) -> str:
    """The warning of a two-sided chi-square test, or an empty text."""
    from scipy.special import chdtr, chdtrc  # slow to import, and seldom needed

    if degrees <= 0:
        return ""
    factor = float(np.sqrt(squares / degrees))
    over, under = float(chdtrc(degrees, squares)), float(chdtr(degrees, squares))
    measured = f"chi-square is {squares:.4g} with {degrees} degrees of freedom"
    if over < RARE and factor > FACTOR:
        cause = "They look like noise, but more of it than the weights state."
        if correlated:
            cause = f"They are not noise: {_alike(correlated)}. {_CAUSE}"
        return (
            f"Misfit: the residuals are {factor:.3g} times the stated noise ({measured}, "
            f"p {_chance(over)}). {cause} The intervals are too short by that factor at least."
        )
    if under < RARE and factor < 1 / FACTOR:
        effect = "The intervals are too wide."
        if correlated:  # which shortens intervals, by more or less than they are too wide
            effect = (
                f"And they are not independent: {_alike(correlated)}. Intervals that assume so "
                "may be too short or too wide."
            )
        return (
            f"The stated noise is too large: the residuals are {factor:.3g} times it "
            f"({measured}, p {_chance(under)}). {effect}"
        )
    return ""


def _squares(task: Task, y: np.ndarray, residuals: Sequence[Numbers]) -> tuple[float, int]:
    """The squared residuals of all measurements and priors, and their number.

    With a robust loss those that normal noise of the same median would have.
    """
    data, conditions = task.data, task.conditions
    outer = task.evaluator.outer(y, conditions)
    count = sum(one.count for one in task.origin.recordings)
    count += int((np.asarray(conditions.prior_weight) > 0).sum())
    if data.along.size:
        held = (np.asarray(conditions.start_weight) > 0)[:, :, None] * np.asarray(data.along)
        count += int(np.linalg.matrix_rank(held).sum())
    r = np.concatenate([one[np.isfinite(one)] for one in residuals])
    squares = float((r**2).sum())
    if task.loss is not None:
        squares = r.size * (NORMAL * float(np.median(np.abs(r)))) ** 2
    return squares + float((outer**2).sum()), count


def _chance(p: float) -> str:
    """A probability with its relation, such as "= 0.001"."""
    return f"= {p:.1g}" if p > 1e-15 else "< 1e-15"


def _held_starts(task: Task, solved: Solved, made: SegmentRun) -> str:
    """A warning about fixed initial states, or an empty text if they agree with the recordings."""
    from scipy.special import chdtrc, fdtrc  # slow to import, and seldom needed

    # The score test: how much the sum of squares falls, to second order, if these are freed too.
    # Under noise alone the fall has a chi-square distribution in units of the stated noise, or an F
    # distribution where the noise is estimated (Seber and Wild, "Nonlinear regression", 5.3).
    first = task.origin.first
    if np.asarray(task.data.along)[first].any() or not _share(task, made) > EXACT:
        return ""
    try:
        freed = _freed(task, solved)
    except ValueError as error:
        return f"Fixed initial states: not tested. {error}"
    now = task.evaluator.rows(solved.y, solved.conditions)
    held, whole = basis(now.jacobian), basis(freed.jacobian)
    fall = float(np.sum((whole.T @ freed.values) ** 2) - np.sum((held.T @ now.values) ** 2))
    before = 2 * now.loss
    gained = whole.shape[1] - held.shape[1]
    rest = sum(one.count for one in task.origin.recordings) - whole.shape[1]
    if not gained or rest <= 0:
        return ""
    if task.weighted:
        p, test = chdtrc(gained, fall), f"chi-square {fall:.3g}, {gained}"
    else:
        F = fall / gained / max((before - fall) / rest, EXACT * before)
        p, test = fdtrc(gained, rest, F), f"F {F:.3g}, {gained} and {rest}"
    if not p < FALSE_ALARM:
        return ""
    return (
        "Fixed initial states: freeing them would lower the sum of squares by "
        f"{100 * min(fall / before, 1):.2g} %, far more than noise allows ({test} degrees of "
        f"freedom, p {_chance(p)}). The recorded starts are not exact, and the intervals are "
        'wrong; fit with initial_states="free".'
    )


def _freed(task: Task, solved: Solved) -> ResidualRows:
    """All residuals, with derivatives by fixed initial states too."""
    problem, data, size = task.problem, task.data, task.problem.layout.size
    z, u = data.parts(solved.y, size)
    states = initial_states(problem, data.segments, problem.layout.known(z, data.leaves))
    along = free_directions(problem, data.segments, states, task.origin.first)
    if data.free_starts:  # of later segments, where they are as before
        along = np.where(task.origin.first[:, None, None], along, data.along)
    free = Data(data.segments, data.leaves, jnp.asarray(along))
    u = np.zeros((len(along), free.free_starts)) if not u.size else u
    evaluator = Evaluator(problem, free, task.origin.recording, hard=task.hard)
    return evaluator.rows(np.concatenate([z, u.ravel()]), solved.conditions)
