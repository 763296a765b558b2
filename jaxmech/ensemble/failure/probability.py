"""`failure_probability`: the probability that a motion of a study fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from jaxmech.config import warn
from jaxmech.config.errors import InputError, refuse
from jaxmech.ensemble.cluster.connect import checked_tasks
from jaxmech.ensemble.failure.design_points import Search, heavy_tail, remarks, search
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
    directional_sampling,
    importance,
    line_sampling,
    monte_carlo,
    openturns,
)
from jaxmech.ensemble.failure.subset import RUN, levels_of, subset_simulation, together
from jaxmech.ensemble.study import NEEDS_OPENTURNS, Failure, Study
from jaxmech.run import Solution

_OFTEN = 0.05  # probability from which on crude Monte Carlo is as quick as anything
_DEVIATIONS = 4.0  # within which a pilot, whose own standard deviation is too small, agrees
_MOST_CURVED = 60  # variables up to which curvatures are computed without being asked for
_NEGLIGIBLE = 6.0  # by how much a reliability index may be larger for its point to be shown


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
    - "directional", "line": failures along random rays from the origin, or along lines parallel to
      the design point.
    - "subset": subset simulation, which needs no gradients, and no design points.
    - "monte-carlo": the share of failures.
    - "auto": a short run of subset simulation; then crude Monte Carlo where failures are frequent,
      importance sampling where it agrees, and subset simulation otherwise.

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
    with checked_tasks(study.cluster, tell or warn) as (tasks, _):
        if tasks is not None:
            limit.map_blocks = AwayBlocks(tasks, study, folder).map
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

    Example:
        >>> from jaxmech.ensemble import Failure, Normal, Study, Times, failure_probability
        >>> study = Study(
        ...     model="pendulum",
        ...     size=64,
        ...     times=Times(end=1.0, saves=11),
        ...     start={"theta": Normal(sd=0.3, mean=0.0)},
        ...     failure=Failure(of="x1", above=0.9, method="form"),
        ... )
        >>> point = failure_probability(study).design_points[0]
        >>> print(design_point_motion(study, point)["x1"].max().round(4))
        0.9
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
        self.points: Search | None = None

    def result(self) -> FailureProbability:
        try:
            estimate = getattr(self, f"_{self.failure.method.replace('-', '_')}")()
        except ExhaustedError:
            raise refuse(
                ("failure", "most"),
                f"must be larger: {self.limit.trajectories:,} trajectories give no result",
            ) from None
        self.estimates.append(estimate)
        precision = self.failure.coefficient_of_variation
        if estimate.coefficient_of_variation > precision * 1.01:
            reached = estimate.coefficient_of_variation
            self.doubts.append(
                f"the coefficient of variation is {reached:.2g}, not {precision:g}: `most` = "
                f"{self.failure.most:,} trajectories are too few"
            )
        if doubt := heavy_tail(estimate):
            self.doubts.append(doubt)
        features = remarks(self.limit, estimate, self.points)
        return FailureProbability(
            estimate, self.failure.confidence, self.limit.trajectories, self.limit.gradients,
            self.limit.lost, tuple(self._design_points()),
            sensitivities(self.limit.space, estimate), tuple(self.estimates),
            tuple(features), tuple(self.doubts),
        )  # fmt: skip

    def _auto(self) -> FailureEstimate:
        rng = np.random.default_rng([self.seed, 3])
        (pilot,) = together(
            self.limit, [levels_of(self.limit.size, RUN, rng, with_population=False)]
        )
        self.estimates.append(replace(pilot, method="pilot (subset)"))
        if pilot.probability > _OFTEN:
            return self._monte_carlo()
        self.points = search(self.limit, self.seed)
        around = None
        if len(self.points.points):
            if self.limit.size <= _MOST_CURVED:
                self._approximate()
            around = self._importance()
            if around.agrees(pilot, _DEVIATIONS) and not heavy_tail(around):
                return around
            self.estimates.append(around)
        chains = self._subset()
        if around is not None and not around.agrees(chains, _DEVIATIONS):
            self.doubts.append(
                f"importance sampling around the design points gives {around.probability:.3g}, "
                f"subset simulation {chains.probability:.3g}: there are failures far from the "
                "design points"
            )
        return chains

    def _searched(self) -> Search:
        if self.points is None:
            self.points = search(self.limit, self.seed)
        if not len(self.points.points):
            why = "the margin has no gradient" if self.points.flat == 1 else "the search ends"
            raise InputError(
                f"the method {self.failure.method!r} needs a design point, but has none: {why} "
                'everywhere it was begun; choose the method "subset"'
            )
        return self.points

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

    def _line(self) -> FailureEstimate:
        precision, points = self.failure.coefficient_of_variation, self._searched()
        if len(points.relevant) > 1:
            raise InputError(
                f"the method 'line' is for one region of failures, but there are "
                f"{len(points.relevant)}, in directions that its lines seldom meet; choose the "
                'method "importance"'
            )
        return line_sampling(self.limit, points, precision, self.seed)

    def _directional(self) -> FailureEstimate:
        precision = self.failure.coefficient_of_variation
        return directional_sampling(self.limit, precision, self.seed)

    def _subset(self) -> FailureEstimate:
        failure = self.failure
        precision, size = failure.coefficient_of_variation, failure.level
        product, bridge = subset_simulation(self.limit, precision, size, self.seed)
        if bridge is None:
            return replace(product, method="subset")
        better, other = sorted((bridge, product), key=lambda x: x.coefficient_of_variation)
        self.estimates.append(other)
        if not bridge.agrees(product, _DEVIATIONS):
            self.doubts.append(
                f"the product of levels is {product.probability:.3g}, but bridge sampling from the "
                f"failures at their end gives {bridge.probability:.3g}"
            )
        return replace(better, method="subset")

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
