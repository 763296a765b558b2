"""The posterior density of a fit as a function of its unknowns."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmech import FixedSteps, simulate
from jaxmech.identify import Density, Fit, Huber
from tests.identify.swings import NOISE, SWING, fitted, noisy, swings

STEPS = FixedSteps(1)
RNG = np.random.default_rng(0)
PAIR = [noisy(one, RNG) for one in swings()]


def squares(density: Density, y: np.ndarray) -> float:
    """The squared residuals of all recordings, by `simulate`."""
    p, total = {name: np.asarray(x) for name, x in density.params(y).items()}, 0.0
    for one, change in zip(PAIR, y[2:].reshape(2, 2), strict=True):
        sol = simulate(SWING, one.q0 + change[:1], one.v0 + change[1:], one.ts, p, steps=STEPS)
        total += float((((sol.q - one.observed) / NOISE) ** 2).sum())
    return total


@pytest.fixture(scope="module")
def found() -> Fit:
    return fitted(PAIR, bounds={"c": (0, None)}, prior={"l": (0.5, 1e-3)})


def test_the_density_of_stated_noise(found: Fit) -> None:
    """Against sums over the recordings, of motions by `simulate`."""
    density = found.density
    assert density is not None
    assert density.names == (
        "c",
        "l",
        *(f"recording {k}, start {j}" for k in (1, 2) for j in (0, 1)),
    )
    moved = density.best + np.array([0.1, 1e-3, 2e-3, -1e-3, 1e-3, 0.0])

    def expected(y: np.ndarray) -> float:
        total = -0.5 * ((float(density.params(y)["l"]) - 0.5) / 1e-3) ** 2
        return total + y[0] - 0.5 * squares(density, y)  # c is an exponential of y[0]

    logs = jax.jit(jax.vmap(found.log_density))(np.stack([density.best, moved]))
    np.testing.assert_allclose(
        logs[1] - logs[0], expected(moved) - expected(density.best), rtol=1e-6
    )
    gradient = jax.grad(found.log_density)(jnp.asarray(moved))
    for way in np.random.default_rng(1).normal(size=(2, 6)):
        h = 1e-6 * way
        numeric = (expected(moved + h) - expected(moved - h)) / 2e-6
        np.testing.assert_allclose(gradient @ way, numeric, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_estimated_noise_and_other_noise_in_the_density() -> None:
    light = [replace(one, weights=None) for one in PAIR]
    for options in ({}, {"loss": Huber()}):
        one = fitted(light, **options)
        assert one.density is not None
        y = one.density.best
        slope = np.asarray(jax.grad(one.log_density)(jnp.asarray(y)))[:2]
        by_y = np.diag(jax.jacfwd(one.density.numbers)(jnp.asarray(y)))
        # the fit is the maximum, in units of the errors
        assert np.abs(slope * one.uncertainty.standard_errors / by_y).max() < 0.05, options
        moved = y + 0.01 * np.eye(6)[0]
        change = float(one.log_density(moved) - one.log_density(y))
        assert np.isfinite(change)
        if not options:
            count = sum(recording.count for recording in PAIR)
            ratio = squares(one.density, moved) / squares(one.density, y)
            np.testing.assert_allclose(change, -0.5 * count * np.log(ratio), rtol=1e-5)
