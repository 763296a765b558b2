"""The warnings of a fit."""

from collections.abc import Iterator, Sequence

import numpy as np

from jaxmech.identify.inference.misfit import correlated, misfit, outliers, share
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.rows import Point, Task
from jaxmech.identify.problem.sensor_noise import EXACT
from jaxmech.identify.problem.steps import is_too_coarse, largest_shift, needed_steps
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
