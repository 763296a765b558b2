"""Distributions: what they draw, and what is impossible."""

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from jaxmech.config.errors import StudyError
from jaxmech.ensemble import Discrete, Fixed, LogNormal, Normal, Scipy, Uniform
from jaxmech.ensemble.distributions import quantile

U = np.array([1e-9, 0.1, 0.4, 0.5, 0.7, 0.999])
GAMMA = stats.gamma(3.0, scale=0.3)


@pytest.mark.parametrize(
    ("rule", "peer"),
    [
        (Uniform(-1.0, 3.0), stats.uniform(-1.0, 4.0)),
        (Normal(sd=0.5, mean=2.0), stats.norm(2.0, 0.5)),
        (Normal(sd=0.02, relative=True), stats.norm(-4.0, 0.08)),
        (Normal(sd=1.0, mean=0.0, low=3.0), stats.truncnorm(3.0, np.inf)),
        (Normal(sd=1.0, mean=0.0, low=-9.0, high=-8.5), stats.truncnorm(-9.0, -8.5)),
        (Normal(sd=1.0, mean=0.0, low=-1.0, high=2.0), stats.truncnorm(-1.0, 2.0)),
        (LogNormal(sigma=0.3, median=2.0), stats.lognorm(0.3, scale=2.0)),
        (Scipy("gamma", {"a": 3.0, "scale": 0.3}), GAMMA),
    ],
)
def test_a_distribution_is_that_of_scipy(rule: Any, peer: Any) -> None:
    law, x = rule.frozen(-4.0), peer.ppf(U)
    assert quantile(law, U, 1 - U) == pytest.approx(x, rel=1e-9)
    assert law.logpdf(x) == pytest.approx(peer.logpdf(x), rel=1e-7)


def test_a_deviation_of_zero_is_no_scatter() -> None:
    for rule in (Normal(sd=0.0, mean=2.0), LogNormal(sigma=0.0, median=2.0)):
        assert np.all(quantile(rule.frozen(), U, 1 - U) == 2.0)


def test_values_of_a_choice_keep_their_order() -> None:
    law = Discrete((3.0, 1.0, 2.0), (0.25, 0.25, 0.5)).frozen()
    assert law.ppf(np.array([0.1, 0.3, 0.9])).tolist() == [3.0, 1.0, 2.0]
    assert np.exp(law.logpdf(np.array([2.0, 5.0]))).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("low", [10.0, 35.0])
@pytest.mark.parametrize("side", [1, -1])
def test_a_far_truncation_draws_the_tail(low: float, side: int) -> None:
    """The share of the tail that lies beyond each value, against mpmath."""
    unit = np.array([0.1, 0.5, 0.9])
    limits = {"low": low} if side > 0 else {"high": -low}
    x = side * quantile(Normal(mean=0.0, sd=1.0, **limits).frozen(), unit, 1 - unit)
    with mpmath.workdps(50):  # whose tails neither underflow nor cancel
        tail = [mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) for z in (low, *x)]
        share = np.array([float(t / tail[0]) for t in tail[1:]])
    assert share == pytest.approx(1 - unit if side > 0 else unit, abs=1e-12 * low**2)


def test_the_tails_of_a_truncation_keep_their_digits() -> None:
    tail = Scipy("expon", {"low": 36.0}).frozen()
    assert quantile(tail, U, 1 - U) - 36.0 == pytest.approx(-np.log1p(-U), abs=1e-12)
    assert tail.logpdf(np.array([35.0, 37.0])) == pytest.approx([-np.inf, -1.0])
    tiny = np.array([1e-200, 1e-30])  # probabilities of larger ones, whose complement is 1
    upper = LogNormal(sigma=1.0, median=1.0, low=0.5).frozen()
    share = stats.norm.sf(np.log(0.5))
    exact = np.exp(stats.norm.isf(share * tiny))
    assert quantile(upper, 1 - tiny, tiny) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "key", "message"),
    [
        (lambda: Uniform(1.0, 1.0), "low", "must be below `high`"),
        (lambda: Uniform(float("nan"), 1.0), "low", "must be below `high`"),
        (lambda: Normal(sd=-0.1), "sd", "at least 0, but is -0.1"),
        (lambda: Normal(sd=0.1, mean=0.0, relative=True), "relative", "a fraction of 0"),
        (lambda: LogNormal(sigma=-1.0), "sigma", "at least 0"),
        (lambda: Normal(sd=1.0, mean=0.0, low=50.0), "low", "some probability"),
        (lambda: Scipy("gama"), "distribution", "did you mean `gamma`"),
        (lambda: Scipy("gamma", {"b": 1.0}), "distribution", "has the parameters a, loc"),
        (lambda: LogNormal(sigma=1.0, median=0.0), "median", "must be finite and above 0"),
        (lambda: Fixed(float("nan")), "value", "must be finite"),
    ],
)
def test_what_is_impossible_is_refused(make, key: str, message: str) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        make()
    assert caught.value.problems[0].key == (key,)
