"""Intervals of `auto` and of subset simulation hold known probabilities of closed forms."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxmech.config.errors import StudyError
from jaxmech.ensemble import Failure, Normal
from jaxmech.ensemble.failure.limit_state import ExhaustedError, LimitState
from jaxmech.ensemble.failure.methods import subset_simulation
from jaxmech.ensemble.failure.probability import FailureProbability, probability_of

Points = Callable[[np.ndarray], np.ndarray]


class Margins(LimitState):
    """A limit state in closed form."""

    block = 512

    def __init__(self, fn: Points, slope: Points | None, n: int, most: int = 200_000) -> None:
        normal = Normal(mean=0.0, sd=1.0)
        laws = {f"u{k}": normal.frozen() for k in range(n)}
        self.failure = Failure(of="x", above=5.0)
        self.draws = SimpleNamespace(drawn=laws, factor=None)
        self.most = most
        self.fn, self.slope = fn, slope

    @property
    def sampler(self) -> Any:
        return self.draws

    def values(self, u: np.ndarray) -> np.ndarray:
        if self.left < len(u):
            raise ExhaustedError
        self.trajectories += len(u)
        g = self.fn(u)
        self.nearest = min(self.nearest, float(g.min()))
        return g

    def with_gradients(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self.slope is not None
        self.gradients += len(u)
        return self.values(u), self.slope(u)

    def motion(self, u: np.ndarray) -> Any:
        return u, u, {}


def result(limit: LimitState, method: Any, seed: int) -> FailureProbability:
    limit.failure = replace(limit.failure, method=method)
    return probability_of(limit, seed)


def arc(b: float) -> tuple[Margins, float]:
    """The largest x of x'' = -x in a quarter of its period, beyond b: design points on an arc."""

    def both(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, v = u.T
        r = np.maximum(np.hypot(x, v), 1e-300)
        ends = np.where((x > v)[:, None], [[1.0, 0.0]], [[0.0, 1.0]])
        within = (x > 0) & (v > 0)
        slope = np.where(within[:, None], u / r[:, None], ends)
        return b - np.where(within, r, np.maximum(x, v)), -slope

    exact = stats.norm.sf(b) + 0.25 * np.exp(-(b**2) / 2)
    return Margins(lambda u: both(u)[0], lambda u: both(u)[1], 2), float(exact)


@pytest.mark.parametrize("b", [3.0, 4.5, 6.0])
def test_intervals_hold_a_probability_whose_design_points_fill_an_arc(b: float) -> None:
    held, ratios = 0, []
    for seed in range(20):
        limit, exact = arc(b)
        found = result(limit, "auto", seed)
        held += found.interval[0] <= exact <= found.interval[1]
        ratios.append(found.probability / exact)
    assert held >= 17
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.05)


def shell(u: np.ndarray) -> np.ndarray:
    return np.asarray(9.5 - np.linalg.norm(u, axis=1))


def bowl(u: np.ndarray) -> np.ndarray:
    """A paraboloid, around the axis of which failures lie on a ring."""
    return np.asarray(4.0 - u[:, 0] - 0.3 * (u[:, 1:5] ** 2).sum(1))


def of_bowl() -> float:
    s = np.linspace(0.0, 80.0, 40_001)
    return float(np.trapezoid(stats.chi2.pdf(s, 4) * stats.norm.sf(4.0 - 0.3 * s), s))


@pytest.mark.parametrize(
    ("fn", "n", "exact"), [(bowl, 12, of_bowl()), (shell, 40, float(stats.chi.sf(9.5, 40)))]
)
def test_intervals_of_subset_simulation(fn: Points, n: int, exact: float) -> None:
    held, ratios = 0, []
    for seed in range(15):
        estimate = subset_simulation(Margins(fn, None, n), 0.1, seed)
        low, high = estimate.interval(0.95)
        held += low < exact < high
        ratios.append(estimate.probability / exact)
    assert held >= 13
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.07)


def test_what_was_found_is_kept_where_no_more_may_be_computed() -> None:
    limit = Margins(lambda u: 4.0 - u[:, 0], None, 2, most=70_000)
    found = result(limit, "subset", 0)
    assert limit.trajectories <= 70_000
    assert found.interval[0] < stats.norm.sf(4.0) < found.interval[1]
    assert any("too few" in doubt for doubt in found.doubts)


def test_a_threshold_out_of_reach_is_told_with_the_largest_value() -> None:
    limit = Margins(lambda u: 4.0 + 1.0 / (1.0 + u[:, 0] ** 2), None, 2)
    with pytest.raises(StudyError, match=r"largest x was 0.9.*the threshold is 5"):
        result(limit, "subset", 0)
    counted = result(Margins(limit.fn, None, 2, most=1024), "monte-carlo", 0)
    assert any("the threshold is 5" in doubt for doubt in counted.doubts)


def test_counts_have_the_intervals_of_clopper_and_pearson() -> None:
    found = result(Margins(lambda u: -3.5 - u[:, 0], None, 1), "monte-carlo", 1)
    (low, high), n = found.interval, found.trajectories
    assert found.probability == 1.0
    assert (low, high) == (pytest.approx(0.025 ** (1 / n)), 1.0)
