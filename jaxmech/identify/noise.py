"""The noise of the sensors, and whether the residuals of a fit are noise of the stated size.

Of n_j residuals r of a sensor j the fit takes away the trace h_j of its block of the hat matrix
J (J^T J)^-1 J^T, so that sigma_j^2 = sum r^2 / (n_j - h_j) has no bias; fits with weights
1 / sigma_j and estimates follow each other until both agree (Foerstner 1979; Koch, "Parameter
estimation and hypothesis testing in linear models", 1999, section 3.6). With a robust loss the
median of |r| takes the place of the sum, and each sample gets its weight, in the same turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from jaxmech.identify.problem import (
    NORMAL,
    Conditions,
    Point,
    Task,
    column_sizes,
    outer,
    residual_rows,
    samples,
    unrobust,
)
from jaxmech.identify.recording import Recording
from jaxmech.identify.segments import EXACT, motion
from jaxmech.utils.arrays import HostArray
from jaxmech.utils.text import percent

_FEWEST = 3.0  # degrees of freedom of a sensor with a noise of its own


def estimated(task: Task, at: Point, conditions: Conditions) -> tuple[Conditions, HostArray]:
    """The conditions with the weights of the noise at the minimum, and its deviations (d,)."""
    # The degrees of freedom, by the trace of the block of each sensor in the hat matrix.
    jacobian, seen = residual_rows(task, at, conditions).jacobian, task.seen
    sizes = column_sizes(jacobian)
    scaled = jacobian / sizes
    inverse = np.linalg.pinv(scaled.T @ scaled, rcond=1e-12, hermitian=True)
    degrees = seen.sum((0, 1)).astype(float)
    for k, rows in enumerate(samples(at, conditions)[1]):
        # Slopes by parameters that run away are too small to be squared.
        largest = np.abs(rows).max((1, 2))[:, None]
        largest = np.where(largest > 0, largest, 1.0)
        by_y, unit = largest * at.map_of(k, task.data) / sizes, rows / largest[:, None]
        block = by_y @ inverse @ by_y.T
        degrees -= np.einsum("atj,ab,btj->j", unit, block, unit, optimize=True)
    values, _ = samples(at, replace(unrobust(conditions), sensor_weight=np.ones(degrees.size)))
    moved = motion(task.data.segments)
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
    return replace(conditions, sensor_weight=weight, sample_weight=roots), sd


_CHANCE = 1e-3  # probability that normal noise has an outlier
_SPREAD = 1.2  # standard deviation of the median of n sizes, relative, times the root of n
_ENOUGH = 20  # samples of a sensor, to tell
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
    errors: Sequence[HostArray],
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
        size = NORMAL * float(np.median(np.abs(values))) if len(values) >= _ENOUGH else 0.0
        if not size > 0:
            continue
        observed = np.concatenate([recording.observed[:, sensor] for recording in recordings])
        left = np.nanstd(np.concatenate([x[:, sensor] for x in errors]))
        if left <= EXACT * np.nanstd(observed):
            continue
        for r, recording in zip(residuals, recordings, strict=True):
            sigmas = r[:, sensor] / size
            samples += [
                Outlier(recording.name, float(recording.ts[k]), sensor, float(sigmas[k]))
                for k in np.flatnonzero(np.abs(sigmas) > limit)
            ]
    samples.sort(key=lambda sample: -abs(sample.sigmas))
    return Outliers(tuple(samples), count, limit)


_RELATED = 1e-3  # probability with which independent residuals are called correlated
_LEAST = 0.1  # correlation, over all lags, that makes a difference to the intervals
_LAGS = 10
_PER_LAG = 5  # samples of a sensor, in the longest recording, for each lag


class Autocorrelation(NamedTuple):
    """Residuals that are not independent."""

    neighbours: float  # correlation of neighbours in time
    chance: float  # probability of such correlations between independent residuals


def correlation(residuals: Sequence[HostArray]) -> Autocorrelation | None:
    """The correlation of residuals (T, d) in time, None if it may be chance or is negligible.

    They are NaN where nothing was measured.
    """
    from scipy.special import chdtrc  # slow to import, and seldom needed

    totals, degrees, strongest, neighbours = np.zeros(2), np.zeros(2), 0.0, 0.0
    # A sensor may be slower than others, and than the times of a recording.
    for of_sensor in zip(*(r.T for r in residuals), strict=True):
        columns = [x[np.isfinite(x)] for x in of_sensor]
        values = np.concatenate(columns)
        size = np.abs(values).max(initial=0.0)
        if not (size > 0 and np.isfinite(size)):
            continue
        squares, terms = ((values / size) ** 2).sum(), []
        longest = max(len(x) for x in columns)
        for lag in range(1, 1 + max(1, min(_LAGS, longest // _PER_LAG))):
            products = np.concatenate([x[lag:] / size * (x[:-lag] / size) for x in columns])
            terms.append((float(products.sum() / squares), products.size))
        r = np.array([r for r, count in terms if count])
        counts = np.array([count for _, count in terms if count])
        if not r.size:
            continue
        terms_of_Q = values.size**2 / counts * r**2
        totals += terms_of_Q[0], terms_of_Q.sum()
        degrees += 1, r.size
        if (total := float((r**2).sum())) > strongest:
            strongest, neighbours = total, float(r[0])
    chance = min(1.0, 2 * float(chdtrc(degrees, totals).min())) if degrees.any() else 1.0
    is_related = chance < _RELATED and strongest > _LEAST**2
    return Autocorrelation(neighbours, chance) if is_related else None


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


def standard_residuals(
    task: Task, at: Point, conditions: Conditions
) -> tuple[float, tuple[HostArray, ...]]:
    """The size of the weighted residuals, and independent residuals (T, d) in units of it.

    In units of the stated noise where that is known.
    """
    values, _ = samples(at, unrobust(conditions))
    size = float(np.sqrt((values[task.seen] ** 2).sum() / max(task.count - task.unknowns, 1)))
    if task.loss is not None:
        size = NORMAL * float(np.median(np.abs(values[task.seen]))) if task.weighted else 1.0
    unit = size if size > 0 and not task.weighted else 1.0
    return size, task.origin.gathered(np.where(task.seen, values / unit, np.nan))


def correlated(task: Task, at: Point, residuals: Sequence[HostArray]) -> Autocorrelation | None:
    """The correlation of the residuals of a fit; None if they may be independent, or round-off."""
    return correlation(residuals) if share(task, at) > EXACT else None


_RARE = 1e-4  # probability below which noise alone is rejected
_FACTOR = 1.1  # largest accepted error of the stated noise, and with it of all intervals
_MEDIAN = 0.37  # efficiency of the median of sizes as an estimate of the noise
_CAUSE = "The model lacks something, or the times, a unit or a column are wrong, or a filter."
_LOCAL = (
    " Or this is a local minimum, of which impacts and dry friction make many: try "
    "optimizer=TrustRegion(starts=MultiStart(count=256, refine=16)), and other initial parameters."
)


def misfit(
    task: Task, at: Point, residuals: Sequence[HostArray], alike: Autocorrelation | None
) -> str:
    """A warning about the residuals of a fit, or an empty text if they look like noise.

    They must be independent of one another, whether their noise is stated or estimated. In units of
    a stated noise their sum of squares has a chi-square distribution, too.
    """
    from scipy.special import chdtr, chdtrc  # slow to import, and seldom needed

    def probability(p: float) -> str:
        return f"p = {p:.1g}" if p > 1e-15 else "p < 1e-15"

    related = ""
    if alike is not None:
        p = probability(alike.chance).replace("p ", "p of Ljung and Box ", 1)
        related = f"neighbours in time are correlated ({alike.neighbours:.2f}, {p})"
    local = _LOCAL if task.problem.system.unilateral else ""
    if task.weighted:
        # The squares of all measurements and priors, and their degrees of freedom.
        data, conditions = task.data, task.conditions
        degrees = task.count - task.unknowns
        degrees += int((np.asarray(conditions.prior_weight) > 0).sum())
        if data.along.size:
            held = (np.asarray(conditions.start_weight) > 0)[:, :, None] * np.asarray(data.along)
            degrees += int(np.linalg.matrix_rank(held).sum())
        r = np.concatenate([rows[np.isfinite(rows)] for rows in residuals])
        squares = float((r**2).sum() + sum((x**2).sum() for x in outer(task, at, conditions)))
        if task.loss is not None:
            # Those that normal noise of the same median would have, of which a median knows as
            # much as 0.37 of the samples.
            normal = r.size * (NORMAL * float(np.median(np.abs(r)))) ** 2
            squares = _MEDIAN * (squares - float((r**2).sum()) + normal)
            degrees = round(_MEDIAN * degrees)
        factor = float(np.sqrt(squares / max(degrees, 1)))
        over, under = float(chdtrc(degrees, squares)), float(chdtr(degrees, squares))
        measured = f"chi-square is {squares:.4g} with {degrees} degrees of freedom"
        if degrees > 0 and over < _RARE and factor > _FACTOR:
            cause = "They look like noise, but more of it than the weights state."
            cause = f"They are not noise: {related}. {_CAUSE}" if related else cause
            return (
                f"Misfit: the residuals are {factor:.3g} times the stated noise ({measured}, "
                f"{probability(over)}). {cause} The intervals are too short by that factor at "
                f"least.{local}"
            )
        if degrees > 0 and under < _RARE and factor < 1 / _FACTOR:
            effect = "The intervals are too wide."
            if related:  # which shortens intervals, by more or less than they are too wide
                effect = f"And they are not independent: {related}; intervals may be too short."
            return (
                f"The stated noise is too large: the residuals are {factor:.3g} times it "
                f"({measured}, {probability(under)}). {effect}{local}"
            )
    if not related:
        return ""
    return (
        f"Misfit: the residuals, {percent(share(task, at))} of the motion, are not noise: {related}"
        f". {_CAUSE} Intervals that assume independent residuals are too short.{local}"
    )
