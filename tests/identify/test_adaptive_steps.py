"""Fits with adaptive steps: the same answers as with fixed steps."""

from typing import Any

import numpy as np
import pytest

from jaxmech import Adaptive, DormandPrince5, FixedSteps
from jaxmech.identify import Fit, Recording, Shooting, fit
from tests.identify.swings import (
    BEGIN,
    CARTESIAN,
    FREE,
    SWING,
    TRUTH,
    angle,
    noisy,
    on_the_rod,
    swings,
)

AMONG = 1e-3  # standard errors, by which fits by different methods may differ


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    rng = np.random.default_rng(0)
    return [noisy(one, rng) for one in swings()]


def fitted(recordings: list[Recording], **options: Any) -> Fit:
    found = fit(SWING, recordings, BEGIN, free=FREE, **options)
    assert found.converged
    return found


@pytest.fixture(scope="module")
def fixed(recordings: list[Recording]) -> Fit:
    return fitted(recordings, steps=FixedSteps(4))


def assert_same(found: Fit, fixed: Fit) -> None:
    """Check that values and intervals are those of fixed steps, and that they contain the truth."""
    errors = np.asarray(fixed.uncertainty.standard_errors)
    truth = np.array([TRUTH[name] for name in fixed.names])
    assert (np.abs(found.values - truth) < 3 * errors).all()
    np.testing.assert_allclose((found.values - fixed.values) / errors, 0.0, atol=AMONG)
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=AMONG)
    assert not found.warnings
    assert 0 < found.integration_error < 1e-3


@pytest.mark.slow
def test_a_tolerance_gives_the_fit_of_short_fixed_steps(
    recordings: list[Recording], fixed: Fit
) -> None:
    assert_same(fitted(recordings, method=DormandPrince5(), steps=Adaptive()), fixed)


@pytest.mark.slow
def test_multiple_shooting(recordings: list[Recording], fixed: Fit) -> None:
    policies = {"method": DormandPrince5(), "steps": Adaptive()}
    assert_same(fitted(recordings, **policies, initial_states=Shooting(0.4)), fixed)


@pytest.mark.slow
def test_constraints_and_unequal_recordings(recordings: list[Recording]) -> None:
    """In x and y, with a constraint that moves with a parameter, and one recording cut short."""
    whole = []
    for one, count in zip(recordings, (61, 40), strict=True):
        q0, v0 = on_the_rod(float(one.q0[0]), 0.0, TRUTH["l"])
        kept = one.ts[:count], one.observed[:count]
        whole.append(Recording(*kept, q0, v0, weights=one.weights))
    options: Any = {"free": FREE, "observe": angle}
    found = fit(CARTESIAN, whole, BEGIN, method=DormandPrince5(), steps=Adaptive(), **options)
    assert found.converged
    assert_same(found, fit(CARTESIAN, whole, BEGIN, steps=FixedSteps(4), **options))
