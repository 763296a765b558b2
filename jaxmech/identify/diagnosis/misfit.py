"""Whether the residuals of a fit are noise, and noise of the stated size."""

from collections.abc import Sequence

import numpy as np

from jaxmech.identify.inference.information import Autocorrelation, correlation, percent
from jaxmech.identify.noise.losses import NORMAL
from jaxmech.identify.problem.least_squares import SegmentRun
from jaxmech.identify.problem.rows import Task
from jaxmech.utils.arrays import HostArray

EXACT = 1e-6  # share of the motion below which residuals are numerical errors
_RARE = 1e-4  # probability below which noise alone is rejected
_FACTOR = 1.1  # largest accepted error of the stated noise, and with it of all intervals
_MEDIAN = 0.37  # efficiency of the median of sizes as an estimate of the noise
_CAUSE = "The model lacks something, or the times, a unit or a column are wrong, or a filter."


def correlated(
    task: Task, made: SegmentRun, residuals: Sequence[HostArray]
) -> Autocorrelation | None:
    """The correlation of the residuals (T, d) in time; None if they may be independent."""
    if not share(task, made) > EXACT:
        return None
    return correlation(residuals, task.origin.recordings)


def misfit(
    task: Task, y: np.ndarray, made: SegmentRun, residuals: Sequence[HostArray], unknowns: int
) -> str:
    """A warning about the residuals of a fit, or an empty text if they look like noise."""
    # They must be independent of one another, whether their noise is stated or estimated. In units
    # of a stated noise their sum of squares has a chi-square distribution, too.
    alike = correlated(task, made, residuals)
    if task.weighted:
        squares, count = _squares(task, y, residuals)
        if task.loss is not None:  # of which a median knows as much as 0.37 of the samples
            squares, count = _MEDIAN * squares, round(_MEDIAN * (count - unknowns)) + unknowns
        if message := _compare_with_stated(squares, count - unknowns, alike):
            return message
    if alike is None:
        return ""
    left = share(task, made)
    return (
        f"Misfit: the residuals, {percent(left)} of the motion, are not noise: {_alike(alike)}"
        f". {_CAUSE} Intervals that assume independent residuals are too short"
        f"{_remedy(task)}."
    )


def share(task: Task, made: SegmentRun) -> float:
    """Size of the residuals relative to the recorded motion (root mean squares)."""
    segments = task.data.segments
    weights, observed = np.asarray(segments.weights), np.asarray(segments.observed)
    seen = weights > 0
    mean = np.where(seen, observed, 0).sum((0, 1)) / np.maximum(seen.sum((0, 1)), 1)
    sensors = np.asarray(task.conditions.sensor_weight)
    signal = np.where(seen, sensors * weights * (observed - mean), 0.0)
    residual = sensors * np.asarray(made.residual)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((residual**2).sum() / (signal**2).sum()))


def probability(p: float) -> str:
    """A probability with its relation, such as "= 0.001"."""
    return f"= {p:.1g}" if p > 1e-15 else "< 1e-15"


def _compare_with_stated(squares: float, degrees: int, correlated: Autocorrelation | None) -> str:
    """The warning of a two-sided chi-square test, or an empty text."""
    from scipy.special import chdtr, chdtrc  # slow to import, and seldom needed

    if degrees <= 0:
        return ""
    factor = float(np.sqrt(squares / degrees))
    over, under = float(chdtrc(degrees, squares)), float(chdtr(degrees, squares))
    measured = f"chi-square is {squares:.4g} with {degrees} degrees of freedom"
    if over < _RARE and factor > _FACTOR:
        cause = "They look like noise, but more of it than the weights state."
        if correlated:
            cause = f"They are not noise: {_alike(correlated)}. {_CAUSE}"
        return (
            f"Misfit: the residuals are {factor:.3g} times the stated noise ({measured}, "
            f"p {probability(over)}). {cause} The intervals are too short by that factor at least."
        )
    if under < _RARE and factor < 1 / _FACTOR:
        effect = "The intervals are too wide."
        if correlated:  # which shortens intervals, by more or less than they are too wide
            effect = (
                f"And they are not independent: {_alike(correlated)}. Intervals that assume so "
                "may be too short or too wide."
            )
        return (
            f"The stated noise is too large: the residuals are {factor:.3g} times it "
            f"({measured}, p {probability(under)}). {effect}"
        )
    return ""


def _squares(task: Task, y: np.ndarray, residuals: Sequence[HostArray]) -> tuple[float, int]:
    """The squared residuals of all measurements and priors, and their number.

    With a robust loss those that normal noise of the same median would have.
    """
    data, conditions = task.data, task.conditions
    outer = task.evaluator.outer(y, conditions)
    count = sum(one.count for one in task.origin.recordings)
    count += int((np.asarray(conditions.prior_weight) > 0).sum())
    if data.along.size:
        held = (np.asarray(conditions.start_weight) > 0)[:, :, None] * np.asarray(data.along)
        count += int(np.linalg.matrix_rank(held).sum())
    r = np.concatenate([one[np.isfinite(one)] for one in residuals])
    squares = float((r**2).sum())
    if task.loss is not None:
        squares = r.size * (NORMAL * float(np.median(np.abs(r)))) ** 2
    return squares + float((outer**2).sum()), count


def _remedy(task: Task) -> str:
    return "" if task.noise else "; if the model is right, fit with noise=AR1()"


def _alike(correlated: Autocorrelation) -> str:
    return (
        f"neighbours in time are correlated ({correlated.neighbours:.2f}, p of Ljung and Box "
        f"{probability(correlated.chance)})"
    )
