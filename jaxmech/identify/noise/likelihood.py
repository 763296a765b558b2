"""The likelihood of the residuals of a fit under its noise, for AIC and BIC.

With independent combinations r of the residuals, in units of the noise sigma, it is the product of
exp(-rho(r)) / C / sigma, C the integral of exp(-rho), times 1 / sqrt(1 - a^2) where these are
correlated by a. A sigma that is not stated is that of the greatest likelihood, or the robust one.
"""

from dataclasses import replace

import numpy as np

from jaxmech.identify.noise.losses import AbstractLoss
from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Task


def log_likelihood(task: Task, y: np.ndarray, conditions: Conditions) -> float:
    """The logarithm of the likelihood of all measurements at y, in the units of the sensors."""
    weights = np.asarray(task.data.segments.weights, float)
    seen = weights > 0
    ones = np.ones((1, 1, 1))
    r, _ = task.evaluator.samples(y, replace(conditions, sample_weight=ones))
    units = np.asarray(conditions.sensor_weight, float)
    counts = seen.sum((0, 1))
    if not task.weighted and task.loss is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes = np.sqrt((np.where(seen, r, 0.0) ** 2).sum((0, 1)) / counts)
            r, units = np.where(seen, r / sizes, 0.0), units / sizes
    a = task.evaluator.neighbours.correlation(np.asarray(conditions.correlation_time, float))
    with np.errstate(divide="ignore"):
        scales = np.log(weights[seen]).sum() + counts @ np.log(units)
    losses = _value(task.loss, r[seen]).sum() + counts.sum() * _log_scale(task.loss)
    return float(scales - losses - 0.5 * np.log1p(-(a[seen] ** 2)).sum())


def noise_parameters(task: Task) -> int:
    """The number of parameters of the noise that are estimated."""
    sensors = task.data.segments.observed.shape[2]
    return sensors * ((not task.weighted) + (task.noise is not None))


def description(task: Task) -> str:
    """The noise in words.

    For the print of a fit, such as "normal, independent, estimated".
    """
    law = "normal" if task.loss is None else repr(task.loss)
    times = "independent" if task.noise is None else "AR(1)"
    return f"{law}, {times}, {'stated' if task.weighted else 'estimated'}"


def _value(loss: AbstractLoss | None, r: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * r**2 if loss is None else loss.value(r))


def _log_scale(loss: AbstractLoss | None) -> float:
    return 0.5 * float(np.log(2 * np.pi)) if loss is None else loss.log_scale
