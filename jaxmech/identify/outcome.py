"""The result of a fit: its numbers, predictions and warnings, from the end of the optimization."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.noise import (
    Autocorrelation,
    Outliers,
    correlated,
    estimated,
    misfit,
    outliers,
    share,
    standard_residuals,
)
from jaxmech.identify.optimize import Solved
from jaxmech.identify.problem import Data, Point, Task, runs
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


def _remarks(
    solved: Solved, residuals: Sequence[np.ndarray], alike: Autocorrelation | None, far: Outliers
) -> Iterator[str]:
    """The warnings of a fit with independent residuals (T, d), in units of a stated noise."""
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
    for text in (_too_long(task, at), misfit(task, at, residuals, alike)):
        if text:
            yield text
    # A robust loss expects outliers, and where residuals are correlated they are not outliers.
    if len(far) and share(task, at) > EXACT and task.loss is None and alike is None:
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
    size, standard = standard_residuals(task, at, conditions)
    train = Predicted(origin.recordings, origin.gathered(at.run.predicted))
    alike = correlated(task, at, standard)
    far = outliers(standard, train.recordings, train.residuals)
    sensors = None if task.weighted else estimated(task, at, conditions)[1]
    noise = Noise(size, sensors, task.weighted, alike is not None, standard)

    # What the rows of the last step say about the numbers, and what was known before.
    found, information = assessed(
        task, at, conditions, noise=noise.unit, correlated=noise.correlated
    )
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
        train=train,
        validation=validation,
        initial_states=tuple((x[:split], x[split:]) for x in np.asarray(starts)[origin.first]),
        optimization=Optimization(
            end.converged, end.reason, solved.history, solved.evaluations,
            at_bound={layout.names[k]: slope for k, slope in end.at_bound},
        ),
        uncertainty=found,
        information=information,
        noise=noise,
        count=task.count,
        unknowns=task.unknowns,
        integration_error=solved.integration_error,
        notes=tuple(_remarks(solved, standard, alike, far)),
        bounds=layout.bounds(data.leaves),
        priors=priors,
        end=solved,
    )  # fmt: skip
