"""Statistics of numbers that are large beside their differences, or all the same, in parts."""

import jax
import numpy as np
import pytest

from jaxmech.ensemble.statistics import Moments, Quantiles
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


@pytest.mark.parametrize("name", [name for name in AWKWARD if name != "constant"])
def test_quantiles_are_within_their_error(name: str) -> None:
    x = AWKWARD[name]
    statistic = Quantiles(of="x", at=(0.0, 0.25, 0.5, 1.0))
    found = result(statistic, sample({"x": x}), *ENDS)
    exactly = np.quantile(x, statistic.at, method="inverted_cdf")
    assert np.all(np.abs(found["quantiles"] - exactly) <= found["error"])
    assert found["error"] <= max(4 * np.ptp(x) / 512, 1e-14 * np.abs(x).max()) or name == "zero"
