"""Gradient descent by optax: full and mini-batches, early stopping on validation recordings."""

from dataclasses import replace
from typing import Any

import numpy as np
import optax
import pytest

from jaxmech import FixedSteps
from jaxmech.identify import Descent, Fit, MultiStart, Recording, fit
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
def test_batches_are_drawn_from_all_recordings(motions: list[Recording]) -> None:
    found = descended(motions, Descent(ADAM, iterations=500, batch=2))
    np.testing.assert_allclose(found.values, WANTED, rtol=1e-3)
    same = descended(motions, Descent(ADAM, iterations=500, batch=2))
    np.testing.assert_array_equal(same.values, found.values)
    other = descended(motions, Descent(ADAM, iterations=500, batch=2, seed=1))
    assert np.all(other.values != found.values)


@pytest.mark.slow
def test_patience_gives_back_the_best(noisy_motions: list[Recording]) -> None:
    """With steps that are too long the loss goes up and down; the best is not the last."""
    train, held = noisy_motions[:2], noisy_motions[2:]
    patient = Descent(optax.sgd(2e-5, momentum=0.9), iterations=300, patience=10)
    found = descended(train, patient, validation=held)
    assert len(found.optimization.history) < 300
    losses = []
    for steps in range(1, len(found.optimization.history) + 1, 4):
        short = Descent(patient.optimizer, iterations=steps)
        losses.append(descended(train, short, validation=held).validation_errors)
    mean_squares = np.mean(np.array(losses) ** 2, axis=1)
    assert np.mean(found.validation_errors**2) <= mean_squares.min() * (1 + 1e-9)
    assert found.optimization.history[-1] > 1.1 * min(found.optimization.history)


@pytest.mark.slow
@pytest.mark.parametrize("patience", [None, 5])
def test_the_best_of_several_starts_is_not_that_of_the_last_batch(
    motions: list[Recording], patience: int | None
) -> None:
    """A short step from each start; the recording of the last batch is one of another length."""
    other = swings(FOUR[3:], params={"l": 0.4})[0]
    one_step = Descent(optax.sgd(1e-12), iterations=1, batch=1, patience=patience)
    train, held = [*motions[:3], other], []
    if patience:
        train, held = [other], motions[:3]

    def best_of(refine: int) -> Fit:
        starts = replace(one_step, starts=MultiStart(count=32, refine=refine))
        return descended(train, starts, validation=held)

    first, best = best_of(1), best_of(32)
    if patience:
        assert abs(best.params["l"] - 0.5) < 0.03 < abs(first.params["l"] - 0.5)
    else:
        np.testing.assert_array_equal(best.values, first.values)


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
    train, patient = noisy_motions[:2], Descent(optax.sgd(1e-12), iterations=9, patience=2)
    assert not descended(train, patient, validation=noisy_motions[2:]).converged


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


@pytest.mark.slow
def test_an_optax_transformation_is_accepted(motions: list[Recording]) -> None:
    found = descended(motions, optax.adam(1e-2))
    assert len(found.optimization.history) == Descent(optax.adam(1e-2)).iterations
    np.testing.assert_allclose(found.values, WANTED, rtol=1e-2)


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (Descent(ADAM, patience=3), {}, "`validation` must hold recordings where `patience`"),
        ("adam", {}, "`optimizer` must be TrustRegion.*, but is 'adam'"),
    ],
)
def test_invalid_arguments(
    motions: list[Recording], policy: Any, options: Any, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        descended(motions, policy, **options)


@pytest.mark.parametrize("field", ["iterations", "batch", "patience"])
def test_counts_are_positive(field: str) -> None:
    with pytest.raises(ValueError, match=f"Argument `{field}` must be a positive integer"):
        Descent(ADAM, **{field: 0})
