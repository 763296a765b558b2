"""Whether the residuals of a fit are noise of the stated size, and its fixed states exact.

`Outliers` are samples that the noise does not explain: their residuals are compared with the median
of the sizes of all, which outliers hardly change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmech.identify.data.recording import Recording
from jaxmech.identify.inference.information import Autocorrelation, correlation, percent
from jaxmech.identify.inference.normal_equations import basis
from jaxmech.identify.optimize.loop import Solved
from jaxmech.identify.problem.least_squares import Data, free_directions, initial_states
from jaxmech.identify.problem.noise import NORMAL
from jaxmech.identify.problem.rows import Point, Task, evaluated, outer, residual_rows
from jaxmech.utils.arrays import HostArray

EXACT = 1e-6  # share of the motion below which residuals are numerical errors
_CHANCE = 1e-3  # probability that normal noise has an outlier
_SPREAD = 1.2  # standard deviation of the median of n sizes, relative, times the root of n
_FEWEST = 20  # samples of a sensor, to tell
_SHOWN = 10  # rows of a print


class Outlier(NamedTuple):
    """A sample that the noise does not explain; part of `Outliers` in the result of `fit`."""

    recording: str  # its name
    time: float  # [s]
    sensor: int  # its index
    sigmas: float  # predicted less observed, in standard deviations of the noise


@dataclass(frozen=True, repr=False)
class Outliers:
    """The samples that the noise of a fit does not explain, the largest first; prints itself.

    A part of a `Fit`, the result of `fit`: `Fit.outliers`.
    """

    samples: tuple[Outlier, ...]
    count: int  # of all measurements
    limit: float  # size from which a sample is an outlier, in standard deviations

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Outlier]:
        return iter(self.samples)

    def __repr__(self) -> str:
        share = 100 * len(self) / max(self.count, 1)
        far = f"more than {self.limit:.2g} standard deviations off"
        lines = [f"Outliers: {len(self)} of {self.count:,} samples ({share:.2g} %), {far}"]
        if self.samples:
            width = max(9, *(len(sample.recording) for sample in self.samples))
            lines.append(f"  {'recording':<{width}}{'time [s]':>12}{'sensor':>8}{'sigmas':>10}")
        for sample in self.samples[:_SHOWN]:
            cells = f"{sample.time:>12.6g}{sample.sensor:>8}{sample.sigmas:>10.3g}"
            lines.append(f"  {sample.recording:<{width}}{cells}")
        if len(self) > _SHOWN:
            lines.append(f"  and {len(self) - _SHOWN} more")
        return "\n".join(lines)


def outliers(
    residuals: Sequence[HostArray],
    recordings: Sequence[Recording],
    errors: Sequence[HostArray] = (),
) -> Outliers:
    """The outliers among independent residuals (T, d) of each recording, NaN without one.

    There are none where the residuals in the units of the sensors, `errors`, are numerical errors.
    """
    from scipy.special import ndtri  # slow to import, and seldom needed

    count = sum(int(np.isfinite(r).sum()) for r in residuals)
    per_sensor = max(count, 1) / residuals[0].shape[1]
    limit = float(-ndtri(_CHANCE / (2 * max(count, 1)))) * (1 + _SPREAD / np.sqrt(per_sensor))
    samples: list[Outlier] = []
    for sensor in range(residuals[0].shape[1]):
        values = np.concatenate([r[:, sensor] for r in residuals])
        values = values[np.isfinite(values)]
        if errors:
            observed = np.concatenate([one.observed[:, sensor] for one in recordings])
            left = np.nanstd(np.concatenate([x[:, sensor] for x in errors]))
            if left <= EXACT * np.nanstd(observed):
                continue
        size = NORMAL * float(np.median(np.abs(values))) if len(values) >= _FEWEST else 0.0
        if not size > 0:
            continue
        for r, recording in zip(residuals, recordings, strict=True):
            sigmas = r[:, sensor] / size
            samples += [
                Outlier(recording.name, float(recording.ts[k]), sensor, float(sigmas[k]))
                for k in np.flatnonzero(np.abs(sigmas) > limit)
            ]
    samples.sort(key=lambda sample: -abs(sample.sigmas))
    return Outliers(tuple(samples), count, limit)


_FALSE_ALARM = 1e-3  # probability with which exact initial states are suspected


def inexact_starts(solved: Solved) -> str:
    """A warning about fixed initial states, or an empty text if they agree with the recordings.

    The score test: how much the sum of squares falls, to second order, if these are freed too.
    Under noise alone the fall has a chi-square distribution in units of the stated noise, or an F
    distribution where the noise is estimated (Seber and Wild, "Nonlinear regression", 5.3).
    """
    from scipy.special import chdtrc, fdtrc  # slow to import, and seldom needed

    task, at, conditions = solved.task, solved.at, solved.conditions
    problem, data, first = task.problem, task.data, task.origin.first
    if np.asarray(data.along)[first].any() or not share(task, at) > EXACT:
        return ""
    z, u = data.parts(at.y, at.numbers.size)
    states = initial_states(problem, data.segments, problem.layout.known(z, data.leaves))
    try:
        along = free_directions(problem, data.segments, states, first)
    except ValueError as error:
        return f"Fixed initial states: not tested. {error}"
    if data.free_starts:  # of later segments, where they are as before
        along = np.where(first[:, None, None], along, data.along)
    freed = replace(task, data=Data(data.segments, data.leaves, jnp.asarray(along)))
    u = u if u.size else np.zeros((len(along), freed.data.free_starts))
    point = evaluated(freed, np.concatenate([z, u.ravel()]))
    falls, ranks = [], []
    for one, where in ((task, at), (freed, point)):
        rows = residual_rows(one, where, conditions)
        Q = basis(rows.jacobian)
        falls.append(float(np.sum((Q.T @ rows.values) ** 2)))
        ranks.append(Q.shape[1])
    before, fall, gained = 2 * rows.loss, falls[1] - falls[0], ranks[1] - ranks[0]
    rest = sum(one.count for one in task.origin.recordings) - ranks[1]
    if not gained or rest <= 0:
        return ""
    if task.weighted:
        p, test = chdtrc(gained, fall), f"chi-square {fall:.3g}, {gained}"
    else:
        F = fall / gained / max((before - fall) / rest, EXACT * before)
        p, test = fdtrc(gained, rest, F), f"F {F:.3g}, {gained} and {rest}"
    if not p < _FALSE_ALARM:
        return ""
    return (
        "Fixed initial states: freeing them would lower the sum of squares by "
        f"{100 * min(fall / before, 1):.2g} %, far more than noise allows ({test} degrees of "
        f"freedom, p {probability(p)}). The recorded starts are not exact, and the intervals are "
        'wrong; fit with initial_states="free".'
    )


_RARE = 1e-4  # probability below which noise alone is rejected
_FACTOR = 1.1  # largest accepted error of the stated noise, and with it of all intervals
_MEDIAN = 0.37  # efficiency of the median of sizes as an estimate of the noise
_CAUSE = "The model lacks something, or the times, a unit or a column are wrong, or a filter."
_LOCAL = (
    " Or this is a local minimum, of which impacts and dry friction make many: try "
    "optimizer=TrustRegion(starts=MultiStart(count=256, refine=16)), and other initial parameters."
)


def correlated(task: Task, at: Point, residuals: Sequence[HostArray]) -> Autocorrelation | None:
    """The correlation of the residuals (T, d) in time; None if they may be independent."""
    if not share(task, at) > EXACT:
        return None
    return correlation(residuals, task.origin.recordings)


def misfit(task: Task, at: Point, residuals: Sequence[HostArray], unknowns: int) -> str:
    """A warning about the residuals of a fit, or an empty text if they look like noise.

    They must be independent of one another, whether their noise is stated or estimated. In units of
    a stated noise their sum of squares has a chi-square distribution, too.
    """
    alike = correlated(task, at, residuals)
    related = ""
    if alike is not None:
        related = (
            f"neighbours in time are correlated ({alike.neighbours:.2f}, p of Ljung and Box "
            f"{probability(alike.chance)})"
        )
    local = _LOCAL if task.problem.system.unilateral else ""
    if task.weighted:
        squares, degrees = _chi_square(task, at, residuals, unknowns)
        if message := _against_stated(squares, degrees, related):
            return message + local
    if alike is None:
        return ""
    return (
        f"Misfit: the residuals, {percent(share(task, at))} of the motion, are not noise: {related}"
        f". {_CAUSE} Intervals that assume independent residuals are too short.{local}"
    )


def share(task: Task, at: Point) -> float:
    """Size of the residuals relative to the recorded motion (root mean squares)."""
    segments = task.data.segments
    weights, observed = np.asarray(segments.weights), np.asarray(segments.observed)
    seen = weights > 0
    mean = np.where(seen, observed, 0).sum((0, 1)) / np.maximum(seen.sum((0, 1)), 1)
    sensors = np.asarray(task.conditions.sensor_weight)
    signal = np.where(seen, sensors * weights * (observed - mean), 0.0)
    residual = sensors * np.asarray(at.run.residual)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.sqrt((residual**2).sum() / (signal**2).sum()))


def probability(p: float) -> str:
    """A probability with its relation, such as "= 0.001"."""
    return f"= {p:.1g}" if p > 1e-15 else "< 1e-15"


def _chi_square(
    task: Task, at: Point, residuals: Sequence[HostArray], unknowns: int
) -> tuple[float, int]:
    """The squared residuals of all measurements and priors, and their degrees of freedom.

    With a robust loss those that normal noise of the same median would have.
    """
    data, conditions = task.data, task.conditions
    count = sum(one.count for one in task.origin.recordings) - unknowns
    count += int((np.asarray(conditions.prior_weight) > 0).sum())
    if data.along.size:
        held = (np.asarray(conditions.start_weight) > 0)[:, :, None] * np.asarray(data.along)
        count += int(np.linalg.matrix_rank(held).sum())
    r = np.concatenate([one[np.isfinite(one)] for one in residuals])
    squares, others = float((r**2).sum()), float((outer(task, at, conditions) ** 2).sum())
    if task.loss is None:
        return squares + others, count
    squares = r.size * (NORMAL * float(np.median(np.abs(r)))) ** 2
    # of which a median knows as much as 0.37 of the samples
    return _MEDIAN * (squares + others), round(_MEDIAN * count)


def _against_stated(squares: float, degrees: int, related: str) -> str:
    """The warning of a two-sided chi-square test, or an empty text."""
    from scipy.special import chdtr, chdtrc  # slow to import, and seldom needed

    if degrees <= 0:
        return ""
    factor = float(np.sqrt(squares / degrees))
    over, under = float(chdtrc(degrees, squares)), float(chdtr(degrees, squares))
    measured = f"chi-square is {squares:.4g} with {degrees} degrees of freedom"
    if over < _RARE and factor > _FACTOR:
        cause = "They look like noise, but more of it than the weights state."
        if related:
            cause = f"They are not noise: {related}. {_CAUSE}"
        return (
            f"Misfit: the residuals are {factor:.3g} times the stated noise ({measured}, "
            f"p {probability(over)}). {cause} The intervals are too short by that factor at least."
        )
    if under < _RARE and factor < 1 / _FACTOR:
        effect = "The intervals are too wide."
        if related:  # which shortens intervals, by more or less than they are too wide
            effect = (
                f"And they are not independent: {related}. Intervals that assume so "
                "may be too short or too wide."
            )
        return (
            f"The stated noise is too large: the residuals are {factor:.3g} times it "
            f"({measured}, p {probability(under)}). {effect}"
        )
    return ""
