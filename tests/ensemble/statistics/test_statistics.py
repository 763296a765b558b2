"""Statistics of known numbers: against numpy and scipy, in one piece and merged from parts."""

import numpy as np
import pytest
from scipy import stats

from jaxmech.ensemble.statistics import (
    FirstPassage,
    Histogram,
    Moments,
    Probability,
    Quantiles,
)
from tests.ensemble.statistics.helpers import result, sample

RNG = np.random.default_rng(4)
X = RNG.gamma(2.0, size=(1000, 3)) + 1e6  # far from zero, where naive sums of squares fail
SCALAR = RNG.normal(size=1000)


@pytest.mark.slow
@pytest.mark.parametrize("ends", [(), (1, 400), (250, 500, 750)])
def test_moments_are_those_of_numpy(ends) -> None:
    found = result(Moments(of="x"), sample({"x": X}), *ends)
    assert found["mean"] == pytest.approx(X.mean(0), rel=1e-14)
    assert found["sd"] == pytest.approx(X.std(0, ddof=1), rel=1e-9)
    assert np.array_equal(found["min"], X.min(0))
    assert np.array_equal(found["max_index"], X.argmax(0))
    assert np.array_equal(found["min_index"], X.argmin(0))
    half = 1.959964 * X.std(0, ddof=1) / np.sqrt(1000)
    assert found["mean_high"] - found["mean"] == pytest.approx(half, rel=1e-5)


def test_values_that_do_not_count_are_left_out() -> None:
    values = np.array([1.0, np.nan, 3.0, 1e9])
    found = result(Moments(of="x"), sample({"x": values}, [True, True, True, False]))
    assert (found["count"], found["mean"], found["max"]) == (2, 2.0, 3.0)
    none = result(Moments(of="x"), sample({"x": values[:2]}, np.zeros(2)))
    assert none["count"] == 0
    assert np.isnan([none["mean"], none["sd"], none["min"], none["max"]]).all()


def test_probability_has_the_intervals_of_scipy() -> None:
    whole = sample({"x": SCALAR.reshape(200, 5)})
    hits = int((SCALAR.reshape(200, 5) > 1.5).any(1).sum())
    for name, method in (("wilson", "wilson"), ("clopper-pearson", "exact")):
        found = result(Probability(of="x", above=1.5, interval=name), whole, 60)
        interval = stats.binomtest(hits, 200).proportion_ci(0.95, method)
        assert (found["hits"], found["count"], found["left_out"]) == (hits, 200, 0)
        assert (found["low"], found["high"]) == (interval.low, interval.high)
    below = result(Probability(of="x", below=1.5), sample({"x": SCALAR}))
    assert below["hits"] == (SCALAR < 1.5).sum()


@pytest.mark.parametrize("method", ["wilson", "clopper-pearson"])
def test_intervals_of_probability_cover(method) -> None:
    """200 repeats of 500 trials; 0.95 is within 3.5 standard errors of what is counted."""
    rng, p = np.random.default_rng(1), 0.03
    hits = rng.binomial(500, p, size=200)
    statistic = Probability(of="x", above=0.5, interval=method)
    covered = 0
    for n in hits:
        found = result(statistic, sample({"x": (np.arange(500) < n).astype(float)}))
        covered += found["low"] <= p <= found["high"]
    assert covered / 200 > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 200)
    assert covered < 200 or method == "clopper-pearson"


def test_first_passage_counts_each_trajectory_once() -> None:
    times = np.array([0.5, 1.5, np.nan, 0.0])
    passed = times[:, None] <= np.arange(3.0)
    found = result(FirstPassage(of="x"), sample({"x_passed": passed, "x_time": times}), 1)
    assert (found["mean"], found["earliest"], found["latest"]) == pytest.approx((2 / 3, 0, 1.5))
    assert found["passed"].tolist() == [1, 1, 1]
    assert found["never"] == 1
    assert found["probability"].tolist() == [0.25, 0.5, 0.75]
    exact = stats.binomtest(2, 4).proportion_ci(0.95, "exact")
    assert (found["low"][1], found["high"][1]) == (exact.low, exact.high)


def test_a_histogram_holds_all_values() -> None:
    whole, parts = (
        result(Histogram(of="x", bins=32), sample({"x": SCALAR}), *ends) for ends in ((), (3, 7))
    )
    assert whole["counts"].sum() == len(SCALAR)
    edges = whole["edges"]
    assert 8 <= len(whole["counts"]) == len(edges) - 1 <= 32
    assert np.log2(np.diff(edges)) == pytest.approx(np.log2(edges[1] - edges[0]), abs=1e-9)
    assert edges[0] <= SCALAR.min() < edges[1]
    assert np.array_equal(whole["counts"], np.histogram(SCALAR, bins=edges)[0])
    assert np.array_equal(whole["counts"], parts["counts"])  # however they are divided
    assert np.array_equal(edges, parts["edges"])
    each = result(Histogram(of="x", bins=16), sample({"x": np.stack([SCALAR, 9 * SCALAR], 1)}))
    assert (each["counts"].shape, each["edges"].shape) == ((2, 16), (2, 17))
    assert (each["counts"].sum(1) == len(SCALAR)).all()


@pytest.mark.slow
@pytest.mark.parametrize("values", [SCALAR, X, 1e-7 * SCALAR, np.zeros(50), SCALAR + 1e12])
def test_quantiles_are_within_their_error(values) -> None:
    statistic = Quantiles(of="x", at=(0.0, 0.01, 0.05, 0.5, 0.95, 1.0))
    found = result(statistic, sample({"x": values}), 7, 31)
    exact = np.moveaxis(np.quantile(values, statistic.at, axis=0, method="inverted_cdf"), 0, -1)
    error = np.abs(found["quantiles"] - exact)
    assert np.all(error <= found["error"][..., None])
    width = np.ptp(values, axis=0)
    assert np.all(
        found["error"] <= np.maximum(4 * width / 512, 1e-14 * np.abs(values).max()) + 1e-12
    )
    assert np.all(found["low"] <= found["quantiles"])
