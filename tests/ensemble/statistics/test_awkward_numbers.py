"""Statistics of numbers that are huge, tiny, or large beside their differences, in parts."""

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.ensemble.statistics import (
    Covariance,
    FirstPassage,
    Histogram,
    Moments,
    Quantiles,
    SobolIndices,
)
from tests.ensemble.statistics.helpers import compiled, result, sample

RNG = np.random.default_rng(8)
DIGITS = RNG.integers(0, 11, 600).astype(float)
ENDS = (200, 400)  # parts of one size: one program
AWKWARD = {
    "integers near 1e16": 2.0**53 + 2 * DIGITS,
    "near a constant": 1.0 + 2.0**-52 * DIGITS,
    "far apart beside their spread": np.where(DIGITS > 5, 1e8, -1e8) + 1e-7 * DIGITS,
    "huge": 1e300 * (DIGITS - 5),
    "up to the largest": np.where(DIGITS > 5, 1.7e308, -1.7e308) * (DIGITS / 10),
    "tiny": 1e-300 * (DIGITS - 5),
    "tiny near a constant": 1e-290 * (1 + 2.0**-40 * DIGITS),
    "of all sizes": np.exp(RNG.uniform(-500, 500, 600)),
    "constant": np.full(600, 0.1),
    "zero": np.zeros(600),
}


def exact(x: np.ndarray, weight: np.ndarray | None = None) -> tuple[float, float]:
    """Mean and standard deviation in rational numbers, rounded once."""
    w = [Fraction(k) for k in ([1.0] * len(x) if weight is None else weight)]
    values, total = [Fraction(v) for v in x], sum(w)
    mean = sum(a * v for a, v in zip(w, values, strict=True)) / total
    spread = sum(a * (v - mean) ** 2 for a, v in zip(w, values, strict=True))
    effective = total**2 / sum(a * a for a in w)
    variance = spread / total * effective / (effective - 1)
    root = isqrt((variance.numerator * variance.denominator) << 400)
    return float(mean), float(Fraction(root, variance.denominator << 200))


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("weights", [None, RNG.uniform(0.1, 3.0, 600)])
def test_mean_and_deviation_are_exact_to_round_off(name: str, weights: np.ndarray | None) -> None:
    x = AWKWARD[name]
    found = result(Moments(of="x"), sample({"x": x}, weights), *ENDS)
    mean, sd = exact(x, weights)
    assert found["mean"] == pytest.approx(mean, rel=1e-15, abs=1e-15 * sd)
    assert found["sd"] == pytest.approx(sd, rel=1e-13, abs=0.0)
    # numpy scales nothing, but agrees where it needs no scaling
    if weights is None and name in ("of all sizes", "huge"):
        factor = np.abs(x).max()
        assert found["sd"] == pytest.approx(factor * np.std(x / factor, ddof=1), rel=1e-13)


def test_mean_and_deviation_in_float32() -> None:
    digits = DIGITS.astype(np.float32)
    for x in (2**24 + 2 * digits, 1 + 2.0**-23 * digits, 1e37 * (digits - 5), 1e-37 * digits):
        x = x.astype(np.float32)
        whole = sample({"x": x}, np.ones(600, np.float32))
        found = result(Moments(of="x"), whole, *ENDS)
        mean, sd = exact(x.astype(float))
        assert found["mean"] == pytest.approx(mean, rel=1e-7, abs=1e-6 * sd)
        assert found["sd"] == pytest.approx(sd, rel=1e-5, abs=0.0)


def test_empty_parts_change_nothing() -> None:
    x = AWKWARD["integers near 1e16"]
    statistic = Moments(of="x")
    add, both = compiled(statistic)
    whole = sample({"x": x})
    state, empty = add(whole), add(whole._replace(weight=np.zeros(600)))
    for merged in (both(state, empty), both(empty, state)):
        jax.tree.map(np.testing.assert_array_equal, merged, state)


def test_covariances_of_columns_of_very_different_sizes() -> None:
    u, v = RNG.normal(size=(2, 600))
    columns = {
        "a": 1e300 * u, "b": 1e-300 * (u + v), "c": 1e9 + 2.0**-10 * v.round(2), "d": 3 - 2 * v,
    }  # fmt: skip
    units = np.array([1e300, 1e-300, 2.0**-10, 1.0])
    plain = np.stack([u, u + v, (columns["c"] - 1e9) * 2.0**10, columns["d"]])
    found = result(Covariance(of=tuple(columns), inputs=False), sample(columns), *ENDS)
    assert found["correlation"] == pytest.approx(np.corrcoef(plain), rel=1e-11)
    with np.errstate(over="ignore"):
        expected = np.cov(plain) * units * units[:, None]
    finite = np.isfinite(expected) & (expected != 0)
    assert found["covariance"][finite] == pytest.approx(expected[finite], rel=1e-11)
    assert np.isposinf(found["covariance"][0, 0])


@pytest.mark.parametrize("shift", [0.0, 1e9])
@pytest.mark.parametrize("factor", [1.0, 1e290, 1e-300])
def test_sobol_indices_do_not_depend_on_the_unit(shift: float, factor: float) -> None:
    x = RNG.uniform(size=(5, 64, 2))
    x[2], x[3] = x[0], x[0]
    x[2, :, 0], x[3, :, 1] = x[1, :, 0], x[1, :, 1]
    y = np.moveaxis(x[:4, :, 0] + 0.5 * x[:4, :, 1] ** 2, 0, 1).reshape(-1)
    statistic = SobolIndices(of="y", resamples=20)
    inputs = {"a": y, "b": y}  # only their number counts
    plain = result(statistic, sample({"y": y, **inputs}), 4 * 32)
    moved = result(statistic, sample({"y": factor * (shift + y), **inputs}), 4 * 32)
    accuracy = 1e-6 if shift else 1e-11  # of the numbers themselves
    for key in ("first_order", "total", "total_low", "first_order_high"):
        assert moved[key] == pytest.approx(plain[key], rel=accuracy, abs=accuracy)
    if factor == 1:
        assert moved["variance"] == pytest.approx(plain["variance"], rel=accuracy)


def test_times_of_events_keep_their_digits() -> None:
    times = 1e9 + 2.0**-20 * DIGITS
    passed = np.ones((600, 2), bool)
    statistic = FirstPassage(of="hit")
    found = result(statistic, sample({"hit_passed": passed, "hit_time": times}), *ENDS)
    assert found["sd"] == pytest.approx(exact(times)[1], rel=1e-12)
    assert found["mean"] == pytest.approx(times.mean(), rel=1e-15)


@pytest.mark.parametrize(
    ("low", "high", "bins", "values"),
    [
        (0.0, 1.0, 10, lambda edges: edges),  # among them 0.3, the third of ten times 0.1
        (0.1, 0.7, 6, lambda edges: np.concatenate([edges, np.nextafter(edges, -1)])),
        (-1e308, 1e308, 7, lambda edges: np.concatenate([edges, [1.7e308, -1.7e308]])),
        (1e-300, 3e-300, 4, lambda edges: np.nextafter(edges, 1)),
        (1.0, 1.0 + 2**-50, 4, lambda edges: edges),
    ],
)
def test_histograms_count_the_edges_as_numpy_does(
    low: float, high: float, bins: int, values: Callable[[np.ndarray], np.ndarray]
) -> None:
    edges = 2 * np.linspace(low / 2, high / 2, bins + 1)
    x = values(edges)
    found = result(Histogram(of="x", low=low, high=high, bins=bins), sample({"x": x}), 2)
    inside = x[(x >= low) & (x <= high)]
    assert np.array_equal(found["counts"], np.histogram(inside, bins=edges)[0])
    assert found["counts"][-1] >= (x == high).sum() > 0 or high not in x
    assert found["counts"].sum() + found["below"] + found["above"] == len(x)


@pytest.mark.parametrize("name", [name for name in AWKWARD if name != "constant"])
def test_quantiles_are_within_their_error(name: str) -> None:
    x = AWKWARD[name]
    statistic = Quantiles(of="x", at=(0.0, 0.25, 0.5, 1.0))
    found = result(statistic, sample({"x": x}), *ENDS)
    exactly = np.quantile(x, statistic.at, method="inverted_cdf")
    assert np.all(np.abs(found["quantiles"] / 2 - exactly / 2) <= found["error"] / 2)
    half = x.max() / 2 - x.min() / 2
    assert found["error"] / 2 <= max(4 * (half / 512), 1e-14 * np.abs(x).max()) or name == "zero"
    assert jnp.isfinite(found["error"])
