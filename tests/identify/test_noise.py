"""Noise of each sensor, robust losses, outliers and blocks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech.identify import Fit, Huber, Recording, TrustRegion
from jaxmech.identify.uncertainty import block_times
from tests.identify.swings import NOISE, TRUTH, autoregressive, fitted, swings

WANTED = np.array([TRUTH[name] for name in ("c", "l")])
TS = np.arange(241) / 50


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


SIZES = np.array([5e-4, 6e-2])  # 0.5 mm and 60 mrad


def shown(q: Any, v: Any, t: Any, p: Any) -> Any:
    """How far the mass is to the side [m], and the angle [rad]."""
    return jnp.concatenate([p["l"] * jnp.sin(q), q])


def sensed(
    recordings: list[Recording], rng: np.random.Generator, **changes: Any
) -> list[Recording]:
    made = []
    for one in recordings:
        angle = one.observed[:, 0]
        clean = np.stack([TRUTH["l"] * np.sin(angle), angle], axis=1)
        observed = clean + rng.normal(0.0, SIZES, clean.shape)
        made.append(replace(one, observed=observed, weights=None))
    return made


def sensor_fit(recordings: list[Recording], **options: Any) -> Fit:
    return fitted(recordings, observe=shown, **options)


def test_each_sensor_has_a_noise_of_its_own() -> None:
    given = sensed(swings(), np.random.default_rng(0))
    found = sensor_fit(given)
    assert found.converged
    assert found.notes == ()
    assert found.noise.sensors is not None
    np.testing.assert_allclose(found.noise.sensors, SIZES, rtol=0.2)
    np.testing.assert_allclose(found.noise.size, 1.0, rtol=1e-2)
    assert "(estimated, one for each sensor)" in repr(found)
    weighed = sensor_fit([replace(one, weights=1 / found.noise.sensors) for one in given])
    np.testing.assert_allclose(found.values, weighed.values, rtol=1e-4)
    errors = found.uncertainty.standard_errors
    np.testing.assert_allclose(errors, weighed.uncertainty.standard_errors, rtol=1e-2)
    squares = sum((r**2).sum(0) for r in found.residuals)
    counts = sum(len(r) for r in found.residuals)
    lost = counts - squares / found.noise.sensors**2  # what the unknowns take from each sensor
    np.testing.assert_allclose(lost.sum(), found.unknowns, rtol=1e-6)
    assert np.all(lost > 0)


def test_a_sensor_of_few_samples_has_the_noise_of_all() -> None:
    (one,) = sensed(swings((0.8,)), np.random.default_rng(1))
    observed = one.observed.copy()
    observed[3:, 1] = np.nan
    found = sensor_fit([replace(one, observed=observed)])
    assert found.converged
    assert found.noise.sensors is not None
    np.testing.assert_allclose(found.noise.sensors[0], SIZES[0], rtol=0.3)
    assert 1e-4 < found.noise.sensors[1] < 1.0


@pytest.mark.slow
def test_without_noise_no_sensor_outweighs_the_others() -> None:
    clean = [
        replace(one, observed=np.concatenate([0.5 * np.sin(one.observed), one.observed], axis=1))
        for one in swings(weights=None)
    ]
    found = sensor_fit(clean)
    assert found.converged
    np.testing.assert_allclose(found.values, WANTED, rtol=1e-8)


@pytest.mark.slow
def test_the_budget_is_that_of_all_rounds() -> None:
    """A fit that ends before its first minimum estimates no noise to begin again with."""
    given = sensed(swings((0.8,)), np.random.default_rng(2))
    found = sensor_fit(given, optimizer=TrustRegion(evaluations=3))
    assert found.optimization.evaluations == 3
    assert found.optimization.reason == "the 3 evaluations are used up"
    assert not found.converged
