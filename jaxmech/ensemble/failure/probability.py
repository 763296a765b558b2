"""`failure_probability`: the probability that a motion of a study fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np

from jaxmech.config import warn
from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.cluster import connected, mapped
from jaxmech.ensemble.failure.design_points import Search, search
from jaxmech.ensemble.failure.folder import opened_journal
from jaxmech.ensemble.failure.limit_state import (
    AwayBlocks,
    ExhaustedError,
    LimitState,
    limit_state_of,
)
from jaxmech.ensemble.failure.result import (
    DesignPoint,
    FailureEstimate,
    FailureProbability,
    sensitivities,
)
from jaxmech.ensemble.failure.sampling import (
    approximations,
    importance,
    importance_weights,
    monte_carlo,
    openturns,
)
from jaxmech.ensemble.failure.subset import FlatError, runs, subset_simulation
from jaxmech.ensemble.study import NEEDS_OPENTURNS, Failure, Study
from jaxmech.run import Solution

_OFTEN = 0.05  # probability from which on crude Monte Carlo is as quick as anything
_PILOT = (400, 4)  # points of a level of the pilot, and its runs
_DEVIATIONS = 4.0  # of the pilot, within which importance sampling agrees
_UNSEEN = 3.0  # by how much the mean weight of failures of the pilot may be larger
_MOST_CURVED = 60  # variables up to which curvatures are computed without being asked for
_NEGLIGIBLE = 6.0  # by how much a reliability index may be larger for its point to be shown
_LISTED = 6  # reliability indices
_LARGEST = 0.02  # share of a failure in a probability that is known to 5 %


def failure_probability(
    study: Study,
    out: Path | None = None,
    *,
    failure: Failure | None = None,
    folder: Path = Path(),
    stop: Callable[[], bool] = lambda: False,
    tell: Callable[[str], None] | None = None,
) -> FailureProbability:
    """The probability that a motion of a study fails, from far fewer trajectories than failures.

    The drawn variables are mapped to standard normal space with the distributions and correlations
    of the study. Of `study`, the draws, the motion and the seed are used, and `block`, the number
    of trajectories that are computed at a time, 512 by default; its size and statistics do not
    matter.

    Methods, each with the trajectories that `coefficient_of_variation` requires, if `most` allows:

    - "form", "sorm": first- and second-order approximation at the design points, without interval.
    - "importance": importance sampling with a normal density around each design point.
    - "subset": subset simulation, which needs no gradients, and no design points.
    - "monte-carlo": the share of failures.
    - "auto": a short run of subset simulation; then crude Monte Carlo where failures are frequent,
      importance sampling where it agrees, and more of subset simulation otherwise.

    Args:
        study: the study.
        out: folder in which every result is stored, so that a run that was killed continues there,
            with the same bits; nothing is stored by default.
        failure: the failure, in place of that of the study.
        folder: the folder to which relative paths of the study refer.
        stop: function called before each batch; if it returns true, the run ends with
            `StoppedError`.
        tell: function called with messages; by default it issues a `RunWarning`.

    Raises:
        StudyError: if the study or its failure is impossible; the message names the keys.
        InputError: if a method needs a package that is not installed.
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
    if failure.method in NEEDS_OPENTURNS:
        openturns()
    study = replace(study, failure=failure)
    limit = limit_state_of(study, out, folder)
    limit.stop = stop
    with connected(study.cluster) as client:
        if client is not None:
            limit.map_blocks = AwayBlocks(partial(mapped, client), study, folder).map
        if out is None:
            return _Work(limit, failure, study.seed).result()
        with opened_journal(out, study, limit, tell or warn) as journal:
            limit.journal = journal.path
            result = _Work(limit, failure, study.seed).result()
            journal.conclude(result)
    return result


def design_point_motion(study: Study, point: DesignPoint, folder: Path = Path()) -> Solution:
    """The motion of a design point, at all steps.

    Args:
        study: the study of which the probability was computed.
        point: a design point of the result.
        folder: the folder to which relative paths of the study refer.
    """
    if study.failure is None:
        raise refuse("failure", "must say what counts as failure, but is missing")
    member = limit_state_of(study, None, folder).margin.member
    params = {**point.params, **member.subject.inputs.of(point.params)}
    motion: Solution = jax.jit(member.motion)(point.q, point.v, params)
    return motion


class _Work:
    """The computation of a result: its methods share the limit state and what is known of it."""

    def __init__(self, limit: LimitState, failure: Failure, seed: int) -> None:
        self.limit, self.failure, self.seed = limit, failure, seed
        self.estimates: list[FailureEstimate] = []
        self.doubts: list[str] = []
        self.remarks: list[str] = []
        self.points: Search | None = None

    def result(self) -> FailureProbability:
        failure, limit = self.failure, self.limit
        try:
            estimate = getattr(self, f"_{failure.method.replace('-', '_')}")()
        except ExhaustedError:
            pilots = [one for one in self.estimates if one.levels]
            if not pilots:
                raise refuse(
                    ("failure", "most"),
                    f"must be larger, or the failure more frequent: {limit.trajectories:,} "
                    f"trajectories give no result; {limit.nearest_text()}",
                ) from None
            estimate = replace(pilots[0], method="subset")
        self.estimates.append(estimate)
        precision, reached = failure.coefficient_of_variation, estimate.coefficient_of_variation
        if reached > precision * 1.01:
            self.doubts.append(
                f"the coefficient of variation is {reached:.2g}, not {precision:g}: `most` = "
                f"{failure.most:,} trajectories are too few"
            )
        if not estimate.probability:
            self.doubts.append(f"no trajectory fails; {limit.nearest_text()}")
        if _is_heavy(estimate):
            self.doubts.append(
                f"a single failure carries {100 * estimate.weights.max():.1f} % of the "
                "probability, so that there may be others that carry as much and were not met: the "
                "interval is too short; compare it with the method subset"
            )
        return FailureProbability(
            estimate, failure.confidence, limit.trajectories, limit.gradients, limit.lost,
            tuple(self._design_points()), sensitivities(limit.space, estimate),
            tuple(self.estimates), (*self.remarks, *self._remarks()), tuple(self.doubts),
        )  # fmt: skip

    def _auto(self) -> FailureEstimate:
        size, count = _PILOT
        try:
            pilot, _ = runs(self.limit, size, count, np.random.default_rng([self.seed, 3]))
        except FlatError:
            self.remarks.append("the margin is flat: failures can only be counted")
            return self._monte_carlo()
        self.estimates.append(replace(pilot, method="pilot (subset)"))
        if pilot.probability > _OFTEN:
            return self._monte_carlo()
        # The failures of the pilot lead to the design points that matter, also where these fill an
        # arc or are many.
        self.points = search(self.limit, self.seed, pilot.failures)
        around = None
        if len(self.points.points):
            if self.limit.size <= _MOST_CURVED:
                self._approximate()
            around = self._importance()
            # The mean weight of failures, as they occur, is the second moment of the estimate. If
            # those of the pilot say that it is larger, importance sampling does not see some part
            # of the failures.
            weight = float(
                (around.weights * importance_weights(around.failures, self.points)).sum()
            )
            by_pilot = float(
                (pilot.weights * importance_weights(pilot.failures, self.points)).sum()
            )
            seen = by_pilot <= _UNSEEN * weight
            if around.agrees(pilot, _DEVIATIONS) and seen and not _is_heavy(around):
                return around
            self.estimates.append(around)
        chains = self._subset()
        if around is not None and not around.agrees(chains, _DEVIATIONS):
            self.remarks.append(
                f"importance sampling around the design points gives {around.probability:.3g}: "
                "there are failures far from them"
            )
        return chains

    def _searched(self) -> Search:
        if self.points is None:
            self.points = search(self.limit, self.seed)
        if not len(self.points.points):
            raise InputError(
                f"the method {self.failure.method!r} needs a design point, but {self._no_point()}; "
                'choose the method "subset"'
            )
        return self.points

    def _no_point(self) -> str:
        why = (
            "the margin has no gradient" if self.points and self.points.flat else "the search ends"
        )
        return f"no design point was found, as {why} everywhere it was begun"

    def _remarks(self) -> Iterator[str]:
        if steps := self.limit.space.steps:
            yield (
                f"the margin jumps with {', '.join(steps)}, which has a few values only: design "
                "points are those of its median"
            )
        if self.points is None:
            return
        if not len(self.points.points):
            yield self._no_point()
        elif len(near := self.points.relevant) > 1:
            listed = ", ".join(f"{index:.3g}" for index in near[:_LISTED])
            listed += f", ... {near[-1]:.3g}" if len(near) > _LISTED else ""
            yield f"there are {len(near)} design points, with reliability indices {listed}"

    def _approximate(self) -> tuple[FailureEstimate, FailureEstimate]:
        pair = approximations(self.limit, self._searched())
        self.estimates += pair
        return pair

    def _form(self) -> FailureEstimate:
        self._approximate()
        return self.estimates.pop(-2)

    def _sorm(self) -> FailureEstimate:
        self._approximate()
        if not np.isfinite(self.estimates[-1].probability):
            raise InputError(
                "the method 'sorm' needs a limit state that is smooth, and less curved at the "
                "design point than a circle around the medians, but this one is not; choose "
                'the method "importance"'
            )
        return self.estimates.pop()

    def _importance(self) -> FailureEstimate:
        precision = self.failure.coefficient_of_variation
        return importance(self.limit, self._searched(), precision, self.seed)

    def _subset(self) -> FailureEstimate:
        failure = self.failure
        precision = failure.coefficient_of_variation
        return subset_simulation(self.limit, precision, failure.level, self.seed)

    def _monte_carlo(self) -> FailureEstimate:
        return monte_carlo(self.limit, self.failure.coefficient_of_variation, self.seed)

    def _design_points(self) -> Iterator[DesignPoint]:
        if self.points is None:
            return
        nearest = min(self.points.indices, default=0.0)
        for u, gradient, index in zip(
            self.points.points, self.points.gradients, self.points.indices, strict=True
        ):
            if index < nearest + _NEGLIGIBLE:
                yield _design_point(self.limit, u, gradient, float(index))


def _is_heavy(estimate: FailureEstimate) -> bool:
    """Whether a few failures make up much of an estimate by importance weights."""
    spread = estimate.coefficient_of_variation
    weighted = estimate.method == "importance" and len(estimate.weights) > 0
    return weighted and float(estimate.weights.max()) > max(_LARGEST, 4 * spread**2)


def _design_point(
    limit: LimitState, u: np.ndarray, gradient: np.ndarray, index: float
) -> DesignPoint:
    space = limit.space
    direction = -gradient / np.linalg.norm(gradient)
    if space.factor is not None:  # by the correlated variables, whose deviations are one
        direction = np.linalg.solve(space.factor.T, direction)
        direction = direction / np.linalg.norm(direction)
    columns = space.columns(u[None])
    q, v, params = limit.motion(u)
    return DesignPoint(
        index,
        {name: float(columns[name][0]) for name in space.names},
        dict(zip(space.names, map(float, direction**2), strict=True)),
        q, v, params, u,
    )  # fmt: skip
