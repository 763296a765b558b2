"""The result of a fit: its numbers, predictions and warnings, from the end of the optimization."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.data.segments import SegmentOrigin, segments
from jaxmech.identify.inference.density import Density
from jaxmech.identify.inference.misfit import correlated, misfit
from jaxmech.identify.inference.normal_equations import blocks, normal, normal_conditions
from jaxmech.identify.inference.remarks import horizon_warning, may_grow, remarks
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import Data, SegmentRun, runs
from jaxmech.identify.problem.noise import NORMAL
from jaxmech.identify.problem.rows import Task
from jaxmech.identify.problem.sensor_noise import (
    description,
    estimated,
    log_likelihood,
    noise_parameters,
)
from jaxmech.identify.result import Fit, Information, Noise, Optimization, Point, Predicted
from jaxmech.system import Params


def result_of(task: Task, solved: Solved, others: Sequence[Recording], params0: Params) -> Fit:
    """The `Fit` at the end of an optimization, with predictions of recordings not fitted."""
    problem, data, origin = task.problem, task.data, task.origin
    z, u = data.parts(solved.y, problem.layout.size)
    params = problem.layout.known(z, data.leaves)
    made = task.evaluator.at(solved.y).run
    train = Predicted(origin.recordings, origin.gathered(made.predicted))
    count = sum(one.count for one in origin.recordings)
    unknowns = data.unknowns(problem.layout.size, origin.first)
    size, standard = _standard(task, solved, count - unknowns)
    related = correlated(task, made, standard) is not None
    values, information = _information(task, solved, unknowns, correlated=related)
    grows = may_grow(task, task.evaluator.at(solved.y))
    return Fit(
        params=params,
        params0=params0,
        names=problem.layout.names,
        values=values,
        train=train,
        train_from_start=_from_start(task, z, u, train),
        validation=_predicted(task, z, others),
        initial_states=_starts(task, u, made),
        optimization=_optimization(task, solved),
        information=information,
        noise=_noise(task, solved, size, standard, correlated=related),
        count=count,
        unknowns=unknowns,
        integration_error=solved.integration_error,
        notes=tuple(remarks(task, solved, made, standard, unknowns)),
        horizon=partial(horizon_warning, task, made, params) if grows else None,
        point=Point(problem.layout, z, data.leaves),
        density=Density(task, solved),
        bounds=problem.layout.bounds(data.leaves),
        priors=_priors(solved),
    )


def is_noise(task: Task, solved: Solved) -> bool:
    """Whether the residuals look like noise of the stated size, or else like independent noise."""
    made = task.evaluator.at(solved.y).run
    unknowns = task.data.unknowns(task.problem.layout.size, task.origin.first)
    count = sum(one.count for one in task.origin.recordings)
    _, standard = _standard(task, solved, count - unknowns)
    return not misfit(task, solved.y, made, standard, unknowns)


def _noise(
    task: Task, solved: Solved, size: float, residuals: tuple[np.ndarray, ...], *, correlated: bool
) -> Noise:
    y, conditions = solved.y, solved.conditions
    return Noise(
        size=size,
        sensors=None if task.weighted else estimated(task, y, conditions).sd,
        stated=task.weighted,
        correlated=correlated,
        residuals=residuals,
        law=description(task),
        parameters=noise_parameters(task),
        log_likelihood=log_likelihood(task, y, conditions),
    )


def _information(
    task: Task, solved: Solved, unknowns: int, *, correlated: bool
) -> tuple[np.ndarray, Information]:
    """The values of the fitted numbers, and what the recordings say about them."""
    conditions, factor = normal_conditions(task, solved.y, solved.conditions, unknowns)
    found = normal(task, solved.y, conditions)
    by_block = blocks(task, solved.y, conditions, factor) if correlated else None
    return found["values"], Information(
        found["information"],
        found["informations"],
        found["prior"],
        factor * found["scores"],
        by_block and by_block.covariance,
        by_block.number if by_block else 0,
    )


def _optimization(task: Task, solved: Solved) -> Optimization:
    names, end = task.problem.layout.names, solved.end
    at_bound = {names[k]: slope for k, slope in end.at_bound}
    return Optimization(end.converged, end.reason, solved.history, solved.evaluations, at_bound)


def _priors(solved: Solved) -> np.ndarray:
    """Mean and standard deviation of the priors, (p, 2)."""
    weight = np.asarray(solved.conditions.prior_weight, float)
    sd = np.divide(1.0, weight, out=np.full(weight.shape, np.inf), where=weight > 0)
    return np.stack([np.asarray(solved.conditions.prior_mean, float), sd], axis=1)


def _standard(task: Task, solved: Solved, degrees: int) -> tuple[float, tuple[np.ndarray, ...]]:
    """The size of the weighted residuals, and independent residuals (T, d) in units of it.

    In units of the stated noise where that is known.
    """
    seen = np.asarray(task.data.segments.weights) > 0
    plain = replace(solved.conditions, sample_weight=np.ones((1, 1, 1)))
    values, _ = task.evaluator.samples(solved.y, plain)
    size = float(np.sqrt((values[seen] ** 2).sum() / max(degrees, 1)))
    if task.loss is not None:
        size = NORMAL * float(np.median(np.abs(values[seen]))) if task.weighted else 1.0
    unit = size if size > 0 and not task.weighted else 1.0
    return size, task.origin.gathered(np.where(seen, values / unit, np.nan))


def _from_start(task: Task, z: np.ndarray, u: np.ndarray, train: Predicted) -> Predicted:
    """The fitted recordings from their recorded initial states."""
    if not task.origin.first.all():
        return _predicted(task, z, task.origin.recordings)
    # of the same shape as in the fit, so that nothing is compiled anew
    made = task.evaluator.at(np.concatenate([z, np.zeros(u.size)])).run
    return replace(train, values=task.origin.gathered(made.predicted))


def _starts(task: Task, u: np.ndarray, made: SegmentRun) -> tuple[Any, ...]:
    """The fitted start variables of each recording and their rates; without `start` the state."""
    whole, size, s = made.begin, task.problem.system.n, task.data.segments
    if task.problem.start is not None:
        changes = np.einsum("ski,si->sk", np.asarray(task.data.along), u)
        whole = np.concatenate([np.asarray(s.q0), np.asarray(s.v0)], axis=1) + changes
        size = s.q0.shape[1]
    return tuple(tuple(np.split(x, [size])) for x in np.asarray(whole)[task.origin.first])


def _predicted(task: Task, z: np.ndarray, recordings: Sequence[Recording]) -> Predicted:
    if not recordings:
        return Predicted((), ())
    data, origin = held_out(task, recordings)
    made = runs(task.problem, z, data)
    return Predicted(origin.recordings, origin.gathered(made.predicted))


def held_out(task: Task, recordings: Sequence[Recording]) -> tuple[Data, SegmentOrigin]:
    """Whole recordings from their recorded initial states."""
    stack, origin = segments(recordings, step=task.longest)
    none = np.zeros((len(stack.q0), stack.start_size, 0))
    return Data(stack, task.data.leaves, jnp.asarray(none)), origin
