"""The algorithms of OpenTURNS on our limit states, beside our methods: results and calls.

The limit state is that of its example "axial stressed beam": a strength R against F / (100 π).
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxmech.ensemble import Failure, LogNormal, Normal, Study
from jaxmech.ensemble.failure.design_points import search
from jaxmech.ensemble.failure.limit_state import LimitState, limit_state_of
from jaxmech.ensemble.failure.sampling import (
    OpenTurnsEvent,
    approximations,
    importance,
    seeded,
)
from tests.ensemble.failure.test_closed_forms import study_of

pytest.importorskip("openturns")
SIGMA = float(np.sqrt(np.log1p(0.1**2)))  # of a strength of 300 ± 30
MEDIAN = 300.0 * np.exp(-(SIGMA**2) / 2)
PRECISION = 0.05


def exact() -> float:
    """By quadrature over the load; 0.02920 in the documentation of OpenTURNS."""
    z = np.linspace(-8.0, 8.0, 20_001)
    stress = (75e3 + 5e3 * z) / (100 * np.pi)
    return float(
        np.trapezoid(stats.norm.pdf(z) * stats.norm.cdf(np.log(stress / MEDIAN) / SIGMA), z)
    )


@pytest.fixture(scope="module")
def limit() -> LimitState:
    drawn = {"R": LogNormal(sigma=SIGMA, median=MEDIAN), "F": Normal(mean=75e3, sd=5e3)}
    study: Study = study_of(lambda p: p["R"] - p["F"] / (100 * np.pi), drawn)
    failure = Failure(of="g", below=0.0, when="end", most=10**6)
    return limit_state_of(replace(study, failure=failure), None, Path())


def run(limit: LimitState, make: Callable[[Any, Any], Any]) -> tuple[Any, int]:
    """The result of an algorithm of OpenTURNS, and its calls of the limit state."""
    before, event = limit.trajectories, OpenTurnsEvent(limit)
    with seeded(0) as ot:
        result = event.run(make(ot, event.event))
    return result, limit.trajectories - before


def simulation(name: str, batches: int) -> Callable[[Any, Any], Any]:
    def make(ot: Any, event: Any) -> Any:
        algorithm = getattr(ot, name)(event)
        algorithm.setMaximumCoefficientOfVariation(PRECISION)
        algorithm.setMaximumOuterSampling(batches)  # of a level, of subset simulation
        algorithm.setBlockSize(100)
        return algorithm

    return make


def first_order(ot: Any, event: Any) -> Any:
    search = ot.AbdoRackwitz()
    search.setStartingPoint([0.0, 0.0])
    return ot.FORM(search, event)


def test_its_first_order_approximation_is_ours(limit: LimitState) -> None:
    theirs, calls = run(limit, first_order)
    points = search(limit, 0)
    ours = approximations(limit, points)[0]
    assert ours.probability == pytest.approx(theirs.getEventProbability(), rel=1e-4)
    assert points.indices[0] == pytest.approx(theirs.getHasoferReliabilityIndex(), rel=1e-5)
    assert calls < 20


@pytest.mark.parametrize(
    ("name", "batches"), [("ProbabilitySimulationAlgorithm", 1000), ("SubsetSampling", 100)]
)
def test_ours_need_fewer_calls_for_the_same_precision(
    limit: LimitState, name: str, batches: int
) -> None:
    theirs, calls = run(limit, simulation(name, batches))
    assert theirs.getProbabilityEstimate() == pytest.approx(exact(), rel=4 * PRECISION)
    before, points = limit.trajectories, search(limit, 0)
    ours = importance(limit, points, PRECISION, 0)
    assert ours.coefficient_of_variation <= PRECISION
    assert ours.probability == pytest.approx(exact(), rel=4 * ours.coefficient_of_variation)
    assert limit.trajectories - before < calls / 2
