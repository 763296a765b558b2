"""The warnings of a fit: its optimization, noise, initial states, parameters and bounds."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.wraps import jumps
from jaxmech.identify.diagnosis.exact_starts import inexact_starts
from jaxmech.identify.diagnosis.misfit import EXACT, correlated, misfit, share
from jaxmech.identify.inertial.possible import impossible
from jaxmech.identify.inference.information import percent
from jaxmech.identify.inference.normal_equations import normal
from jaxmech.identify.noise.outliers import outliers
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import SegmentRun
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.steps import is_too_coarse, largest_shift, needed_steps
from jaxmech.integrate import FixedSteps
from jaxmech.utils.arrays import HostArray


def coarse_steps(task: Task, solved: Solved) -> Iterator[str]:
    """A warning if the integration error may move the estimates by more than the noise does."""
    error = solved.integration_error
    if not is_too_coarse(task, solved.y, error, converged=True):
        return
    remedy = "give smaller tolerances, such as `steps=Adaptive(rtol=1e-9)`"
    if solved.per_save is not None:
        number = needed_steps(task, solved.y)
        if number <= solved.per_save:
            return
        remedy = f"give `steps=FixedSteps(per_save={number})`"
        if not task.chooses_steps:
            remedy += ", or leave `steps` out to have them chosen"
    shift = largest_shift(task, solved.y, error)
    yield (
        f"Steps too coarse: the integration error, {percent(error)} of the motion, may move the "
        f"estimates by {shift:.2g} standard errors; {remedy}."
    )


_FALSE_ALARM = 1e-3  # probability with which noise passes for a motion
_DRAWS = 16  # unknowns that agree with the recordings as well
_SPREAD = 0.35  # of the logarithm of the information at them, from which it is no information
_RANK = 1e-12  # eigenvalue, relative to the largest, that counts as zero


def lost_in_noise(task: Task, solved: Solved, made: SegmentRun, unknowns: int) -> Iterator[str]:
    """A warning that names the parameters whose information is the noise of the recordings."""
    if task.hard or _is_motion(task, solved, made, unknowns):
        return
    spread = _spread(task, solved, unknowns)
    lost = [name for name, x in zip(task.problem.layout.names, spread, strict=True) if x > _SPREAD]
    if lost:
        yield (
            "Lost in noise: the fitted motion agrees with the recordings hardly better than their "
            f"mean values do, and what it says of {', '.join(lost)} follows from the noise. The "
            "intervals are not valid; record a larger motion, or see whether the sensors work."
        )


def _is_motion(task: Task, solved: Solved, made: SegmentRun, unknowns: int) -> bool:
    """Whether the sum of squares is smaller than that of constants by more than noise explains."""
    from scipy.special import chdtrc  # slow to import, and seldom needed

    s = task.data.segments
    weights, conditions = np.asarray(s.weights, float), solved.conditions
    scale = np.asarray(conditions.sensor_weight) * np.asarray(conditions.sample_weight)
    constant = np.zeros(weights.shape)
    for k in range(len(task.origin.recordings)):
        mine = task.origin.recording == k
        squares = (scale * weights)[mine] ** 2
        total = (squares * np.asarray(s.observed)[mine]).sum((0, 1))
        mean = total / np.maximum(squares.sum((0, 1)), np.finfo(float).tiny)
        constant[mine] = (
            scale[mine if len(scale) > 1 else ...]
            * weights[mine]
            * (mean - np.asarray(s.observed)[mine])
        )
    fitted, constant = (
        (x**2).sum()
        for x in (_white(task, solved, scale * made.residual), _white(task, solved, constant))
    )
    count = int((weights > 0).sum())
    variance = 1.0 if task.weighted else fitted / max(count - unknowns, 1)
    if not variance > 0:
        return True
    fall = (constant - fitted) / variance
    return bool(fall > 0 and count * chdtrc(unknowns, fall) < _FALSE_ALARM)


def _white(task: Task, solved: Solved, values: np.ndarray) -> np.ndarray:
    times = np.asarray(solved.conditions.correlation_time, float)
    if not times.any():
        return values
    neighbours = task.evaluator.neighbours
    return neighbours.whitened(values, neighbours.correlation(times))


def _spread(task: Task, solved: Solved, unknowns: int) -> HostArray:
    """The spread of the information about each number, where unknowns are as likely, (p,)."""
    rows = task.evaluator.rows(solved.y, solved.conditions)
    sizes = np.linalg.norm(rows.jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, np.inf)
    squares, vectors = np.linalg.eigh((rows.jacobian / sizes).T @ (rows.jacobian / sizes))
    kept = squares > _RANK * squares.max(initial=0.0)
    count = int((np.asarray(task.data.segments.weights) > 0).sum())
    noise = 1.0 if task.weighted else np.sqrt(2 * rows.loss / max(count - unknowns, 1))
    draws = np.random.default_rng(0).normal(0.0, noise, (_DRAWS, int(kept.sum())))
    changes = (draws / np.sqrt(squares[kept])) @ vectors[:, kept].T / sizes
    logs = []
    for change in changes:
        y = solved.y + change
        if not task.evaluator.rows(y, solved.conditions).finite:
            continue
        information = normal(task, y, solved.conditions)["information"]
        with np.errstate(divide="ignore"):
            logs.append(np.log(np.diag(information)))
    # Where motions fail as soon as that, nothing is known.
    few = len(logs) < _DRAWS // 2
    return np.full(task.problem.layout.size, np.inf) if few else np.std(logs, axis=0)


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
            f"Not converged, since {solved.end.reason}: allow more, start closer, or fit the "
            "beginning of the recordings first; a descent may need another learning rate. The "
            "intervals are not valid yet."
        )
    yield from jumps(task.origin.recordings)
    yield from coarse_steps(task, solved)
    yield from lost_in_noise(task, solved, made, unknowns)
    found = inexact_starts(task, solved, made), misfit(task, solved.y, made, residuals, unknowns)
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


def _outliers(task: Task, made: SegmentRun, residuals: Sequence[HostArray]) -> Iterator[str]:
    far = outliers(residuals, task.origin.recordings)
    if len(far) and share(task, made) > EXACT:
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )
