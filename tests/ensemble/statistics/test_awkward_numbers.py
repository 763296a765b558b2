"""Statistics of numbers that are large beside their differences, or all the same, in parts."""

from collections.abc import Callable

import jax
import numpy as np
import pytest

from jaxmech.ensemble.statistics import Covariance, Histogram, Moments, Quantiles
from tests.ensemble.statistics.helpers import compiled, result, sample

RNG = np.random.default_rng(8)
DIGITS = RNG.integers(0, 11, 600).astype(float)
ENDS = (200, 400)  # parts of one size: one program
AWKWARD = {
    "large beside their differences": 1e8 + DIGITS / 16,
    "far apart": np.where(DIGITS > 5, 1e8, -1e8) + DIGITS / 16,
    "tiny": 1e-150 * (DIGITS - 5),
    "of many sizes": np.exp(RNG.uniform(-50, 50, 600)),
    "constant": np.full(600, 0.1),
    "zero": np.zeros(600),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_mean_and_deviation_keep_their_digits(name: str) -> None:
    x = AWKWARD[name]
    found = result(Moments(of="x"), sample({"x": x}), *ENDS)
    assert found["mean"] == pytest.approx(np.mean(x - x[0]) + x[0], rel=1e-14, abs=1e-14 * x.std())
    assert found["sd"] == pytest.approx(np.std(x - x[0], ddof=1), rel=1e-9, abs=1e-17)


def test_mean_and_deviation_in_float32() -> None:
    x = (1000 + DIGITS / 16).astype(np.float32)
    found = result(Moments(of="x"), sample({"x": x}), *ENDS)
    assert found["mean"] == pytest.approx(x.astype(float).mean(), rel=1e-7)
    assert found["sd"] == pytest.approx(x.astype(float).std(ddof=1), rel=1e-4)


def test_empty_parts_change_nothing() -> None:
    add, both = compiled(Moments(of="x"))
    whole = sample({"x": AWKWARD["far apart"]})
    state, empty = add(whole), add(whole._replace(good=np.zeros(600, bool)))
    for merged in (both(state, empty), both(empty, state)):
        jax.tree.map(np.testing.assert_array_equal, merged, state)


def test_covariances_of_columns_of_different_sizes() -> None:
    u, v = RNG.normal(size=(2, 600))
    columns = {"a": 1e9 * u, "b": 1e-9 * (u + v), "c": 1e6 + v, "d": 3 - 2 * v}
    found = result(Covariance(of=tuple(columns), inputs=False), sample(columns), *ENDS)
    plain = np.stack([*columns.values()]) - np.array([[0.0], [0.0], [1e6], [3.0]])
    assert found["correlation"] == pytest.approx(np.corrcoef(plain), rel=1e-8)
    assert found["covariance"] == pytest.approx(np.cov(plain), rel=1e-8)


@pytest.mark.parametrize(
    ("low", "high", "bins", "values"),
    [
        (0.0, 1.0, 10, lambda edges: edges),  # among them 0.3, the third of ten times 0.1
        (0.1, 0.7, 6, lambda edges: np.concatenate([edges, np.nextafter(edges, -1)])),
        (1.0, 1.0 + 2**-50, 4, lambda edges: edges),
    ],
)
def test_histograms_count_the_edges_as_numpy_does(
    low: float, high: float, bins: int, values: Callable[[np.ndarray], np.ndarray]
) -> None:
    edges = np.linspace(low, high, bins + 1)
    x = values(edges)
    found = result(Histogram(of="x", low=low, high=high, bins=bins), sample({"x": x}), 2)
    inside = x[(x >= low) & (x <= high)]
    assert np.array_equal(found["counts"], np.histogram(inside, bins=edges)[0])
    assert found["counts"].sum() + found["below"] + found["above"] == len(x)


@pytest.mark.parametrize("name", [name for name in AWKWARD if name != "constant"])
def test_quantiles_are_within_their_error(name: str) -> None:
    x = AWKWARD[name]
    statistic = Quantiles(of="x", at=(0.0, 0.25, 0.5, 1.0))
    found = result(statistic, sample({"x": x}), *ENDS)
    exactly = np.quantile(x, statistic.at, method="inverted_cdf")
    assert np.all(np.abs(found["quantiles"] - exactly) <= found["error"])
    assert found["error"] <= max(4 * np.ptp(x) / 512, 1e-14 * np.abs(x).max()) or name == "zero"
