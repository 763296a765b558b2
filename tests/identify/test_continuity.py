"""Segments that must join: the optimum, its errors, and its ways of stopping."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, System, simulate
from jaxmech.identify import Fit, Huber, Recording, Shooting, fit
from tests.identify.swings import BEGIN, FREE, SWING, noisy, swings

TS = np.arange(121) / 50
OPTIONS: Any = {"free": FREE, "steps": FixedSteps(2)}


def recordings_of_swings() -> list[Recording]:
    rng = np.random.default_rng(1)
    return [noisy(one, rng) for one in swings(ts=TS)]


def fitted(**options: Any) -> Fit:
    recordings = options.pop("recordings", None) or recordings_of_swings()
    return fit(SWING, recordings, BEGIN, **OPTIONS, **options)


def assert_same(found: Fit, whole: Fit) -> None:
    errors = whole.uncertainty.standard_errors
    np.testing.assert_allclose((found.values - whole.values) / errors, 0.0, atol=1e-3)
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=1e-5)


@pytest.fixture(scope="module")
def whole() -> Fit:
    return fitted()


@pytest.fixture(scope="module")
def joined() -> Fit:
    return fitted(initial_states=Shooting(0.6))


def test_the_optimum_and_errors_are_those_of_whole_recordings(whole: Fit, joined: Fit) -> None:
    assert joined.converged
    assert (
        "fall by less" in joined.optimization.reason
        or "change by less" in joined.optimization.reason
    )
    assert joined.optimization.evaluations <= 15
    assert_same(joined, whole)
    np.testing.assert_allclose(
        joined.optimization.history[-1], whole.optimization.history[-1], rtol=1e-7
    )


def test_bounds_hold() -> None:
    bounds = {"c": (0.12, None)}
    alone, found = (fitted(bounds=bounds, **x) for x in ({}, {"initial_states": Shooting(0.6)}))
    assert found.params["c"] == pytest.approx(0.12, abs=1e-9)
    assert found.params["l"] == pytest.approx(float(alone.params["l"]), rel=1e-6)
    assert found.optimization.at_bound["c"] == pytest.approx(
        alone.optimization.at_bound["c"], rel=1e-3
    )


@pytest.mark.slow
def test_robust_losses_and_estimated_noise() -> None:
    recordings = [Recording(r.ts, r.observed, r.q0, r.v0) for r in recordings_of_swings()]
    options = {"recordings": recordings, "loss": Huber()}
    alone, found = (fitted(**options, **x) for x in ({}, {"initial_states": Shooting(0.6)}))
    assert found.converged
    errors = alone.uncertainty.standard_errors
    np.testing.assert_allclose((found.values - alone.values) / errors, 0.0, atol=2e-2)
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=1e-2)


@pytest.mark.slow
def test_integrals_of_states_join() -> None:
    """A position is held by the integral of a filtered error, which the force reads."""
    system = System(
        lambda q, v, t, p: 0.5 * v[0] ** 2,
        force=lambda q, v, t, p: jnp.stack([-p["k"] * q[1] - 3.0 * q[0] - p["c"] * v[0]]),
        coordinates=("x",), states=("error",), rates=lambda q, v, t, p: 8.0 * (q[0] - v[1]),
    )  # fmt: skip
    truth, start = {"k": 1.5, "c": 1.0}, ([1.0, 0.0], [0.0, 0.2])
    sol = simulate(system, *map(np.array, start), TS, truth, steps=FixedSteps(4))
    seen = np.stack([sol.q[:, 0], sol.v[:, 1]], axis=1)
    seen += np.random.default_rng(0).normal(0.0, 1e-3, seen.shape)
    recording = Recording(TS, seen, *start, weights=1e3)
    guess, options = {"k": 1.0, "c": 0.5}, {"steps": FixedSteps(4)}
    whole = fit(system, recording, guess, **options)
    found = fit(system, recording, guess, initial_states=Shooting(0.6), **options)
    assert found.converged
    errors = whole.uncertainty.standard_errors
    np.testing.assert_allclose((found.values - whole.values) / errors, 0.0, atol=1e-2)
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=1e-3)
