"""`failure_probability`: the probability that a motion of a study fails, which prints itself."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from jaxmech.config import RunFolder, plain, write_whole
from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState, limit_state_of
from jaxmech.ensemble.failure.methods import (
    FailureEstimate,
    FlatError,
    Search,
    first_order,
    importance,
    importance_weights,
    monte_carlo,
    runs,
    search,
    subset_simulation,
)
from jaxmech.ensemble.plan import origin
from jaxmech.ensemble.study import Failure, Study

_SHOWN = 8  # variables that a printed result lists
_OFTEN = 0.05  # probability from which on crude Monte Carlo is as quick as anything
_PILOT = (400, 4)  # points of a level of the pilot, and its runs
_DEVIATIONS = 4.0  # of the pilot, within which importance sampling agrees
_UNSEEN = 3.0  # by how much the mean weight of failures of the pilot may be larger
_NEGLIGIBLE = 6.0  # by how much a reliability index may be larger for its point to be shown
_LISTED = 6  # reliability indices
_LARGEST = 0.02  # share of a failure in a probability that is known to 5 %
# Keys that say how the probability is computed, and not of what.
_MAY_CHANGE = {
    "size", "statistics", "store", "failure.method",
    "failure.coefficient_of_variation", "failure.most", "failure.confidence",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class DesignPoint:
    """A most probable failure: the point of a region of failures that is nearest to the medians.

    Attributes:
        index: reliability index β, its distance from the medians in standard deviations.
        variables: the drawn variables, by full name.
        importance: importance factors of the variables, which sum to one. With correlations they
            are those of Der Kiureghian's γ.
        q: initial coordinates, shape (n,); with v and params, `simulate` gives the motion.
        v: initial velocities.
        params: parameters.
        u: the point in standard normal space.
    """

    index: float
    variables: Mapping[str, float]
    importance: Mapping[str, float]
    q: np.ndarray
    v: np.ndarray
    params: Mapping[str, Any]
    u: np.ndarray


@dataclass(frozen=True, eq=False)
class FailureProbability:
    """The probability of a failure, with what it depends on.

    The result of `failure_probability`.

    Attributes:
        estimate: the estimate of the method that the study asks for, or that was chosen.
        confidence: of the interval.
        trajectories: number of trajectories of all methods together, those with gradients included.
        gradients: number of trajectories with gradients.
        lost: number of trajectories that could not be computed to their end.
        design_points: the design points, the most probable one first.
        estimates: all estimates, also those of other methods for comparison.
        remarks: what the limit state looks like, in words, such as several regions of failures.
        doubts: what speaks against the result, in words; empty if nothing does.
    """

    estimate: FailureEstimate
    confidence: float
    trajectories: int
    gradients: int
    lost: int
    design_points: tuple[DesignPoint, ...]
    estimates: tuple[FailureEstimate, ...]
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]

    @property
    def probability(self) -> float:
        return self.estimate.probability

    @property
    def coefficient_of_variation(self) -> float:
        """The standard deviation of the probability, relative to it; NaN if it is not known."""
        return self.estimate.coefficient_of_variation

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the probability; NaN for an approximation."""
        return self.estimate.interval(self.confidence)

    @property
    def method(self) -> str:
        return self.estimate.method

    def __str__(self) -> str:
        return "\n".join(_card(self))

    def as_dict(self) -> dict[str, Any]:
        """All but the failures in standard normal space, as plain data, with None for NaN."""
        names = ("probability", "interval", "coefficient_of_variation", "method")
        shown = {name: getattr(self, name) for name in names}
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "estimate"}
        plain: dict[str, Any] = _plain({**shown, **rest})
        return plain


def _plain(value: Any) -> Any:
    """Data for JSON: of a design point only parameters that are numbers, of estimates no points."""
    if isinstance(value, DesignPoint):
        arrays = {name: np.asarray(x) for name, x in value.params.items()}
        params = {name: x for name, x in arrays.items() if x.dtype.kind in "fiu"}
        value = replace(value, params=params)
    if is_dataclass(value):
        hidden = ("failures", "weights")
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)
                if f.name not in hidden}  # fmt: skip
    if isinstance(value, Mapping):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not isfinite(value) else value


def _card(result: FailureProbability) -> Iterator[str]:
    low, high = result.interval
    percent = f"{100 * result.confidence:g} %"
    interval = f", {percent} interval {low:.3g} ... {high:.3g}" if isfinite(low) else ""
    yield f"probability of failure {result.probability:.4g}{interval} ({result.method})"
    yield from (f"  WARNING: {doubt}" for doubt in result.doubts)
    yield from (f"  {remark}" for remark in result.remarks)
    if isfinite(result.coefficient_of_variation):
        yield f"  coefficient of variation   {100 * result.coefficient_of_variation:.1f} %"
    lost = f", {result.lost:,} of them not computed to their end" if result.lost else ""
    yield f"  trajectories               {result.trajectories:,}{lost}"
    yield f"  of them with gradients     {result.gradients:,}"
    for estimate in result.estimates:
        if estimate is not result.estimate:
            spread = estimate.coefficient_of_variation
            about = f" +- {100 * spread:.0f} %" if isfinite(spread) else ""
            yield f"  by {estimate.method:<24}{estimate.probability:.4g}{about}"
    for point in result.design_points:
        yield f"  design point, reliability index {point.index:.4f}"
        yield f"    {'variable':<32}{'value':>12}{'importance':>12}"
        order = sorted(point.importance, key=lambda name: -point.importance[name])
        for name in order[:_SHOWN]:
            share = 100 * point.importance[name]
            yield f"    {name:<32}{point.variables[name]:>12.5g}{share:>10.1f} %"
        if len(order) > _SHOWN:
            yield f"    and {len(order) - _SHOWN} more"


def failure_probability(
    study: Study,
    out: Path | str | None = None,
    *,
    failure: Failure | None = None,
    folder: Path | str = Path(),
    stop: Callable[[], bool] = lambda: False,
) -> FailureProbability:
    """The probability that a motion of a study fails, from far fewer trajectories than failures.

    The drawn variables are mapped to standard normal space with the distributions and correlations
    of the study. Of `study`, the draws, the motion and the seed are used, and `block`, the number
    of trajectories that are computed at a time, 512 by default; its size and its statistics do not
    matter.

    Methods, each with the trajectories that `coefficient_of_variation` requires, if `most` allows:

    - "form": first-order approximation at the design points, without interval.
    - "importance": importance sampling with a normal density around each design point.
    - "subset": subset simulation, which needs no gradients, and no design points.
    - "monte-carlo": the share of failures.
    - "auto": a short run of subset simulation; then crude Monte Carlo where failures are frequent,
      importance sampling where it agrees, and more of subset simulation otherwise.

    Args:
        study: the study.
        out: folder in which the result is stored; nothing is stored by default.
        failure: the failure, in place of that of the study.
        folder: the folder to which relative paths of the study refer.
        stop: function called before each batch; if it returns true, the run ends with
            `StoppedError`.

    Raises:
        StudyError: if the study or its failure is impossible; the message names the keys.
        InputError: if a method needs a design point, and there is none.
        FolderError: if the folder cannot be used.

    Example:
        How often does a pendulum swing further than 1.2 m to the side?

        >>> from jaxmech.ensemble import Failure, Normal, Study, Times, failure_probability
        >>> study = Study(
        ...     model="pendulum",
        ...     size=64,
        ...     times=Times(end=1.0, saves=11),
        ...     start={"theta": Normal(sd=0.3, mean=0.0)},
        ... )
        >>> failure = Failure(of="x1", above=0.9, method="subset", coefficient_of_variation=0.2)
        >>> result = failure_probability(study, failure=failure)
        >>> result.method, result.interval[0] < 1.5e-4 < result.interval[1]
        ('subset', True)
    """
    failure = failure or study.failure
    if failure is None:
        raise refuse("failure", "must say what counts as failure, but is missing")
    study = replace(study, failure=failure)
    limit = limit_state_of(study, Path(folder))
    limit.stop = stop
    if out is None:
        return probability_of(limit, study.seed)
    out, config = Path(out), plain(study)
    run = RunFolder(out)
    with run.opened("failure"):
        if run.is_complete:
            run.require_same_config(config, _MAY_CHANGE)
        run.create(config, origin(limit.plan))
        result = probability_of(limit, study.seed)
        text = json.dumps(result.as_dict(), indent=2, allow_nan=False)
        write_whole(out / "failure.json", f"{text}\n")
        write_whole(out / "failure.txt", f"{result}\n")
    return result


def probability_of(limit: LimitState, seed: int) -> FailureProbability:
    """The probability that a limit state is at most 0, by the method of its failure."""
    failure = limit.failure
    precision, method = failure.coefficient_of_variation, failure.method
    estimates: list[FailureEstimate] = []
    remarks: list[str] = []
    pilot = points = None
    try:
        if method == "auto":
            try:
                pilot, _ = runs(limit, *_PILOT, np.random.default_rng([seed, 3]))
                estimates.append(replace(pilot, method="pilot (subset)"))
                method = "monte-carlo" if pilot.probability > _OFTEN else method
            except FlatError:
                remarks.append("the margin is flat: failures can only be counted")
                method = "monte-carlo"
        if method not in ("monte-carlo", "subset"):
            # The failures of the pilot lead to the design points that matter, also where these fill
            # an arc or are many.
            points = search(limit, seed, None if pilot is None else pilot.failures)
            if len(points.points):
                estimates.append(first_order(points))
            elif pilot is None:
                message = f"the method {method!r} needs a design point, but {_no_point(points)}"
                raise InputError(f'{message}; choose the method "subset"')
        match method:
            case "monte-carlo":
                estimate = monte_carlo(limit, precision, seed)
            case "subset":
                estimate = subset_simulation(limit, precision, seed)
            case "form":
                estimate = estimates.pop()
            case "importance":
                assert points is not None
                estimate = importance(limit, points, precision, [seed, 5])
            case "auto":
                assert points is not None
                assert pilot is not None
                estimate = _best(limit, precision, seed, pilot, points, estimates, remarks)
    except ExhaustedError:
        if pilot is None:
            raise refuse(
                ("failure", "most"),
                f"must be larger, or the failure more frequent: {limit.trajectories:,} "
                f"trajectories give no result; {limit.nearest_text()}",
            ) from None
        estimate = pilot
    estimates.append(estimate)
    if steps := [k for k, law in limit.sampler.drawn.items() if law.is_discrete]:
        remarks.append(
            f"the margin jumps with {', '.join(steps)}, which has a few values only: design points "
            "are those of its median"
        )
    if points is not None and not len(points.points):
        remarks.append(_no_point(points))
    elif points is not None and len(near := points.relevant) > 1:
        listed = ", ".join(f"{index:.3g}" for index in near[:_LISTED])
        listed += f", ... {near[-1]:.3g}" if len(near) > _LISTED else ""
        remarks.append(f"there are {len(near)} design points, with reliability indices {listed}")
    return FailureProbability(
        estimate, failure.confidence, limit.trajectories, limit.gradients, limit.lost,
        _design_points(limit, points),
        tuple(estimates), tuple(remarks), tuple(_doubts(limit, estimate)),
    )  # fmt: skip


def _best(
    limit: LimitState, precision: float, seed: int, pilot: FailureEstimate, points: Search,
    estimates: list[FailureEstimate], remarks: list[str],
) -> FailureEstimate:  # fmt: skip
    """Importance sampling around the design points if a pilot agrees, else subset simulation."""
    around = None
    if len(points.points):
        around = importance(limit, points, precision, [seed, 5], keep_on=False)
        # The mean weight of failures, as they occur, is the second moment of the estimate. If those
        # of the pilot say that it is larger, importance sampling does not see some of the failures.
        weight, by_pilot = (
            float((x.weights * importance_weights(x.failures, points)).sum())
            for x in (around, pilot)
        )
        seen = by_pilot <= _UNSEEN * weight
        if around.agrees(pilot, _DEVIATIONS) and seen and not _is_heavy(around):
            return around
        estimates.append(around)
    chains = subset_simulation(limit, precision, seed)
    if around is not None and not around.agrees(chains, _DEVIATIONS):
        remarks.append(
            f"importance sampling around the design points gives {around.probability:.3g}: there "
            "are failures far from them"
        )
    return chains


def _is_heavy(estimate: FailureEstimate) -> bool:
    """Whether a few failures make up much of an estimate by importance weights."""
    spread = estimate.coefficient_of_variation
    weighted = estimate.method == "importance" and len(estimate.weights) > 0
    return weighted and float(estimate.weights.max()) > max(_LARGEST, 4 * spread**2)


def _doubts(limit: LimitState, estimate: FailureEstimate) -> Iterator[str]:
    failure, reached = limit.failure, estimate.coefficient_of_variation
    precision = failure.coefficient_of_variation
    if reached > precision * 1.01:
        yield (
            f"the coefficient of variation is {reached:.2g}, not {precision:g}: `most` = "
            f"{failure.most:,} trajectories are too few"
        )
    if not estimate.probability:
        yield f"no trajectory fails; {limit.nearest_text()}"
    if _is_heavy(estimate):
        yield (
            f"a single failure carries {100 * estimate.weights.max():.1f} % of the probability, so "
            "that there may be others that carry as much and were not met: the interval is too "
            "short; compare it with the method subset"
        )


def _no_point(points: Search) -> str:
    why = "the margin has no gradient" if points.flat else "the search ends"
    return f"no design point was found, as {why} everywhere it was begun"


def _design_points(limit: LimitState, points: Search | None) -> tuple[DesignPoint, ...]:
    """The design points that matter, with their motions and importance factors."""
    if points is None:
        return ()
    factor, shown = limit.sampler.factor, []
    nearest = min(points.indices, default=0.0)
    for u, gradient, index in zip(points.points, points.gradients, points.indices, strict=True):
        if index >= nearest + _NEGLIGIBLE:
            continue
        direction = -gradient / np.linalg.norm(gradient)
        if factor is not None:  # by the correlated variables, whose deviations are one
            direction = np.linalg.solve(factor.T, direction)
            direction = direction / np.linalg.norm(direction)
        values = {name: float(column[0]) for name, column in limit.columns(u[None]).items()}
        shares = dict(zip(limit.sampler.drawn, map(float, direction**2), strict=True))
        shown.append(DesignPoint(float(index), values, shares, *limit.motion(u), u))
    return tuple(shown)
