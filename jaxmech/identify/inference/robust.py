"""The covariance of a robust fit, as that of a least-squares fit with other weights.

With psi = w r of n residuals r in units of the noise, p unknowns and the derivatives J, the
covariance is (Huber and Ronchetti, "Robust Statistics", 2009, section 7.6)

    K^2 [sum psi^2 / (n - p)] / mean(psi')^2 (J^T J)^-1,   K = 1 + p / n var(psi') / mean(psi')^2.

The last round of a fit has J^T W J in place of mean(w) J^T J, and changes of the estimate by
samples left out are those of its normal equations times mean(w) / mean(psi').
"""

from dataclasses import replace

import numpy as np

from jaxmech.identify.problem.least_squares import Conditions
from jaxmech.identify.problem.rows import Task

_FEWEST = 10  # samples of a sensor with moments of its own


def normal_conditions(
    task: Task, y: np.ndarray, conditions: Conditions, unknowns: int
) -> tuple[Conditions, float]:
    """Conditions with which J^T J is the inverse of the covariance, and a factor on the scores."""
    if task.loss is None:
        return conditions, 1.0
    seen = np.asarray(task.data.segments.weights) > 0
    plain = replace(conditions, sample_weight=np.ones((1, 1, 1)))
    r, _ = task.evaluator.samples(y, plain)
    weight, slope = task.loss.weight(r), task.loss.slope(r)
    share = min(unknowns / seen.sum(), 0.5)

    def moments(chosen: np.ndarray) -> tuple[float, float]:
        w, by_r = weight[chosen], slope[chosen]
        # a redescending loss may have a mean slope near zero, of which nothing follows
        mean = max(float(by_r.mean()), 0.05)
        K = 1 + share * float(by_r.var()) / mean**2
        squares = float(((w * r[chosen]) ** 2).mean()) / (1 - share)
        return np.sqrt(squares * w.mean()) * K / mean, float(w.mean()) / mean

    whole = moments(seen)
    factors = np.full(r.shape[2], whole[0])
    for j in np.flatnonzero(seen.sum((0, 1)) >= _FEWEST):
        factors[j] = moments(seen & (np.arange(r.shape[2]) == j))[0]
    factors = np.where(factors > 0, factors, 1.0)
    return replace(conditions, sensor_weight=conditions.sensor_weight / factors), whole[1]
