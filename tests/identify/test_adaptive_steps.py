"""Fits with adaptive steps: the same answers as with fixed steps."""

from typing import Any

import numpy as np
import optax
import pytest

from jaxmech import RK4, Adaptive, DormandPrince5, Rodas5P, Tsitouras5
from jaxmech.cli.fit.study import Integration
from jaxmech.config.errors import StudyError
from jaxmech.config.validate import structure
from jaxmech.identify import Descent, Fit, Recording, Shooting, fit
from jaxmech.integrate import AbstractMethod
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


def fitted(recordings: list[Recording], method: AbstractMethod, **options: Any) -> Fit:
    found = fit(SWING, recordings, BEGIN, free=FREE, method=method, **options)
    assert found.converged
    return found


@pytest.fixture(scope="module")
def fixed(recordings: list[Recording]) -> Fit:
    return fitted(recordings, RK4(4))


def assert_same(found: Fit, fixed: Fit) -> None:
    """Check that values and intervals are those of fixed steps, and that they contain the truth."""
    errors = np.asarray(fixed.uncertainty.standard_errors)
    truth = np.array([TRUTH[name] for name in fixed.names])
    assert (np.abs(found.values - truth) < 3 * errors).all()
    np.testing.assert_allclose((found.values - fixed.values) / errors, 0.0, atol=AMONG)
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=AMONG)
    assert not found.warnings


def test_a_tolerance_gives_the_fit_of_short_fixed_steps(
    recordings: list[Recording], fixed: Fit
) -> None:
    assert_same(fitted(recordings, Adaptive(Tsitouras5())), fixed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [Adaptive(), Adaptive(Rodas5P())],
    ids=["default", "Rodas"],
)
def test_default_and_stiff_methods(
    method: AbstractMethod, recordings: list[Recording], fixed: Fit
) -> None:
    assert_same(fitted(recordings, method), fixed)


@pytest.mark.slow
def test_multiple_shooting(recordings: list[Recording], fixed: Fit) -> None:
    """With hard continuity the same fit, with soft continuity that of fixed steps."""
    method = Adaptive(DormandPrince5())
    assert_same(fitted(recordings, method, horizon=Shooting(0.4)), fixed)
    soft = Shooting(0.4, continuity=1e-3)
    expected = fitted(recordings, RK4(4), horizon=soft)
    assert_same(fitted(recordings, method, horizon=soft), expected)


@pytest.mark.slow
def test_constraints_and_unequal_recordings(recordings: list[Recording]) -> None:
    """In x and y, with a constraint that moves with a parameter, and one recording cut short."""
    whole = []
    for one, count in zip(recordings, (61, 40), strict=True):
        q0, v0 = on_the_rod(float(one.q0[0]), 0.0, TRUTH["l"])
        kept = one.ts[:count], one.observed[:count]
        whole.append(Recording(*kept, q0, v0, weights=one.weights))
    options: Any = {"free": FREE, "observe": angle}
    found = fit(CARTESIAN, whole, BEGIN, method=Adaptive(DormandPrince5()), **options)
    assert found.converged
    assert_same(found, fit(CARTESIAN, whole, BEGIN, method=RK4(4), **options))


@pytest.mark.slow
def test_descents_agree(recordings: list[Recording]) -> None:
    """By reverse mode through the accepted steps."""
    policy = Descent(optax.adam(1e-2), 20)
    ways = [
        fit(SWING, recordings, BEGIN, free=FREE, method=method, optimizer=policy).history
        for method in (Adaptive(Tsitouras5(), max_steps=100), RK4(4))
    ]
    np.testing.assert_allclose(*ways, rtol=1e-5)
    assert ways[0][-1] < ways[0][0]


def test_refusals(recordings: list[Recording]) -> None:
    def run(**options: Any) -> Fit:
        return fit(SWING, recordings, BEGIN, free=FREE, **options)

    with pytest.raises(ValueError, match=r"`step` is for methods with fixed steps; leave it out"):
        run(method=Adaptive(), step=0.01)
    with pytest.raises(ValueError, match=r"MAX_STEPS.*`max_steps`; increase") as error:
        run(method=Adaptive(Tsitouras5(), max_steps=5))
    assert "`step`" not in str(error.value)


def test_the_table_of_a_file() -> None:
    assert structure({"rtol": 1e-9}, Integration) == Integration(method=Adaptive(rtol=1e-9))
    given = {"name": "rodas5p", "step": 0.1}
    assert structure(given, Integration) == Integration(method=Rodas5P(), step=0.1)
    with pytest.raises(StudyError, match=r"`step` is for .* fixed steps.*`step` or `rtol`"):
        structure({"rtol": 1e-9, "step": 0.1}, Integration)
