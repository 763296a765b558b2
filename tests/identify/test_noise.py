"""Robust losses, outliers and blocks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Fit, Huber, Recording, fit
from jaxmech.identify.uncertainty import block_times
from tests.identify.swings import BEGIN, FREE, NOISE, SWING, TRUTH, autoregressive, swings

WANTED = np.array([TRUTH[name] for name in ("c", "l")])
TS = np.arange(241) / 50


def fitted(recordings: Any, **options: Any) -> Fit:
    return fit(SWING, recordings, BEGIN, **{"free": FREE, "steps": FixedSteps(1), **options})


def with_noise(noise: np.ndarray, weights: Any = None) -> Recording:
    (one,) = swings((0.8,), ts=TS, weights=weights)
    return replace(one, observed=one.observed + NOISE * noise[:, None])


def contaminated(rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=TS.size)
    return np.where(rng.random(TS.size) < 0.01, 30 * rng.normal(size=TS.size), noise)


@pytest.mark.parametrize("loss", [Huber(), Huber(3.0)], ids=repr)
def test_weights_and_slopes_of_losses(loss: Any) -> None:
    r = np.linspace(-6.0, 6.0, 61) + 1e-3
    h = 1e-5
    first = (loss.value(r + h) - loss.value(r - h)) / (2 * h)
    np.testing.assert_allclose(loss.weight(r) * r, first, rtol=1e-6)
    second = (loss.weight(r + h) * (r + h) - loss.weight(r - h) * (r - h)) / (2 * h)
    np.testing.assert_allclose(loss.slope(r), second, atol=1e-6)


@pytest.mark.parametrize("weights", [None, 1 / NOISE])
def test_outliers_hardly_move_a_robust_fit(weights: float | None) -> None:
    clean = np.random.default_rng(3).normal(size=TS.size)
    far = clean.copy()
    far[[40, 90, 200]] = 60.0, -50.0, 70.0
    plain, moved = (fitted(with_noise(x, weights)) for x in (clean, far))
    errors = plain.uncertainty.standard_errors
    assert np.abs((moved.values - plain.values) / errors).max() > 1.5
    found = fitted(with_noise(far, weights), loss=Huber())
    assert found.converged
    assert found.notes == ()
    assert np.abs((found.values - plain.values) / errors).max() < 0.7
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=0.25)
    assert {round(50 * one.time) for one in found.outliers} == {40, 90, 200}
    np.testing.assert_allclose(found.outliers.samples[0].sigmas, -70.0, rtol=0.15)
    assert "Outliers: 3 of 241 samples (1.2 %)" in repr(found)
    assert len(moved.outliers) == 3
    assert "fit with loss=Huber()" in " ".join(moved.notes)


def test_blocks_come_first_where_residuals_are_correlated(tmp_path: Any) -> None:
    (one,) = swings((0.8,), ts=np.arange(1001) / 50, weights=None)
    rng = np.random.default_rng(8)
    noise = np.convolve(rng.normal(size=1005), np.ones(5) / np.sqrt(5), "valid")
    found = fitted(replace(one, observed=one.observed + NOISE * noise[:, None]))
    uncertainty = found.uncertainty
    assert found.noise.correlated
    assert [one.kind for one in uncertainty.covariances] == ["by block", "white noise"]
    assert found.uncertainty["by block"].degrees + 1 == 20
    by_block = uncertainty["by block"].errors
    # a sum of 5 independent numbers has errors sqrt(5) times those of white noise of its size
    np.testing.assert_allclose(by_block / uncertainty.standard_errors, np.sqrt(5), rtol=0.4)
    first = repr(uncertainty).splitlines()[1]
    assert first.split() == ["value", "by", "block", "white", "noise"]
    assert "as if only 20 blocks of consecutive samples were" in repr(found)
    again = Fit.load(found.save(tmp_path / "blocks.npz"))
    assert repr(again) == repr(found)


def test_blocks_are_those_of_the_samples() -> None:
    """Between which a faster sensor, or an input, may have times of its own."""
    one = with_noise(autoregressive(np.random.default_rng(7), 0.8, TS.size))
    plain = fitted(one)
    assert 4 < plain.uncertainty["by block"].degrees + 1 < 20
    sparse = np.full((4 * 240 + 1, 1), np.nan)
    sparse[::4] = one.observed
    among_others = fitted(replace(one, ts=np.arange(len(sparse)) / 200, observed=sparse))
    one, other = (x.uncertainty["by block"] for x in (plain, among_others))
    assert one.degrees == other.degrees
    np.testing.assert_allclose(one.errors, other.errors, rtol=1e-3)


def test_a_slow_sensor_has_longer_blocks_than_the_fast_one_beside_it() -> None:
    rng = np.random.default_rng(8)
    slow = autoregressive(rng, 0.8, TS.size)[:, None]
    values, seen = rng.normal(size=(1, 2400, 2)), np.full((1, 2400, 2), True)
    seen[0, :, 1] = np.arange(2400) % 10 == 0
    values[0, ::10, 1] = slow[:240, 0]
    alone = len(list(block_times(slow[None], np.full((1, 241, 1), True))))
    assert 4 < alone < 20
    assert len(list(block_times(values, seen))) == alone


def _coverage(
    draw: Callable[[], np.ndarray], weights: Any, count: int = 40, **options: Any
) -> np.ndarray:
    inside = []
    for _ in range(count):
        found = fitted(with_noise(draw(), weights), **options)
        intervals = found.uncertainty.reliable_interval()
        inside.append((intervals[:, 0] <= WANTED) & (intervals[:, 1] >= WANTED))
    return np.mean(inside, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, 1 / NOISE])
def test_coverage_with_one_percent_of_outliers(weights: float | None) -> None:
    rng = np.random.default_rng(0)
    share = _coverage(lambda: contaminated(rng), weights, loss=Huber())
    assert np.all(share >= 0.88), share
    assert np.mean(share) < 0.995


@pytest.mark.slow
def test_coverage_by_blocks() -> None:
    rng = np.random.default_rng(0)
    share = _coverage(lambda: autoregressive(rng, 0.9, TS.size), None)
    assert np.all(share >= 0.85), share
    assert np.mean(share) < 0.995
