"""`fit` by the trust region: exact without noise, with correct intervals with noise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Fit, Recording, fit
from tests.identify.swings import (
    BEGIN,
    CARTESIAN,
    FREE,
    NOISE,
    TIMES,
    TRUTH,
    angle,
    fitted,
    noisy,
    on_the_rod,
    swings,
)

GAPS = np.array([5, 6, 7, 20, 33, 34, 50])
WANTED = [TRUTH["c"], TRUTH["l"]]  # in the order of the names


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    rng = np.random.default_rng(3)
    return [noisy(one, rng) for one in swings()]


@pytest.fixture(scope="module")
def found(recordings: list[Recording]) -> Fit:
    return fitted(recordings)


def test_parameters_are_recovered_without_noise() -> None:
    found = fitted(swings())
    assert found.names == ("c", "l")
    assert found.converged
    np.testing.assert_allclose(found.values, WANTED, rtol=1e-9)
    assert found.params["g"] == TRUTH["g"]
    assert np.all(found.errors < 1e-10)
    assert np.all(np.diff(found.optimization.history) <= 0)


def test_without_weights_the_noise_is_estimated(recordings: list[Recording], found: Fit) -> None:
    plain = fitted([replace(one, weights=None) for one in recordings])
    np.testing.assert_allclose(plain.values, found.values, rtol=1e-7)
    np.testing.assert_allclose(plain.noise.size, NOISE, rtol=0.2)
    np.testing.assert_allclose(
        plain.uncertainty.standard_errors,
        found.uncertainty.standard_errors * plain.noise.size / NOISE,
        rtol=1e-6,
    )


@pytest.mark.slow
def test_a_gap_has_the_result_of_missing_samples(recordings: list[Recording]) -> None:
    """Given as NaN, or as uneven sample times with an unchanged step."""
    observed = recordings[0].observed.copy()
    observed[GAPS] = np.nan
    there = np.setdiff1d(np.arange(len(TIMES)), GAPS)
    holes = fitted([replace(recordings[0], observed=observed), recordings[1]])
    uneven = replace(
        recordings[0], ts=TIMES[there], observed=recordings[0].observed[there], weights=1 / NOISE
    )
    steps = fitted([uneven, recordings[1]], steps=FixedSteps(1, max_step=0.02))
    assert holes.count == steps.count == 2 * len(TIMES) - len(GAPS)
    np.testing.assert_allclose(steps.values, holes.values, rtol=1e-9)
    np.testing.assert_allclose(steps.information, holes.information, rtol=1e-6)
    assert np.isnan(holes.residuals[0][GAPS]).all()
    assert steps.residuals[0].shape == (len(there), 1)
    assert np.all(np.isfinite(steps.residuals[0]))


def test_functions_of_the_parameters(found: Fit) -> None:
    covariance = found.uncertainty["white noise"].matrix
    ratio = found.function(lambda p: p["g"] / p["l"])
    sd = TRUTH["g"] / found.values[1] ** 2 * np.sqrt(covariance[1, 1])
    np.testing.assert_allclose(ratio.value, TRUTH["g"] / found.values[1])
    np.testing.assert_allclose(ratio.standard_error, sd, rtol=1e-9)
    total = found.function(lambda p: p["c"] + p["l"])
    np.testing.assert_allclose(total.standard_error, np.sqrt(covariance.sum()), rtol=1e-9)


def test_bounds_are_kept() -> None:
    """The best fit has negative friction, and a rod longer than its bound."""
    motions = swings(params={"c": -0.01})
    assert fitted(motions).params["c"] < 0
    bounded = fitted(motions, bounds={"c": (0, None), "l": (0.1, 0.45)})
    assert 0 < bounded.params["c"] < 1e-3
    assert 0.449 < bounded.params["l"] < 0.45
    assert any("At the bound" in text for text in bounded.warnings)
    inside = fitted(swings(), bounds={"c": (0, None), "l": (0.1, 0.6)})
    np.testing.assert_allclose(inside.values, WANTED, rtol=1e-8)


@pytest.fixture(scope="module")
def wrongly_begun() -> tuple[list[Recording], list[Recording]]:
    """Noisy recordings with noisy starts, as angles and in Cartesian coordinates."""
    rng = np.random.default_rng(5)
    angles, cartesian = [], []
    for one in swings():
        kept = noisy(one, rng)
        theta, omega = one.q0[0] + rng.normal(0, 2e-3), rng.normal(0, 5e-3)
        q0, v0 = on_the_rod(theta, omega, BEGIN["l"])
        angles.append(replace(kept, q0=np.array([theta]), v0=np.array([omega])))
        cartesian.append(replace(kept, q0=q0, v0=v0))
    return angles, cartesian


@pytest.mark.slow
def test_free_starts_lie_on_the_constraints(
    wrongly_begun: tuple[list[Recording], list[Recording]],
) -> None:
    """A Cartesian model gives the same values and intervals as one in angles."""
    angles, cartesian = wrongly_begun
    minimal = fitted(angles)
    found = fit(CARTESIAN, cartesian, BEGIN, observe=angle, free=FREE, steps=FixedSteps(1))
    assert np.all(np.abs(minimal.values - WANTED) < 4 * minimal.uncertainty.standard_errors)
    np.testing.assert_allclose(found.values, minimal.values, rtol=1e-5)
    np.testing.assert_allclose(
        found.uncertainty.standard_errors, minimal.uncertainty.standard_errors, rtol=1e-3
    )
    assert found.unknowns == minimal.unknowns == 2 + 2 * 2
    for (q, v), (theta, omega) in zip(found.initial_states, minimal.initial_states, strict=True):
        assert abs(np.hypot(*q) - found.params["l"]) < 1e-10
        assert abs(q @ v) < 1e-10
        np.testing.assert_allclose(np.arctan2(q[0], -q[1]), theta[0], atol=1e-5)
        np.testing.assert_allclose(np.hypot(*v) / np.hypot(*q), abs(omega[0]), atol=1e-4)


@pytest.mark.slow
def test_recorded_starts_count_with_their_standard_deviation(
    wrongly_begun: tuple[list[Recording], list[Recording]],
) -> None:
    angles, _ = wrongly_begun

    def started(sd: Any) -> Fit:
        return fitted([replace(one, start_sd=sd) for one in angles])

    held, loose, free = started((1e-9, 1e-9)), started((1e3, 1e3)), started(None)
    exact = fitted(angles, initial_states="fixed")
    np.testing.assert_allclose(held.values, exact.values, rtol=1e-5)
    np.testing.assert_allclose(loose.values, free.values, rtol=1e-6)
    known = started((2e-3, 5e-3))
    errors = [one.uncertainty.standard_errors for one in (held, known, free)]
    assert np.all(errors[0] < errors[1])
    assert np.all(errors[1] < errors[2])
    np.testing.assert_allclose(known.errors, NOISE, rtol=0.3)
