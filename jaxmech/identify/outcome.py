"""The result of a fit: its numbers, predictions and warnings, from the end of the optimization."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.noise import correlated, estimated, misfit, outliers, share
from jaxmech.identify.optimize import Solved
from jaxmech.identify.problem import NORMAL, Data, Point, Task, runs, samples, unrobust
from jaxmech.identify.recording import Recording
from jaxmech.identify.result import Fit, Noise, Optimization, Predicted
from jaxmech.identify.segments import EXACT, is_too_coarse, largest_shift, needed_steps, segments
from jaxmech.identify.uncertainty import assessed
from jaxmech.integrate import FixedSteps
from jaxmech.utils.text import percent

_ACCURACY = 1e-3  # to which round-off may grow


def _too_long(task: Task, at: Point) -> str:
    """A warning if the longest segment is too long for its gradient, or an empty text.

    A gradient predicts changes in proportion. When a change of the size that matters has grown to
    the motion itself, the true change stays bounded while the predicted one goes on growing: the
    loss has many minima. When round-off has grown to the accuracy that is wanted, the motion
    depends on the order of the operations. The growth of a free initial state is known from the
    Jacobian.
    """
    s, p, n = task.data.segments, task.problem.layout.size, task.problem.system.n
    ts, last = np.asarray(s.ts), np.asarray(s.last)
    spans = ts[np.arange(len(last)), last] - ts[:, 0]
    k = int(np.argmax(spans))
    begin, end = (np.asarray(x, float)[k, p:].T for x in (at.slopes.begin, at.slopes.end))
    if not begin.any() or not np.isfinite(end).all():
        return ""
    transition = end @ np.linalg.pinv(begin)
    # the rate that makes coordinates comparable with velocities: of an oscillator its frequency
    stiffness, inertia = np.sum(transition[n:, :n] ** 2), np.sum(transition[:n, n:] ** 2)
    rate = (stiffness / inertia) ** 0.25 if stiffness > 0 and inertia > 0 else 1.0
    scale = np.repeat([rate, 1.0], [n, len(begin) - n])
    growth = float(np.linalg.norm(scale[:, None] * transition / scale, 2))
    change = float(np.clip(share(task, at), 1e-6, 0.1))  # that matters: that of the residuals
    most = min(1 / change, _ACCURACY / float(np.finfo(s.ts.dtype).eps))
    if growth < most:
        return ""
    doubling = spans[k] * np.log(2) / np.log(growth)
    length = doubling * min(np.log2(10), np.log2(most) / 2)
    return (
        f"Gradients through this motion mean little: changes of its state grow by a factor of 10^"
        f"{np.log10(growth):.0f} in {spans[k]:.3g} s, doubling every {doubling:.2g} s, while "
        f"a factor of {most:.1g} is too much for its residuals and round-off. Use shorter "
        f"segments, such as `initial_states=Shooting(length={length:.2g})`."
    )


def remarks(solved: Solved, residuals: Sequence[np.ndarray], unknowns: int) -> Iterator[str]:
    """The warnings of a fit.

    Args:
        solved: the end of the fit.
        residuals: independent residuals of each recording, in units of a stated noise, (T, d).
        unknowns: the number of unknowns.
    """
    task, at, error = solved.task, solved.at, solved.integration_error
    if not solved.end.converged:
        yield (
            f"Not converged, since {solved.end.reason}: allow more, start closer, or fit the "
            "beginning of the recordings first; where no step reduces the loss, take shorter steps "
            "or segments, or a smaller learning rate. The intervals are not valid yet."
        )
    steps, remedy = task.problem.scheme.steps, ""
    if is_too_coarse(task, at, error, converged=True):
        remedy = "give smaller tolerances, such as `steps=Adaptive(rtol=1e-9)`"
        if isinstance(steps, FixedSteps):
            number = needed_steps(task, at)
            remedy = f"give `steps=FixedSteps(per_save={number})`" if number > steps.count else ""
    if remedy:
        yield (
            f"Steps too coarse: the integration error, {percent(error)} of the motion, may move "
            f"the estimates by {largest_shift(task, at, error):.2g} standard errors; {remedy}."
        )
    for text in (_too_long(task, at), misfit(task, at, residuals, unknowns)):
        if text:
            yield text
    # A robust loss expects outliers, and where residuals are correlated they are not outliers.
    far = outliers(residuals, task.origin.recordings)
    is_robust = task.loss is not None
    if len(far) and share(task, at) > EXACT and not (is_robust or correlated(task, at, residuals)):
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )
    if solved.end.at_bound:
        names = task.problem.layout.names
        held = ", ".join(
            f"{names[k]} ({slope:.3g} of the loss for a change by one)"
            for k, slope in solved.end.at_bound
        )
        yield (
            f"At the bound: {held}. The recordings fit better beyond the bounds; fix the parameter "
            "there, or reconsider the model. Its interval is not valid."
        )


def result_of(solved: Solved, others: Sequence[Recording]) -> Fit:
    """The `Fit` at the end of an optimization, with predictions of recordings not fitted."""
    task, at, conditions, end = solved.task, solved.at, solved.conditions, solved.end
    data, origin, layout = task.data, task.origin, task.problem.layout
    z, u = data.parts(at.y, layout.size)

    # The noise, and the residuals in units of it.
    size, standard = _standard(solved)
    is_correlated = correlated(task, at, standard) is not None
    noise = Noise(
        size=size,
        sensors=None if task.weighted else estimated(task, at, conditions).sd,
        stated=task.weighted,
        correlated=is_correlated,
        residuals=standard,
    )

    # What the rows of the last step say about the numbers, and what was known before.
    count, unknowns = _counts(task)
    found, information = assessed(
        task, at, conditions, noise=noise.unit, unknowns=unknowns, correlated=is_correlated,
        degrees=np.inf if task.weighted else float(count - unknowns),
    )  # fmt: skip
    with np.errstate(divide="ignore"):
        prior_sd = 1 / np.asarray(conditions.prior_weight, float)
    priors = np.stack([np.asarray(conditions.prior_mean, float), prior_sd], axis=1)

    # The fitted start variables; without `start` those of the state, on the constraints.
    starts, split = at.run.begin, task.problem.system.n
    if task.problem.start is not None:
        s = data.segments
        recorded = np.concatenate([np.asarray(s.q0), np.asarray(s.v0)], axis=1)
        starts, split = recorded + np.asarray(data.start_changes(u)), s.q0.shape[1]

    # Whole recordings that are not fitted, from their recorded initial states.
    validation = Predicted((), ())
    if others:
        stack, held = segments(others, step=task.longest)
        none = jnp.zeros((len(stack.q0), stack.start_size, 0))
        made = runs(task.problem, z, Data(stack, data.leaves, none))
        validation = Predicted(held.recordings, held.gathered(made.predicted))

    return Fit(
        params=task.params(at),
        names=layout.names,
        values=np.asarray(at.numbers),
        train=Predicted(origin.recordings, origin.gathered(at.run.predicted)),
        validation=validation,
        initial_states=tuple((x[:split], x[split:]) for x in np.asarray(starts)[origin.first]),
        optimization=Optimization(
            end.converged, end.reason, solved.history, solved.evaluations,
            at_bound={layout.names[k]: slope for k, slope in end.at_bound},
        ),
        uncertainty=found,
        information=information,
        noise=noise,
        count=count,
        unknowns=unknowns,
        integration_error=solved.integration_error,
        notes=tuple(remarks(solved, standard, unknowns)),
        bounds=layout.bounds(data.leaves),
        priors=priors,
        end=solved,
    )  # fmt: skip


def is_noise(solved: Solved) -> bool:
    """Whether the residuals look like noise of the stated size, or else like independent noise."""
    _, standard = _standard(solved)
    return not misfit(solved.task, solved.at, standard, _counts(solved.task)[1])


def _counts(task: Task) -> tuple[int, int]:
    """The numbers of measurements and of unknowns."""
    unknowns = task.data.unknowns(task.problem.layout.size, task.origin.first)
    return sum(one.count for one in task.origin.recordings), unknowns


def _standard(solved: Solved) -> tuple[float, tuple[np.ndarray, ...]]:
    """The size of the weighted residuals, and independent residuals (T, d) in units of it.

    In units of the stated noise where that is known.
    """
    task, (count, unknowns) = solved.task, _counts(solved.task)
    values, _ = samples(solved.at, unrobust(solved.conditions))
    size = float(np.sqrt((values[task.seen] ** 2).sum() / max(count - unknowns, 1)))
    if task.loss is not None:
        size = NORMAL * float(np.median(np.abs(values[task.seen]))) if task.weighted else 1.0
    unit = size if size > 0 and not task.weighted else 1.0
    return size, task.origin.gathered(np.where(task.seen, values / unit, np.nan))
