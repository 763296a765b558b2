"""Gradient descent by optax."""

from typing import Any

import numpy as np
import optax
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Descent, Fit, Recording, fit
from tests.identify.swings import BEGIN, FREE, SWING, TRUTH, noisy, swings

WANTED = [TRUTH["c"], TRUTH["l"]]
FOUR = (0.8, -1.2, 0.5, 1.5)
ADAM = optax.adam(optax.exponential_decay(0.05, 50, 0.5))


def descended(recordings: list[Recording], optimizer: Any, **options: Any) -> Fit:
    """Fit by gradient descent with exact initial states."""
    return fit(
        SWING, recordings, BEGIN, free=FREE, optimizer=optimizer, initial_states="fixed",
        steps=FixedSteps(1), **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def motions() -> list[Recording]:
    return swings(FOUR)


@pytest.fixture(scope="module")
def noisy_motions(motions: list[Recording]) -> list[Recording]:
    rng = np.random.default_rng(7)
    return [noisy(one, rng) for one in motions]


def test_adam_finds_the_parameters(motions: list[Recording]) -> None:
    found = descended(motions, Descent(ADAM, iterations=500))
    np.testing.assert_allclose(found.values, WANTED, rtol=1e-3)
    assert len(found.optimization.history) == 500
    assert found.optimization.history[-1] < 1e-5 * found.optimization.history[0]


@pytest.mark.slow
def test_reaching_the_number_of_steps_is_not_convergence(
    noisy_motions: list[Recording],
) -> None:
    """Too few steps, or steps too short, end far from the minimum in standard errors."""
    for policy in (Descent(optax.adam(1e-2), iterations=5), Descent(optax.sgd(1e-9), iterations=1)):
        found = descended(noisy_motions, policy)
        off = np.abs(found.values - WANTED) / found.uncertainty.standard_errors
        assert off.max() > 10
        assert found.optimization.history[-1] <= found.optimization.history[0]
        assert not found.converged
        assert any("Not converged" in text for text in found.notes)


@pytest.mark.slow
def test_a_descent_that_has_arrived_has_converged(noisy_motions: list[Recording]) -> None:
    arrived = descended(noisy_motions, Descent(ADAM, iterations=1000))
    exact = fit(SWING, noisy_motions, BEGIN, free=FREE, initial_states="fixed", steps=FixedSteps(1))
    off = np.abs(arrived.values - exact.values) / exact.uncertainty.standard_errors
    assert arrived.converged == bool(off.max() < 0.1)
    assert arrived.converged


@pytest.mark.slow
def test_a_descent_that_increased_the_loss_has_a_warning(motions: list[Recording]) -> None:
    found = descended(motions, Descent(optax.sgd(1e-3), iterations=20))
    assert found.optimization.history[-1] > found.optimization.history[0]
    assert not found.converged
    weighted = [one.weights * r for one, r in zip(motions, found.residuals, strict=True)]
    squares = sum(float((r**2).sum()) for r in weighted) / found.count
    np.testing.assert_allclose(
        squares / 2, min(found.optimization.history), rtol=1e-6
    )  # the best of them
    assert any("learning rate" in text for text in found.warnings)


def test_steps_that_are_far_too_long(motions: list[Recording]) -> None:
    with pytest.raises(FloatingPointError, match="take a smaller learning rate"):
        descended(motions, Descent(optax.sgd(3e-5, momentum=0.95), iterations=200))


def test_invalid_arguments(motions: list[Recording]) -> None:
    with pytest.raises(TypeError, match=r"`optimizer` must be TrustRegion.*, but is 'adam'"):
        descended(motions, "adam")
    with pytest.raises(ValueError, match="Argument `iterations` must be a positive integer"):
        Descent(ADAM, iterations=0)
