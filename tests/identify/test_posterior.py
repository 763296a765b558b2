"""The density of a fit, and samples of its posterior distribution."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

from jaxmech import FixedSteps, System, simulate
from jaxmech.identify import (
    AR1,
    Fit,
    Huber,
    Recording,
    Shooting,
    StudentT,
    fit,
    load_fit,
    posterior,
    save_fit,
)
from tests.identify.swings import BEGIN, FREE, NOISE, SWING, noisy, swings

STEPS = FixedSteps(1)
RNG = np.random.default_rng(0)
PAIR = [noisy(one, RNG) for one in swings()]


def fitted(**options: Any) -> Fit:
    recordings = options.pop("recordings", PAIR)
    return fit(SWING, recordings, BEGIN, **{"free": FREE, "steps": STEPS, **options})


@pytest.fixture(scope="module")
def found() -> Fit:
    return fitted(bounds={"c": (0, None)}, prior={"l": (0.5, 1e-3)})


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
        p = {name: np.asarray(x) for name, x in density.params(y).items()}
        total = -0.5 * ((p["l"] - 0.5) / 1e-3) ** 2 + y[0]  # c is an exponential of y[0]
        for one, change in zip(PAIR, y[2:].reshape(2, 2), strict=True):
            sol = simulate(SWING, one.q0 + change[:1], one.v0 + change[1:], one.ts, p, steps=STEPS)
            total -= 0.5 * float((((sol.q - one.observed) / NOISE) ** 2).sum())
        return float(total)

    logs = jax.jit(jax.vmap(found.log_density))(np.stack([density.best, moved]))
    np.testing.assert_allclose(
        logs[1] - logs[0], expected(moved) - expected(density.best), rtol=1e-6
    )
    gradient = jax.grad(found.log_density)(jnp.asarray(moved))
    for way in np.random.default_rng(1).normal(size=(2, 6)):
        h = 1e-6 * way
        numeric = (expected(moved + h) - expected(moved - h)) / 2e-6
        np.testing.assert_allclose(gradient @ way, numeric, rtol=1e-4, atol=1e-3)


def test_other_optimizers_find_the_same_minimum(found: Fit) -> None:
    density = found.density
    assert density is not None
    start = density.best + np.array([0.3, -0.05, 0.0, 0.0, 0.0, 0.0])
    result = least_squares(density.residuals, start, density.jacobian, xtol=1e-12, ftol=1e-12)
    np.testing.assert_allclose(density.numbers(result.x), found.values, rtol=1e-7)
    np.testing.assert_allclose(result.cost, found.optimization.history[-1], rtol=1e-9)
    assert not np.isfinite(float(found.log_density(density.best + 1e200)))


def test_estimated_noise_and_other_noise_in_the_density() -> None:
    light = [replace(one, weights=None) for one in PAIR]
    for options in ({}, {"noise": AR1()}, {"loss": Huber()}, {"loss": StudentT()}):
        one = fitted(recordings=light, **options)
        assert one.density is not None
        y = one.density.best
        slope = jax.grad(one.log_density)(jnp.asarray(y))
        curvature = np.diag(one.density.jacobian(y).T @ one.density.jacobian(y))
        # the fit is the maximum, in units of the errors
        assert np.abs(slope * one.noise.unit / np.sqrt(curvature)).max() < 0.02, options
        (moved,) = np.eye(6)[:1] * 0.01
        both = [np.concatenate([r.ravel() for r in one.residuals]) for _ in range(1)]
        assert np.isfinite(float(one.log_density(y + moved)))
        if not options:
            r = one.density.residuals(y + moved)
            expected = -0.5 * both[0].size * np.log((r @ r) / (both[0] @ both[0]))
            change = float(one.log_density(y + moved) - one.log_density(y))
            np.testing.assert_allclose(change, expected, rtol=1e-5)


def test_what_has_no_density(found: Fit, tmp_path: Any) -> None:
    loaded = load_fit(save_fit(found, tmp_path / "swing.npz"))
    with pytest.raises(ValueError, match="a file has no functions"):
        posterior(loaded)
    with pytest.raises(ValueError, match="loaded from a file has no density"):
        loaded.log_density(np.zeros(6))
    hard = fitted(horizon=Shooting(0.6))
    with pytest.raises(ValueError, match="must have no hard continuity"):
        posterior(hard)
    with pytest.raises(ValueError, match="`chains` must be a positive integer"):
        posterior(found, chains=0)


@pytest.mark.slow
def test_nearly_linear_and_far_from_linear() -> None:
    """Intervals of the fit where they are right, and the integral of the density where not."""
    near = fitted()
    sampled = posterior(near, chains=32, draws=200)
    assert sampled.r_hat.max() < 1.01
    assert sampled.effective.min() > 1000
    assert sampled.divergences == 0
    width = np.diff(near.uncertainty.interval())
    np.testing.assert_allclose(
        sampled.interval() / width, near.uncertainty.interval() / width, atol=0.04
    )
    dataset = sampled.to_xarray()
    assert dict(dataset.sizes) == {"chain": 32, "draw": 200}
    np.testing.assert_array_equal(dataset["l"], sampled.samples[..., 1])
    # hardly any friction, in 16 samples with much noise: the density ends at the bound
    system = System(
        lambda q, v, t, p: 0.5 * v @ v - 10.0 * q @ q,
        force=lambda q, v, t, p: -p["c"] * v,
        coordinates=("x",),
    )
    ts, truth = np.linspace(0.0, 3.0, 16), {"c": 0.02}
    clean = np.asarray(simulate(system, [1.0], [0.0], ts, truth, steps=FixedSteps(5)).q)
    observed = clean + 0.2 * np.random.default_rng(1).normal(size=clean.shape)
    one = Recording(ts, observed, [1.0], [0.0], 5.0)
    far = fit(
        system, one, {"c": 0.1}, bounds={"c": (0, None)}, steps=FixedSteps(5),
        initial_states="fixed",
    )  # fmt: skip
    sampled = posterior(far, chains=32)
    c = np.linspace(0.0, 1.0, 1001)
    swing = jax.vmap(lambda c: simulate(system, [1.0], [0.0], ts, {"c": c}, steps=FixedSteps(5)).q)
    squares = ((np.asarray(swing(jnp.asarray(c))) - observed) ** 2).sum((1, 2)) * 25
    shares = np.cumsum(np.exp(-0.5 * (squares - squares.min())))
    expected = np.interp([0.025, 0.975], shares / shares[-1], c)
    np.testing.assert_allclose(sampled.interval()[0], expected, atol=0.01)
    assert far.uncertainty.interval()[0, 0] < 0 < sampled.interval()[0, 0]
    assert sampled.interval()[0, 1] > 1.1 * far.uncertainty.interval()[0, 1]
