"""Approximations at design points, importance sampling around them, and crude Monte Carlo.

Those of design points are computed by OpenTURNS, to which a limit state is an event in standard
normal space.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, sqrt
from typing import Any

import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.result import FailureEstimate

_DIFFERENCE = 1e-3  # between points whose gradients are compared, in standard deviations
_LEAST_SHARE = 0.05  # of a design point among the points of the importance density


def approximations(limit: LimitState, points: Search) -> tuple[FailureEstimate, FailureEstimate]:
    """The first- and second-order approximations: sums over the design points.

    Each is the probability of a half-space, or Breitung's of a paraboloid. The sum is an upper
    bound of their union, and close to it where the design points are far from each other. The
    second one is NaN where a limit state is curved too much for a paraboloid.
    """
    from scipy.special import ndtr

    before, second = limit.trajectories, 0.0
    first = float(ndtr(-points.indices).sum())
    with seeded(0) as ot:
        for u in points.points:
            event = OpenTurnsEvent(limit)
            algorithm = ot.AbdoRackwitz()
            algorithm.setStartingPoint(u)
            try:
                result = event.run(ot.SORM(algorithm, event.event))
                second += result.getEventProbabilityBreitung()
            except RuntimeError as error:
                if event.failed:
                    raise
                if "Exception" not in str(error):  # those of OpenTURNS name their kind
                    raise
                second = float("nan")  # curved too much for a paraboloid, or not smooth
    nan = float("nan")
    return (
        FailureEstimate("form", min(first, 1.0), nan, 0),
        FailureEstimate("sorm", second, nan, limit.trajectories - before),
    )


def importance(limit: LimitState, points: Search, precision: float, seed: int) -> FailureEstimate:
    """Importance sampling with a normal density around each design point.

    The densities have the shares of the half-spaces at the design points. The points are drawn, and
    their number decided, by `ProbabilitySimulationAlgorithm` of OpenTURNS.
    """
    block = limit.margin.study.block_size
    before, event = limit.trajectories, OpenTurnsEvent(limit)
    with seeded(seed) as ot:
        unit = ot.CovarianceMatrix(limit.size)
        density = ot.Mixture([ot.Normal(u, unit) for u in points.points], _shares(points))
        experiment = ot.ImportanceSamplingExperiment(density)
        algorithm = ot.ProbabilitySimulationAlgorithm(event.event, experiment)
        algorithm.setBlockSize(block)
        algorithm.setMaximumOuterSampling(max(limit.left // block, 1))
        algorithm.setMaximumCoefficientOfVariation(precision)
        event.run(algorithm)
    u, margins = (np.concatenate(parts) for parts in zip(*event.samples, strict=True))
    terms = np.where(margins <= 0, importance_weights(u, points), 0.0)
    probability = float(terms.mean())
    spread = float(terms.std(ddof=1)) / sqrt(len(terms)) / probability if probability > 0 else inf
    failed = terms > 0
    return FailureEstimate(
        "importance", probability, spread, limit.trajectories - before,
        u[failed], terms[failed] / max(terms.sum(), 1e-300),
    )  # fmt: skip


def _shares(points: Search) -> np.ndarray:
    """The shares of the design points among the points of the importance density."""
    from scipy.special import ndtr

    shares = ndtr(-np.abs(points.indices))
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def importance_weights(u: np.ndarray, points: Search) -> np.ndarray:
    """The density around the origin, relative to the mixture around the design points."""
    from scipy.special import logsumexp

    terms = u @ points.points.T - (points.points**2).sum(1) / 2
    return np.asarray(np.exp(-logsumexp(terms, axis=1, b=_shares(points))))


def monte_carlo(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Crude Monte Carlo: the share of failures among points drawn as they occur."""
    rng, block = np.random.default_rng([seed, 2]), limit.margin.study.block_size
    before, count, failures = limit.trajectories, 0, [np.zeros((0, limit.size))]
    failed = 0
    while limit.left > 0:
        u = rng.normal(size=(min(block, limit.left), limit.size))
        failures.append(u[limit.values(u) <= 0])
        count, failed = count + len(u), failed + len(failures[-1])
        if failed and (1 - failed / count) / failed <= precision**2:
            break
    spread = sqrt((1 - failed / count) / failed) if failed else inf
    return FailureEstimate(
        "monte-carlo", failed / max(count, 1), spread, limit.trajectories - before,
        np.concatenate(failures), np.full(failed, 1 / max(failed, 1)), counted=count,
    )  # fmt: skip


def openturns() -> Any:
    """The package, or an error that says how to install it."""
    try:
        import openturns as ot
    except ImportError as error:
        raise InputError(
            "this method needs OpenTURNS; install it with pip install 'jaxmech[reliability]', or "
            'choose the method "subset" or "monte-carlo"'
        ) from error
    return ot


class OpenTurnsEvent:
    """The event g(u) ≤ 0 for the algorithms of OpenTURNS, with exact gradients.

    Each call of the function of a sample is one batch, and is recorded.
    """

    def __init__(self, limit: LimitState) -> None:
        ot = openturns()
        self.limit = limit
        self.samples: list[tuple[np.ndarray, np.ndarray]] = []  # points and margins of the batches
        self._error: BaseException | None = None
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        function = ot.PythonFunction(
            limit.size,
            1,
            func=self._guarded(lambda u: [self._at(u)[0]]),
            func_sample=self._guarded(self._of_sample),
            gradient=self._guarded(lambda u: self._at(u)[1][:, None].tolist()),
            hessian=self._guarded(self._hessian),
        )
        vector = ot.CompositeRandomVector(function, ot.RandomVector(ot.Normal(limit.size)))
        self.event = ot.ThresholdEvent(vector, ot.LessOrEqual(), 0.0)

    def run(self, algorithm: Any) -> Any:
        """The result of an algorithm; an error of the limit state is raised as it is."""
        try:
            algorithm.run()
        except Exception as error:  # noqa: BLE001 # that OpenTURNS makes of any error of the function
            raise (self._error or error) from None
        return algorithm.getResult()

    @property
    def failed(self) -> bool:
        """Whether the limit state itself has raised an error."""
        return self._error is not None

    def _guarded(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(u: Any) -> Any:
            try:
                return fn(u)
            except BaseException as error:
                self._error = error
                raise

        return call

    def _at(self, u: Any) -> tuple[float, np.ndarray]:
        # OpenTURNS asks for a value and its gradient one after the other.
        point = np.asarray(u, float)
        if self._last is None or not np.array_equal(self._last[0], point):
            g, gradient = self.limit.with_gradients(point[None])
            self._last = point, float(g[0]), gradient[0]
        return self._last[1:]

    def _of_sample(self, u: Any) -> np.ndarray:
        points = np.array(u, float)
        margins = self.limit.values(points)
        self.samples.append((points, margins))
        return margins[:, None]

    def _hessian(self, u: Any) -> Any:
        """Central differences of exact gradients, in one batch."""
        point, steps = np.asarray(u, float), _DIFFERENCE * np.eye(self.limit.size)
        _, gradients = self.limit.with_gradients(np.vstack([point + steps, point - steps]))
        ahead, behind = np.split(gradients, 2)
        H = (ahead - behind) / (2 * _DIFFERENCE)
        return ((H + H.T) / 2)[:, :, None].tolist()


@contextmanager
def seeded(seed: int) -> Iterator[Any]:
    """OpenTURNS with random numbers from a seed, and quiet; its own settings are restored."""
    ot = openturns()
    state, flags = ot.RandomGenerator.GetState(), ot.Log.Flags()
    ot.Log.Show(ot.Log.NONE)
    ot.RandomGenerator.SetSeed(seed)
    try:
        yield ot
    finally:
        ot.RandomGenerator.SetState(state)
        ot.Log.Show(flags)
