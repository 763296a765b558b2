"""The noise of each sensor, estimated from the residuals where it is not stated.

Of n_j residuals r of a sensor j the fit takes away the trace h_j of its block of the hat matrix
J (J^T J)^-1 J^T, so that sigma_j^2 = sum r^2 / (n_j - h_j) has no bias; fits with weights
1 / sigma_j and estimates follow each other until both agree (Foerstner 1979; Koch, "Parameter
estimation and hypothesis testing in linear models", 1999, section 3.6).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Evaluator, Task

_SAME = 3e-3  # relative change of a weight that makes no difference to an interval
_FEWEST = 3.0  # degrees of freedom of a sensor with a noise of its own
_EXACT = 1e-6  # share of the motion below which residuals are numerical errors


class SensorNoise(NamedTuple):
    """The noise of d sensors."""

    weight: np.ndarray  # factors on the weights of the samples with which it is the same, (d,)
    sd: np.ndarray  # standard deviations in the units of the sensors, (d,)


def first_weights(task_weights: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Weights of sensors of unknown noise at the start of a fit, (d,): one over their motion."""
    if observed.shape[2] == 1:
        return np.ones(1)
    return 1 / motion(task_weights, observed)


def motion(weights: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """The standard deviation of the samples (S, T, d) of each sensor that count, (d,)."""
    seen = weights > 0
    count = np.maximum(seen.sum((0, 1)), 1)
    mean = np.where(seen, observed, 0).sum((0, 1)) / count
    sd = np.sqrt((np.where(seen, observed - mean, 0) ** 2).sum((0, 1)) / count)
    return np.where(sd > 0, sd, 1.0)


def estimated(task: Task, y: np.ndarray, conditions: Conditions) -> SensorNoise:
    """The noise of the sensors at the minimum y."""
    evaluator = task.evaluator
    made, s = evaluator.at(y), task.data.segments
    weights, observed = np.asarray(s.weights, float), np.asarray(s.observed, float)
    raw = made.run.predicted - observed
    counts = (weights > 0).sum((0, 1))
    squares = (np.where(weights > 0, raw, 0.0) ** 2).sum((0, 1))
    degrees = counts - _traces(evaluator, y, conditions)
    # a sensor with hardly a sample of its own has the noise of all in proportion to its motion
    moved = motion(weights, observed)
    alone = degrees > _FEWEST
    pooled = np.sqrt((squares / moved**2).sum() / max(degrees.sum(), 1.0))
    sd = np.where(alone, np.sqrt(squares / np.where(alone, degrees, 1.0)), pooled * moved)
    if (sd < _EXACT * moved).all():  # nothing but numerical errors, which are no weights
        return SensorNoise(np.asarray(conditions.sensor_weight, float), sd)
    sd = np.maximum(sd, _EXACT * moved)
    return SensorNoise(1 / sd, sd)


def _traces(evaluator: Evaluator, y: np.ndarray, conditions: Conditions) -> np.ndarray:
    """The trace of the block of each sensor in the hat matrix, (d,)."""
    jacobian = evaluator.rows(y, conditions).jacobian
    sizes = np.linalg.norm(jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled = jacobian / sizes
    inverse = np.linalg.pinv(scaled.T @ scaled, rcond=1e-12, hermitian=True)
    inverse = inverse / sizes / sizes[:, None]
    slopes = np.asarray(evaluator.at(y).slopes.residual, float)  # (S, p + i, T, d)
    slopes = slopes * np.asarray(conditions.sensor_weight, float)
    p = evaluator.problem.layout.size
    i = slopes.shape[1] - p
    traces = np.zeros(slopes.shape[3])
    for k, one in enumerate(slopes):
        places = np.r_[0:p, p + k * i : p + (k + 1) * i]
        block = inverse[np.ix_(places, places)]
        traces += np.einsum("atj,ab,btj->j", one, block, one, optimize=True)
    return traces


def reweighted(conditions: Conditions, noise: SensorNoise) -> tuple[Conditions, bool]:
    """The conditions with the weights of estimated noise, and whether these are as before."""
    before = np.asarray(conditions.sensor_weight, float)
    is_same = bool(np.all(np.abs(np.log(noise.weight / before)) < _SAME))
    if is_same:
        return conditions, True
    return replace(conditions, sensor_weight=noise.weight), False
