"""Sensors with parameters of their own, on motions whose fits have known answers.

A thrown body, x = x0 + v0 t - g t^2 / 2, is exact in RK4. What a sensor with scale, offset and
delay shows of it is known in closed form, and linear in the first two.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj

from jaxmech import Holonomic, System, acceleration
from jaxmech.identify import Fit, MultiStart, Recording, TrustRegion, fit

TIMES = np.arange(21) / 10
X0, V0, G = 1.0, 6.0, 9.81
TRUTH = {"g": G, "sensor": {"delay": 0.03, "offset": 0.2, "scale": 1.1}}
BEGIN = {"g": G, "sensor": {"delay": 0.0, "offset": 0.0, "scale": 1.0}}


def thrown(t: Any) -> Any:
    return X0 + V0 * t - G * t**2 / 2


def _lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * v @ v - p["g"] * q[0]


def shown(q: Any, v: Any, t: Any, p: Any) -> Any:
    sensor = p["sensor"]
    earlier = q - sensor["delay"] * v - p["g"] * sensor["delay"] ** 2 / 2
    return sensor["scale"] * earlier + sensor["offset"]


THROWN = System(_lagrangian, coordinates=("x",))


def throw(observed: Any, **fields: Any) -> Recording:
    return Recording(TIMES, observed, [X0], [V0], **fields)


@pytest.fixture(scope="module")
def observed() -> np.ndarray:
    noise = np.random.default_rng(2).normal(0.0, 0.05, TIMES.size)
    return 1.1 * thrown(TIMES) + 0.2 + noise


def linear(observed: np.ndarray, **options: Any) -> Fit:
    """Offset and scale, in which the sensor is linear."""
    free = ["sensor.offset", "sensor.scale"]
    weighted = throw(observed, weights=20.0)
    known = "fixed"  # the throw, whose start an offset or a delay could be
    return fit(THROWN, weighted, BEGIN, observe=shown, free=free, initial_states=known, **options)


@pytest.mark.slow
def test_offset_scale_and_delay_are_found_as_a_branch_of_the_parameters() -> None:
    exact = TRUTH["sensor"]["scale"] * thrown(TIMES - TRUTH["sensor"]["delay"]) + 0.2
    found = fit(THROWN, throw(exact), BEGIN, observe=shown, free=["sensor"], initial_states="fixed")
    assert found.names == ("sensor.delay", "sensor.offset", "sensor.scale")
    np.testing.assert_allclose(found.values, list(TRUTH["sensor"].values()), rtol=1e-8)
    assert found.params["g"] == G


@pytest.mark.slow
def test_a_linear_fit_is_a_regression(observed: np.ndarray) -> None:
    found = linear(observed)
    X = np.stack([np.ones_like(TIMES), thrown(TIMES)], axis=1)
    wanted, *_ = np.linalg.lstsq(X, observed)
    np.testing.assert_allclose(found.values, wanted, rtol=1e-7)
    covariance = 0.05**2 * np.linalg.inv(X.T @ X)
    np.testing.assert_allclose(found.uncertainty["white noise"].matrix, covariance, rtol=1e-8)
    np.testing.assert_allclose(found.residuals[0][:, 0], X @ wanted - observed, atol=1e-9)
    squares = ((X @ wanted - observed) / 0.05) ** 2
    np.testing.assert_allclose(found.optimization.history[-1], squares.sum() / 2, rtol=1e-9)
    np.testing.assert_allclose(
        found.noise.size, np.sqrt(squares.sum() / (len(TIMES) - 2)), rtol=1e-9
    )


@pytest.mark.slow
def test_a_prior_gives_the_weighted_mean(observed: np.ndarray) -> None:
    """Bayes' rule of two normal distributions."""
    mean, sd = 1.3, 0.004
    found = linear(observed, prior={"sensor.scale": (mean, sd)})
    X = np.stack([np.ones_like(TIMES), thrown(TIMES)], axis=1)
    information = X.T @ X / 0.05**2 + np.diag([0.0, 1 / sd**2])
    wanted = np.linalg.solve(information, X.T @ observed / 0.05**2 + [0.0, mean / sd**2])
    np.testing.assert_allclose(found.values, wanted, rtol=1e-7)
    np.testing.assert_allclose(found.information, information, rtol=1e-8)
    covariance = found.uncertainty["white noise"].matrix
    np.testing.assert_allclose(covariance, np.linalg.inv(information), rtol=1e-8)


def wave(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.cos(p["k"] * t)[None]


@pytest.mark.slow
def test_multistart_finds_the_global_minimum() -> None:
    """The squared error between two waves has a local minimum for every period of shift."""
    one = throw(np.cos(5.0 * TIMES))
    begin = {"g": G, "k": 12.0}

    def started(**options: Any) -> Fit:
        return fit(THROWN, one, begin, observe=wave, free=["k"], **options)

    alone = started()
    assert alone.converged
    assert abs(alone.params["k"] - 5.0) > 1.0
    best = started(optimizer=TrustRegion(starts=MultiStart(count=64, spread=0.5, refine=3)))
    np.testing.assert_allclose(abs(best.params["k"]), 5.0, rtol=1e-6)
    again = started(optimizer=TrustRegion(starts=MultiStart(count=64, spread=0.5, refine=3)))
    assert again.values == best.values


def _rod(q: Any, t: Any, p: Any) -> Any:
    return (q @ q - p["l"] ** 2) / 2


def _hanging(q: Any, v: Any, t: Any, p: Any) -> Any:
    return 0.5 * p["m"] * v @ v - p["m"] * p["g"] * q[1]


PENDULUM = System(_hanging, [Holonomic(_rod, name="rod")], coordinates=("x", "y"))


def accelerometer(q: Any, v: Any, t: Any, p: Any) -> Any:
    """Along the rod, in the bob, with an offset; it does not feel the weight."""
    felt = acceleration(PENDULUM, q, v, t, p).qdd + jnp.stack([jnp.zeros(()), p["g"]])
    return (felt @ q / p["l"] + p["offset"])[None]


def hung(q0: Any, v0: Any, p: Any) -> Any:
    """The state for the angle of the release, at rest."""
    q = p["l"] * jnp.stack([jnp.sin(q0[0]), -jnp.cos(q0[0])])
    return q, jnp.zeros(2)


@pytest.mark.slow
def test_an_accelerometer_determines_gravity_and_length() -> None:
    """It shows -(l w^2 + g cos(theta)), by the energy -g (3 cos(theta) - 2 cos(theta0)).

    sin(theta / 2) = k cd(sqrt(g / l) t), k = sin(theta0 / 2), is the motion from rest.
    """
    truth = {"g": 9.81, "l": 0.5, "m": 1.0, "offset": 0.05}
    begin = truth | {"g": 9.5, "l": 0.55, "offset": 0.0}
    ts, start = np.arange(41) / 50, 1.0
    k = np.sin(start / 2)
    _, cn, dn, _ = ellipj(np.sqrt(truth["g"] / truth["l"]) * ts, k**2)
    cosine = 1 - 2 * (k * cn / dn) ** 2
    shown = -truth["g"] * (3 * cosine - 2 * np.cos(start)) + truth["offset"]
    found = fit(
        PENDULUM,
        Recording(ts, shown, [start], [0.0]),
        begin,
        observe=accelerometer,
        start=hung,
        free=["g", "l", "offset"],
        initial_states="fixed",
    )
    np.testing.assert_allclose(found.values, [9.81, 0.5, 0.05], rtol=1e-4)
    assert np.max(found.errors) < 1e-4
