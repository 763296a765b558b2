"""A delay in segments: of a cart with a pole, with two sensors that have clocks of their own."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmech as jm
from jaxmech.identify import Fit, Recording, Shooting, fit

TRUTH = {"M": 1.0, "c": 0.5, "d": 0.02, "delay": 0.7, "l": 0.5, "lag": 0.03, "m": 0.3}
GUESS = {**TRUTH, "M": 1.2, "c": 0.3, "delay": 0.6, "l": 0.45, "lag": 0.0}
LENGTH = 0.5  # of a segment; the delay is longer
NOISE = np.array([5e-4, 5e-3])


def _lagrangian(q: Any, v: Any, t: Any, p: Any) -> Any:
    m, arm = p["m"], p["l"]
    turn = m * arm * v[0] * v[1] * jnp.cos(q[1]) + 0.5 * m * arm**2 * v[1] ** 2
    return 0.5 * (p["M"] + m) * v[0] ** 2 + turn + m * 9.81 * arm * jnp.cos(q[1])


def _force(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([p["push"](t - p["delay"]) - p["c"] * v[0], -p["d"] * v[1]])


def _sensors(q: Any, v: Any, t: Any, p: Any) -> Any:
    """The second is late by a lag."""
    return jnp.stack([q[0], q[1] - p["lag"] * v[1]])


CART_POLE = jm.System(_lagrangian, force=_force, coordinates=("x", "theta"))


def recorded() -> Recording:
    """The position at 50 Hz, the angle at 33 Hz between these times, the force at 20 Hz."""
    rng = np.random.default_rng(0)
    of_x, of_angle = np.arange(251) / 50, 0.007 + 0.03 * np.arange(166)
    ts = np.union1d(of_x, of_angle)
    steps = np.convolve(5 * rng.normal(size=145), np.ones(5) / 5, "valid")
    push = jm.Signal(np.linspace(-1.0, 6.0, 141), steps, "linear")
    start = [0.0, 0.4], [0.0, 0.0]
    sol = jm.simulate(CART_POLE, *start, ts, {**TRUTH, "push": push}, steps=jm.FixedSteps(8))
    ideal = np.asarray(_sensors(sol.q.T, sol.v.T, 0.0, TRUTH)).T
    clocks = np.stack([np.isin(ts, of_x), np.isin(ts, of_angle)], axis=1)
    observed = np.where(clocks, ideal + NOISE * rng.normal(size=ideal.shape), np.nan)
    return Recording(ts, observed, *start, 1 / NOISE, inputs={"push": push})


def fitted(states: Any) -> Fit:
    return fit(
        CART_POLE,
        recorded(),
        GUESS,
        observe=_sensors,
        initial_states=states,
        steps=jm.FixedSteps(2),
    )


@pytest.fixture(scope="module")
def whole() -> Fit:
    return fitted("free")


@pytest.mark.slow
def test_segments_that_join_give_the_fit_of_the_whole(whole: Fit) -> None:
    found = fitted(Shooting(LENGTH))
    for one in (whole, found):
        assert one.converged
        assert one.warnings == ()
    errors = whole.uncertainty.standard_errors
    truth = np.array([TRUTH[name] for name in whole.names])
    assert np.all(np.abs(whole.values - truth) < 4 * errors)
    np.testing.assert_allclose(found.values, whole.values, atol=0.02 * errors.min())
    np.testing.assert_allclose(found.uncertainty.standard_errors, errors, rtol=1e-3)
