"""Residuals that are not the stated noise, and recordings that are not measurements or too long."""

import re
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, System
from jaxmech.identify import Fit, Recording, fit
from jaxmech.identify.noise import correlation
from tests.identify.swings import NOISE, autoregressive, fitted, noisy, swings


@pytest.fixture(scope="module")
def given() -> list[Recording]:
    rng = np.random.default_rng(4)
    return [noisy(one, rng) for one in swings()]


def warnings_of(found: Fit) -> str:
    return " ".join(found.notes)


@pytest.mark.slow
def test_noise_as_stated_is_no_misfit(given: list[Recording]) -> None:
    assert fitted(given).notes == ()
    assert fitted([replace(one, weights=None) for one in given]).notes == ()
    assert fitted([replace(one, weights=1 / (1.05 * NOISE)) for one in given]).notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.02, 1.4, 134.0])
def test_more_or_less_noise_than_is_stated(given: list[Recording], factor: float) -> None:
    found = fitted([replace(one, weights=factor / NOISE) for one in given])
    (text,) = found.notes
    assert text.startswith("Misfit" if factor > 1 else "The stated noise is too large")
    times = float(text.partition("the residuals are ")[2].split()[0])
    np.testing.assert_allclose(times, factor, rtol=0.2)


def test_a_prior_that_the_recordings_contradict(given: list[Recording]) -> None:
    found = fitted(given, prior={"l": (0.6, 1e-6)})
    assert "Misfit" in warnings_of(found)
    assert fitted(given, prior={"l": (0.5, 1e-2)}).notes == ()


def test_samples_without_weight_do_not_count(given: list[Recording]) -> None:
    one = given[0]
    weights = np.full((61, 1), 1 / NOISE)
    weights[10:] = 0.0
    light = replace(one, weights=weights)
    assert light.count == 10
    assert fitted([light, given[1]]).count == 71
    with pytest.raises(ValueError, match=r"as many measurements as .* 3 for 4"):
        fitted(replace(one, weights=np.where(np.arange(61)[:, None] < 3, 1 / NOISE, 0.0)))
    nothing = np.where(np.arange(61)[:, None] == 0, np.nan, one.observed)
    with pytest.raises(ValueError, match="`weights` must have a positive number where something"):
        replace(one, observed=nothing, weights=np.where(np.arange(61)[:, None] < 1, 1.0, 0.0))


def test_correlation_is_found_at_all_lengths_and_seldom_in_noise() -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for count in (30, 60, 400):
        slow = correlation([autoregressive(rng, 0.9, count)[:, None]])
        assert slow is not None
        assert 0.3 < slow.neighbours < 1.0
        assert slow.chance < 1e-3
        alarms += sum(correlation([rng.normal(size=(count, 1))]) is not None for _ in range(300))
    assert alarms <= 6  # 0.9 are expected


def test_samples_of_a_slow_sensor_are_compared_with_each_other() -> None:
    """In a table of a fast one, in which they are 20 times apart."""
    rng, samples = np.random.default_rng(3), np.full((2000, 2), np.nan)
    samples[:, 0] = rng.normal(size=2000)
    samples[::20, 1] = rng.normal(size=100)
    assert correlation([samples]) is None
    samples[::20, 1] = slow = autoregressive(rng, 0.8, 100)
    beside = correlation([samples])
    alone = correlation([slow[:, None]])
    assert beside is not None
    assert alone is not None
    np.testing.assert_allclose(beside.neighbours, alone.neighbours)


@pytest.mark.parametrize("weight", [None, 1 / NOISE, 0.5 / NOISE])
def test_correlated_noise_of_any_stated_size(weight: float | None) -> None:
    rng = np.random.default_rng(2)
    (one,) = swings((0.8,), weights=weight, ts=np.arange(241) / 50)
    noise = NOISE * autoregressive(rng, 0.9, len(one.ts))[:, None]
    found = fitted(replace(one, observed=one.observed + noise))
    assert "neighbours in time are correlated" in warnings_of(found)
    assert found.noise.correlated
    assert re.search("by (recording|block) +white noise", repr(found))


LONG = np.linspace(0.0, 6.0, 61)
# Upright, x'' = k x: changes grow by exp(3 t) for k = 9; or hanging, where they do not grow.
GROWING = System(lambda q, v, t, p: 0.5 * (v @ v + p["k"] * q @ q), coordinates=("x",))


def warnings_of_growth(k: float) -> tuple[str, ...]:
    x = np.cosh(3 * LONG) if k > 0 else np.cos(3 * LONG)
    noise = 1e-3 * np.abs(x).max() * np.random.default_rng(0).normal(size=LONG.size)
    recording = Recording(LONG, 1e-3 * (x + noise), [1e-3], [0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = fit(GROWING, [recording], {"k": jnp.asarray(k)}, steps=FixedSteps(4))
        return found.warnings


def test_a_motion_that_grows_is_too_long_and_an_oscillation_is_not() -> None:
    (text,) = [x for x in warnings_of_growth(9.0) if x.startswith("Gradients through this motion")]
    assert "doubling every 0.23 s" in text  # log(2) / 3
    assert "`initial_states=Shooting(length=" in text
    assert not [x for x in warnings_of_growth(-9.0) if x.startswith("Gradients")]
