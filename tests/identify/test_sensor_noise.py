"""Sensors of unlike noise without weights: each gets a noise of its own."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, TrustRegion, fit
from tests.identify.swings import BEGIN, FREE, SWING, TRUTH, swings

SIZES = np.array([5e-4, 6e-2])  # 0.5 mm and 60 mrad
WANTED = np.array([TRUTH["c"], TRUTH["l"]])  # in the order of the names


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
    options = {"free": FREE, "steps": FixedSteps(1), "observe": shown, **options}
    return fit(SWING, recordings, BEGIN, **options)


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
