"""The warnings of a fit: its optimization, noise, initial states, parameters and bounds."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.inputs import with_inputs
from jaxmech.identify.data.wraps import jumps
from jaxmech.identify.diagnosis.coarse_steps import coarse_steps
from jaxmech.identify.diagnosis.exact_starts import inexact_starts
from jaxmech.identify.diagnosis.lost_in_noise import lost_in_noise
from jaxmech.identify.diagnosis.misfit import EXACT, correlated, misfit, share
from jaxmech.identify.inertial.possible import impossible
from jaxmech.identify.inference.information import Numbers
from jaxmech.identify.noise.outliers import outliers
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import SegmentRun
from jaxmech.identify.problem.rows import Task
from jaxmech.integrate import FixedSteps


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


def _outliers(task: Task, made: SegmentRun, residuals: Sequence[Numbers]) -> Iterator[str]:
    far = outliers(residuals, task.origin.recordings)
    if len(far) and share(task, made) > EXACT:
        worst = far.samples[0]
        yield (
            f"Outliers: {len(far)} of {far.count:,} samples, the largest {abs(worst.sigmas):.3g} "
            f"standard deviations off in {worst.recording} at {worst.time:.6g} s. Correct or leave "
            "out what is wrong, or fit with loss=Huber()."
        )
