"""Subset simulation and bridge sampling: precision, and failures that half-spaces do not hold."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxmech.ensemble import Normal, failure_probability
from jaxmech.ensemble.failure.limit_state import LimitState
from jaxmech.ensemble.failure.standard_space import StandardSpace
from jaxmech.ensemble.failure.subset import HalfSpaces, bridged, subset_simulation
from tests.ensemble.failure.problems import LOADS, pulse_study


class Margins(LimitState):
    """A limit state in closed form."""

    def __init__(self, fn: Any, count: int, most: int = 10**7) -> None:
        rules = {f"u{k}": (Normal(mean=0.0, sd=1.0), 0.0) for k in range(count)}
        self.fn, self.space, self.most = fn, StandardSpace(rules, None), most

    def values(self, u: np.ndarray) -> np.ndarray:
        self.trajectories += len(u)
        return np.asarray(self.fn(u))


def beyond(bound: float, count: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Standard normal points with |u1| >= bound."""
    u = rng.normal(size=(count, n))
    u[:, 0] = stats.norm.isf(rng.random(count) * stats.norm.sf(bound)) * rng.choice([-1, 1], count)
    return u


def test_a_probability_of_1e_8_by_chains_alone(tmp_path: Path) -> None:
    study = pulse_study(tmp_path)
    result = failure_probability(
        study, failure=replace(study.failure, method="subset"), folder=tmp_path
    )
    ratio = result.probability / LOADS[0.45, 0.075]
    assert abs(np.log(ratio)) < 3.5 * result.coefficient_of_variation
    assert result.coefficient_of_variation <= 0.05
    assert result.trajectories <= 60_000
    assert [x.method for x in result.estimates] == ["product of levels", "subset"]
    assert not result.doubts


def test_intervals_hold_the_probability() -> None:
    # A paraboloid, around the axis of which failures lie on a ring: half-spaces hold few of them.
    def bowl(u: np.ndarray) -> np.ndarray:
        return 4.0 - u[:, 0] - 0.3 * (u[:, 1:5] ** 2).sum(1)

    s = np.linspace(0.0, 80.0, 40_001)
    exact = np.trapezoid(stats.chi2.pdf(s, 4) * stats.norm.sf(4.0 - 0.3 * s), s)
    held, products, bridges = 0, [], []
    for seed in range(20):
        product, bridge = subset_simulation(Margins(bowl, 12), 0.1, None, seed)
        assert bridge is not None
        low, high = bridge.interval(0.95)
        held += low < exact < high
        products.append(product.probability)
        bridges.append(bridge.probability)
    assert held >= 17
    assert np.mean(products) == pytest.approx(exact, rel=0.06)
    assert np.mean(bridges) == pytest.approx(exact, rel=0.04)


def test_bridge_sampling_of_two_opposite_regions() -> None:
    rng = np.random.default_rng(0)
    runs = [beyond(5.0, 1000, 30, rng) for _ in range(4)]
    limit = Margins(lambda u: 5.0 - abs(u[:, 0]), 30)
    estimate = bridged(limit, runs, 1e-7, 0.02, rng)
    assert estimate is not None
    assert abs(estimate.probability / (2 * stats.norm.sf(5.0)) - 1) < 4 * 0.02
    assert estimate.coefficient_of_variation <= 0.02


def test_bridge_sampling_counts_the_failures_outside_of_the_half_spaces() -> None:
    # Failures on a sphere, of which eight half-spaces hold a part.
    rng = np.random.default_rng(1)
    u = rng.normal(size=(200_000, 4))
    u = u[np.linalg.norm(u, axis=1) > 3.5]
    limit = Margins(lambda u: 3.5 - np.linalg.norm(u, axis=1), 4)
    estimate = bridged(limit, np.array_split(u, 6), 0.01, 0.02, rng)
    assert estimate is not None
    assert abs(estimate.probability / stats.chi.sf(3.5, 4) - 1) < 0.12


def test_bridge_sampling_is_refused_where_half_spaces_hold_no_failures() -> None:
    # Failures within thin shells of many dimensions lie in no direction at all.
    rng = np.random.default_rng(2)
    u = rng.normal(size=(400, 100))
    limit = Margins(lambda u: abs(u[:, 0] * u[:, 1] - 9.0) - 0.01, 100)
    assert bridged(limit, np.array_split(u, 4), 1e-4, 0.02, rng) is None


def test_half_spaces_have_the_density_they_draw_from() -> None:
    rng = np.random.default_rng(3)
    density = HalfSpaces(np.eye(2), np.array([1.0, 2.0]), np.array([0.4, 0.6]))
    u = rng.normal(size=(100_000, 2))
    assert density.ratio(u).mean() == pytest.approx(1.0, rel=0.03)
    drawn = density.drawn(20_000, rng)
    assert (density.ratio(drawn) > 0).all()
    assert (1 / density.ratio(drawn)).mean() == pytest.approx(
        1 - stats.norm.cdf(1.0) * stats.norm.cdf(2.0), rel=0.03
    )


def test_runs_that_do_not_end_are_left_out() -> None:
    limit = Margins(lambda u: 4.0 - u[:, 0], 2, most=40_000)
    product, _ = subset_simulation(limit, 1e-3, None, 0)
    assert limit.trajectories <= 40_000
    assert product.probability == pytest.approx(stats.norm.sf(4.0), rel=0.5)
