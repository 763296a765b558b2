"""The noise of each sensor, estimated where it is not stated.

Of n_j residuals r of a sensor j the fit takes away the trace h_j of its block of the hat matrix
J (J^T J)^-1 J^T, so that sigma_j^2 = sum r^2 / (n_j - h_j) has no bias; fits with weights
1 / sigma_j and estimates follow each other until both agree (Foerstner 1979; Koch, "Parameter
estimation and hypothesis testing in linear models", 1999, section 3.6). With a robust loss the
median of |r| takes the place of the sum, and each sample gets its weight, in the same turns.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.noise import NORMAL
from jaxmech.identify.problem.rows import Point, Task, residual_rows, samples, unrobust

_SAME = 3e-3  # relative change of a weight that makes no difference to an interval
_FEWEST = 3.0  # degrees of freedom of a sensor with a noise of its own
EXACT = 1e-6  # share of the motion below which residuals are numerical errors


class SensorNoise(NamedTuple):
    """The noise of d sensors."""

    weight: np.ndarray  # factors on the weights of the samples with which it is the same, (d,)
    sd: np.ndarray  # standard deviations in the units of the sensors, (d,)
    sample_weight: np.ndarray  # roots of the weights of a robust loss, (S, T, d) or (1, 1, 1)


def motion(weights: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """The standard deviation of the samples (S, T, d) of each sensor that count, (d,)."""
    seen = weights > 0
    count = np.maximum(seen.sum((0, 1)), 1)
    mean = np.where(seen, observed, 0).sum((0, 1)) / count
    sd = np.sqrt((np.where(seen, observed - mean, 0) ** 2).sum((0, 1)) / count)
    return np.where(sd > 0, sd, 1.0)


def estimated(task: Task, at: Point, conditions: Conditions) -> SensorNoise:
    """The noise of the sensors at the minimum."""
    s = task.data.segments
    weights, observed = np.asarray(s.weights, float), np.asarray(s.observed, float)
    # The degrees of freedom, by the trace of the block of each sensor in the hat matrix.
    jacobian, seen = residual_rows(task, at, conditions).jacobian, task.seen
    sizes = np.linalg.norm(jacobian, axis=0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    scaled = jacobian / sizes
    inverse = np.linalg.pinv(scaled.T @ scaled, rcond=1e-12, hermitian=True)
    degrees = seen.sum((0, 1)).astype(float)
    for k, one in enumerate(samples(at, conditions)[1]):
        # Slopes by parameters that run away are too small to be squared.
        largest = np.abs(one).max((1, 2))[:, None]
        largest = np.where(largest > 0, largest, 1.0)
        by_y, unit = largest * at.map_of(k, task.data) / sizes, one / largest[:, None]
        block = by_y @ inverse @ by_y.T
        degrees -= np.einsum("atj,ab,btj->j", unit, block, unit, optimize=True)
    values, _ = samples(at, replace(unrobust(conditions), sensor_weight=np.ones(degrees.size)))
    moved = motion(weights, observed)
    squares = (np.where(seen, values, 0.0) ** 2).sum((0, 1))
    if task.loss is not None:
        medians = [np.median(np.abs(values[..., j][seen[..., j]])) for j in range(moved.size)]
        squares = seen.sum((0, 1)) * (NORMAL * np.array(medians)) ** 2
    # A sensor with hardly a sample of its own has the noise of all in proportion to its motion.
    alone = degrees > _FEWEST
    pooled = np.sqrt((squares / moved**2).sum() / max(degrees.sum(), 1.0))
    sd = np.where(alone, np.sqrt(squares / np.where(alone, degrees, 1.0)), pooled * moved)
    weight = np.asarray(conditions.sensor_weight, float)
    if not task.weighted and not (sd < EXACT * moved).all():
        sd = np.maximum(sd, EXACT * moved)
        weight = 1 / sd  # of nothing but numerical errors there are no weights
    roots = np.asarray(conditions.sample_weight, float)
    if task.loss is not None:
        roots = np.sqrt(task.loss.weight(weight * values))
    return SensorNoise(weight, sd, roots)


def reweighted(conditions: Conditions, noise: SensorNoise) -> tuple[Conditions, bool]:
    """The conditions with the weights of estimated noise, and whether these are as before."""
    before = np.asarray(conditions.sensor_weight, float), np.asarray(conditions.sample_weight)
    same = (
        np.abs(np.log(noise.weight / before[0])).max() < _SAME,
        np.abs(noise.sample_weight - before[1]).max() < _SAME,
    )
    if all(same):
        return conditions, True
    changed = replace(conditions, sensor_weight=noise.weight, sample_weight=noise.sample_weight)
    return changed, False
