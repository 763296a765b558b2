"""The result of a fit: its numbers, predictions and warnings, from the end of the optimization."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import segments
from jaxmech.identify.inference.misfit import correlated, misfit
from jaxmech.identify.inference.normal_equations import assessed
from jaxmech.identify.inference.remarks import remarks
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import Data, runs
from jaxmech.identify.problem.noise import NORMAL
from jaxmech.identify.problem.rows import Task, samples, unrobust
from jaxmech.identify.problem.sensor_noise import estimated
from jaxmech.identify.result import Fit, Noise, Optimization, Predicted


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
