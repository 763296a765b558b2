"""`failure_probability`: the probability that a motion of a study fails."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w

from jaxmech.config import environment_json, opened, plain, require_same_config, write_whole
from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.failure.design_points import Search, search
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState, limit_state_of
from jaxmech.ensemble.failure.result import DesignPoint, FailureEstimate, FailureProbability
from jaxmech.ensemble.failure.sampling import (
    FlatError,
    first_order,
    importance,
    importance_weights,
    monte_carlo,
    runs,
    subset_simulation,
)
from jaxmech.ensemble.store.folder import origin
from jaxmech.ensemble.study import Failure, Study

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


def failure_probability(
    study: Study,
    out: Path | None = None,
    *,
    failure: Failure | None = None,
    folder: Path = Path(),
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
    limit = limit_state_of(study, folder)
    limit.stop = stop
    if out is None:
        return probability_of(limit, failure, study.seed)
    config, (motion, subject) = plain(study), (limit.margin.study, limit.margin.subject)
    with opened(out, "failure"):
        if (out / "config.toml").is_file():
            require_same_config(out, config, _MAY_CHANGE)
        facts = environment_json(origin(motion, subject, limit.sampler))
        write_whole(out / "environment.json", facts)
        write_whole(out / "config.toml", tomli_w.dumps(config))
        result = probability_of(limit, failure, study.seed)
        text = json.dumps(result.as_dict(), indent=2, allow_nan=False)
        write_whole(out / "failure.json", f"{text}\n")
        write_whole(out / "failure.txt", f"{result}\n")
    return result


def probability_of(limit: LimitState, failure: Failure, seed: int) -> FailureProbability:
    """The probability that a limit state is at most 0, by the method of a failure."""
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
        tuple(estimates), tuple(remarks), tuple(_doubts(limit, failure, estimate)),
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


def _doubts(limit: LimitState, failure: Failure, estimate: FailureEstimate) -> Iterator[str]:
    precision, reached = failure.coefficient_of_variation, estimate.coefficient_of_variation
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
        shares = dict(zip(limit.names, map(float, direction**2), strict=True))
        shown.append(DesignPoint(float(index), values, shares, *limit.motion(u), u))
    return tuple(shown)
