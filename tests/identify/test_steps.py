"""The steps of a fit: their number, their error beside the noise, and adaptive ones."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxmech import Adaptive, DormandPrince5, FixedSteps, System, simulate
from jaxmech.identify import Fit, Identifiable, Recording, Settings, Shooting, fit
from jaxmech.identify import segments as steps_of_fits
from jaxmech.identify.fit import prepare
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

SLOW_TRUTH = {"w2": 20.0, "c": 0.1}
SLOW = System(
    lambda q, v, t, p: 0.5 * v @ v + p["w2"] * jnp.cos(q[0]),
    force=lambda q, v, t, p: -p["c"] * v,
    coordinates=("angle",),
)


def _fitted(noise: float, per_save: int | None) -> Fit:
    ts = np.arange(31) / 5
    clean = simulate(SLOW, [0.5], [0.0], ts, SLOW_TRUTH, steps=FixedSteps(64)).q
    observed = clean + noise * np.random.default_rng(0).normal(size=clean.shape)
    one = Recording(ts, observed, [0.5], [0.0])
    steps = None if per_save is None else FixedSteps(per_save)
    return fit(SLOW, one, {"w2": 18.0, "c": 0.2}, steps=steps)


def _off(found: Fit) -> float:
    """The largest distance from the truth, in standard errors."""
    truth = np.array([SLOW_TRUTH[name] for name in found.names])
    return float(np.abs((found.values - truth) / found.uncertainty.standard_errors).max())


def test_steps_are_judged_by_the_noise() -> None:
    coarse = _fitted(1e-3, 1)
    assert _off(coarse) > 30
    (note,) = [text for text in coarse.notes if "Steps too coarse" in text]
    assert 0.01 < coarse.integration_error < 0.5
    number = int(note.partition("FixedSteps(per_save=")[2].partition(")")[0])
    enough = _fitted(1e-3, number)
    assert enough.notes == ()
    assert _off(enough) < 4
    assert enough.integration_error < 1e-5
    assert _fitted(1e-3, None).integration_error == enough.integration_error
    loud = _fitted(0.05, 2)
    assert loud.integration_error > 1e-3
    assert not any("Steps too coarse" in text for text in loud.notes)


@pytest.mark.slow
def test_a_fit_that_leaves_its_start_makes_more_steps() -> None:
    """Without friction the motion is smooth, with it a step must resolve each turn."""
    ts = np.linspace(0.0, 2.0, 101)

    def slope(t: float, y: np.ndarray) -> list[float]:
        return [y[1], (-np.sin(y[0]) - 0.05 * y[1] - 0.05 * np.tanh(y[1] / 0.01)) / 0.05]

    exact = solve_ivp(slope, (0, 2), [2.0, 0.0], "DOP853", ts, rtol=1e-12, atol=1e-13).y[0]
    dry = System(
        lambda q, v, t, p: 0.025 * v @ v + jnp.cos(q[0]),
        force=lambda q, v, t, p: -p["d"] * v - p["f"] * jnp.tanh(v / 0.01),
        coordinates=("angle",),
    )
    one = Recording(ts, exact, [2.0], [0.0])
    positive = {"d": (0, None), "f": (0, None)}
    found = fit(dry, one, {"d": 1e-8, "f": 1e-8}, bounds=positive, initial_states="fixed")
    assert found.converged
    np.testing.assert_allclose(found.values, 0.05, atol=1e-5)
    assert not any("Steps too coarse" in text for text in found.notes)


@pytest.mark.parametrize(("needed", "made"), [(0.3, 1), (1.2, 1), (7.9, 8), (8.1, 8), (11.0, 16)])
def test_numbers_of_steps_are_few(
    needed: float, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a start that is a little different does not compile another program."""
    (one,) = swings((0.8,))

    def members_need(*_: Any) -> int:
        return round(needed * (len(one.ts) - 1))

    monkeypatch.setattr(steps_of_fits, "members_need", members_need)
    task, _ = prepare(Identifiable(SWING, BEGIN, free=FREE), one, Settings())
    assert task.problem.scheme.steps.count == made


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
