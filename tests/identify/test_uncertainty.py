"""Standard errors and intervals against textbook regressions and against repeated noise."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from jaxmech.identify.uncertainty import BY_RECORDING, Uncertainty, uncertainty


def of_regression(X: np.ndarray, y: np.ndarray, groups: int, **more: Any) -> Uncertainty:
    """The uncertainty of a linear regression whose rows come in `groups` recordings."""
    sizes = np.linalg.norm(X, axis=0)
    theta = np.linalg.lstsq(X / sizes, y, rcond=None)[0] / sizes
    r = X @ theta - y
    degrees = len(y) - X.shape[1]
    names = [f"b{k}" for k in range(X.shape[1])]
    of_group = np.repeat(np.arange(groups), len(y) // groups)
    noise = np.sqrt(r @ r / degrees)
    return uncertainty(names, theta, X, r, of_group, noise=noise, degrees=degrees, **more)


def covers(ends: Any, truth: np.ndarray) -> np.ndarray:
    return (ends[:, 0] <= truth) & (truth <= ends[:, 1])


def test_a_straight_line_has_the_errors_of_the_textbook() -> None:
    """Slope s / sqrt(Sxx), start s sqrt(1 / n + mean^2 / Sxx), and scipy's own."""
    draw = np.random.default_rng(0)
    x = np.linspace(1.0, 4.0, 12)
    y = 0.7 + 2.0 * x + 0.1 * draw.normal(size=12)
    found = of_regression(np.stack([np.ones(12), x], 1), y, 4)
    line = stats.linregress(x, y)
    np.testing.assert_allclose(found.values, [line.intercept, line.slope], rtol=1e-12)
    errors = [line.intercept_stderr, line.stderr]
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-10)
    half = stats.t.ppf(0.95, 10) * np.array(errors)
    expected = found.values[:, None] + half[:, None] * [-1, 1]
    np.testing.assert_allclose(found["white noise"].interval(0.9), expected, rtol=1e-10)
    between = -x.mean() / np.sqrt(np.mean(x**2))
    np.testing.assert_allclose(
        found["white noise"].correlation, [[1, between], [between, 1]], rtol=1e-10
    )


def test_a_mean_by_recording_has_the_spread_of_the_recordings() -> None:
    """The mean of equally long recordings: the standard error of R means."""
    draw = np.random.default_rng(1)
    y = (draw.normal(size=(6, 1)) + 0.1 * draw.normal(size=(6, 20))).ravel()
    X = np.ones((120, 1))
    means = y.reshape(6, 20).mean(1)
    expected = means.std(ddof=1) / np.sqrt(6)
    found = of_regression(X, y, 6)
    np.testing.assert_allclose(found[BY_RECORDING].errors, [expected], rtol=1e-12)
    half = stats.t.ppf(0.975, 5) * expected
    np.testing.assert_allclose(
        found[BY_RECORDING].interval(), [means.mean() + half * np.array([-1, 1])], rtol=1e-12
    )


@pytest.mark.slow
def test_the_jackknife_is_what_leaving_a_recording_out_does() -> None:
    draw = np.random.default_rng(2)
    X = draw.normal(size=(40, 3)) * np.repeat([1.0, 4.0, 0.3, 2.0, 1.0], 8)[:, None]
    y = X @ [1.0, -2.0, 0.5] + draw.normal(size=40)
    without = []
    for s in range(5):
        keep = np.repeat(np.arange(5) != s, 8)
        without.append(np.linalg.lstsq(X[keep], y[keep], rcond=None)[0])
    found = of_regression(X, y, 5)
    moves = np.array(without) - found.values
    np.testing.assert_allclose(found[BY_RECORDING].matrix, 0.8 * moves.T @ moves, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_intervals_by_recording_hold_where_white_ones_fail(spread: float) -> None:
    """Noise that lasts for fifty samples, in ten recordings, equally or unequally large."""
    draw = np.random.default_rng(4)
    repeats, R, T = 400, 10, 100
    t = np.linspace(0.0, 1.0, T)
    size = np.exp(spread * draw.normal(size=(R, 1)))
    X = np.stack([size * np.sin(k * t + draw.uniform(0, 6, (R, 1))) for k in (3, 6)], -1)
    X = X.reshape(R * T, 2)
    shocks = np.sqrt(1 - 0.98**2) * draw.normal(size=(repeats, R, T))
    shocks[:, :, 0] = draw.normal(size=(repeats, R))
    noise = np.empty_like(shocks)
    state = np.zeros((repeats, R))
    for k in range(T):
        state = noise[:, :, k] = 0.98 * state * (k > 0) + shocks[:, :, k]
    truth = np.array([1.0, -0.5])
    held = np.zeros((2, 2))
    for e in noise.reshape(repeats, -1):
        found = of_regression(X, X @ truth + e, R)
        held[0] += covers(found["white noise"].interval(), truth)
        held[1] += covers(found[BY_RECORDING].interval(), truth)
    white, jackknife = held / repeats
    assert white.max() < 0.65
    assert np.all((jackknife > 0.9) & (jackknife < 0.99)), held / repeats


def test_undetermined_parameters_have_infinite_errors() -> None:
    """Only the sum of the first two is seen, and the third."""
    draw = np.random.default_rng(5)
    a, c = draw.normal(size=(2, 30))
    X = np.stack([a, a, c], 1)
    y = X @ [1.0, 2.0, 3.0] + 0.1 * draw.normal(size=30)
    found = of_regression(X, y, 6)
    both = of_regression(X[:, 1:], y, 6)
    assert found.determined.tolist() == [False, False, True]
    less = np.sqrt(28 / 27)  # one degree of freedom less for the third column
    expected = [np.inf, np.inf, less * both.standard_errors[1]]
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-9)
    by_recording = both[BY_RECORDING].errors
    expected = [np.inf, np.inf, by_recording[1]]
    np.testing.assert_allclose(found[BY_RECORDING].errors, expected, rtol=1e-9)
    assert np.isnan(found["white noise"].correlation[0]).all()
    assert found["white noise"].correlation[2, 2] == 1
    assert np.isinf(found["white noise"].interval()[0]).all()
    known = {"white noise": less * both.standard_errors[0], BY_RECORDING: by_recording[0]}
    for kind, expected in known.items():
        np.testing.assert_allclose(found.of([1.0, 1.0, 0.0], kind), expected, rtol=1e-9)
        assert found.of([1.0, 0.0, 0.0], kind) == np.inf
    assert repr(found).count("not determined") == 2


@pytest.mark.slow
def test_units_change_nothing() -> None:
    draw = np.random.default_rng(6)
    X = draw.normal(size=(24, 3))
    y = X @ [1.0, 2.0, 3.0] + draw.normal(size=24)
    units = np.array([1e-9, 1.0, 1e7])
    one, other = of_regression(X, y, 6), of_regression(X * units, y, 6)
    np.testing.assert_allclose(other.standard_errors * units, one.standard_errors, rtol=1e-8)
    np.testing.assert_allclose(
        other[BY_RECORDING].errors * units, one[BY_RECORDING].errors, rtol=1e-8
    )
    np.testing.assert_allclose(
        other["white noise"].correlation, one["white noise"].correlation, rtol=1e-8
    )


def test_a_prior_keeps_its_error_however_noisy_the_residuals_are() -> None:
    """H = 100 of the prior and 25 of residuals whose noise turns out to be 3."""
    J = np.array([[10.0], [12.5**0.5], [12.5**0.5]])
    r = np.array([0.0, 15.0, -15.0]) / 12.5**0.5
    found = uncertainty(["b"], [1.0], J, r, np.array([-1, 0, 1]), noise=3.0, degrees=9)
    expected = np.sqrt(100 + 9 * 25) / 125
    np.testing.assert_allclose(found.standard_errors, expected, rtol=1e-12)
    moves = np.array([15.0, -15.0]) / 112.5
    expected = np.sqrt(100 / 125**2 + 0.5 * moves @ moves)
    np.testing.assert_allclose(found[BY_RECORDING].errors, expected, rtol=1e-12)


def test_too_few_recordings_say_so() -> None:
    draw = np.random.default_rng(7)
    X = draw.normal(size=(12, 3))
    alone = X * np.array([1.0, 1.0, 1.0]) * np.repeat([[1.0, 1.0, 0.0]], 12, 0)
    alone[:4, 2] = X[:4, 2]  # seen by the first recording alone
    found = of_regression(alone, draw.normal(size=12), 3)
    with pytest.raises(KeyError, match=r"must be one of .'white noise',., but is 'by rec"):
        found[BY_RECORDING]
    assert "3 recordings are too few for 3 determined numbers" in repr(found)
