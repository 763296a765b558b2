"""Distributions: what they draw, and what is impossible."""

import mpmath
import numpy as np
import pytest

from jaxmech.config.errors import StudyError
from jaxmech.ensemble import Fixed, LogNormal, Normal, Scipy, Uniform

N = 40_000


def sample(rule: Uniform | Normal | LogNormal, default: float | None = None) -> np.ndarray:
    return rule.quantile(np.random.default_rng(5).random(N), default)


def test_uniform_fills_its_interval() -> None:
    values = sample(Uniform(-1.0, 3.0))
    assert values.min() >= -1.0
    assert values.max() <= 3.0
    assert np.histogram(values, bins=4)[0] / N == pytest.approx(0.25, abs=0.01)


def test_normal_has_its_mean_and_deviation() -> None:
    values = sample(Normal(sd=0.5, mean=2.0), default=9.0)
    assert (values.mean(), values.std()) == pytest.approx((2.0, 0.5), abs=0.01)


@pytest.mark.parametrize("mean", [None, -4.0])
def test_relative_scatter_is_a_fraction_of_the_mean(mean: float | None) -> None:
    values = sample(Normal(sd=0.02, mean=mean, relative=True), default=-4.0)
    assert (values.mean(), values.std()) == pytest.approx((-4.0, 0.08), abs=0.002)


def test_log_normal_has_its_median() -> None:
    values = sample(LogNormal(sigma=0.3, median=2.0))
    assert np.median(values) == pytest.approx(2.0, abs=0.02)
    assert np.log(values).std() == pytest.approx(0.3, abs=0.005)
    assert np.median(sample(LogNormal(sigma=0.3), default=5.0)) == pytest.approx(5.0, abs=0.05)


def test_a_deviation_of_zero_is_no_scatter() -> None:
    assert np.ptp(sample(Normal(sd=0.0, mean=1.0))) == 0
    assert np.ptp(sample(LogNormal(sigma=0.0, median=1.0))) == 0


@pytest.mark.parametrize("low", [10.0, 35.0, 40.0, 1e3])
@pytest.mark.parametrize("side", [1, -1])
def test_a_far_truncation_draws_the_tail(low: float, side: int) -> None:
    """The share of the tail that lies beyond each value, against mpmath."""
    unit = np.array([0.1, 0.5, 0.9])
    limits = {"low": low} if side > 0 else {"high": -low}
    x = side * Normal(mean=0.0, sd=1.0, **limits).quantile(unit, None)
    with mpmath.workdps(50):  # whose tails neither underflow nor cancel
        tail = [mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) for z in (low, *x)]
        share = np.array([float(t / tail[0]) for t in tail[1:]])
    assert share == pytest.approx(1 - unit if side > 0 else unit, abs=1e-12 * low**2)


def test_a_far_interval_is_filled() -> None:
    x = sample(Normal(mean=1.0, sd=0.02, low=1.8, high=1.8001))
    assert 1.8 <= x.min() < 1.80001 < 1.80009 < x.max() <= 1.8001
    y = sample(LogNormal(sigma=0.01, median=1.0, low=0.5, high=0.55))
    assert 0.5 <= y.min() < y.max() <= 0.55
    assert y.max() > 0.5499  # the density falls steeply away from the median


@pytest.mark.parametrize(("low", "high"), [(0.5, 3.0), (-3.0, 3.0), (-41.0, -40.0), (40.0, 41.0)])
def test_the_density_of_a_truncation_has_the_integral_one(low: float, high: float) -> None:
    z = np.linspace(low, high, 20_001)
    density = np.exp(Normal(mean=0.0, sd=1.0, low=low, high=high).log_density(z, None))
    assert np.trapezoid(density, z) == pytest.approx(1.0, abs=1e-6)
    log_density = LogNormal(sigma=1.0, median=1.0, low=np.exp(low), high=np.exp(high))
    values = np.exp(z)
    assert np.exp(log_density.log_density(values, None)) * values == pytest.approx(density)


def test_the_upper_tail_of_a_distribution_of_scipy_keeps_its_digits() -> None:
    tail = Scipy("expon", {"low": 36.0})
    unit = np.array([0.1, 0.5, 0.9])
    assert tail.quantile(unit, None) - 36.0 == pytest.approx(-np.log1p(-unit), rel=1e-9)
    assert tail.log_density(np.array([35.0, 37.0]), None) == pytest.approx([-np.inf, -1.0])


@pytest.mark.parametrize(
    ("make", "key", "message"),
    [
        (lambda: Uniform(1.0, 1.0), "low", "must be below `high`"),
        (lambda: Uniform(2.0, 1.0), "low", "must be below `high`"),
        (lambda: Uniform(0.0, float("inf")), "high", "must be finite"),
        (lambda: Uniform(float("nan"), 1.0), "low", "must be below `high`"),
        (lambda: Normal(sd=-0.1), "sd", "at least 0, but is -0.1"),
        (lambda: Normal(sd=float("nan")), "sd", "at least 0"),
        (lambda: Normal(sd=0.1, mean=0.0, relative=True), "relative", "a fraction of 0"),
        (lambda: LogNormal(sigma=-1.0), "sigma", "at least 0"),
        (lambda: LogNormal(sigma=1.0, median=0.0), "median", "must be finite and above 0"),
        (lambda: Fixed(float("nan")), "value", "must be finite"),
        (lambda: Fixed([1.0, float("inf")]), "value", "must be finite"),
    ],
)
def test_what_is_impossible_is_refused(make, key: str, message: str) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        make()
    assert caught.value.problems[0].key == (key,)
