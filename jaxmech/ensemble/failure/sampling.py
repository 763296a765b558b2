"""Approximations at design points, importance sampling around them, rays, and crude Monte Carlo.

Those of design points are computed by OpenTURNS, to which a limit state is an event in standard
normal space. Along each ray the margins are computed at the nodes of a grid, and where their signs
differ, the boundary is found between them. All failures of a ray count, not just those behind the
first one.

Directional sampling: Bjerager, "Probability integration by directional simulation", Journal of
Engineering Mechanics 114, 1988. Line sampling: Koutsourelakis, Pradlwarter and Schueller,
"Reliability of structures in high dimensions", Probabilistic Engineering Mechanics 19, 2004.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from jaxmech.config.errors import InputError
from jaxmech.ensemble.failure.design_points import Search
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.result import FailureEstimate, weighted_estimate

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
    shares, block = _shares(points), limit.margin.study.block_size
    before, event = limit.trajectories, OpenTurnsEvent(limit)
    with seeded(seed) as ot:
        unit = ot.CovarianceMatrix(limit.size)
        density = ot.Mixture([ot.Normal(u, unit) for u in points.points], shares)
        experiment = ot.ImportanceSamplingExperiment(density)
        algorithm = ot.ProbabilitySimulationAlgorithm(event.event, experiment)
        algorithm.setBlockSize(block)
        algorithm.setMaximumOuterSampling(max(limit.left // block, 1))
        algorithm.setMaximumCoefficientOfVariation(precision)
        event.run(algorithm)
    u, margins = (np.concatenate(parts) for parts in zip(*event.samples, strict=True))
    weights = np.exp(-_log_ratio(u, points.points, shares))
    return weighted_estimate("importance", u, margins, weights, limit.trajectories - before)


def _shares(points: Search) -> np.ndarray:
    """The shares of the design points among the points of the importance density."""
    from scipy.special import ndtr

    shares = ndtr(-np.abs(points.indices))
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    return np.asarray(shares / shares.sum())


def _log_ratio(u: np.ndarray, points: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The logarithm of the mixture around some points, relative to the density around 0."""
    from scipy.special import logsumexp

    terms = u @ points.T - (points**2).sum(1) / 2
    return np.asarray(logsumexp(terms, axis=1, b=shares))


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
        np.concatenate(failures), np.full(failed, 1 / max(failed, 1)),
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


_NEGLIGIBLE = 1e-13  # probability beyond the last node of a ray
_NODES = 12  # of a ray from the origin
_NEAR = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # nodes of a line, from the index
_ITERATIONS = 12
_NARROW = 1e-5  # bracket of a boundary, in standard deviations
_RESOLUTION = 1e-4  # of a probability whose boundary is known to that bracket
_LEAST = 64  # rays


class _Rays(NamedTuple):
    """Rays u = base + s direction, and the probability along each."""

    bases: np.ndarray  # shape (N, n)
    directions: np.ndarray
    nodes: np.ndarray  # s at which margins are computed
    beyond: Callable[[np.ndarray], np.ndarray]  # probability of a larger s
    inverse: Callable[[np.ndarray], np.ndarray]  # s that is exceeded with a probability


def directional_sampling(limit: LimitState, precision: float, seed: int) -> FailureEstimate:
    """Rays from the origin in directions that are uniformly distributed."""
    from scipy.special import chdtrc, chdtri

    n, rng = limit.size, np.random.default_rng([seed, 5])
    farthest = sqrt(chdtri(n, _NEGLIGIBLE))
    nodes = np.linspace(0.0, farthest, _NODES + 1)[1:]

    def rays(count: int) -> _Rays:
        directions = rng.normal(size=(count, n))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return _Rays(
            np.zeros((count, n)), directions, nodes,
            lambda s: chdtrc(n, np.square(s)), lambda unit: np.sqrt(chdtri(n, unit)),
        )  # fmt: skip

    return _sampled("directional", limit, rays, len(nodes), precision, rng)


def line_sampling(
    limit: LimitState, points: Search, precision: float, seed: int
) -> FailureEstimate:
    """Lines parallel to the direction of the most probable failure, through random points."""
    from scipy.special import ndtr, ndtri

    rng, index = np.random.default_rng([seed, 6]), float(abs(points.indices[0]))
    direction = points.points[0] / max(index, 1e-12)
    if index < 1e-9:  # the medians are on the boundary
        direction = -points.gradients[0] / np.linalg.norm(points.gradients[0])
    nodes = np.unique([*np.linspace(-index - 3, index - 2, 6), *(index + np.array(_NEAR))])

    def rays(count: int) -> _Rays:
        u = rng.normal(size=(count, limit.size))
        bases = u - (u @ direction)[:, None] * direction
        directions = np.broadcast_to(direction, u.shape)
        return _Rays(bases, directions, nodes, lambda s: ndtr(-s), lambda unit: -ndtri(unit))

    return _sampled("line", limit, rays, len(nodes), precision, rng)


def _sampled(
    method: str, limit: LimitState, rays: Callable[[int], _Rays], nodes: int, precision: float,
    rng: np.random.Generator,
) -> FailureEstimate:  # fmt: skip
    count = max(limit.margin.study.block_size // nodes, 1)
    before, shares, failures, weights = limit.trajectories, [], [], []
    probability, spread = 0.0, inf
    while limit.left > count * (nodes + 2 * _ITERATIONS):
        batch = rays(count)
        share, points, masses = _failures(limit, batch, rng)
        shares.append(share)
        failures.append(points)
        weights.append(masses)
        terms = np.concatenate(shares)
        probability = float(terms.mean())
        if probability > 0 and len(terms) > 1:
            spread = max(float(terms.std(ddof=1)) / sqrt(len(terms)) / probability, _RESOLUTION)
        if spread <= precision and len(terms) >= _LEAST:
            break
    total = np.concatenate(weights) if weights else np.zeros(0)
    return FailureEstimate(
        method, probability, spread, limit.trajectories - before,
        np.concatenate(failures) if failures else np.zeros((0, limit.size)),
        total / max(total.sum(), 1e-300),
    )  # fmt: skip


def _failures(
    limit: LimitState, rays: _Rays, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The probability of failure along each ray, and a failure with its weight in each interval."""
    count, nodes = len(rays.bases), rays.nodes
    points = rays.bases[:, None] + nodes[None, :, None] * rays.directions[:, None]
    margins = limit.values(points.reshape(-1, limit.size)).reshape(count, len(nodes))
    failed = margins <= 0
    row, k = np.nonzero(failed[:, 1:] != failed[:, :-1])
    boundary = np.zeros(0)
    if len(row):
        ends = nodes[k], nodes[k + 1]
        values = margins[row, k], margins[row, k + 1]
        boundary = _boundary(limit, rays, row, ends, values)
    begins = ~failed[row, k]  # whether a failure begins at the boundary, or ends
    first = np.where(failed[:, 0], -inf, np.nan)
    starts = np.concatenate([np.flatnonzero(failed[:, 0]), row[begins]])
    low = np.concatenate([first[failed[:, 0]], boundary[begins]])
    stops = np.concatenate([row[~begins], np.flatnonzero(failed[:, -1])])
    high = np.concatenate([boundary[~begins], np.full(failed[:, -1].sum(), inf)])
    order, other = np.lexsort((low, starts)), np.lexsort((high, stops))
    starts, low, high = starts[order], low[order], high[other]
    above, below = _beyond(rays, low), _beyond(rays, high)
    masses = above - below
    share = np.bincount(starts, masses, minlength=count)
    s = rays.inverse(below + masses * rng.random(len(masses)))
    u = rays.bases[starts] + s[:, None] * rays.directions[starts]
    return share, u[masses > 0], masses[masses > 0]


def _beyond(rays: _Rays, s: np.ndarray) -> np.ndarray:
    inside = rays.beyond(np.where(np.isfinite(s), s, 0.0))
    return np.where(np.isneginf(s), 1.0, np.where(np.isposinf(s), 0.0, inside))


def _boundary(
    limit: LimitState, rays: _Rays, row: np.ndarray, ends: tuple[np.ndarray, np.ndarray],
    values: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Where the margins change their signs, by the Illinois method with some bisections."""
    (a, b), (at_a, at_b) = (x.copy() for x in ends), (x.copy() for x in values)
    best = (a + b) / 2
    for iteration in range(_ITERATIONS):
        open_ = np.flatnonzero(np.abs(b - a) > _NARROW)
        if not len(open_):
            break
        x, y, f, g = a[open_], b[open_], at_a[open_], at_b[open_]
        with np.errstate(all="ignore"):
            s = y - g * (y - x) / (g - f)
        halved = (x + y) / 2
        s = halved if iteration % 4 == 3 else np.where((s - x) * (s - y) < 0, s, halved)
        margin = limit.values(rays.bases[row[open_]] + s[:, None] * rays.directions[row[open_]])
        same = (margin <= 0) == (g <= 0)  # as the last end: that end moves, and the other stays
        a[open_] = np.where(same, x, y)
        at_a[open_] = np.where(same, f / 2, g)
        b[open_], at_b[open_] = s, margin
        best[open_] = s
        done = np.abs(margin) <= 1e-7 * (np.abs(f) + np.abs(g))
        a[open_[done]] = s[done]
    return best
